/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_REPLY_H
#define WB_REPLY_H

/* What a handler fills. The only place that knows HTTP numbers is reply.c. */
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "json/jx.h"

enum { REPLY_MAX = 64 << 20, REPLY_LINES_MAX = 6144 };

struct web_reply {
    int status;
    struct buf body;
    const char *borrowed; /* instead of body */
    size_t borrowed_size;
    void (*release)(void *ctx); /* after sending */
    void *release_ctx;
    char etag[72];     /* without quotes; "" none */
    char degraded[24]; /* X-Degraded or "" */
    char allow[64];
    const char *type;
    struct buf lines; /* further header lines */
    bool immutable;   /* what a GET shows never changes: private, for a year */
    bool revalidate;  /* the answer to a GET: no-cache; any other is no-store */
    bool
        final; /* x-should-retry: false, which clients of OpenAI obey (they repeat a 409 otherwise) */
};

void reply_init(struct web_reply *r);
void reply_fini(struct web_reply *r);

void reply_json(struct web_reply *r, json_object *o);        /* 200; consumes o */
void reply_created(struct web_reply *r, json_object *o);     /* 201; consumes o */
void reply_accepted(struct web_reply *r, json_object *o);    /* 202; consumes o */
void reply_none(struct web_reply *r);                        /* 204 */
void reply_unavailable(struct web_reply *r, json_object *o); /* 503; consumes o */
void reply_text(
    struct web_reply *r, const char *type, struct buf *text); /* 200; takes text's bytes */

/* 200 with bytes that stay valid until release(ctx), which is called once whatever happens. */
void reply_borrow(struct web_reply *r, const char *body, size_t size, const char *etag,
    void (*release)(void *ctx), void *ctx);
/* A further header line. value: printable ASCII. */
void reply_line(struct web_reply *r, const char *name, const char *value);
void reply_degraded(struct web_reply *r, const char *stores);

/* Turns an error into status and {"error":…,"request_id":…}. 503 gets Retry-After. */
void reply_error(struct web_reply *r, const struct err *e, const char *request_id);
int reply_status_of(enum err_code code);

/* The same in the words of another dialect: the status of code with o, which is consumed, for a body. */
void reply_failure(struct web_reply *r, enum err_code code, json_object *o);

/* What a stranger may read of an error: e's text, but nothing of an internal one. Static storage or borrowed
 * from e. */
const char *reply_error_text(const struct err *e);

/* The last step of a GET or HEAD that went well: tagged gives the body a strong ETag unless it has
 * one; a matching If-None-Match (NULL: none) makes it 304 without a body. */
void reply_revalidate(struct web_reply *r, bool tagged, const char *if_none_match);

/* The bytes of the body, borrowed from r; never NULL. */
const char *reply_bytes(const struct web_reply *r, size_t *size);

/* CGI header lines and the empty line for the reply: status, type, length, ETag, cache, request id. */
void reply_head(const struct web_reply *r, const char *request_id, struct buf *out);

/* True when an If-None-Match header (RFC 9110 13.1.2: list, weak compare, *) matches etag. */
bool reply_etag_matches(const char *if_none_match, const char *etag);

#endif
