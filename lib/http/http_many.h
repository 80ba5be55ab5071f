/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HTTP_MANY_H
#define WB_HTTP_MANY_H

/* Many POSTs of JSON at once, over kept connections: for who sends thousands a second and is one thread. The policy is
 * that of http.h. A struct http_many belongs to one thread, http_many_wake() excepted. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct http_many_options {
    const char *user_agent; /* borrowed, as are all texts; NULL: "weighbridge" */
    const char *ca_file;    /* PEM; NULL or "": the system's */
    const char *bearer;     /* sent with each request; NULL or "": none */
    int64_t connect_ms;     /* 0: HTTP_CONNECT_MS */
    int64_t keep;           /* connections that are kept for later */
};

struct http_many;
void http_many_close(struct http_many *m); /* NULL is fine; calls under way end without a word */
/* ERR_INVALID: the bearer token holds a control character. */
int http_many_open(
    const struct http_many_options *o, struct http_many **out, struct err *e) WARN_UNUSED;
static inline void http_many_close_p(struct http_many **m)
{
    http_many_close(*m);
}
#define cleanup_http_many __attribute__((cleanup(http_many_close_p)))

struct http_many_call; /* one under way */

struct http_many_request {
    const char *url;
    const char *body; /* borrowed until its end is told */
    size_t body_size;
    int64_t timeout_ms;
    size_t answer_max;
    void *ctx;
};

/* Begins. http_many_turn() tells how it ends, once, unless it is dropped before. */
struct http_many_call *http_many_start(struct http_many *m, const struct http_many_request *r);

/* Ends a call; its end is not told. */
void http_many_drop(struct http_many *m, struct http_many_call *c);

enum { HTTP_MANY_ID_SIZE = 80 };

struct http_many_end {
    void *ctx;
    int status;                         /* 0: there is no answer, and why says why */
    bool reached;                       /* something of the request left */
    int64_t retry_after_ms;             /* 0: not told */
    char request_id[HTTP_MANY_ID_SIZE]; /* x-request-id, printable; "" none */
    const char *body; /* never NULL; NUL-terminated; gone when the function returns */
    size_t size;
    struct err why;
};

/* Waits for at most wait_ms for something to happen, and tells the ends. fn may start and drop calls. */
void http_many_turn(struct http_many *m, int wait_ms,
    void (*fn)(void *ctx, const struct http_many_end *end), void *ctx);

/* Ends the waiting of http_many_turn(), or of the next one. Any thread. */
void http_many_wake(struct http_many *m);

#endif
