/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/service.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "fetch/source.h"

enum { URL_SIZE = 1280, SAID_MAX = 160 };

/* A token goes out in the clear to nobody else. */
static bool is_this_machine(const char *url)
{
    static const char *const HOSTS[] = { "localhost", "127.0.0.1", "[::1]" };
    const char *host = url + strlen("http://");

    for (size_t i = 0; i < sizeof HOSTS / sizeof HOSTS[0]; i++) {
        const size_t size = strlen(HOSTS[i]);
        if (strncasecmp(host, HOSTS[i], size) == 0 && strchr(":/", host[size]) != NULL)
            return true;
    }
    return false;
}

int service_url_check(const char *url, struct err *e)
{
    enum http_peer peer = HTTP_PEER_ANY;

    if (source_url_check(url, &peer, e) < 0)
        return -1;
    if (peer == HTTP_PEER_LOOPBACK && !is_this_machine(url))
        return err_set(e, ERR_INVALID, "https, or http to localhost, 127.0.0.1 or [::1]");
    return 0;
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

int service_ask(struct service *s, const struct service_call *c, struct service_said *said,
    json_object **out, struct err *e)
{
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    cleanup_json json_object *o = NULL;
    char url[URL_SIZE];
    char text[SAID_MAX];
    const char *token = str_empty(s->token) ? NULL : s->token;
    struct http_request r = { .method = c->method,
        .url = url,
        .auth = token == NULL ? HTTP_AUTH_NONE : HTTP_AUTH_BEARER,
        .secret = token,
        .content_type = c->type,
        .body = c->body,
        .body_size = c->size,
        .timeout_ms = c->timeout_ms,
        .once = c->once };

    *said = (struct service_said){ .status = 0 };
    if (!http_url(url, sizeof url, s->url, c->path))
        return err_set(e, ERR_INVALID, "the URL: too long");
    const int rc = http_json(s->http, &r, NULL, &a, &o, e);
    *said = (struct service_said){ .status = a.status,
        .wait_ms = a.retry_after_ms,
        .stopped = a.stopped,
        .may_be_done = a.status == 0 ? a.sent == HTTP_SENT : a.status >= 500 };
    if (rc < 0)
        return e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT ? 1 : -1;
    if (http_classify(a.status) == HTTP_CLASS_OK) {
        *out = STEAL(o);
        return 0;
    }
    http_error_text(o, token, text, sizeof text);
    (void)err_set(e, code_of(a.status), "%d %s", a.status, text);
    return http_classify(a.status) == HTTP_CLASS_RETRY ? 1 : -1;
}
