/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HTTP_GET_H
#define WB_HTTP_GET_H

/* GETs whose body is handed on as it comes: for what does not fit into memory. The policy is that of http.h, with other bounds:
 * no total time, but one for connecting, one until the first header, and one for silence; time that the caller's own functions take
 * does not count. A struct http_get belongs to one thread and keeps its connections between calls. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { HTTP_HEADER_MS = 120000, HTTP_SILENCE_MS = 60000, HTTP_GET_CONNECT_MS = 10000 };

struct http_get_options {
    const char *user_agent; /* borrowed, as are all texts; NULL: "weighbridge" */
    const char *ca_file;    /* PEM; NULL or "": the system's */
    int64_t connect_ms;     /* 0: HTTP_GET_CONNECT_MS, and so on */
    int64_t header_ms;
    int64_t silence_ms;
    int stop_fd; /* readable: all calls end; -1: none */
};

struct http_get;
void http_get_close(struct http_get *g); /* NULL is fine */
struct http_get *http_get_new(const struct http_get_options *o) OWNED_BY(http_get_close);
static inline void http_get_close_p(struct http_get **g)
{
    http_get_close(*g);
}
#define cleanup_http_get __attribute__((cleanup(http_get_close_p)))

/* Where it may connect to. With a proxy of the environment, that is the proxy's address. */
enum http_peer {
    HTTP_PEER_ANY,
    HTTP_PEER_LOOPBACK, /* nowhere else: for http without TLS */
    HTTP_PEER_FAR       /* neither to this host nor to the link: for URLs of somebody else's */
};

struct http_head {
    int status;
    int64_t length;            /* Content-Length; -1: not told */
    int64_t retry_after_ms;    /* 0: not told */
    const char *content_range; /* NULL: not sent; all are gone when the call returns */
    const char *content_encoding;
    const char *rate_limit;
};

struct http_get_request {
    const char *url;
    const char *bearer; /* NULL: none */
    int64_t first;      /* of the range asked for */
    int64_t size;       /* 0: no range */
    enum http_peer peer;
    /* Before the first byte of the body: 0 to have it. Other values end the call with HTTP_GET_REFUSED. */
    int (*head)(void *ctx, const struct http_head *h);
    /* A piece of it: 0 for more. */
    int (*data)(void *ctx, const void *data, size_t size);
    void *ctx;
};

/* How a call ended. */
enum http_get_end {
    HTTP_GET_WHOLE,   /* all of the body was handed on, as long as the head said */
    HTTP_GET_REFUSED, /* by head() or data() */
    HTTP_GET_CONNECT, /* not connected: no such host, refused, TLS, or not in time */
    HTTP_GET_RESET,   /* the connection broke */
    HTTP_GET_SHORT,   /* the body ended early */
    HTTP_GET_NO_HEADER,
    HTTP_GET_SILENT,
    HTTP_GET_STOPPED,
    HTTP_GET_BAD_URL, /* cannot be asked for, or leads where it must not */
    HTTP_GET_FAILED
};

/* 0 for HTTP_GET_WHOLE; else -1 with *e, whose text names no URL and no secret. */
int http_get(struct http_get *g, const struct http_get_request *r, enum http_get_end *end,
    struct err *e) WARN_UNUSED;

#endif
