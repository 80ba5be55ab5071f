/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_get.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"
#include "http/http_address.h"
#include "http/http_easy.h"
#include "http/http_map.h"

enum { WAIT_MS = 1000, RANGE_SIZE = 64, BUFFER_SIZE = 512 << 10 };

struct http_get {
    CURLM *multi;
    CURL *easy;
    struct http_get_options o;
    const struct http_get_request *request; /* the one in hand */
    bool heard;                             /* a header has come */
    bool headed;                            /* head() was called */
    bool refused;
    bool misled; /* the URL leads where it must not */
    bool moved;  /* something came since the clock was looked at */
};

struct http_get *http_get_new(const struct http_get_options *o)
{
    struct http_get *g = mem_calloc(1, sizeof *g);
    g->o = *o;
    if (g->o.connect_ms <= 0)
        g->o.connect_ms = HTTP_GET_CONNECT_MS;
    if (g->o.header_ms <= 0)
        g->o.header_ms = HTTP_HEADER_MS;
    if (g->o.silence_ms <= 0)
        g->o.silence_ms = HTTP_SILENCE_MS;
    g->easy = http_easy_new();
    g->multi = curl_multi_init();
    if (g->multi == NULL)
        abort();
    return g;
}

void http_get_close(struct http_get *g)
{
    if (g == NULL)
        return;
    curl_easy_cleanup(g->easy);
    (void)curl_multi_cleanup(g->multi);
    free(g);
}

/* --- libcurl's calls --- */

static size_t on_header(const char *data, size_t size, size_t n, void *ctx)
{
    struct http_get *g = ctx;
    (void)data;
    g->heard = true;
    g->moved = true;
    return size * n;
}

/* Tells head() once, when all headers are there. */
static bool told_head(struct http_get *g)
{
    long status = 0;
    curl_off_t length = -1;

    if (g->headed)
        return !g->refused;
    g->headed = true;
    (void)curl_easy_getinfo(g->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(g->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    struct http_head head = {
        .status = (int)status,
        .length = length,
        .retry_after_ms = http_easy_retry_after_ms(g->easy),
        .content_range = http_easy_answer_header(g->easy, "Content-Range"),
        .content_encoding = http_easy_answer_header(g->easy, "Content-Encoding"),
        .rate_limit = http_easy_answer_header(g->easy, "RateLimit"),
    };
    g->refused = g->request->head(g->request->ctx, &head) != 0;
    return !g->refused;
}

static size_t on_data(char *data, size_t size, size_t n, void *ctx)
{
    struct http_get *g = ctx;
    g->moved = true;
    if (!told_head(g))
        return 0;
    g->refused = g->request->data(g->request->ctx, data, size * n) != 0;
    g->moved = true;
    return g->refused ? 0 : size * n; /* 0: curl gives up with CURLE_WRITE_ERROR */
}

static curl_socket_t on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct http_get *g = ctx;
    const enum http_peer peer = g->request->peer;
    (void)purpose;
    if ((peer == HTTP_PEER_LOOPBACK && !address_is_loopback(&a->addr)) ||
        (peer == HTTP_PEER_FAR && address_is_local(&a->addr))) {
        g->misled = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* --- a call --- */

static void set_range(struct http_get *g, const struct http_get_request *r)
{
    char range[RANGE_SIZE];
    if (r->size <= 0)
        return;
    (void)str_format(range, sizeof range, "%" PRId64 "-%" PRId64, r->first, r->first + r->size - 1);
    http_easy_text(g->easy, CURLOPT_RANGE, range);
}

static void set_request(
    struct http_get *g, const struct http_get_request *r, struct curl_slist **headers)
{
    const struct http_options policy = { .user_agent = g->o.user_agent,
        .ca_file = g->o.ca_file,
        .connect_ms = g->o.connect_ms,
        .stop_fd = -1 };
    http_easy_policy(g->easy, &policy);
    http_easy_text(g->easy, CURLOPT_URL, r->url);
    http_easy_long(g->easy, CURLOPT_BUFFERSIZE, BUFFER_SIZE);
    http_easy_must(curl_easy_setopt(g->easy, CURLOPT_HEADERFUNCTION, on_header));
    http_easy_must(curl_easy_setopt(g->easy, CURLOPT_HEADERDATA, g));
    http_easy_must(curl_easy_setopt(g->easy, CURLOPT_WRITEFUNCTION, on_data));
    http_easy_must(curl_easy_setopt(g->easy, CURLOPT_WRITEDATA, g));
    http_easy_must(curl_easy_setopt(g->easy, CURLOPT_OPENSOCKETFUNCTION, on_open));
    http_easy_must(curl_easy_setopt(g->easy, CURLOPT_OPENSOCKETDATA, g));
    set_range(g, r);
    http_easy_header(headers, "Accept-Encoding", "identity");
    if (r->bearer != NULL)
        http_easy_bearer(headers, r->bearer);
    http_easy_must(curl_easy_setopt(g->easy, CURLOPT_HTTPHEADER, *headers));
}

/* Whether a bound has passed since something last came: then how the call ends. */
static bool is_late(const struct http_get *g, int64_t since_ns, enum http_get_end *end)
{
    long connected = 0;
    const int64_t ms = (clock_mono_ns() - since_ns) / NS_PER_MS;

    if (g->heard) {
        *end = HTTP_GET_SILENT;
        return ms >= g->o.silence_ms;
    }
    (void)curl_easy_getinfo(g->easy, CURLINFO_REQUEST_SIZE, &connected);
    *end = HTTP_GET_NO_HEADER;
    return ms >= g->o.header_ms + (connected > 0 ? 0 : g->o.connect_ms);
}

static int wait_ms(const struct http_get *g)
{
    const int64_t least = g->heard ? g->o.silence_ms : g->o.header_ms;
    return least < WAIT_MS ? (int)least : WAIT_MS;
}

/* Runs the transfer to its end, to a bound or until stop_fd is readable. CURLE_OK may mean that *end says more. */
static CURLcode run(struct http_get *g, enum http_get_end *end)
{
    struct curl_waitfd stop = { .fd = g->o.stop_fd, .events = CURL_WAIT_POLLIN };
    const unsigned extra = stop.fd >= 0 ? 1 : 0;
    int64_t since_ns = clock_mono_ns();
    for (;;) {
        int running = 0;
        g->moved = false;
        if (curl_multi_perform(g->multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        if (running == 0)
            return http_easy_result(g->multi);
        if (g->moved)
            since_ns = clock_mono_ns();
        if (extra > 0 && wait_fd(stop.fd, POLLIN, 0) == 1) {
            *end = HTTP_GET_STOPPED;
            return CURLE_OK;
        }
        if (is_late(g, since_ns, end))
            return CURLE_OK;
        *end = HTTP_GET_WHOLE;
        if (curl_multi_poll(g->multi, &stop, extra, wait_ms(g), NULL) != CURLM_OK)
            return CURLE_FAILED_INIT;
    }
}

static enum http_get_end end_of(const struct http_get *g, CURLcode code)
{
    if (g->misled)
        return HTTP_GET_BAD_URL;
    if (g->refused)
        return HTTP_GET_REFUSED;
    switch ((int)code) {
    case CURLE_PARTIAL_FILE:
        return HTTP_GET_SHORT;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return HTTP_GET_RESET;
    default:
        break;
    }
    const enum err_code kind = http_err_code(code);
    if (kind == ERR_INVALID)
        return HTTP_GET_BAD_URL;
    /* of libcurl's own bounds only that of connecting is set */
    return kind == ERR_UNAVAILABLE || kind == ERR_TIMEOUT ? HTTP_GET_CONNECT : HTTP_GET_FAILED;
}

static int say(enum http_get_end end, CURLcode code, struct err *e)
{
    switch (end) {
    case HTTP_GET_STOPPED:
        return err_set(e, ERR_UNAVAILABLE, "stopped");
    case HTTP_GET_NO_HEADER:
        return err_set(e, ERR_TIMEOUT, "no header came in time");
    case HTTP_GET_SILENT:
        return err_set(e, ERR_TIMEOUT, "nothing came for too long");
    case HTTP_GET_REFUSED:
        return err_set(e, ERR_INVALID, "the answer was not taken");
    case HTTP_GET_SHORT:
        return err_set(e, ERR_UNAVAILABLE, "the body ended early");
    case HTTP_GET_BAD_URL:
        return err_set(e, ERR_INVALID, "the URL cannot be used, or leads where it must not");
    case HTTP_GET_WHOLE:
    case HTTP_GET_CONNECT:
    case HTTP_GET_RESET:
    case HTTP_GET_FAILED:
    default:
        return err_set(e, http_err_code(code), "%s", curl_easy_strerror(code));
    }
}

int http_get(
    struct http_get *g, const struct http_get_request *r, enum http_get_end *end, struct err *e)
{
    cleanup_slist struct curl_slist *headers = NULL;

    *end = HTTP_GET_BAD_URL;
    if (r->bearer != NULL && !http_easy_is_one_line(r->bearer))
        return err_set(e, ERR_INVALID, "the token holds a control character");
    g->request = r;
    g->heard = g->headed = g->refused = g->misled = false;
    set_request(g, r, &headers);
    *end = HTTP_GET_WHOLE;
    CURLcode code = CURLE_FAILED_INIT;
    if (curl_multi_add_handle(g->multi, g->easy) == CURLM_OK)
        code = run(g, end);
    if (*end == HTTP_GET_WHOLE && code == CURLE_OK && !told_head(g))
        *end = HTTP_GET_REFUSED;
    if (*end == HTTP_GET_WHOLE && code != CURLE_OK)
        *end = end_of(g, code);
    (void)curl_multi_remove_handle(g->multi, g->easy);
    g->request = NULL;
    return *end == HTTP_GET_WHOLE ? 0 : say(*end, code, e);
}
