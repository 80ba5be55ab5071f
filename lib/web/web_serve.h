/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_WEB_SERVE_H
#define WB_WEB_SERVE_H

/* The path of a request, for all threads of a process. */
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "fcgi/fcgi_req.h"
#include "web/auth.h"
#include "web/web_main.h"

/* What one request thread owns. */
struct web_thread {
    struct db *db;
    struct kv *kv;
    struct buf head;
    char name[64];
};

struct web_server {
    const struct web_app *app;
    const struct web_context *context;
    const struct auth *auth;
    void *app_data;
    struct web_route *routes; /* the program's and those of every program */
    size_t n_routes;
    char (*named)[64]; /* patterns of some */
    struct db_stmts *stmts;
    size_t n_stmts;
    struct web_thread *threads;
    size_t n_threads;
};

/* All but app_data is borrowed or made here; connections are made when first used. app, context and
 * auth must outlive the server. */
void web_server_init(struct web_server *s, const struct web_app *app,
    const struct web_context *context, const struct auth *auth, size_t threads);
void web_server_fini(struct web_server *s);
#define cleanup_web_server __attribute__((cleanup(web_server_fini)))

/* Answers one request. server is a struct web_server. Any thread of fcgi_set_run(). */
void web_serve(struct fcgi_req *r, void *server);

#endif
