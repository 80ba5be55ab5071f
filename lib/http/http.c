/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http.h"

#include <curl/curl.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"
#include "http/http_easy.h"
#include "http/http_map.h"

enum { SCOPE_MAX = 256, WAIT_MS = 1000 };

struct http {
    CURLM *multi; /* holds the kept connections */
    CURL *easy;
    struct http_options options;
};

struct http *http_new(const struct http_options *o)
{
    struct http *h = mem_calloc(1, sizeof *h);
    h->options = *o;
    if (h->options.timeout_ms <= 0)
        h->options.timeout_ms = HTTP_TIMEOUT_MS;
    if (h->options.connect_ms <= 0)
        h->options.connect_ms = HTTP_CONNECT_MS;
    h->easy = http_easy_new();
    h->multi = curl_multi_init();
    if (h->multi == NULL)
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

static void set_body(struct http *h, const char *body, size_t size)
{
    http_easy_must(curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)size));
    http_easy_must(curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, body));
}

static void set_aws(struct http *h, const struct http_request *r, struct curl_slist **headers)
{
    cleanup_buf struct buf scope = BUF_INIT(SCOPE_MAX);
    buf_printf(&scope, "aws:amz:%s:%s", r->aws->region, r->aws->service);
    http_easy_text(h->easy, CURLOPT_AWS_SIGV4, scope.data);
    http_easy_text(h->easy, CURLOPT_USERNAME, r->aws->key_id);
    http_easy_text(h->easy, CURLOPT_PASSWORD, r->secret);
    if (r->aws->session_token[0] != '\0')
        http_easy_header(headers, "X-Amz-Security-Token", r->aws->session_token);
}

static void set_auth(struct http *h, const struct http_request *r, struct curl_slist **headers)
{
    switch (r->auth) {
    case HTTP_AUTH_NONE:
        break;
    case HTTP_AUTH_BEARER:
        http_easy_bearer(headers, r->secret);
        break;
    case HTTP_AUTH_BASIC_USER:
        http_easy_long(h->easy, CURLOPT_HTTPAUTH, (int64_t)CURLAUTH_BASIC);
        http_easy_text(h->easy, CURLOPT_USERNAME, r->secret);
        http_easy_text(h->easy, CURLOPT_PASSWORD, "");
        break;
    case HTTP_AUTH_AWS:
        set_aws(h, r, headers);
        break;
    default:
        abort();
    }
}

/* headers and *out outlive the call. */
static void set_request(struct http *h, const struct http_request *r, int64_t timeout_ms,
    struct curl_slist **headers, struct http_answer *out)
{
    http_easy_text(h->easy, CURLOPT_URL, r->url);
    http_easy_text(h->easy, CURLOPT_CUSTOMREQUEST, r->method);
    http_easy_long(h->easy, CURLOPT_TIMEOUT_MS, timeout_ms);
    http_easy_must(curl_easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, take_body));
    http_easy_must(curl_easy_setopt(h->easy, CURLOPT_WRITEDATA, &out->body));
    http_easy_long(h->easy, CURLOPT_FRESH_CONNECT, r->once ? 1L : 0L);
    set_auth(h, r, headers);
    http_easy_header(headers, "Accept", r->accept == NULL ? "application/json" : r->accept);
    if (r->header != NULL)
        http_easy_header(headers, r->header, r->header_value);
    if (r->body != NULL) {
        set_body(h, r->body, r->body_size);
        http_easy_header(headers, "Content-Type",
            r->content_type == NULL ? "application/octet-stream" : r->content_type);
        /* Signed, it would be missed where it has no value; and libcurl sends it with a megabyte or more. */
        if (r->auth != HTTP_AUTH_AWS)
            http_easy_header(headers, "Expect", "");
    } else if (strcmp(r->method, "POST") == 0 || strcmp(r->method, "PUT") == 0) {
        set_body(h, "", 0); /* Content-Length: 0 */
        http_easy_header(headers, "Content-Type", "");
    }
    http_easy_must(curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, *headers));
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
            return http_easy_result(h->multi);
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
    (void)curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(h->easy, CURLINFO_REQUEST_SIZE, &sent);
    out->status = (int)status;
    out->sent = sent > 0 ? HTTP_SENT : HTTP_NOT_SENT;
    out->retry_after_ms = http_easy_retry_after_ms(h->easy);
    const char *id = http_easy_answer_header(h->easy, "x-request-id");
    if (id != NULL)
        http_quote(out->request_id, sizeof out->request_id, id, NULL);
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
    if (r->auth != HTTP_AUTH_NONE && !http_easy_is_one_line(r->secret))
        return err_set(e, ERR_INVALID, "the secret holds a control character");
    if (r->header != NULL && !http_easy_is_one_line(r->header_value))
        return err_set(e, ERR_INVALID, "a header holds a control character");
    if (r->auth == HTTP_AUTH_AWS &&
        (!http_easy_is_one_line(r->aws->key_id) || !http_easy_is_one_line(r->aws->session_token) ||
            strchr(r->url, '?') != NULL))
        return err_set(e, ERR_INVALID, "the request cannot be signed");
    if (timeout_ms < 0)
        return err_set(e, ERR_TIMEOUT, "no time left");

    http_easy_policy(h->easy, &h->options);
    set_request(h, r, timeout_ms, &headers, out);
    CURLcode code = perform(h, &out->stopped);
    read_answer(h, out);
    if (code == CURLE_OK)
        return 0;
    const bool too_large = out->body.overflow;
    out->status = 0; /* what came of it is not to be trusted */
    buf_clear(&out->body);
    if (too_large)
        return err_set(
            e, http_err_code(code), "the answer is larger than %zu bytes", out->body.max);
    if (out->stopped)
        return err_set(e, ERR_UNAVAILABLE, "stopped");
    return err_set(e, http_err_code(code), "%s", curl_easy_strerror(code));
}
