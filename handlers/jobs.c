/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <stdlib.h>

#include "base/mem.h"
#include "store/planner_view.h"
#include "store/pool.h"
#include "store/provision.h"
#include "store/ready.h"
#include "store/template.h"
#include "web/web_main.h"

static int64_t workers(const struct conf *c)
{
    return c->jobs_workers;
}

static int64_t threads(const struct conf *c)
{
    return c->jobs_threads;
}

static const char *socket_path(const struct conf *c)
{
    return c->jobs_socket;
}

enum {
    READERS = ROLE_VIEWER | ROLE_SUBMITTER | ROLE_WORKER | ROLE_ADMIN,
    SUBMITTERS = ROLE_SUBMITTER | ROLE_ADMIN,
    READ = WEB_BODY_NONE | WEB_ETAG,
};

#define TEMPLATES "/api/v1/models/{id}/deployment-templates"

static const struct web_route ROUTES[] = {
    { "GET", "/api/v1/jobs", console_list_jobs, READERS, READ },
    { "POST", "/api/v1/jobs", console_create_job, SUBMITTERS, WEB_BODY_JSON },
    { "GET", "/api/v1/jobs/stats", console_job_stats, READERS, READ },
    { "GET", "/api/v1/jobs/{id}", console_get_job, READERS, READ },
    { "POST", "/api/v1/jobs/{id}/cancel", console_cancel_job, SUBMITTERS, WEB_BODY_NONE },
    { "GET", "/api/v1/jobs/{id}/events", console_job_events, READERS, READ },
    { "GET", "/api/v1/config/job-capabilities", console_capabilities, READERS, READ },
    { "GET", "/api/v1/auth/config", console_auth_config, READERS, READ | WEB_OPEN },
    { "GET", "/api/v1/auth/userinfo", console_userinfo, READERS, READ },
    { "GET", "/api/v1/health", console_health, READERS, READ | WEB_OPEN },
    { "GET", "/api/v1/provisions", console_provisions, READERS, READ },
    { "GET", "/api/v1/planner", console_planner, READERS, READ },
    { "POST", "/api/v1/planner/pools/{name}/drain", console_drain_pool, ROLE_ADMIN, WEB_BODY_NONE },
    { "POST", "/api/v1/planner/pools/{name}/resume", console_resume_pool, ROLE_ADMIN,
        WEB_BODY_NONE },
    { "GET", "/api/v1/models", console_list_models, READERS, READ },
    { "POST", "/api/v1/models", console_create_model, ROLE_ADMIN, WEB_BODY_JSON },
    { "GET", "/api/v1/models/{id}", console_get_model, READERS, READ },
    { "GET", TEMPLATES, console_list_templates, READERS, READ },
    { "POST", TEMPLATES, console_create_template, ROLE_ADMIN, WEB_BODY_JSON },
    { "GET", TEMPLATES "/by-name/{name}", console_resolve_template, READERS, READ },
    { "GET", TEMPLATES "/{template}", console_get_template, READERS, READ },
    { "PUT", TEMPLATES "/{template}", console_update_template, ROLE_ADMIN, WEB_BODY_JSON },
    { "DELETE", TEMPLATES "/{template}", console_delete_template, ROLE_ADMIN, WEB_BODY_NONE },
    { "GET", "/v1/files", file_list, READERS, WEB_BODY_NONE },
    { "GET", "/api/v1/files", file_list, READERS, WEB_BODY_NONE },
    { "GET", "/internal/file-access", file_access, READERS, WEB_BODY_NONE },
    { "GET", "/v1/batches", openai_list_batches, READERS, READ },
    { "POST", "/v1/batches", openai_create_batch, SUBMITTERS, WEB_BODY_JSON },
    { "GET", "/v1/batches/{id}", openai_get_batch, READERS, READ },
    { "POST", "/v1/batches/{id}/cancel", openai_cancel_batch, SUBMITTERS, WEB_BODY_NONE },
};

static int start(const struct web_context *w, void **app, struct err *e)
{
    struct jobs_state *s = mem_calloc(1, sizeof *s);
    (void)w;
    (void)e;
    atomic_init(&s->listing, 0);
    *app = s;
    return 0;
}

int main(int argc, char **argv)
{
    const struct db_stmts stmts[] = { JOB_STMTS, PROVISION_STMTS, PLANNER_VIEW_STMTS, POOL_STMTS,
        TEMPLATE_STMTS, READY_STMTS };
    const struct web_app app = {
        .name = "jobs",
        .needs_postgres = true,
        .summary = "serves batch jobs in the Console's dialect and in OpenAI's",
        .routes = ROUTES,
        .n_routes = sizeof(ROUTES) / sizeof(ROUTES[0]),
        .stmts = stmts,
        .n_stmts = sizeof(stmts) / sizeof(stmts[0]),
        .workers = workers,
        .threads = threads,
        .socket = socket_path,
        .start = start,
        .stop = free,
        .fail = jobs_fail,
    };
    return web_main(&app, argc, argv);
}
