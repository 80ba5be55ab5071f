/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/publish_call.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

/* A body has this long, and a second more for each so many bytes. */
enum { CALL_MS = 60000, SLOWEST_BYTES_PER_MS = 128, SAID_MAX = 160, URL_SIZE = 1280 };

int publisher_begin(
    struct publisher *p, const struct publish_options *o, const struct manifest *m, struct err *e)
{
    const size_t size = strlen(o->url);
    const char *slash = size > 0 && o->url[size - 1] == '/' ? "" : "/";

    *p = (struct publisher){ .options = o };
    if (!str_starts(o->url, "https://") && !str_starts(o->url, "http://"))
        return err_set(e, ERR_INVALID, "the URL: https://HOST");
    if (str_format(p->base, sizeof p->base, "%s%sapi/v1/artifacts/%s/versions/%s", o->url, slash,
            m->artifact, m->version) < 0)
        return err_set(e, ERR_INVALID, "the URL: too long");
    p->http = http_new(&(struct http_options){ .ca_file = o->ca_file, .stop_fd = -1 });
    return 0;
}

void publisher_end(struct publisher *p)
{
    http_close(p->http);
    p->http = NULL;
}

static enum err_code code_of(int status)
{
    static const struct {
        int status;
        enum err_code code;
    } CODES[] = {
        { 400, ERR_INVALID },
        { 401, ERR_UNAUTHENTICATED },
        { 403, ERR_FORBIDDEN },
        { 404, ERR_NOT_FOUND },
        { 409, ERR_CONFLICT },
        { 413, ERR_TOO_LARGE },
        { 422, ERR_INVALID },
    };
    for (size_t i = 0; i < sizeof CODES / sizeof CODES[0]; i++) {
        if (CODES[i].status == status)
            return CODES[i].code;
    }
    return http_classify(status) == HTTP_CLASS_RETRY ? ERR_UNAVAILABLE : ERR_INTERNAL;
}

/* 0; 1: once more, after *wait_ms at least; -1. */
static int try_once(struct publisher *p, const struct publisher_call *c, json_object **out,
    int64_t *wait_ms, struct err *e)
{
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    cleanup_json json_object *o = NULL;
    char url[URL_SIZE];
    char said[SAID_MAX];
    struct http_request r = {
        .method = c->method,
        .url = url,
        .auth = p->options->token == NULL ? HTTP_AUTH_NONE : HTTP_AUTH_BEARER,
        .secret = p->options->token,
        .content_type = c->type,
        .body = c->body,
        .body_size = c->size,
        .timeout_ms = CALL_MS + (int64_t)(c->size / SLOWEST_BYTES_PER_MS),
    };

    (void)str_format(url, sizeof url, "%s%s", p->base, c->path);
    const int rc = http_json(p->http, &r, NULL, &a, &o, e);
    *wait_ms = a.retry_after_ms;
    if (rc < 0)
        return e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT ? 1 : -1;
    if (http_classify(a.status) == HTTP_CLASS_OK) {
        *out = STEAL(o);
        return 0;
    }
    http_error_text(o, p->options->token, said, sizeof said);
    (void)err_set(e, code_of(a.status), "%d %s", a.status, said);
    return http_classify(a.status) == HTTP_CLASS_RETRY ? 1 : -1;
}

int publisher_ask(
    struct publisher *p, const struct publisher_call *c, json_object **out, struct err *e)
{
    for (int i = 1;; i++) {
        uint64_t random = 0;
        int64_t wait_ms = 0;
        struct err why = ERR_INIT;
        const int rc = try_once(p, c, out, &wait_ms, &why);
        if (rc == 0)
            return 0;
        if (rc < 0 || i >= p->options->tries) {
            *e = why;
            return -1;
        }
        arc4random_buf(&random, sizeof random);
        const int64_t back_ms = backoff_ms(p->options->backoff, i, random);
        (void)poll(NULL, 0, (int)(wait_ms > back_ms ? wait_ms : back_ms));
    }
}
