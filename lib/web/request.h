/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_REQUEST_H
#define WB_REQUEST_H

/* A request as handlers see it. Lives on the stack of its thread. */
#include <stddef.h>
#include <stdint.h>

#include "base/conf.h"
#include "base/err.h"
#include "db/db.h"
#include "fcgi/fcgi_req.h"
#include "fcgi/shared.h"
#include "json/jx.h"
#include "json/jx_bind.h"
#include "kv/kv.h"
#include "web/auth.h"
#include "web/route.h"

enum { REQUEST_ID_SIZE = 65, REQUEST_BODY_MAX = 65536 };

struct web_req {
    struct fcgi_req *fcgi;
    const char *method;
    const char *uri;   /* raw, with the query; never NULL */
    const char *query; /* raw, never NULL */
    struct auth_caller caller;
    char request_id[REQUEST_ID_SIZE];
    json_object *body; /* NULL when there was none */
    int64_t deadline_ns;
    const struct conf *conf;
    struct db *db;            /* this thread's */
    struct kv *kv;            /* this thread's */
    struct shared *shared;    /* NULL when there is no runtime folder (CGI) */
    void *app;                /* what web_app.start made */
    bool needs_postgres;      /* web_app's */
    struct route_match match; /* last: its text is not zeroed for each request */
};

/* A parameter of the path, decoded; never NULL for a name in the pattern. */
const char *web_param(const struct web_req *r, const char *name);

/* A parameter of the query, decoded into dst. 1 when absent. ERR_INVALID for bad escapes or no room. */
int web_query(
    const struct web_req *r, const char *name, char *dst, size_t size, struct err *e) WARN_UNUSED;

/* The nth (from 0) of parameters of one name. */
int web_query_nth(const struct web_req *r, const char *name, unsigned nth, char *dst, size_t size,
    struct err *e) WARN_UNUSED;

/* Binds the body by a table; without a body only required fields are missed. */
int web_bind(const struct web_req *r, const struct jx_field *fields, size_t n, enum jx_mode mode,
    void *target, struct err *e) WARN_UNUSED;

/* Takes the client's X-Request-Id if it matches [A-Za-z0-9._-]{8,64}, else the web server's REQUEST_ID,
 * else makes one. */
void request_id_choose(const char *client, const char *server, char out[REQUEST_ID_SIZE]);

/* CSRF: ERR_FORBIDDEN when an unsafe method comes with a foreign Origin or Sec-Fetch-Site. NULL for
 * absent headers. */
int request_check_origin(const char *method, const char *origin, const char *host,
    const char *sec_fetch_site, struct err *e) WARN_UNUSED;

#endif
