/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http.h"

#include <ctype.h>
#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"
#include "http/http_map.h"

enum { WAIT_MS = 1000, RETRY_AFTER_MAX_S = 3600, HEADER_MAX = 8192 };

struct http {
    CURLM *multi; /* holds the kept connections */
    CURL *easy;
    struct http_options options;
};

static void slist_free_p(struct curl_slist **list)
{
    curl_slist_free_all(*list);
}
#define cleanup_slist __attribute__((cleanup(slist_free_p)))

static void global_init(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        abort();
}

struct http *http_new(const struct http_options *o)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, global_init);
    struct http *h = mem_calloc(1, sizeof *h);
    h->options = *o;
    if (h->options.timeout_ms <= 0)
        h->options.timeout_ms = HTTP_TIMEOUT_MS;
    if (h->options.connect_ms <= 0)
        h->options.connect_ms = HTTP_CONNECT_MS;
    h->multi = curl_multi_init();
    h->easy = curl_easy_init();
    if (h->multi == NULL || h->easy == NULL)
        abort();
    return h;
}

void http_close(struct http *h)
{
    if (h == NULL)
        return;
    curl_easy_cleanup(h->easy);
    (void)curl_multi_cleanup(h->multi);
    free(h);
}

void http_answer_fini(struct http_answer *a)
{
    buf_free(&a->body);
}

static size_t take_body(char *data, size_t size, size_t n, void *ctx)
{
    struct buf *body = ctx;
    buf_add(body, data, size * n);
    return body->overflow ? 0 : size * n; /* 0: curl gives up with CURLE_WRITE_ERROR */
}

/* An option that is refused is a defect of ours. */
static void must(CURLcode code)
{
    if (code != CURLE_OK)
        abort();
}

static void set_long(struct http *h, CURLoption option, int64_t value)
{
    must(curl_easy_setopt(h->easy, option, (long)value));
}

static void set_text(struct http *h, CURLoption option, const char *text)
{
    must(curl_easy_setopt(h->easy, option, text));
}

static void set_body(struct http *h, const char *body, size_t size)
{
    must(curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)size));
    must(curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, body));
}

/* What holds for every call. */
static void set_policy(struct http *h)
{
    const struct http_options *o = &h->options;
    curl_easy_reset(h->easy);
    set_long(h, CURLOPT_NOSIGNAL, 1L);
    set_text(h, CURLOPT_PROTOCOLS_STR, "http,https");
    set_long(h, CURLOPT_FOLLOWLOCATION, 0L);
    set_long(h, CURLOPT_MAXREDIRS, 0L);
    set_long(h, CURLOPT_SSL_VERIFYPEER, 1L);
    set_long(h, CURLOPT_SSL_VERIFYHOST, 2L);
    set_long(h, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    set_long(h, CURLOPT_CONNECTTIMEOUT_MS, o->connect_ms);
    set_text(h, CURLOPT_USERAGENT, str_empty(o->user_agent) ? "weighbridge" : o->user_agent);
    if (!str_empty(o->ca_file))
        set_text(h, CURLOPT_CAINFO, o->ca_file);
    if (!str_empty(o->unix_socket))
        set_text(h, CURLOPT_UNIX_SOCKET_PATH, o->unix_socket);
}

static void add_header(struct curl_slist **list, const char *name, const char *value)
{
    cleanup_buf struct buf line = BUF_INIT(HEADER_MAX);
    buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line.data);
    if (longer == NULL)
        abort();
    explicit_bzero(line.data, line.len);
    *list = longer;
}

static void set_auth(struct http *h, const struct http_request *r, struct curl_slist **headers)
{
    cleanup_buf struct buf value = BUF_INIT(HEADER_MAX);
    switch (r->auth) {
    case HTTP_AUTH_NONE:
        break;
    case HTTP_AUTH_BEARER:
        buf_printf(&value, "Bearer %s", r->secret);
        add_header(headers, "Authorization", value.data);
        explicit_bzero(value.data, value.len);
        break;
    case HTTP_AUTH_BASIC_USER:
        set_long(h, CURLOPT_HTTPAUTH, (int64_t)CURLAUTH_BASIC);
        set_text(h, CURLOPT_USERNAME, r->secret);
        set_text(h, CURLOPT_PASSWORD, "");
        break;
    default:
        abort();
    }
}

/* headers and *out outlive the call. */
static void set_request(struct http *h, const struct http_request *r, int64_t timeout_ms,
    struct curl_slist **headers, struct http_answer *out)
{
    set_text(h, CURLOPT_URL, r->url);
    set_text(h, CURLOPT_CUSTOMREQUEST, r->method);
    set_long(h, CURLOPT_TIMEOUT_MS, timeout_ms);
    must(curl_easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, take_body));
    must(curl_easy_setopt(h->easy, CURLOPT_WRITEDATA, &out->body));
    set_long(h, CURLOPT_FRESH_CONNECT, r->once ? 1L : 0L);
    set_auth(h, r, headers);
    add_header(headers, "Accept", "application/json");
    if (r->body != NULL) {
        set_body(h, r->body, r->body_size);
        add_header(headers, "Content-Type",
            r->content_type == NULL ? "application/octet-stream" : r->content_type);
        add_header(headers, "Expect", "");
    } else if (strcmp(r->method, "POST") == 0 || strcmp(r->method, "PUT") == 0) {
        set_body(h, "", 0); /* Content-Length: 0 */
        add_header(headers, "Content-Type", "");
    }
    must(curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, *headers));
}

/* Text that cannot break out of its header line. */
static bool is_one_line(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (iscntrl((unsigned char)*p))
            return false;
    }
    return true;
}

static CURLcode result_of(CURLM *multi)
{
    int left = 0;
    const CURLMsg *msg = curl_multi_info_read(multi, &left);
    return msg != NULL && msg->msg == CURLMSG_DONE ? msg->data.result : CURLE_FAILED_INIT;
}

/* Runs the transfer to its end, or until stop_fd is readable. */
static CURLcode transfer(struct http *h, bool *stopped)
{
    struct curl_waitfd stop = { .fd = h->options.stop_fd, .events = CURL_WAIT_POLLIN };
    const unsigned extra = stop.fd >= 0 ? 1 : 0;
    for (;;) {
        int running = 0;
        if (curl_multi_perform(h->multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        if (running == 0)
            return result_of(h->multi);
        if (extra > 0 && wait_fd(stop.fd, POLLIN, 0) == 1) {
            *stopped = true;
            return CURLE_ABORTED_BY_CALLBACK;
        }
        if (curl_multi_poll(h->multi, &stop, extra, WAIT_MS, NULL) != CURLM_OK)
            return CURLE_FAILED_INIT;
    }
}

static CURLcode perform(struct http *h, bool *stopped)
{
    if (curl_multi_add_handle(h->multi, h->easy) != CURLM_OK)
        return CURLE_FAILED_INIT;
    CURLcode code = transfer(h, stopped);
    (void)curl_multi_remove_handle(h->multi, h->easy);
    return code;
}

static void read_answer(struct http *h, struct http_answer *out)
{
    long status = 0;
    long sent = 0;
    curl_off_t retry_s = 0;
    struct curl_header *id = NULL;
    (void)curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(h->easy, CURLINFO_REQUEST_SIZE, &sent);
    (void)curl_easy_getinfo(h->easy, CURLINFO_RETRY_AFTER, &retry_s);
    out->status = (int)status;
    out->sent = sent > 0 ? HTTP_SENT : HTTP_NOT_SENT;
    if (retry_s > RETRY_AFTER_MAX_S)
        retry_s = RETRY_AFTER_MAX_S;
    out->retry_after_ms = retry_s > 0 ? retry_s * MS_PER_S : 0;
    if (curl_easy_header(h->easy, "x-request-id", 0, CURLH_HEADER, -1, &id) == CURLHE_OK)
        http_quote(out->request_id, sizeof out->request_id, id->value, NULL);
}

static void clear_answer(struct http_answer *out, size_t body_max)
{
    buf_clear(&out->body);
    out->body.max = body_max;
    out->status = 0;
    out->sent = HTTP_NOT_SENT;
    out->stopped = false;
    out->retry_after_ms = 0;
    out->request_id[0] = '\0';
}

int http_call(struct http *h, const struct http_request *r, struct http_answer *out, struct err *e)
{
    cleanup_slist struct curl_slist *headers = NULL;
    const int64_t timeout_ms = r->timeout_ms != 0 ? r->timeout_ms : h->options.timeout_ms;
    clear_answer(out, r->body_max > 0 ? r->body_max : HTTP_BODY_MAX);
    if (r->auth != HTTP_AUTH_NONE && !is_one_line(r->secret))
        return err_set(e, ERR_INVALID, "the secret holds a control character");
    if (timeout_ms < 0)
        return err_set(e, ERR_TIMEOUT, "no time left");

    set_policy(h);
    set_request(h, r, timeout_ms, &headers, out);
    CURLcode code = perform(h, &out->stopped);
    read_answer(h, out);
    if (code == CURLE_OK)
        return 0;
    out->status = 0; /* what came of it is not to be trusted */
    buf_clear(&out->body);
    if (out->stopped)
        return err_set(e, ERR_UNAVAILABLE, "stopped");
    return err_set(e, http_err_code(code), "%s", curl_easy_strerror(code));
}
