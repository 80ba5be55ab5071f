/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/job_sql.h"
#include "store/sql_time.h"

enum stmt { LOOK, CLAIM, RENEW, HAND_BACK, INTENT_BEGIN, EXPIRE };

/* A row that nobody holds. */
#define FREE(row)  "(" row ".lease_until IS NULL OR " row ".lease_until < now())"
#define POOLS(row) row ".pool_id = ANY ($1::smallint[])"
#define TIME(time) ", " SQL_US(time)

/* Of row leases: $1 the jobs, $2 their epochs. */
#define HELD \
    " FROM unnest($1::uuid[], $2::bigint[]) h (job_id, epoch) WHERE r.job_id = h.job_id" \
    " AND r.lease_epoch = h.epoch AND r.lease_owner IS NOT NULL"

/* What there is to plan anew: jobs that were queued, pools that were resumed. */
#define LOOK_ENTERED \
    "(SELECT coalesce(sum(c.entered), 0)::bigint FROM job_count c WHERE c.state = 0" \
    " AND " POOLS("c") ") + (SELECT coalesce(sum(o.resumed), 0) FROM pool o" \
                       " WHERE o.id = ANY ($1::smallint[])) AS entered"
#define LOOK_DELAYED \
    "(SELECT min(q.not_before) FROM job_run q WHERE q.state = 0 AND q.not_before IS NOT NULL" \
    " AND q.not_before > now() AND " POOLS("q") ") AS delayed"
#define LOOK_POLL \
    "(SELECT min(greatest(q.next_poll_at, '1970-01-02 00:00Z')) FROM job_run q WHERE q.state > 0" \
    " AND " POOLS("q") " AND " FREE("q") ") AS poll"
#define LOOK_RELEASE \
    "(SELECT min(i.next_at) FROM intent i WHERE i.state = 0 AND i.kind >= " K_RELEASE \
    " AND " POOLS("i") " AND " FREE("i") ") AS release"
#define LOOK_DEADLINE \
    "(SELECT min(q.queue_deadline) FROM job_run q WHERE q.state = 0" \
    " AND " POOLS("q") ") AS deadline"

/* r is the job, p the provision of its attempt, i the oldest open intent that the holder of the job settles. */
#define CLAIM_COLUMNS SQL_CLOCK CLAIM_TEXTS CLAIM_NUMBERS CLAIM_TIMES
#define CLAIM_TEXTS \
    ", r.job_id, r.provision_key, r.batch_id, r.batch, i.payload, p.id, p.provider, p.status," \
    " p.region, p.spec, p.details, r.machines"
#define CLAIM_NUMBERS \
    ", r.pool_id, r.state, r.version, r.lease_epoch, r.attempts, r.timeouts, r.failures, r.lost," \
    " coalesce(r.stamps[r.state + 1], 0), coalesce(i.id, 0), coalesce(i.kind, 0)," \
    " coalesce(i.attempts, 0)"
#define CLAIM_TIMES \
    TIME("r.enqueued_at") \
    TIME("r.queue_deadline") \
    TIME("r.expires_at") \
    TIME("r.cancel_requested_at") \
    TIME("i.began_at") \
    TIME("i.created_at") \
    TIME("p.starts_at") \
    TIME("p.ends_at") \
    TIME("p.created_at")

static const struct db_stmt STMTS[] = {
    /* OFFSET 0 keeps each look-up one look-up: SQL_US names its time more than once. */
    [LOOK] = { "run_look",
        "SELECT " SQL_CLOCK ", x.entered" TIME("x.delayed") TIME("x.poll") TIME("x.release")
            TIME("x.deadline") " FROM (SELECT " LOOK_ENTERED ", " LOOK_DELAYED ", " LOOK_POLL
                               ", " LOOK_RELEASE ", " LOOK_DEADLINE " OFFSET 0) x",
        1 },
    /* MATERIALIZED: the rows are picked once, whatever plan the update gets. */
    [CLAIM] = { "run_claim",
        "WITH due AS MATERIALIZED (SELECT q.job_id FROM job_run q WHERE q.state > 0"
        "  AND " POOLS(
            "q") " AND (1 << q.state) & $5::int <> 0 AND q.next_poll_at <= now()"
                 "  AND " FREE(
                     "q") " ORDER BY q.next_poll_at LIMIT $3 FOR UPDATE SKIP LOCKED),"
                          " r AS (UPDATE job_run r SET lease_owner = $2::uuid, lease_epoch = r.lease_epoch + 1,"
                          "  lease_until = now() + $4::bigint * interval '1 millisecond',"
                          "  next_poll_at = now() + $4::bigint * interval '1 millisecond'"
                          "  FROM due WHERE r.job_id = due.job_id RETURNING r.*)"
                          " SELECT " CLAIM_COLUMNS
                          " FROM r LEFT JOIN provision p ON p.key = r.provision_key"
                          " LEFT JOIN LATERAL (SELECT * FROM intent i WHERE i.job_id = r.job_id AND i.state = 0"
                          "  AND i.kind < " K_RELEASE " ORDER BY i.id LIMIT 1) i ON true",
        5 },
    [RENEW] = { "run_renew",
        "UPDATE job_run r SET lease_until = now() + $3::bigint * interval '1 millisecond',"
        " next_poll_at = " NEXT_POLL_IN("$3") HELD " RETURNING r.job_id",
        3 },
    [HAND_BACK] = { "run_hand_back",
        "UPDATE job_run r SET lease_owner = NULL, lease_until = NULL,"
        " failures = CASE WHEN $3::bigint > 0 THEN 0 ELSE failures END,"
        " lost = CASE WHEN $3::bigint > 0 THEN 0 ELSE lost END,"
        " next_poll_at = " NEXT_POLL_IN("$3") HELD,
        3 },
    [INTENT_BEGIN] = { "run_intent_begin",
        "UPDATE intent i SET attempts = i.attempts + 1, began_at = clock_timestamp() FROM job_run r"
        " WHERE i.id = $3 AND i.state = 0 AND i.job_id = r.job_id AND r.job_id = $1::uuid"
        " AND r.lease_epoch = $2 AND r.lease_until > clock_timestamp()",
        3 },
    [EXPIRE] = { "run_expire_queued",
        "WITH due AS MATERIALIZED (SELECT q.job_id FROM job_run q WHERE q.state = 0 AND " POOLS(
            "q") "  AND q.queue_deadline <= now() ORDER BY q.queue_deadline LIMIT $2 FOR UPDATE SKIP LOCKED)"
                 " UPDATE job_run r SET state = " S_EXPIRED ", event = " E_QUEUE_EXPIRE
                 ", event_epoch = 0,"
                 " actor = 'planner', detail = NULL, version = version + 1, error_code = 'queue_deadline',"
                 " error = coalesce('not started before its queue deadline; last: ' || error,"
                 "  'not started before its queue deadline')"
                 " FROM due WHERE r.job_id = due.job_id",
        2 },
};

const struct db_stmts JOB_RUN_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

enum { ARRAY_MAX = 8 << 20, RUN_STATES_ALL = (1 << JOB_STATE__COUNT) - 1 };

/* "{1,2}" */
void run_pools_text(struct run_pools pools, struct buf *out)
{
    assert(pools.n <= RUN_POOLS_MAX);
    buf_putc(out, '{');
    for (size_t i = 0; i < pools.n; i++)
        buf_printf(out, "%s%lld", i == 0 ? "" : ",", (long long)pools.id[i]);
    buf_putc(out, '}');
}

static void held_text(const struct run_held *held, size_t n, struct buf *ids, struct buf *epochs)
{
    buf_putc(ids, '{');
    buf_putc(epochs, '{');
    for (size_t i = 0; i < n; i++) {
        buf_printf(ids, "%s%s", i == 0 ? "" : ",", held[i].id);
        buf_printf(epochs, "%s%lld", i == 0 ? "" : ",", (long long)held[i].lease_epoch);
    }
    buf_putc(ids, '}');
    buf_putc(epochs, '}');
}

int run_look(struct db *db, struct run_pools pools, struct run_look *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_buf struct buf ids = BUF_INIT(ARRAY_MAX);
    struct run_look l = { .now_us = 0 };
    const struct db_int8_at numbers[] = {
        { 0, &l.now_us },
        { 1, &l.entered },
        { 2, &l.plan_due_us },
        { 3, &l.claim_due_us },
        { 4, &l.release_due_us },
        { 5, &l.overdue_us },
    };
    run_pools_text(pools, &ids);
    if (db_one(db, &STMTS[LOOK], DB_ARGS(DB_TEXT(ids.data)), &rows, e) < 0 ||
        db_int8s(&rows, 0, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
        return err_wrap(e, "look");
    db_saw_clock(l.now_us);
    *out = l;
    return 0;
}

void run_claims_free(struct run_claims *c)
{
    free(c->claim);
    c->claim = NULL;
    c->n = 0;
    db_rows_free(&c->rows);
}

enum col {
    COL_CLOCK,
    COL_ID,
    COL_PROVISION_KEY,
    COL_BATCH_ID,
    COL_BATCH,
    COL_PAYLOAD,
    COL_P_ID,
    COL_P_PROVIDER,
    COL_P_STATUS,
    COL_P_REGION,
    COL_P_SPEC,
    COL_P_DETAILS,
    COL_MACHINES,
    COL_POOL,
    COL_STATE,
    COL_VERSION,
    COL_EPOCH,
    COL_ATTEMPTS,
    COL_TIMEOUTS,
    COL_FAILURES,
    COL_LOST,
    COL_STATE_AT,
    COL_I_ID,
    COL_I_KIND,
    COL_I_ATTEMPTS,
    COL_ENQUEUED,
    COL_QUEUE_DEADLINE,
    COL_EXPIRES,
    COL_CANCEL_REQUESTED,
    COL_I_BEGAN,
    COL_I_CREATED,
    COL_P_STARTS,
    COL_P_ENDS,
    COL_P_CREATED
};

static int read_numbers(const struct db_rows *rows, int row, struct run_claim *c, struct err *e)
{
    int64_t state = 0;
    int64_t kind = 0;
    struct job_run *r = &c->run;
    const struct db_int8_at numbers[] = {
        { COL_POOL, &r->pool_id },
        { COL_STATE, &state },
        { COL_VERSION, &r->version },
        { COL_EPOCH, &r->lease_epoch },
        { COL_ATTEMPTS, &r->attempts },
        { COL_TIMEOUTS, &r->timeouts },
        { COL_FAILURES, &r->failures },
        { COL_LOST, &r->lost },
        { COL_STATE_AT, &r->state_us },
        { COL_ENQUEUED, &r->enqueued_us },
        { COL_QUEUE_DEADLINE, &r->queue_deadline_us },
        { COL_EXPIRES, &r->expires_us },
        { COL_CANCEL_REQUESTED, &r->cancel_requested_us },
        { COL_I_ID, &c->intent.id },
        { COL_I_KIND, &kind },
        { COL_I_ATTEMPTS, &c->intent.attempts },
        { COL_I_BEGAN, &c->intent.began_us },
        { COL_I_CREATED, &c->intent.created_us },
        { COL_P_STARTS, &c->provision.starts_us },
        { COL_P_ENDS, &c->provision.ends_us },
        { COL_P_CREATED, &c->provision.created_us },
    };
    if (db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e) < 0 ||
        db_bool(rows, row, COL_MACHINES, &r->machines, e) < 0)
        return -1;
    r->state = (enum job_state)state;
    c->intent.kind = (enum intent_kind)kind;
    return 0;
}

static int read_claim(const struct db_rows *rows, int row, struct run_claim *c, struct err *e)
{
    (void)str_copy(c->run.id, sizeof c->run.id, db_text(rows, row, COL_ID));
    c->run.provision_key = db_text(rows, row, COL_PROVISION_KEY);
    c->run.batch_id = db_text(rows, row, COL_BATCH_ID);
    c->run.batch_json = db_text(rows, row, COL_BATCH);
    c->intent.payload_json = db_text(rows, row, COL_PAYLOAD);
    c->provision.id = db_text(rows, row, COL_P_ID);
    c->provision.provider = db_text(rows, row, COL_P_PROVIDER);
    c->provision.status = db_text(rows, row, COL_P_STATUS);
    c->provision.region = db_text(rows, row, COL_P_REGION);
    c->provision.spec_json = db_text(rows, row, COL_P_SPEC);
    c->provision.details_json = db_text(rows, row, COL_P_DETAILS);
    return read_numbers(rows, row, c, e) < 0 ? err_wrap(e, "job %s", c->run.id) : 0;
}

int run_claim(struct db *db, const struct run_ask *ask, struct run_claims *out, struct err *e)
{
    cleanup_run_claims struct run_claims got = RUN_CLAIMS_INIT;
    cleanup_buf struct buf ids = BUF_INIT(RUN_POOLS_TEXT_MAX);
    const unsigned states = ask->states == 0 ? RUN_STATES_ALL : ask->states & RUN_STATES_ALL;
    run_pools_text(ask->pools, &ids);
    if (db_many(db, &STMTS[CLAIM],
            DB_ARGS(DB_TEXT(ids.data), DB_TEXT(ask->owner),
                DB_INT8(ask->limit < RUN_CLAIM_MAX ? ask->limit : RUN_CLAIM_MAX),
                DB_INT8(ask->lease_ms), DB_INT8(states)),
            &got.rows, e) < 0)
        return err_wrap(e, "claim");
    size_t n = (size_t)db_rows_count(&got.rows);
    got.claim = mem_calloc(n + 1, sizeof *got.claim);
    for (; got.n < n; got.n++) {
        if (read_claim(&got.rows, (int)got.n, &got.claim[got.n], e) < 0)
            return err_wrap(e, "claim");
    }
    if (n > 0 && db_int8(&got.rows, 0, COL_CLOCK, &got.now_us, e) < 0)
        return err_wrap(e, "claim");
    HAND_OVER(out, &got, ((struct run_claims)RUN_CLAIMS_INIT));
    return 0;
}

static bool holds(const struct db_rows *rows, const char *id)
{
    for (int i = 0; i < db_rows_count(rows); i++) {
        if (strcmp(db_text(rows, i, 0), id) == 0)
            return true;
    }
    return false;
}

int run_renew(struct db *db, const struct run_held *held, size_t n, int64_t lease_ms, bool *lost,
    struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_buf struct buf ids = BUF_INIT(ARRAY_MAX);
    cleanup_buf struct buf epochs = BUF_INIT(ARRAY_MAX);
    held_text(held, n, &ids, &epochs);
    if (db_many(db, &STMTS[RENEW],
            DB_ARGS(DB_TEXT(ids.data), DB_TEXT(epochs.data), DB_INT8(lease_ms)), &rows, e) < 0)
        return err_wrap(e, "renewal");
    for (size_t i = 0; i < n && lost != NULL; i++)
        lost[i] = !holds(&rows, held[i].id);
    return 0;
}

int run_hand_back(
    struct db *db, const struct run_held *held, size_t n, int64_t poll_ms, struct err *e)
{
    cleanup_buf struct buf ids = BUF_INIT(ARRAY_MAX);
    cleanup_buf struct buf epochs = BUF_INIT(ARRAY_MAX);
    held_text(held, n, &ids, &epochs);
    if (db_exec(db, &STMTS[HAND_BACK],
            DB_ARGS(DB_TEXT(ids.data), DB_TEXT(epochs.data), DB_INT8(poll_ms)), NULL, e) < 0)
        return err_wrap(e, "handing back");
    return 0;
}

int run_intent_begin(struct db *db, const struct run_held *held, int64_t intent_id, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, &STMTS[INTENT_BEGIN],
            DB_ARGS(DB_TEXT(held->id), DB_INT8(held->lease_epoch), DB_INT8(intent_id)), &n, e) < 0)
        return err_wrap(e, "job %s", held->id);
    return n == 0;
}

int run_expire_queued(
    struct db *db, struct run_pools pools, int64_t limit, int64_t *n, struct err *e)
{
    cleanup_buf struct buf ids = BUF_INIT(RUN_POOLS_TEXT_MAX);
    run_pools_text(pools, &ids);
    if (db_exec(db, &STMTS[EXPIRE], DB_ARGS(DB_TEXT(ids.data), DB_INT8(limit)), n, e) < 0)
        return err_wrap(e, "queue deadlines");
    return 0;
}
