/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/artifacts_app.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "store/artifact_shard.h"
#include "store/load_job.h"
#include "store/node.h"
#include "store/ready.h"
#include "store/spread.h"
#include "web/web_main.h"

enum { BYTES_PER_MS = 256 }; /* of a manifest */

static int64_t workers(const struct conf *c)
{
    return c->artifacts_workers;
}

static const char *socket_path(const struct conf *c)
{
    return c->artifacts_socket;
}

int artifacts_named(const struct web_req *req, struct artifacts_named *out, struct err *e)
{
    const struct artifacts_named got = { web_param(req, "name"), web_param(req, "version") };

    if (artifact_name_check("name", got.artifact, ARTIFACT_NAME_MAX, e) < 0 ||
        artifact_name_check("version", got.version, VERSION_NAME_MAX, e) < 0)
        return -1;
    *out = got;
    return 0;
}

int artifacts_node(const struct web_req *req, const char **out, struct err *e)
{
    const char *node = web_param(req, "node");

    if (artifact_name_check("node", node, VERSION_NAME_MAX, e) < 0)
        return -1;
    if (req->caller.role == ROLE_NODE && strcmp(req->caller.subject, node) != 0)
        return err_set(e, ERR_FORBIDDEN, "this token is of another node");
    *out = node;
    return 0;
}

void artifacts_go_on_with(struct web_req *req, size_t size)
{
    const int64_t ms = (int64_t)(size / BYTES_PER_MS);

    req->deadline_ns = clock_deadline(req->conf->db_timeout_ms + ms);
    db_set_deadline(req->db, req->deadline_ns);
}

void artifacts_go_on(struct web_req *req)
{
    artifacts_go_on_with(req, 0);
}

static int set_faults(const struct conf *conf, struct faults **out, struct err *e)
{
    if (!conf->faults_allow)
        return 0;
    if (faults_parse(conf->faults_set, out, e) < 0)
        return err_wrap(e, "[faults] set");
    faults_set(*out);
    return 0;
}

static int start(const struct web_context *w, void **out, struct err *e)
{
    struct artifacts_app *app = mem_calloc(1, sizeof *app);

    if (set_faults(w->conf, &app->faults, e) < 0 ||
        (!w->cgi && gate_thread_start(w->conf, &app->gate, e) < 0)) {
        faults_free(app->faults);
        free(app);
        return -1;
    }
    *out = app;
    return 0;
}

static void stop(void *ctx)
{
    struct artifacts_app *app = ctx;

    gate_thread_stop(app->gate);
    faults_set(NULL);
    faults_free(app->faults);
    free(app);
}

enum {
    READERS = ROLE_VIEWER | ROLE_PUBLISHER | ROLE_NODE | ROLE_WORKER | ROLE_ADMIN,
    PUBLISHERS = ROLE_PUBLISHER | ROLE_ADMIN,
    NODES = ROLE_NODE | ROLE_ADMIN,
    VIEWERS = ROLE_VIEWER | ROLE_ADMIN,
    READ = WEB_BODY_NONE | WEB_ETAG,
};

#define VERSION    "/api/v1/artifacts/{name}/versions/{version}"
#define NODE       "/api/v1/nodes/{node}"
#define ASSIGNMENT NODE "/assignments/{id}"

/* Bodies of manifests and shards lie in files that the web server has written. */
static const struct web_route ROUTES[] = {
    { "GET", "/api/v1/artifacts", get_artifacts, READERS, READ },
    { "GET", "/api/v1/artifacts/{name}", get_artifact, READERS, READ },
    { "GET", "/api/v1/artifacts/{name}/versions", get_versions, READERS, READ },
    { "GET", "/api/v1/artifacts/{name}/distribution", get_distribution, VIEWERS, READ },
    { "GET", VERSION, get_version, READERS, READ },
    { "PUT", VERSION, put_manifest, PUBLISHERS, WEB_BODY_NONE },
    { "PUT", VERSION "/shards/{sha256}", put_shard, PUBLISHERS, WEB_BODY_NONE },
    { "POST", VERSION "/withdraw", post_withdraw, PUBLISHERS, WEB_BODY_JSON },
    { "GET", VERSION "/files/{path*}", get_file, READERS, WEB_BODY_NONE },
    { "GET", "/api/v1/nodes", get_nodes, VIEWERS, READ },
    { "GET", NODE, get_node, VIEWERS | ROLE_NODE, READ },
    { "PUT", NODE, put_node, NODES, WEB_BODY_JSON },
    { "GET", NODE "/assignments", get_assignments, VIEWERS | ROLE_NODE, READ },
    { "POST", NODE "/assignments", post_assignment, ROLE_ADMIN, WEB_BODY_JSON },
    { "DELETE", ASSIGNMENT, delete_assignment, ROLE_ADMIN, WEB_BODY_NONE },
    { "POST", ASSIGNMENT "/progress", post_progress, NODES, WEB_BODY_JSON },
    { "POST", ASSIGNMENT "/receipt", post_receipt, NODES, WEB_BODY_JSON },
    { "POST", ASSIGNMENT "/failure", post_failure, NODES, WEB_BODY_JSON },
    /* Before those of every program: with what the tables say. */
    { "GET", "/metrics", get_artifact_metrics, ROLE_VIEWER | ROLE_WORKER | ROLE_ADMIN,
        WEB_BODY_NONE },
    { "GET", "/artifacts/metrics", get_artifact_metrics, ROLE_VIEWER | ROLE_WORKER | ROLE_ADMIN,
        WEB_BODY_NONE },
};

int main(int argc, char **argv)
{
    const struct db_stmts stmts[] = { ARTIFACT_STMTS, SHARD_STMTS, NODE_STMTS, ASSIGNMENT_STMTS,
        SPREAD_STMTS, LOAD_JOB_STMTS, READY_STMTS };
    const struct web_app app = {
        .name = "artifacts",
        .summary = "publishes artifacts, and tells nodes what to fetch",
        .routes = ROUTES,
        .n_routes = sizeof ROUTES / sizeof ROUTES[0],
        .stmts = stmts,
        .n_stmts = sizeof stmts / sizeof stmts[0],
        .workers = workers,
        .socket = socket_path,
        .start = start,
        .stop = stop,
    };
    return web_main(&app, argc, argv);
}
