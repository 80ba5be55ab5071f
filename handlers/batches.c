/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/batches_app.h"

#include "base/str.h"
#include "handlers/openai_error.h"
#include "store/batch_file.h"
#include "store/batch_row.h"
#include "store/ready.h"
#include "web/web_main.h"

const char *batches_owner(const struct web_req *req)
{
    return req->caller.role == ROLE_ADMIN ? NULL : req->caller.subject;
}

int batches_text(const struct web_req *req, const char *name, char room[BATCHES_TEXT_SIZE],
    const char **out, struct err *e)
{
    const int absent = web_query(req, name, room, BATCHES_TEXT_SIZE, e);

    if (absent < 0)
        return -1;
    *out = absent == 1 || room[0] == '\0' ? NULL : room;
    return 0;
}

int batches_limit(const struct web_req *req, int64_t dflt, int64_t max, int64_t *out, struct err *e)
{
    char room[BATCHES_TEXT_SIZE];
    const char *text = NULL;

    if (batches_text(req, "limit", room, &text, e) < 0)
        return -1;
    *out = dflt;
    if (text != NULL && str_to_i64(text, 1, max, out) < 0)
        return err_set(e, ERR_INVALID, "limit: must be from 1 to %lld", (long long)max);
    return 0;
}

/* What stands against a request does so the second time too. */
static void fail(const struct web_req *req, struct web_reply *reply, const struct err *e)
{
    (void)req;
    reply->final = e->code == ERR_CONFLICT;
    reply_failure(reply, e->code, openai_error(e));
}

static int64_t workers(const struct conf *c)
{
    return c->batch_workers;
}

static const char *socket_path(const struct conf *c)
{
    return c->batch_socket;
}

enum { CALLERS = ROLE_SUBMITTER | ROLE_ADMIN };

/* The bodies of files lie in files that the web server has written. */
static const struct web_route ROUTES[] = {
    { "POST", BATCHES_PREFIX "/files", post_file, CALLERS, WEB_BODY_NONE },
    { "GET", BATCHES_PREFIX "/files", get_files, CALLERS, WEB_BODY_NONE },
    { "GET", BATCHES_PREFIX "/files/{id}", get_batch_file, CALLERS, WEB_BODY_NONE },
    { "GET", BATCHES_PREFIX "/files/{id}/content", get_file_content, CALLERS, WEB_BODY_NONE },
    { "DELETE", BATCHES_PREFIX "/files/{id}", delete_file, CALLERS, WEB_BODY_NONE },
    { "POST", BATCHES_PREFIX "/batches", post_batch, CALLERS, WEB_BODY_JSON },
    { "GET", BATCHES_PREFIX "/batches", get_batches, CALLERS, WEB_BODY_NONE },
    { "GET", BATCHES_PREFIX "/batches/{id}", get_batch, CALLERS, WEB_BODY_NONE },
    { "POST", BATCHES_PREFIX "/batches/{id}/cancel", cancel_batch, CALLERS, WEB_BODY_NONE },
};

int main(int argc, char **argv)
{
    const struct db_stmts stmts[] = { BATCH_FILE_STMTS, BATCH_ROW_STMTS, READY_STMTS };
    const struct web_app app = {
        .name = "batches",
        .needs_postgres = true,
        .summary = "serves files and batches of the embedded batch service",
        .routes = ROUTES,
        .n_routes = sizeof ROUTES / sizeof ROUTES[0],
        .stmts = stmts,
        .n_stmts = sizeof stmts / sizeof stmts[0],
        .workers = workers,
        .socket = socket_path,
        .fail = fail,
    };
    return web_main(&app, argc, argv);
}
