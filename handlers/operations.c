/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/operations_app.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/thread.h"
#include "model/key.h"
#include "store/gallery.h"
#include "store/gallery_keep.h"
#include "store/load_job.h"
#include "store/ready.h"
#include "store/staging.h"
#include "web/web_main.h"

enum { POLL_MAX_AGE_MS = 400, POLL_WAIT_MS = 300 };

/* Other machines refresh within a period anyway if this does not reach them. Without the mapping (a CGI of another
 * user) no machine is named: all take it for another's, this one too. */
static void tell_machines(struct web_req *req, const char *what)
{
    char text[64];
    struct err ignored = ERR_INIT;
    (void)str_format(
        text, sizeof(text), "%s%s", req->shared == NULL ? "" : req->shared->machine_id, what);
    (void)!changes_publish(req->kv, text, &ignored);
}

void operations_changed(struct web_req *req)
{
    if (req->shared != NULL)
        shared_bump(req->shared);
    tell_machines(req, "");
}

void operations_rows_changed(struct web_req *req)
{
    if (req->shared != NULL)
        shared_bump_rows(req->shared);
    tell_machines(req, CHANGED_ROWS);
}

const char *operations_key(const struct web_req *req, struct err *e)
{
    const char *key = web_param(req, "key");
    return key_check(key, e) < 0 ? NULL : key;
}

int64_t operations_stamp_us(struct web_req *req)
{
    int64_t offset_us;
    if (!db_clock_offset_us(&offset_us)) {
        struct err ignored = ERR_INIT; /* Postgres is down: this machine's clock has to do */
        (void)!ready_postgres(req->db, &ignored);
    }
    return db_now_us();
}

static int unknown(struct err *e)
{
    return err_set(e, ERR_UNAVAILABLE,
        "the running operations are not known at this moment: keep what you show and ask again");
}

static void release_snapshot(void *snap)
{
    snapshot_put(snap);
}

/* Of those whom no refresher serves. A CGI has nobody else to do it. */
static void keep_last_reports(struct web_req *req, const struct buf *behind)
{
    const struct operations_app *app = req->app;
    struct err ignored = ERR_INIT;
    if (behind->len == 0 || req->conf->operations_read_only)
        return;
    if (app->keeper != NULL)
        keeper_give(app->keeper, behind);
    else
        (void)!gallery_keep(req->db, behind->data, NULL, &ignored);
}

/* What a poll that asked the stores itself was told. Those that waited meanwhile share it. */
struct operations_answer {
    struct poll_answer a;
    int64_t began_ns;
    atomic_int refs;
};

static void release_answer(void *answer)
{
    struct operations_answer *o = answer;
    if (o == NULL || atomic_fetch_sub(&o->refs, 1) != 1)
        return;
    poll_answer_free(&o->a);
    free(o);
}

/* An answer that was begun after the poll came; the caller releases it. */
static struct operations_answer *ask_stores(struct web_req *req)
{
    struct operations_app *app = req->app;
    const int64_t came_ns = clock_mono_ns();
    fcgi_may_wait(req->fcgi);
    cleanup_unlock pthread_mutex_t *held = thread_lock(&app->ask_lock);
    if (app->answer == NULL || app->answer->began_ns < came_ns) {
        const struct shared *sh = req->shared;
        struct operations_answer *o = mem_calloc(1, sizeof(*o));
        poll_answer_init(&o->a);
        atomic_init(&o->refs, 1);
        o->began_ns = clock_mono_ns();
        poll_ask(app->source, sh == NULL ? 0 : atomic_load(&sh->rows_changed), &o->a);
        keep_last_reports(req, &o->a.behind);
        release_answer(app->answer);
        app->answer = mem_kept(o);
    }
    atomic_fetch_add(&app->answer->refs, 1);
    return app->answer;
}

/* Without shared memory (CGI), or when no snapshot can be written or comes in time, a poll asks the stores itself. */
static int ask_for_operations(struct web_req *req, struct web_reply *reply, struct err *e)
{
    struct operations_answer *o = ask_stores(req);
    const struct poll_answer *a = &o->a;
    reply_degraded(reply, a->head.degraded);
    if (a->head.unavailable) {
        release_answer(o);
        return unknown(e);
    }
    reply_borrow(reply, a->body.data, a->body.len, a->head.etag, release_answer, o);
    return 0;
}

int get_operations(struct web_req *req, struct web_reply *reply, struct err *e)
{
    struct operations_app *app = req->app;
    struct snapshot *snap = NULL;
    bool waited = false;

    if (app->snapshots == NULL)
        return ask_for_operations(req, reply, e);
    uint64_t generation = atomic_load(&req->shared->generation);
    const int64_t max_age_ns = POLL_MAX_AGE_MS * NS_PER_MS;
    int rc = snapshot_get(app->snapshots, generation, max_age_ns, 0, &snap, &waited);
    if (rc == 1 && !refresher_is_blocked(app->refresher)) {
        fcgi_may_wait(req->fcgi);
        rc = snapshot_get(
            app->snapshots, generation, max_age_ns, clock_deadline(POLL_WAIT_MS), &snap, &waited);
    }
    if (waited)
        metric_add(METRIC_POLLS_WAITED, 1);
    if (rc != 0) {
        metric_add(METRIC_POLLS_STALE, 1);
        return ask_for_operations(req, reply, e);
    }
    reply_degraded(reply, snap->head->degraded);
    if (snap->head->unavailable) {
        snapshot_put(snap);
        return unknown(e);
    }
    reply_borrow(
        reply, snap->body, snap->head->body_size, snap->head->etag, release_snapshot, snap);
    return 0;
}

/* A CGI process connects anew for each poll, and knows nothing to say instead of what a store did not say. */
static int64_t poll_timeout_ms(const struct web_context *w)
{
    return w->cgi ? w->conf->db_timeout_ms : w->conf->operations_store_timeout_ms;
}

static void app_free(struct operations_app *app)
{
    refresher_stop(app->refresher);
    keeper_stop(app->keeper);
    snapshots_close(app->snapshots);
    poll_source_free(app->source);
    release_answer(app->answer);
    pthread_mutex_destroy(&app->ask_lock);
    free(app);
}

static int start_refresher(const struct web_context *w, struct operations_app *app, struct err *e)
{
    if (snapshots_open(w->shared, w->conf->runtime_dir, "operations", &app->snapshots, e) < 0)
        return -1;
    return refresher_start(w->conf, app->snapshots, app->keeper, &app->refresher, e);
}

static int start(const struct web_context *w, void **out, struct err *e)
{
    struct operations_app *app = mem_calloc(1, sizeof(*app));
    metrics_show(METRICS_OF_OPERATIONS);
    pthread_mutex_init(&app->ask_lock, NULL);
    app->source = poll_source_new(w->conf, "weighbridge-operations/poll", poll_timeout_ms(w));
    if ((w->cgi || w->conf->operations_read_only || keeper_start(w->conf, &app->keeper, e) == 0) &&
        (w->shared == NULL || w->cgi || start_refresher(w, app, e) == 0)) {
        *out = app;
        return 0;
    }
    app_free(app);
    return -1;
}

static void stop(void *ctx)
{
    app_free(ctx);
}

static int64_t workers(const struct conf *c)
{
    return c->operations_workers;
}

static const char *socket_path(const struct conf *c)
{
    return c->operations_socket;
}

enum {
    READERS = ROLE_VIEWER | ROLE_WORKER | ROLE_ADMIN,
    WRITERS = ROLE_WORKER | ROLE_ADMIN,
    ACTORS = ROLE_ADMIN,
    READ = WEB_BODY_NONE | WEB_ETAG,
};

static const struct web_route ROUTES[] = {
    { "GET", "/api/operations", get_operations, READERS, READ | WEB_ANONYMOUS | WEB_INSTANT },
    { "GET", "/api/operations/history", get_operation_history, READERS, READ | WEB_ANONYMOUS },
    { "DELETE", "/api/operations/history", delete_operation_history, ACTORS, WEB_BODY_NONE },
    { "POST", "/api/operations/{jobID}/cancel", post_operation_cancel, ACTORS, WEB_BODY_NONE },
    { "POST", "/api/operations/{jobID}/pause", post_operation_pause, ACTORS, WEB_BODY_NONE },
    { "POST", "/api/operations/{jobID}/dismiss", post_operation_dismiss, ACTORS, WEB_BODY_NONE },
    { "GET", "/api/operations/{jobID}/control", get_operation_control, READERS, READ },
    { "POST", "/api/v1/operations", post_operation, WRITERS, WEB_BODY_JSON },
    { "PUT", "/api/v1/operations/{jobID}", put_operation, WRITERS, WEB_BODY_JSON },
    { "GET", "/api/v1/staging", get_staging_list, READERS, READ },
    { "GET", "/api/v1/staging/{key}", get_staging, READERS, READ },
    { "PUT", "/api/v1/staging/{key}", put_staging, WRITERS, WEB_BODY_JSON },
    { "DELETE", "/api/v1/staging/{key}", delete_staging, WRITERS, WEB_BODY_NONE },
    { "POST", "/api/v1/staging/{key}/file-complete", post_staging_file_complete, WRITERS,
        WEB_BODY_JSON },
    { "GET", "/api/v1/load-jobs", get_load_jobs, READERS, READ },
    { "GET", "/api/v1/load-jobs/{key}", get_load_job, READERS, READ },
    { "PUT", "/api/v1/load-jobs/{key}", put_load_job, WRITERS, WEB_BODY_JSON },
    { "DELETE", "/api/v1/load-jobs/{key}", delete_load_job, WRITERS, WEB_BODY_JSON },
    { "POST", "/api/v1/load-jobs/{key}/claim", post_load_job_claim, WRITERS, WEB_BODY_JSON },
    { "POST", "/api/v1/load-jobs/{key}/fail", post_load_job_fail, WRITERS, WEB_BODY_JSON },
};

int main(int argc, char **argv)
{
    const struct db_stmts stmts[] = { LOAD_JOB_STMTS, GALLERY_STMTS, GALLERY_ACT_STMTS,
        GALLERY_KEEP_STMTS, READY_STMTS };
    const struct web_app app = {
        .name = "operations",
        .summary = "serves the operations poll, gallery operations, staging reports and load jobs",
        .routes = ROUTES,
        .n_routes = sizeof(ROUTES) / sizeof(ROUTES[0]),
        .stmts = stmts,
        .n_stmts = sizeof(stmts) / sizeof(stmts[0]),
        .workers = workers,
        .socket = socket_path,
        .start = start,
        .stop = stop,
    };
    return web_main(&app, argc, argv);
}
