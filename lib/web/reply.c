/* SPDX-License-Identifier: Apache-2.0 */
#include "web/reply.h"

#include <string.h>

#include "base/digest.h"
#include "base/str.h"

enum {
    HTTP_OK = 200,
    HTTP_CREATED = 201,
    HTTP_ACCEPTED = 202,
    HTTP_NO_CONTENT = 204,
    HTTP_NOT_MODIFIED = 304,
    HTTP_BAD_REQUEST = 400,
    HTTP_UNAUTHORIZED = 401,
    HTTP_FORBIDDEN = 403,
    HTTP_NOT_FOUND = 404,
    HTTP_METHOD_NOT_ALLOWED = 405,
    HTTP_CONFLICT = 409,
    HTTP_LENGTH_REQUIRED = 411,
    HTTP_TOO_LARGE = 413,
    HTTP_UNSUPPORTED_TYPE = 415,
    HTTP_MISMATCH = 422,
    HTTP_INTERNAL = 500,
    HTTP_NO_ROOM = 507,
    HTTP_UNAVAILABLE = 503,
};

enum { ETAG_LENGTH = 32 };

static const char JSON_TYPE[] = "application/json";

static const struct {
    int status;
    const char *line;
} REASONS[] = {
    { HTTP_OK, "Status: 200 OK\r\n" }, { HTTP_NOT_MODIFIED, "Status: 304 Not Modified\r\n" },
    { HTTP_CREATED, "Status: 201 Created\r\n" }, { HTTP_ACCEPTED, "Status: 202 Accepted\r\n" },
    { HTTP_NO_CONTENT, "Status: 204 No Content\r\n" },
    { HTTP_BAD_REQUEST, "Status: 400 Bad Request\r\n" },
    { HTTP_UNAUTHORIZED, "Status: 401 Unauthorized\r\n" },
    { HTTP_FORBIDDEN, "Status: 403 Forbidden\r\n" },
    { HTTP_NOT_FOUND, "Status: 404 Not Found\r\n" },
    { HTTP_METHOD_NOT_ALLOWED, "Status: 405 Method Not Allowed\r\n" },
    { HTTP_CONFLICT, "Status: 409 Conflict\r\n" },
    { HTTP_LENGTH_REQUIRED, "Status: 411 Length Required\r\n" },
    { HTTP_TOO_LARGE, "Status: 413 Content Too Large\r\n" },
    { HTTP_UNSUPPORTED_TYPE, "Status: 415 Unsupported Media Type\r\n" },
    { HTTP_MISMATCH, "Status: 422 Unprocessable Content\r\n" },
    { HTTP_NO_ROOM, "Status: 507 Insufficient Storage\r\n" },
    { HTTP_UNAVAILABLE, "Status: 503 Service Unavailable\r\n" },
    { HTTP_INTERNAL, "Status: 500 Internal Server Error\r\n" }, /* the last: any other */
};

int reply_status_of(enum err_code code)
{
    static const int STATUS[ERR__COUNT] = {
        [ERR_OK] = HTTP_INTERNAL, /* a failure that tells nothing */
        [ERR_INVALID] = HTTP_BAD_REQUEST,
        [ERR_UNAUTHENTICATED] = HTTP_UNAUTHORIZED,
        [ERR_FORBIDDEN] = HTTP_FORBIDDEN,
        [ERR_NOT_FOUND] = HTTP_NOT_FOUND,
        [ERR_METHOD] = HTTP_METHOD_NOT_ALLOWED,
        [ERR_CONFLICT] = HTTP_CONFLICT,
        [ERR_NO_LENGTH] = HTTP_LENGTH_REQUIRED,
        [ERR_TOO_LARGE] = HTTP_TOO_LARGE,
        [ERR_MEDIA_TYPE] = HTTP_UNSUPPORTED_TYPE,
        [ERR_TIMEOUT] = HTTP_UNAVAILABLE,
        [ERR_UNAVAILABLE] = HTTP_UNAVAILABLE,
        [ERR_MISMATCH] = HTTP_MISMATCH,
        [ERR_NO_ROOM] = HTTP_NO_ROOM,
        [ERR_NOT_DONE] = HTTP_INTERNAL,
        [ERR_INTERNAL] = HTTP_INTERNAL,
    };
    return (unsigned)code < ERR__COUNT ? STATUS[code] : HTTP_INTERNAL;
}

void reply_init(struct web_reply *r)
{
    *r = (struct web_reply){ .status = HTTP_OK,
        .body = BUF_INIT(REPLY_MAX),
        .lines = BUF_INIT(REPLY_LINES_MAX),
        .type = JSON_TYPE };
}

/* Lets go of whatever the body is. */
static void drop_body(struct web_reply *r)
{
    if (r->release != NULL)
        r->release(r->release_ctx);
    r->release = NULL;
    r->borrowed = NULL;
    r->borrowed_size = 0;
    buf_clear(&r->body);
}

void reply_fini(struct web_reply *r)
{
    drop_body(r);
    buf_free(&r->body);
    buf_free(&r->lines);
}

static void set_json(struct web_reply *r, int status, json_object *o)
{
    cleanup_json json_object *owned = o;
    drop_body(r);
    r->status = status;
    r->type = JSON_TYPE;
    jx_print(owned, &r->body);
}

void reply_json(struct web_reply *r, json_object *o)
{
    set_json(r, HTTP_OK, o);
}

void reply_created(struct web_reply *r, json_object *o)
{
    set_json(r, HTTP_CREATED, o);
}

void reply_accepted(struct web_reply *r, json_object *o)
{
    set_json(r, HTTP_ACCEPTED, o);
}

void reply_unavailable(struct web_reply *r, json_object *o)
{
    set_json(r, HTTP_UNAVAILABLE, o);
}

void reply_none(struct web_reply *r)
{
    drop_body(r);
    r->status = HTTP_NO_CONTENT;
}

void reply_text(struct web_reply *r, const char *type, struct buf *text)
{
    reply_fini(r);
    r->status = HTTP_OK;
    r->type = type;
    r->body = *text;
    *text = (struct buf)BUF_INIT(text->max);
}

void reply_borrow(struct web_reply *r, const char *body, size_t size, const char *etag,
    void (*release)(void *ctx), void *ctx)
{
    drop_body(r);
    r->status = HTTP_OK;
    r->type = JSON_TYPE;
    r->borrowed = body;
    r->borrowed_size = size;
    r->release = release;
    r->release_ctx = ctx;
    if (str_copy(r->etag, sizeof(r->etag), etag == NULL ? "" : etag) < 0)
        r->etag[0] = '\0'; /* half a tag would match what it must not */
}

void reply_line(struct web_reply *r, const char *name, const char *value)
{
    buf_puts(&r->lines, name);
    buf_puts(&r->lines, ": ");
    buf_puts(&r->lines, value);
    buf_puts(&r->lines, "\r\n");
}

void reply_degraded(struct web_reply *r, const char *stores)
{
    (void)str_copy(r->degraded, sizeof(r->degraded), stores);
}

const char *reply_error_text(const struct err *e)
{
    if (reply_status_of(e->code) == HTTP_INTERNAL && e->code != ERR_NOT_DONE)
        return "internal error"; /* the log has the cause; strangers get none */
    const bool sayable = e->msg[0] != '\0' && str_utf8_valid(e->msg, strlen(e->msg));
    return sayable ? e->msg : err_name(e->code);
}

void reply_failure(struct web_reply *r, enum err_code code, json_object *o)
{
    r->etag[0] = '\0';
    buf_clear(&r->lines);
    set_json(r, reply_status_of(code), o);
}

void reply_error(struct web_reply *r, const struct err *e, const char *request_id)
{
    json_object *o = jx_object();
    jx_set_str(o, "error", reply_error_text(e));
    jx_set_str(o, "request_id", request_id);
    reply_failure(r, e->code, o);
}

static size_t body_size(const struct web_reply *r)
{
    return r->borrowed != NULL ? r->borrowed_size : r->body.len;
}

static const char *body_bytes(const struct web_reply *r)
{
    if (r->borrowed != NULL)
        return r->borrowed;
    return r->body.data != NULL ? r->body.data : "";
}

const char *reply_bytes(const struct web_reply *r, size_t *size)
{
    *size = body_size(r);
    return body_bytes(r);
}

void reply_revalidate(struct web_reply *r, bool tagged, const char *if_none_match)
{
    if (r->status != HTTP_OK)
        return;
    r->revalidate = true;
    if (tagged && r->etag[0] == '\0') {
        char hash[DIGEST_HEX_SIZE];
        digest_hex(body_bytes(r), body_size(r), hash);
        hash[ETAG_LENGTH] = '\0';
        (void)str_copy(r->etag, sizeof(r->etag), hash);
    }
    if (r->etag[0] != '\0' && if_none_match != NULL && reply_etag_matches(if_none_match, r->etag)) {
        drop_body(r);
        r->status = HTTP_NOT_MODIFIED;
    }
}

/* buf_printf() would format it twice, and the head is made for every answer. */
static void put_size(struct buf *out, size_t size)
{
    char digits[24];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + size % 10);
        size /= 10;
    } while (size > 0);
    buf_add(out, digits + at, sizeof(digits) - at);
}

static void header(struct buf *out, const char *name, const char *value)
{
    buf_puts(out, name);
    buf_puts(out, value);
    buf_puts(out, "\r\n");
}

static void status_line(int status, struct buf *out)
{
    size_t i = 0;
    while (i + 1 < sizeof(REASONS) / sizeof(REASONS[0]) && REASONS[i].status != status)
        i++;
    buf_puts(out, REASONS[i].line);
}

static void error_headers(const struct web_reply *r, struct buf *out)
{
    if (r->status == HTTP_UNAUTHORIZED)
        header(out, "WWW-Authenticate: ", "Bearer realm=\"weighbridge\"");
    if (r->status == HTTP_METHOD_NOT_ALLOWED)
        header(out, "Allow: ", r->allow);
    if (r->status == HTTP_UNAVAILABLE)
        header(out, "Retry-After: ", "1");
    if (r->final)
        header(out, "x-should-retry: ", "false");
}

static void cache_control(const struct web_reply *r, struct buf *out)
{
    if (r->immutable && r->status < HTTP_BAD_REQUEST)
        header(out, "Cache-Control: ", "private, max-age=31536000, immutable");
    else
        header(out, "Cache-Control: ", r->revalidate ? "no-cache" : "no-store");
}

void reply_head(const struct web_reply *r, const char *request_id, struct buf *out)
{
    status_line(r->status, out);
    if (r->status != HTTP_NO_CONTENT && r->status != HTTP_NOT_MODIFIED) {
        buf_puts(out, "Content-Type: ");
        buf_puts(out, r->type);
        buf_puts(out, "\r\nContent-Length: ");
        put_size(out, body_size(r));
        buf_puts(out, "\r\n");
    }
    if (r->etag[0] != '\0') {
        buf_puts(out, "ETag: \"");
        header(out, r->etag, "\"");
    }
    cache_control(r, out);
    if (r->lines.len > 0)
        buf_add(out, r->lines.data, r->lines.len);
    if (r->degraded[0] != '\0')
        header(out, "X-Degraded: ", r->degraded);
    if (r->status >= HTTP_BAD_REQUEST)
        error_headers(r, out);
    buf_puts(out, "X-Request-Id: ");
    buf_puts(out, request_id);
    buf_puts(out, "\r\n\r\n");
}

/* RFC 9110 section 8.8.3.2: weak comparison leaves "W/" out of account. */
bool reply_etag_matches(const char *if_none_match, const char *etag)
{
    const char *at = if_none_match + strspn(if_none_match, " \t");
    const size_t n = strlen(etag);
    if (n == 0)
        return false;
    if (at[0] == '*')
        return at[1 + strspn(at + 1, " \t")] == '\0';
    for (;;) {
        at += strspn(at, " \t,");
        if (strncmp(at, "W/", 2) == 0)
            at += 2;
        if (*at != '"')
            return false;
        const size_t size = strcspn(++at, "\"");
        if (at[size] == '\0')
            return false;
        if (size == n && memcmp(at, etag, n) == 0)
            return true;
        at += size + 1;
    }
}
