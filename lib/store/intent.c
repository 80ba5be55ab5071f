/* SPDX-License-Identifier: Apache-2.0 */
#include "store/intent.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/job_sql.h"
#include "store/sql_time.h"

enum stmt { CLAIM, DONE, RETRY, HAND_BACK, RENEW, OPEN, OPEN_BATCH, BACKLOG };

/* Their provider is that of the provision row, unless they were seen elsewhere: that is kept in payload.
 * What was done, or never asked for, is to be done now; what is open already stays. */
#define ONCE_MORE \
    " ON CONFLICT (idem_key) DO UPDATE SET state = 0, ended_at = NULL, payload = excluded.payload," \
    " next_at = clock_timestamp(), lease_owner = NULL, lease_until = NULL," \
    " lease_epoch = i.lease_epoch + 1 WHERE i.state <> 0"

/* i is the intent, p the provision that it is about. The launch is announced in an intent of the same subject. */
#define LAUNCHED \
    "(SELECT max(l.began_at) FROM intent l WHERE l.job_id = i.job_id AND l.kind = " K_PROVISION \
    " AND l.subject = i.subject)"

#define COLUMNS \
    SQL_CLOCK \
    ", i.job_id, i.subject, i.error, coalesce(i.payload ->> 'provider', p.provider), p.region, p.details, i.id," \
    " i.lease_epoch, i.pool_id, i.kind, i.attempts," \
    " CASE WHEN i.kind = " K_RELEASE \
    " THEN split_part(i.subject, ':', 2)::int ELSE 0 END" TIME("i.created_at") TIME("i.next_at") \
        TIME(LAUNCHED)
#define TIME(time) ", " SQL_US(time)

static const struct db_stmt STMTS[] = {
    /* p: releasing from now on, unless all of it was released before and this is about what came late. */
    [CLAIM] = { "release_claim",
        "WITH due AS MATERIALIZED (SELECT q.id FROM intent q WHERE q.state = 0"
        "  AND q.kind >= " K_RELEASE " AND q.pool_id = ANY ($1::smallint[])"
        "  AND q.next_at <= now() AND (q.lease_until IS NULL OR q.lease_until < now())"
        "  ORDER BY q.next_at LIMIT $3 FOR UPDATE SKIP LOCKED),"
        " i AS (UPDATE intent i SET lease_owner = $2::uuid, lease_epoch = i.lease_epoch + 1,"
        "  lease_until = now() + $4::bigint * interval '1 millisecond', attempts = i.attempts + 1,"
        "  began_at = clock_timestamp() FROM due WHERE i.id = due.id RETURNING i.*),"
        " s AS (UPDATE provision p SET status = 'releasing', updated_at = clock_timestamp() FROM i"
        "  WHERE i.kind = " K_RELEASE " AND p.key = i.subject)"
        " SELECT " COLUMNS " FROM i LEFT JOIN provision p ON i.kind = " K_RELEASE
        " AND p.key = i.subject ORDER BY i.id",
        4 },
    [DONE] = { "release_done",
        "WITH i AS (UPDATE intent SET state = 1, ended_at = clock_timestamp(), lease_owner = NULL,"
        "  lease_until = NULL, error = NULL WHERE id = $1 AND lease_epoch = $2 AND state = 0"
        "  AND lease_owner IS NOT NULL RETURNING kind, subject),"
        " s AS (UPDATE provision p SET status = 'released', error = '',"
        "  updated_at = clock_timestamp() FROM i WHERE i.kind = " K_RELEASE
        " AND p.key = i.subject)"
        " SELECT 1 FROM i",
        2 },
    [RETRY] = { "release_retry",
        "WITH i AS (UPDATE intent SET error = $3, lease_owner = NULL, lease_until = NULL,"
        "  next_at = clock_timestamp() + $4::bigint * interval '1 millisecond'"
        "  WHERE id = $1 AND lease_epoch = $2 AND state = 0"
        "  AND lease_owner IS NOT NULL RETURNING kind, subject),"
        " s AS (UPDATE provision p SET error = $3,"
        "  status = CASE WHEN $3 = '' THEN 'releasing' ELSE 'release_failed' END,"
        "  updated_at = clock_timestamp() FROM i WHERE i.kind = " K_RELEASE
        " AND p.key = i.subject)"
        " SELECT 1 FROM i",
        4 },
    [HAND_BACK] = { "release_hand_back",
        "UPDATE intent i SET lease_owner = NULL, lease_until = NULL, attempts = i.attempts - 1"
        " WHERE i.id = $1 AND i.lease_epoch = $2 AND i.state = 0 AND i.lease_owner IS NOT NULL",
        2 },
    [OPEN] = { "release_open",
        "INSERT INTO intent AS i (job_id, pool_id, kind, subject, idem_key, payload)"
        " SELECT split_part($1, ':', 1)::uuid, coalesce((SELECT p.pool_id FROM provision p"
        "  WHERE p.key = $1), $2::smallint), " K_RELEASE ", $1, 'release:' || $1,"
        " jsonb_build_object('provider', $3::text)"
        " WHERE NOT EXISTS (SELECT FROM job_run r WHERE r.job_id = split_part($1, ':', 1)::uuid"
        "  AND r.provision_key = $1 AND r.machines)" ONCE_MORE,
        3 },
    [OPEN_BATCH] = { "stray_batch_open",
        "INSERT INTO intent AS i (job_id, pool_id, kind, subject, idem_key)"
        " SELECT j.id, j.pool_id, " K_STRAY_BATCH ", $2, 'stray_batch:' || $1 || ':' || $2"
        " FROM job j LEFT JOIN job_run r ON r.job_id = j.id WHERE j.id = $1::uuid"
        " AND CASE WHEN r.job_id IS NULL THEN j.batch_id IS DISTINCT FROM $2"
        "  ELSE r.batch_id <> $2 END AND NOT batch_is_anothers($2, j.id)" ONCE_MORE,
        2 },
    [RENEW] = { "release_renew",
        "UPDATE intent i SET lease_until = now() + $3::bigint * interval '1 millisecond'"
        " WHERE i.id = $1 AND i.lease_epoch = $2 AND i.state = 0 AND i.lease_owner IS NOT NULL",
        3 },
    [BACKLOG] = { "release_backlog",
        "SELECT " COLUMNS " FROM intent i LEFT JOIN provision p ON i.kind = " K_RELEASE
        " AND p.key = i.subject WHERE i.state = 0 AND i.kind >= " K_RELEASE
        " ORDER BY i.created_at, i.id LIMIT $1",
        1 },
};

const struct db_stmts INTENT_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void releases_free(struct releases *r)
{
    free(r->release);
    r->release = NULL;
    r->n = 0;
    db_rows_free(&r->rows);
}

enum col {
    COL_CLOCK,
    COL_JOB_ID,
    COL_SUBJECT,
    COL_ERROR,
    COL_PROVIDER,
    COL_REGION,
    COL_DETAILS,
    COL_ID,
    COL_EPOCH,
    COL_POOL,
    COL_KIND,
    COL_TRIES,
    COL_ATTEMPT,
    COL_CREATED,
    COL_NEXT,
    COL_LAUNCHED
};

static int read_release(const struct db_rows *rows, int row, struct release *r, struct err *e)
{
    int64_t kind = 0;
    const struct db_int8_at numbers[] = {
        { COL_ID, &r->id },
        { COL_EPOCH, &r->lease_epoch },
        { COL_POOL, &r->pool_id },
        { COL_KIND, &kind },
        { COL_TRIES, &r->tries },
        { COL_ATTEMPT, &r->attempt },
        { COL_CREATED, &r->created_us },
        { COL_NEXT, &r->next_us },
        { COL_LAUNCHED, &r->launched_us },
    };
    (void)str_copy(r->job_id, sizeof r->job_id, db_text(rows, row, COL_JOB_ID));
    r->error = db_text(rows, row, COL_ERROR);
    r->provider = db_text(rows, row, COL_PROVIDER);
    r->region = db_text(rows, row, COL_REGION);
    r->details_json = db_text(rows, row, COL_DETAILS);
    if (db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
        return -1;
    r->kind = (enum intent_kind)kind;
    r->provision_key = kind == INTENT_RELEASE ? db_text(rows, row, COL_SUBJECT) : "";
    r->batch_id = kind == INTENT_RELEASE ? "" : db_text(rows, row, COL_SUBJECT);
    return 0;
}

static int take(struct db_rows *rows, struct releases *out, struct err *e)
{
    cleanup_releases struct releases got = RELEASES_INIT;
    size_t n = (size_t)db_rows_count(rows);
    got.rows.res = STEAL(rows->res);
    got.release = mem_calloc(n + 1, sizeof *got.release);
    for (; got.n < n; got.n++) {
        if (read_release(&got.rows, (int)got.n, &got.release[got.n], e) < 0)
            return err_wrap(e, "releases");
    }
    if (n > 0 && db_int8(&got.rows, 0, COL_CLOCK, &got.now_us, e) < 0)
        return err_wrap(e, "releases");
    HAND_OVER(out, &got, ((struct releases)RELEASES_INIT));
    return 0;
}

int release_claim(struct db *db, const struct run_ask *ask, struct releases *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_buf struct buf ids = BUF_INIT(RUN_POOLS_TEXT_MAX);
    run_pools_text(ask->pools, &ids);
    if (db_many(db, &STMTS[CLAIM],
            DB_ARGS(DB_TEXT(ids.data), DB_TEXT(ask->owner), DB_INT8(ask->limit),
                DB_INT8(ask->lease_ms)),
            &rows, e) < 0)
        return err_wrap(e, "releases");
    return take(&rows, out, e);
}

int release_done(struct db *db, const struct release *r, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int lost = db_opt(db, &STMTS[DONE], DB_ARGS(DB_INT8(r->id), DB_INT8(r->lease_epoch)), &rows, e);
    return lost < 0 ? err_wrap(e, "release %lld", (long long)r->id) : lost;
}

int release_retry(
    struct db *db, const struct release *r, const char *error, int64_t delay_ms, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int lost = db_opt(db, &STMTS[RETRY],
        DB_ARGS(DB_INT8(r->id), DB_INT8(r->lease_epoch), DB_TEXT(error), DB_INT8(delay_ms)), &rows,
        e);
    return lost < 0 ? err_wrap(e, "release %lld", (long long)r->id) : lost;
}

int release_renew(struct db *db, const struct release *r, int64_t lease_ms, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, &STMTS[RENEW],
            DB_ARGS(DB_INT8(r->id), DB_INT8(r->lease_epoch), DB_INT8(lease_ms)), &n, e) < 0)
        return err_wrap(e, "release %lld", (long long)r->id);
    return n == 0;
}

int release_hand_back(struct db *db, const struct release *r, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, &STMTS[HAND_BACK], DB_ARGS(DB_INT8(r->id), DB_INT8(r->lease_epoch)), &n, e) < 0)
        return err_wrap(e, "release %lld", (long long)r->id);
    return n == 0;
}

int release_open(
    struct db *db, const char *provision_key, const char *provider, int64_t pool_id, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, &STMTS[OPEN],
            DB_ARGS(DB_TEXT(provision_key), DB_INT8(pool_id), DB_TEXT(provider)), &n, e) < 0)
        return err_wrap(e, "release of %s", provision_key);
    return n == 0;
}

int stray_batch_open(struct db *db, const char *job_id, const char *batch_id, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, &STMTS[OPEN_BATCH], DB_ARGS(DB_TEXT(job_id), DB_TEXT(batch_id)), &n, e) < 0)
        return err_wrap(e, "batch %s", batch_id);
    return n == 0;
}

int release_backlog(struct db *db, int64_t limit, struct releases *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_many(db, &STMTS[BACKLOG], DB_ARGS(DB_INT8(limit)), &rows, e) < 0)
        return err_wrap(e, "releases");
    return take(&rows, out, e);
}
