/* SPDX-License-Identifier: Apache-2.0 */
#include "store/plan.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/job_sql.h"
#include "store/sql_time.h"

enum { JOBS_MAX = 1000 };
#define JOBS_LIMIT " LIMIT 1001" /* one more, a number so that the planner walks the index */

enum stmt { FENCE, TENANTS, JOBS, PLAN, DEFER, NOTE };

static const struct db_stmt STMTS[] = {
    /* FOR SHARE: a take-over is an UPDATE of the lease and waits for our commit; FOR KEY SHARE would let it
     * through. A drain is one of the pool: once it is answered nothing more is planned. */
    [FENCE] = { "plan_fence",
        "SELECT o.drained_at IS NOT NULL FROM planner_lease l JOIN pool o ON o.id = l.pool_id"
        " WHERE l.pool_id = $1::smallint AND l.holder = $2::uuid AND l.epoch = $3"
        " AND l.expires_at > clock_timestamp() FOR SHARE",
        3 },
    [TENANTS] = { "plan_tenants",
        "SELECT tenant, count(*) FILTER (WHERE state IN (" S_PLANNED ", " S_PREPARING ")"
        " AND queue_deadline > now()), count(*), sum(replicas::bigint * gpus)::bigint FROM job_run"
        " WHERE pool_id = $1::smallint AND state > 0 GROUP BY tenant ORDER BY tenant COLLATE \"C\"",
        1 },
    [JOBS] = { "plan_jobs",
        "SELECT " SQL_CLOCK ", r.job_id, r.tenant, r.gpu_type, CASE WHEN $3::boolean THEN"
        " (SELECT j.request::text FROM job j WHERE j.id = r.job_id) ELSE '' END, r.version, r.prio,"
        " " SQL_US(
            "r.enqueued_at") ", r.replicas, r.gpus, r.attempts, r.failures"
                             " FROM (SELECT * FROM job_run q WHERE q.pool_id = $1::smallint AND q.state = 0"
                             "  AND q.cancel_requested_at IS NULL AND (q.not_before IS NULL OR q.not_before <= now())"
                             "  AND q.queue_deadline > now() ORDER BY q.prio DESC, q.enqueued_at, q.job_id" JOBS_LIMIT
                             ") r"
                             " ORDER BY r.prio DESC, r.enqueued_at, r.job_id LIMIT $2",
        3 },
    /* machines: from the commit on there may be some. */
    [PLAN] = { "plan_job",
        "WITH r AS (UPDATE job_run SET state = " S_PLANNED ", event = " E_PLAN ", event_epoch = $3,"
        "  actor = $4, detail = $5::jsonb, version = version + 1, attempts = attempts + 1,"
        "  provision_key = job_id || ':' || (attempts + 1), machines = true, not_before = NULL,"
        "  next_poll_at = clock_timestamp() WHERE job_id = $1::uuid AND state = " S_QUEUED
        "  AND version = $2::int AND cancel_requested_at IS NULL"
        "  RETURNING job_id, pool_id, provision_key),"
        " p AS (INSERT INTO provision (key, job_id, pool_id, provider, spec)"
        "  SELECT r.provision_key, r.job_id, r.pool_id, o.provisioner, $6::jsonb FROM r"
        "  JOIN pool o ON o.id = r.pool_id),"
        " i AS (INSERT INTO intent (job_id, pool_id, kind, subject, idem_key)"
        "  SELECT job_id, pool_id, " K_PROVISION
        ", provision_key, 'provision:' || provision_key FROM r)"
        " SELECT 1 FROM r",
        6 },
    [DEFER] = { "plan_defer",
        "UPDATE job_run SET version = version + 1, failures = failures + 1, error_code = $3, error = $4,"
        " not_before = clock_timestamp() + $5::bigint * interval '1 millisecond'"
        " WHERE job_id = $1::uuid AND state = " S_QUEUED " AND version = $2::int"
        " AND cancel_requested_at IS NULL",
        5 },
    [NOTE] = { "plan_note",
        "UPDATE planner_lease SET planned_at = clock_timestamp(), plan_us = $2, planned = $3::int"
        " WHERE pool_id = $1::smallint",
        3 },
};

const struct db_stmts PLAN_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void plan_end(struct plan *p)
{
    db_txn_end(&p->txn);
    free(p->job);
    p->job = NULL;
    free(p->tenant);
    p->tenant = NULL;
    db_rows_free(&p->jobs);
    db_rows_free(&p->tenants);
}

static int read_tenants(struct plan *p, struct err *e)
{
    size_t n = (size_t)db_rows_count(&p->tenants);
    p->tenant = mem_calloc(n + 1, sizeof *p->tenant);
    for (size_t i = 0; i < n; i++) {
        struct policy_tenant *t = &p->tenant[i];
        const struct db_int8_at numbers[] = {
            { 1, &t->provisioning },
            { 2, &t->live },
            { 3, &t->gpus },
        };
        t->name = db_text(&p->tenants, (int)i, 0);
        if (db_int8s(&p->tenants, (int)i, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
            return -1;
        p->snapshot.provisioning += t->provisioning;
    }
    p->snapshot.tenant = p->tenant;
    p->snapshot.n_tenants = n;
    return 0;
}

enum job_col {
    COL_CLOCK,
    COL_ID,
    COL_TENANT,
    COL_GPU_TYPE,
    COL_REQUEST,
    COL_VERSION,
    COL_PRIO,
    COL_ENQUEUED,
    COL_REPLICAS,
    COL_GPUS,
    COL_ATTEMPTS,
    COL_FAILURES
};

static int read_job(const struct db_rows *rows, int row, struct policy_job *j, struct err *e)
{
    const struct db_int8_at numbers[] = {
        { COL_VERSION, &j->version },
        { COL_PRIO, &j->priority },
        { COL_ENQUEUED, &j->enqueued_us },
        { COL_REPLICAS, &j->replicas },
        { COL_GPUS, &j->gpus },
        { COL_ATTEMPTS, &j->attempts },
        { COL_FAILURES, &j->failures },
    };
    (void)str_copy(j->id, sizeof j->id, db_text(rows, row, COL_ID));
    j->tenant = db_text(rows, row, COL_TENANT);
    j->gpu_type = db_text(rows, row, COL_GPU_TYPE);
    j->request_json = db_text(rows, row, COL_REQUEST);
    return db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e);
}

static int read_jobs(struct plan *p, size_t most, struct err *e)
{
    size_t n = (size_t)db_rows_count(&p->jobs);
    p->snapshot.more = n > most;
    if (p->snapshot.more)
        n = most;
    p->job = mem_kept(mem_calloc(n + 1, sizeof *p->job));
    for (size_t i = 0; i < n; i++) {
        if (read_job(&p->jobs, (int)i, &p->job[i], e) < 0)
            return -1;
    }
    if (n > 0 && db_int8(&p->jobs, 0, COL_CLOCK, &p->snapshot.now_us, e) < 0)
        return -1;
    p->snapshot.job = p->job;
    p->snapshot.n_jobs = n;
    return 0;
}

static int read_snapshot(struct plan *p, const struct plan_ask *ask, struct err *e)
{
    struct db_arg pool = DB_INT8(p->lease->pool_id);
    int64_t most = ask->jobs < JOBS_MAX ? ask->jobs : JOBS_MAX;
    p->snapshot.max_provisioning = ask->max_provisioning;
    p->snapshot.now_us = db_now_us();
    if (db_many(p->db, &STMTS[TENANTS], (struct db_args){ &pool, 1 }, &p->tenants, e) < 0 ||
        read_tenants(p, e) < 0)
        return -1;
    if (p->drained)
        return 0;
    if (db_many(p->db, &STMTS[JOBS], DB_ARGS(pool, DB_INT8(most + 1), DB_BOOL(ask->with_requests)),
            &p->jobs, e) < 0)
        return -1;
    return read_jobs(p, (size_t)most, e);
}

int plan_begin(struct db *db, const struct lease *l, const struct plan_ask *ask, struct plan *out,
    struct err *e)
{
    cleanup_plan struct plan p = PLAN_INIT;
    cleanup_rows struct db_rows held = DB_ROWS_INIT;
    p.db = db;
    p.lease = l;
    p.began_ns = clock_mono_ns();
    if (db_begin(db, &p.txn, e) < 0)
        return err_wrap(e, "plan");
    int lost = db_opt(db, &STMTS[FENCE],
        DB_ARGS(DB_INT8(l->pool_id), DB_TEXT(l->holder), DB_INT8(l->epoch)), &held, e);
    if (lost == 1)
        return 1;
    if (lost < 0 || db_bool(&held, 0, 0, &p.drained, e) < 0 || read_snapshot(&p, ask, e) < 0)
        return err_wrap(e, "plan");
    HAND_OVER(out, &p, ((struct plan)PLAN_INIT));
    return 0;
}

/* 1 when the job is not as it was in the snapshot. */
static int write_order(struct plan *p, const char *actor, const struct plan_order *o, struct err *e)
{
    if (o->verdict == POLICY_DEFER) {
        int64_t n = 0;
        if (db_exec(p->db, &STMTS[DEFER],
                DB_ARGS(DB_TEXT(o->job->id), DB_INT8(o->job->version), DB_TEXT(o->error_code),
                    DB_TEXT(o->error), DB_INT8(o->delay_ms)),
                &n, e) < 0)
            return -1;
        return n == 0;
    }
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    return db_opt(p->db, &STMTS[PLAN],
        DB_ARGS(DB_TEXT(o->job->id), DB_INT8(o->job->version), DB_INT8(p->lease->epoch),
            DB_TEXT(actor), DB_TEXT(o->detail_json), DB_TEXT(o->spec_json)),
        &rows, e);
}

static int check_limit(
    const struct plan *p, const struct plan_order *order, size_t n, struct err *e)
{
    int64_t sum = p->snapshot.provisioning;
    int64_t most = p->snapshot.max_provisioning;
    int64_t wanted = 0;
    for (size_t i = 0; i < n; i++)
        wanted += order[i].verdict == POLICY_PLAN;
    if (wanted > 0 && sum + wanted > most)
        return err_set(e, ERR_INTERNAL, "the policy would have %lld jobs provisioning, not %lld",
            (long long)(sum + wanted), (long long)most);
    return 0;
}

int plan_commit(struct plan *p, const char *actor, const struct plan_order *order, size_t n,
    struct plan_result *out, struct err *e)
{
    struct plan_result got = { .planned = 0 };
    if (check_limit(p, order, n, e) < 0)
        return err_wrap(e, "plan");
    for (size_t i = 0; i < n; i++) {
        int gone = write_order(p, actor, &order[i], e);
        if (gone < 0)
            return err_wrap(e, "plan of job %s", order[i].job->id);
        got.gone += gone;
        got.planned += !gone && order[i].verdict == POLICY_PLAN;
        got.deferred += !gone && order[i].verdict == POLICY_DEFER;
    }
    int64_t took_us = (clock_mono_ns() - p->began_ns) / (NS_PER_MS / US_PER_MS);
    if (db_exec(p->db, &STMTS[NOTE],
            DB_ARGS(DB_INT8(p->lease->pool_id), DB_INT8(took_us), DB_INT8(got.planned)), NULL,
            e) < 0 ||
        db_commit(&p->txn, e) < 0)
        return err_wrap(e, "plan");
    *out = got;
    return 0;
}
