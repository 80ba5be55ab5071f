/* SPDX-License-Identifier: Apache-2.0 */
#include "store/intent.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/job_sql.h"
#include "store/sql_time.h"

enum stmt { CLAIM, DONE, RETRY, RENEW, BACKLOG };

/* i is the intent, p the provision that it is about. */
#define COLUMNS \
    SQL_CLOCK ", i.job_id, i.subject, i.error, p.provider, p.region, p.details, i.id," \
              " i.lease_epoch, i.pool_id, i.kind, i.attempts," \
              " coalesce(split_part(p.key, ':', 2)::int, 0), " SQL_US("i.created_at") ", " SQL_US( \
                  "i.next_at")

static const struct db_stmt STMTS[] = {
    /* p: releasing from now on, unless all of it was released before and this is about what came late. */
    [CLAIM] = { "release_claim",
        "WITH due AS MATERIALIZED (SELECT q.id FROM intent q WHERE q.state = 0"
        "  AND q.kind IN (" K_RELEASE ", " K_STRAY_BATCH ") AND q.pool_id = ANY ($1::smallint[])"
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
        " s AS (UPDATE provision p SET status = 'release_failed', error = $3,"
        "  updated_at = clock_timestamp() FROM i WHERE i.kind = " K_RELEASE
        " AND p.key = i.subject)"
        " SELECT 1 FROM i",
        4 },
    [RENEW] = { "release_renew",
        "UPDATE intent i SET lease_until = now() + $3::bigint * interval '1 millisecond'"
        " WHERE i.id = $1 AND i.lease_epoch = $2 AND i.state = 0 AND i.lease_owner IS NOT NULL",
        3 },
    [BACKLOG] = { "release_backlog",
        "SELECT " COLUMNS " FROM intent i LEFT JOIN provision p ON i.kind = " K_RELEASE
        " AND p.key = i.subject WHERE i.state = 0 AND i.kind IN (" K_RELEASE ", " K_STRAY_BATCH ")"
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
    COL_NEXT
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
    *out = got;
    got = (struct releases)RELEASES_INIT;
    return 0;
}

int release_claim(struct db *db, struct run_pools pools, const char *owner, int64_t limit,
    struct releases *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_buf struct buf ids = BUF_INIT(RUN_POOLS_TEXT_MAX);
    run_pools_text(pools, &ids);
    if (db_many(db, &STMTS[CLAIM],
            DB_ARGS(DB_TEXT(ids.data), DB_TEXT(owner), DB_INT8(limit), DB_INT8(RUN_LEASE_MS)),
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

int release_renew(struct db *db, const struct release *r, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, &STMTS[RENEW],
            DB_ARGS(DB_INT8(r->id), DB_INT8(r->lease_epoch), DB_INT8(RUN_LEASE_MS)), &n, e) < 0)
        return err_wrap(e, "release %lld", (long long)r->id);
    return n == 0;
}

int release_backlog(struct db *db, int64_t limit, struct releases *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_many(db, &STMTS[BACKLOG], DB_ARGS(DB_INT8(limit)), &rows, e) < 0)
        return err_wrap(e, "releases");
    return take(&rows, out, e);
}
