/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ROUTE_H
#define WB_ROUTE_H

/* Routes: a constant table, matched against the raw REQUEST_URI so that %2F stays inside its segment.
 * Pure. */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct web_req;
struct web_reply;

enum web_role {
    ROLE_NONE = 0,
    ROLE_ADMIN = 1 << 0,
    ROLE_VIEWER = 1 << 1,
    ROLE_SUBMITTER = 1 << 2,
    ROLE_WORKER = 1 << 3,
    ROLE_NODE = 1 << 4,
    ROLE_PUBLISHER = 1 << 5,
};

enum web_flag {
    WEB_BODY_NONE = 0,          /* a body is read and thrown away */
    WEB_BODY_JSON = 1 << 0,     /* required */
    WEB_BODY_OPTIONAL = 1 << 1, /* JSON if there is one */
    WEB_OPEN = 1 << 2,          /* no authentication */
    WEB_ANONYMOUS = 1 << 3,     /* open when [auth] anonymous=viewer */
    WEB_ETAG = 1 << 4,          /* strong ETag over the body, 304 */
    WEB_INSTANT = 1 << 5, /* waits for nothing, or calls fcgi_may_wait() itself before it does */
};

typedef int web_handler(struct web_req *req, struct web_reply *reply, struct err *e);

struct web_route {
    const char *method; /* GET (serves HEAD too), POST, PUT, DELETE, PATCH */
    const char *
        pattern; /* "/api/v1/staging/{key}": {x} is one whole segment; {x*}, last, all that are left */
    web_handler *handle;
    unsigned roles; /* any of these may call */
    unsigned flags;
};

enum { ROUTE_PARAMS_MAX = 4, ROUTE_PATH_MAX = 8192, ROUTE_TEXT_MAX = 2048 };

struct route_match {
    const struct web_route *route;
    size_t params;
    const char *name[ROUTE_PARAMS_MAX]; /* borrowed from the pattern, not terminated: see length */
    size_t name_size[ROUTE_PARAMS_MAX];
    const char *value[ROUTE_PARAMS_MAX]; /* decoded, in text */
    char allow[64];                      /* for 405: "GET, HEAD, PUT" */
    char text[ROUTE_TEXT_MAX];           /* last: see web_req */
};

/* Matches method and uri (its query cut off). Failures: ERR_INVALID (uri too long, does not start with
 * '/', bad escapes, "." or ".." segments encoded or not, invalid UTF-8, U+0000), ERR_NOT_FOUND,
 * ERR_METHOD with m->allow filled. */
int route_find(const struct web_route *routes, size_t n, const char *method, const char *uri,
    struct route_match *m, struct err *e) WARN_UNUSED;

/* Decodes %XX in size bytes of text into dst (dst_size bytes with the NUL). plus: '+' is a space.
 * ERR_INVALID for bad escapes, %00, invalid UTF-8 or no room. */
int percent_decode(const char *text, size_t size, bool plus, char *dst, size_t dst_size,
    struct err *e) WARN_UNUSED;

#endif
