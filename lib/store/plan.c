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

/* Queued, due, not cancelled, not too late. */
#define DUE \
    "q.state = 0 AND q.cancel_requested_at IS NULL AND (q.not_before IS NULL OR q.not_before <= now())" \
    " AND q.queue_deadline > now()"
#define IN_ORDER "q.prio DESC, q.enqueued_at, q.job_id"

/* Of r, a row of job_run. */
#define JOB_COLUMNS \
    SQL_CLOCK \
    ", r.job_id, r.tenant, r.gpu_type, j.request::text, j.request #>> '{provider_config,region}', r.version," \
    " r.prio, " SQL_US("r.enqueued_at") ", r.replicas, r.gpus, r.attempts, r.failures," \
                                        " coalesce(" SQL_US("r.passed_over_at") ", 0)"
/* $3: with requests. One look-up for each row, whatever the statistics make Postgres believe. */
#define AND_REQUEST \
    " LEFT JOIN LATERAL (SELECT k.request FROM job k WHERE $3::boolean AND k.id = r.job_id LIMIT 1) j ON true"

/* From tenant to tenant by the index, from $2 on, $4 and one more. */
#define TENANTS_WALK \
    "WITH RECURSIVE t AS ((SELECT q.tenant, 1::bigint AS n FROM job_run q WHERE q.pool_id = $1::smallint" \
    "  AND q.state = 0 AND q.tenant >= $2 ORDER BY q.tenant LIMIT 1)" \
    " UNION ALL SELECT (SELECT q.tenant FROM job_run q WHERE q.pool_id = $1::smallint" \
    "  AND q.state = 0 AND q.tenant > t.tenant ORDER BY q.tenant LIMIT 1), t.n + 1" \
    " FROM t WHERE t.tenant IS NOT NULL AND t.n <= $4::bigint)"

enum stmt {
    FENCE,
    TENANTS,
    JOBS,
    HEADS,
    NEXT,
    TURNS,
    TAKEN,
    PLAN,
    DEFER,
    PASS_OVER,
    TURN,
    NOTE,
    PURGE
};

static const struct db_stmt STMTS[] = {
    /* FOR SHARE: a take-over is an UPDATE of the lease and waits for our commit; FOR KEY SHARE would let it
     * through. A drain is one of the pool: once it is answered nothing more is planned. */
    [FENCE] = { "plan_fence",
        "SELECT l.round, o.drained_at IS NOT NULL, l.window_from, l.window_round, l.window_left"
        " FROM planner_lease l JOIN pool o ON o.id = l.pool_id"
        " WHERE l.pool_id = $1::smallint AND l.holder = $2::uuid AND l.epoch = $3"
        " AND l.expires_at > clock_timestamp() FOR SHARE",
        3 },
    [TENANTS] = { "plan_tenants",
        "SELECT tenant, count(*) FILTER (WHERE state IN (" S_PLANNED ", " S_PREPARING ")"
        " AND queue_deadline > now()), count(*), sum(replicas::bigint * gpus)::bigint FROM job_run"
        " WHERE pool_id = $1::smallint AND state > 0 GROUP BY tenant ORDER BY tenant COLLATE \"C\"",
        1 },
    [JOBS] = { "plan_jobs",
        "SELECT " JOB_COLUMNS " FROM (SELECT * FROM (SELECT * FROM job_run q"
        "  WHERE q.pool_id = $1::smallint AND " DUE " ORDER BY " IN_ORDER JOBS_LIMIT ") q"
        "  ORDER BY " IN_ORDER " LIMIT $2) r" AND_REQUEST
        " ORDER BY r.prio DESC, r.enqueued_at, r.job_id",
        3 },
    /* The heads of each tenant's queue. */
    [HEADS] = { "plan_heads",
        TENANTS_WALK
        " SELECT " JOB_COLUMNS " FROM (SELECT r.*, p.finish FROM t CROSS JOIN LATERAL (SELECT *,"
        "  row_number() OVER (ORDER BY " IN_ORDER ") AS k FROM (SELECT * FROM job_run q"
        "  WHERE q.pool_id = $1::smallint AND q.tenant = t.tenant AND " DUE " ORDER BY " IN_ORDER
        "  LIMIT $5) q) r LEFT JOIN policy_turn p ON p.pool_id = r.pool_id AND p.tenant = r.tenant"
        "  WHERE t.n <= $4::bigint ORDER BY r.k, coalesce(p.finish, 0), r.tenant, r.prio DESC,"
        "  r.enqueued_at, r.job_id LIMIT $6) r" AND_REQUEST
        " ORDER BY r.k, coalesce(r.finish, 0), r.tenant, r.prio DESC, r.enqueued_at, r.job_id",
        6 },
    /* Where the tenants after these begin. */
    [NEXT] = { "plan_next_tenant",
        TENANTS_WALK
        " SELECT t.tenant FROM t WHERE t.n > $4::bigint AND t.tenant IS NOT NULL AND $3::boolean",
        4 },
    [TURNS] = { "plan_turns",
        "SELECT tenant, finish FROM policy_turn WHERE pool_id = $1::smallint"
        " ORDER BY tenant COLLATE \"C\"",
        1 },
    [TAKEN] = { "plan_taken",
        "SELECT gpu_type, gpus, sum(replicas)::bigint FROM job_run WHERE pool_id = $1::smallint"
        " AND state IN (" S_PLANNED ", " S_PREPARING ") AND stamps[" S_PLANNED " + 1] >= $2"
        " GROUP BY gpu_type, gpus ORDER BY gpu_type, gpus",
        2 },
    /* machines: from the commit on there may be some. */
    [PLAN] = { "plan_job",
        "WITH r AS (UPDATE job_run SET state = " S_PLANNED ", event = " E_PLAN ", event_epoch = $3,"
        "  actor = $4, detail = $5::jsonb, version = version + 1, attempts = attempts + 1,"
        "  provision_key = job_id || ':' || (attempts + 1), machines = true, not_before = NULL,"
        "  error_code = CASE WHEN passed_over_at IS NULL THEN error_code END,"
        "  error = CASE WHEN passed_over_at IS NULL THEN error END, passed_over_at = NULL,"
        "  next_poll_at = clock_timestamp() WHERE job_id = $1::uuid AND state = " S_QUEUED
        "  AND version = $2::int AND cancel_requested_at IS NULL"
        "  RETURNING job_id, pool_id, provision_key),"
        " p AS (INSERT INTO provision (key, job_id, pool_id, provider, spec)"
        "  SELECT r.provision_key, r.job_id, r.pool_id, coalesce($7, o.provisioner), $6::jsonb FROM r"
        "  JOIN pool o ON o.id = r.pool_id),"
        " i AS (INSERT INTO intent (job_id, pool_id, kind, subject, idem_key)"
        "  SELECT job_id, pool_id, " K_PROVISION
        ", provision_key, 'provision:' || provision_key FROM r)"
        " SELECT 1 FROM r",
        7 },
    [DEFER] = { "plan_defer",
        "UPDATE job_run SET version = version + 1, failures = failures + 1, error_code = $3, error = $4,"
        " not_before = clock_timestamp() + $5::bigint * interval '1 millisecond'"
        " WHERE job_id = $1::uuid AND state = " S_QUEUED " AND version = $2::int"
        " AND cancel_requested_at IS NULL",
        5 },
    [PASS_OVER] = { "plan_pass_over",
        "UPDATE job_run SET passed_over_at = clock_timestamp(), error_code = $3, error = $4"
        " WHERE job_id = $1::uuid AND state = " S_QUEUED " AND version = $2::int"
        " AND cancel_requested_at IS NULL",
        4 },
    [TURN] = { "plan_turn",
        "INSERT INTO policy_turn (pool_id, tenant, finish) VALUES ($1::smallint, $2, $3)"
        " ON CONFLICT (pool_id, tenant) DO UPDATE SET finish = excluded.finish",
        3 },
    [NOTE] = { "plan_note",
        "UPDATE planner_lease SET planned_at = clock_timestamp(), plan_us = $2, planned = $3::int,"
        " round = greatest(round, $4), window_left = CASE WHEN $5::boolean THEN -1 ELSE $7 END,"
        " window_from = CASE WHEN $5::boolean THEN $6 ELSE window_from END,"
        " window_round = CASE WHEN $5::boolean THEN greatest(round, $4) ELSE window_round END"
        " WHERE pool_id = $1::smallint",
        7 },
    [PURGE] = { "plan_purge_turns",
        "DELETE FROM policy_turn WHERE pool_id = $1::smallint AND finish <= $2", 2 },
};

const struct db_stmts PLAN_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void plan_end(struct plan *p)
{
    db_txn_end(&p->txn);
    free(p->job);
    p->job = NULL;
    free(p->tenant);
    p->tenant = NULL;
    free(p->turn);
    p->turn = NULL;
    free(p->taken);
    p->taken = NULL;
    db_rows_free(&p->jobs);
    db_rows_free(&p->tenants);
    db_rows_free(&p->turns);
    db_rows_free(&p->takens);
    db_rows_free(&p->fence);
    db_rows_free(&p->next);
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

static int read_turns(struct plan *p, struct err *e)
{
    const size_t n = (size_t)db_rows_count(&p->turns);
    p->turn = mem_kept(mem_calloc(n + 1, sizeof *p->turn));
    for (size_t i = 0; i < n; i++) {
        p->turn[i].tenant = db_text(&p->turns, (int)i, 0);
        if (db_int8(&p->turns, (int)i, 1, &p->turn[i].finish, e) < 0)
            return -1;
    }
    p->snapshot.turn = p->turn;
    p->snapshot.n_turns = n;
    return 0;
}

static int read_taken(struct plan *p, struct err *e)
{
    const size_t n = (size_t)db_rows_count(&p->takens);
    p->taken = mem_kept(mem_calloc(n + 1, sizeof *p->taken));
    for (size_t i = 0; i < n; i++) {
        struct policy_taken *t = &p->taken[i];
        const struct db_int8_at numbers[] = { { 1, &t->gpus }, { 2, &t->replicas } };
        t->gpu_type = db_text(&p->takens, (int)i, 0);
        if (db_int8s(&p->takens, (int)i, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
            return -1;
    }
    p->snapshot.taken = p->taken;
    p->snapshot.n_taken = n;
    return 0;
}

enum job_col {
    COL_CLOCK,
    COL_ID,
    COL_TENANT,
    COL_GPU_TYPE,
    COL_REQUEST,
    COL_REGION,
    COL_VERSION,
    COL_PRIO,
    COL_ENQUEUED,
    COL_REPLICAS,
    COL_GPUS,
    COL_ATTEMPTS,
    COL_FAILURES,
    COL_PASSED_OVER
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
        { COL_PASSED_OVER, &j->passed_over_us },
    };
    (void)str_copy(j->id, sizeof j->id, db_text(rows, row, COL_ID));
    j->tenant = db_text(rows, row, COL_TENANT);
    j->gpu_type = db_text(rows, row, COL_GPU_TYPE);
    j->request_json = db_text(rows, row, COL_REQUEST);
    j->region = db_text(rows, row, COL_REGION);
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

/* The heads of the tenants in the window, and where the next one begins: at the first tenant of all after the last. More
 * may be due than was read where a tenant gave as many as it was asked for, and where there are other tenants. */
static int ask_heads(struct plan *p, const struct plan_ask *ask, int64_t most, struct err *e)
{
    const struct db_arg pool = DB_INT8(p->lease->pool_id);
    const struct db_arg from = DB_TEXT(p->window_from);
    const struct db_arg with = DB_BOOL(ask->with_requests);
    const struct db_arg tenants = DB_INT8(ask->tenants > 0 ? ask->tenants : most);
    const int none =
        db_opt(p->db, &STMTS[NEXT], DB_ARGS(pool, from, DB_BOOL(true), tenants), &p->next, e);

    if (none < 0 ||
        db_many(p->db, &STMTS[HEADS],
            DB_ARGS(pool, from, with, tenants, DB_INT8(ask->per_tenant), DB_INT8(most + 1)),
            &p->jobs, e) < 0 ||
        read_jobs(p, (size_t)most, e) < 0)
        return -1;
    if (none == 0)
        p->window_next = db_text(&p->next, 0, 0);
    p->snapshot.window.part = none == 0 || p->window_from[0] != '\0';
    if ((int64_t)p->snapshot.n_jobs >= ask->per_tenant || p->snapshot.window.part)
        p->snapshot.more = true;
    return 0;
}

static int ask_jobs(struct plan *p, const struct plan_ask *ask, struct err *e)
{
    const int64_t most = ask->jobs < JOBS_MAX ? ask->jobs : JOBS_MAX;

    if (ask->per_tenant > 0)
        return ask_heads(p, ask, most, e);
    return db_many(p->db, &STMTS[JOBS],
               DB_ARGS(DB_INT8(p->lease->pool_id), DB_INT8(most + 1), DB_BOOL(ask->with_requests)),
               &p->jobs, e) < 0
               ? -1
               : read_jobs(p, (size_t)most, e);
}

static int read_snapshot(struct plan *p, const struct plan_ask *ask, struct err *e)
{
    const struct db_arg pool = DB_INT8(p->lease->pool_id);

    p->snapshot.max_provisioning = ask->max_provisioning;
    p->snapshot.now_us = db_now_us();
    if (db_many(p->db, &STMTS[TENANTS], DB_ARGS(pool), &p->tenants, e) < 0 ||
        read_tenants(p, e) < 0)
        return -1;
    if (p->drained)
        return 0;
    if (ask_jobs(p, ask, e) < 0)
        return -1;
    if (ask->per_tenant > 0 &&
        (db_many(p->db, &STMTS[TURNS], DB_ARGS(pool), &p->turns, e) < 0 || read_turns(p, e) < 0))
        return -1;
    if (ask->taken_since_us > 0 &&
        (db_many(p->db, &STMTS[TAKEN], DB_ARGS(pool, DB_INT8(ask->taken_since_us)), &p->takens, e) <
                0 ||
            read_taken(p, e) < 0))
        return -1;
    return 0;
}

static int read_fence(struct plan *p, struct err *e)
{
    const struct db_int8_at numbers[] = {
        { 0, &p->snapshot.round },
        { 3, &p->snapshot.window.round },
        { 4, &p->snapshot.window.left },
    };
    p->window_from = db_text(&p->fence, 0, 2);
    if (db_int8s(&p->fence, 0, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
        return -1;
    return db_bool(&p->fence, 0, 1, &p->drained, e);
}

int plan_begin(struct db *db, const struct lease *l, const struct plan_ask *ask, struct plan *out,
    struct err *e)
{
    cleanup_plan struct plan p = PLAN_INIT;
    p.db = db;
    p.lease = l;
    p.provisioner = ask->provisioner;
    p.began_ns = clock_mono_ns();
    if (db_begin(db, &p.txn, e) < 0)
        return err_wrap(e, "plan");
    int lost = db_opt(db, &STMTS[FENCE],
        DB_ARGS(DB_INT8(l->pool_id), DB_TEXT(l->holder), DB_INT8(l->epoch)), &p.fence, e);
    if (lost == 1)
        return 1;
    if (lost < 0 || read_fence(&p, e) < 0 || read_snapshot(&p, ask, e) < 0)
        return err_wrap(e, "plan");
    HAND_OVER(out, &p, ((struct plan)PLAN_INIT));
    return 0;
}

static int write_plan(struct plan *p, const char *actor, const struct plan_order *o, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const struct db_arg pool = DB_INT8(p->lease->pool_id);
    const int gone = db_opt(p->db, &STMTS[PLAN],
        DB_ARGS(DB_TEXT(o->job->id), DB_INT8(o->job->version), DB_INT8(p->lease->epoch),
            DB_TEXT(actor), DB_TEXT(o->detail_json), DB_TEXT(o->spec_json),
            DB_TEXT(p->provisioner)),
        &rows, e);

    if (gone != 0 || o->finish == 0)
        return gone;
    return db_exec(
        p->db, &STMTS[TURN], DB_ARGS(pool, DB_TEXT(o->job->tenant), DB_INT8(o->finish)), NULL, e);
}

static int write_wait(struct plan *p, const struct plan_order *o, struct err *e)
{
    const struct db_arg id = DB_TEXT(o->job->id);
    const struct db_arg version = DB_INT8(o->job->version);
    const struct db_arg code = DB_TEXT(o->error_code);
    const struct db_arg error = DB_TEXT(o->error);
    int64_t n = 0;
    const int rc =
        o->verdict == POLICY_DEFER
            ? db_exec(p->db, &STMTS[DEFER], DB_ARGS(id, version, code, error, DB_INT8(o->delay_ms)),
                  &n, e)
            : db_exec(p->db, &STMTS[PASS_OVER], DB_ARGS(id, version, code, error), &n, e);

    return rc < 0 ? -1 : n == 0;
}

/* One order, and what came of it. */
static int write_order(struct plan *p, const char *actor, const struct plan_order *o,
    struct plan_result *result, struct err *e)
{
    int64_t *const counts[] = {
        [POLICY_PLAN] = &result->planned,
        [POLICY_DEFER] = &result->deferred,
        [POLICY_PASS_OVER] = &result->passed_over,
    };

    if (o->verdict == POLICY_PASS_OVER && o->job->passed_over_us != 0)
        return 0; /* is written already */
    const int gone = o->verdict == POLICY_PLAN ? write_plan(p, actor, o, e) : write_wait(p, o, e);
    if (gone < 0)
        return -1;
    *(gone ? &result->gone : counts[o->verdict]) += 1;
    return 0;
}

static int check_limit(const struct plan *p, const struct plan_orders *orders, struct err *e)
{
    int64_t sum = p->snapshot.provisioning;
    int64_t most = p->snapshot.max_provisioning;
    int64_t wanted = 0;
    for (size_t i = 0; i < orders->n; i++)
        wanted += orders->order[i].verdict == POLICY_PLAN;
    if (wanted > 0 && sum + wanted > most)
        return err_set(e, ERR_INTERNAL, "the policy would have %lld jobs provisioning, not %lld",
            (long long)(sum + wanted), (long long)most);
    return 0;
}

static int write_note(
    struct plan *p, const struct plan_orders *orders, int64_t planned, struct err *e)
{
    const struct db_arg pool = DB_INT8(p->lease->pool_id);
    const struct db_arg round = DB_INT8(orders->round);
    /* While one plan sees all tenants the window begins anew each time. */
    const bool moves = !p->drained && (!p->snapshot.window.part || orders->window_done);
    const int64_t took_us = (clock_mono_ns() - p->began_ns) / (NS_PER_MS / US_PER_MS);

    if (db_exec(p->db, &STMTS[NOTE],
            DB_ARGS(pool, DB_INT8(took_us), DB_INT8(planned), round, DB_BOOL(moves),
                DB_TEXT(p->window_next), DB_INT8(moves ? -1 : orders->window_left)),
            NULL, e) < 0)
        return -1;
    return orders->round == 0 ? 0 : db_exec(p->db, &STMTS[PURGE], DB_ARGS(pool, round), NULL, e);
}

int plan_commit(struct plan *p, const char *actor, const struct plan_orders *orders,
    struct plan_result *out, struct err *e)
{
    struct plan_result got = { .planned = 0 };
    if (check_limit(p, orders, e) < 0)
        return err_wrap(e, "plan");
    for (size_t i = 0; i < orders->n; i++) {
        const struct plan_order *o = &orders->order[i];
        if (write_order(p, actor, o, &got, e) < 0)
            return err_wrap(e, "plan of job %s", o->job->id);
    }
    if (write_note(p, orders, got.planned, e) < 0 || db_commit(&p->txn, e) < 0)
        return err_wrap(e, "plan");
    *out = got;
    return 0;
}
