/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_WEB_MAIN_H
#define WB_WEB_MAIN_H

/* The main of every FastCGI program: options, the three ways to be started, threads with their own
 * connections, and the path of a request: route, authenticate, read and parse the body, handler,
 * reply, log, metrics. */
#include <stddef.h>

#include "base/conf.h"
#include "base/err.h"
#include "db/db.h"
#include "fcgi/shared.h"
#include "web/reply.h"
#include "web/request.h"
#include "web/route.h"

struct web_context {
    const struct conf *conf;
    struct shared *shared; /* NULL without a runtime folder */
    struct breaker *db_breaker;
    struct breaker *kv_breaker;
    bool cgi;
};

struct web_app {
    const char *name;    /* "operations": program weighbridge-operations, socket operations.sock */
    const char *summary; /* for --help */
    const char *more_help; /* lines of options that only this program has; NULL: none */
    const struct web_route *routes;
    size_t n_routes;
    const struct db_stmts *stmts; /* of the request threads */
    size_t n_stmts;
    bool
        needs_postgres; /* without it nothing can be answered, whatever Redis has: /readyz says so */
    bool no_cgi;        /* for --help: start refuses to answer a CGI request */
    int64_t (*workers)(const struct conf *c);
    int64_t (*threads)(const struct conf *c); /* of requests, in a worker; NULL: [fcgi] threads */
    const char *(*socket)(const struct conf *c); /* "" or NULL: the default */
    /* What of the configuration only this program can judge (may be NULL): ERR_INVALID keeps it from starting. */
    int (*check)(const struct conf *c, struct err *e);
    /* Before the threads, in a worker or CGI process: makes what req->app will be. May start threads. */
    int (*start)(const struct web_context *w, void **app, struct err *e);
    void (*stop)(void *app);
    /* Words a failure as the callers of the address expect it. NULL: reply_error(). */
    void (*fail)(const struct web_req *req, struct web_reply *reply, const struct err *e);
};

/* The routes of every program: /healthz, /readyz, /metrics; each also as /NAME/healthz and so on. */
extern const struct web_route HEALTH_ROUTES[];
extern const size_t HEALTH_ROUTES_COUNT;

/* Exit status of the program. */
int web_main(const struct web_app *app, int argc, char **argv);

#endif
