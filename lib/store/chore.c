/* SPDX-License-Identifier: Apache-2.0 */
#include "store/chore.h"

#include "db/db_row.h"
#include "store/job_sql.h"

enum stmt { CLAIM, PARTITIONS, RETIRE, DROP };

static const struct db_stmt STMTS[] = {
    [CLAIM] = { "chore_claim",
        "INSERT INTO chore AS c (name, next_at, holder, taken_at) VALUES ($1, clock_timestamp() +"
        " $2::bigint * interval '1 second', $3, clock_timestamp())"
        " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, taken_at = clock_timestamp(),"
        " next_at = clock_timestamp() + $2::bigint * interval '1 second'"
        " WHERE c.next_at <= clock_timestamp()",
        3 },
    [PARTITIONS] = { "chore_partitions",
        "WITH made AS (SELECT job_event_partitions(2) AS n)"
        " SELECT n FROM made",
        0 },
    /* The oldest first; file references go with their job. */
    [RETIRE] = { "chore_retire",
        "WITH old AS MATERIALIZED (SELECT j.id, j.pool_id, j.final_state FROM job j"
        "  WHERE j.final_state IS NOT NULL AND j.finished_at < now() - $1::bigint * interval '1 day'"
        "  AND NOT EXISTS (SELECT FROM intent i WHERE i.job_id = j.id AND i.state = 0)"
        "  ORDER BY j.finished_at LIMIT $2 FOR UPDATE OF j SKIP LOCKED),"
        " counted AS (INSERT INTO job_count AS c (pool_id, state, slot, n, entered)"
        "  SELECT pool_id, final_state, pg_backend_pid() % 32, -count(*), 0 FROM old GROUP BY 1, 2"
        "  ORDER BY 1, 2 ON CONFLICT (pool_id, state, slot) DO UPDATE SET n = c.n + excluded.n),"
        " intents AS (DELETE FROM intent i USING old WHERE i.job_id = old.id),"
        " provisions AS (DELETE FROM provision p USING old WHERE p.job_id = old.id)"
        " DELETE FROM job j USING old WHERE j.id = old.id",
        2 },
    [DROP] = { "chore_drop_events",
        "WITH dropped AS (SELECT job_event_drop($1::int) AS n)"
        " SELECT n FROM dropped",
        1 },
};

const struct db_stmts CHORE_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

int chore_claim(struct db *db, const char *name, int64_t every_s, const char *holder, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, &STMTS[CLAIM], DB_ARGS(DB_TEXT(name), DB_INT8(every_s), DB_TEXT(holder)), &n,
            e) < 0)
        return err_wrap(e, "chore %s", name);
    return n == 0;
}

static int count_of(
    struct db *db, const struct db_stmt *s, struct db_args a, int64_t *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_one(db, s, a, &rows, e) < 0 || db_int8(&rows, 0, 0, out, e) < 0)
        return err_wrap(e, "partitions of job_event");
    return 0;
}

int chore_event_partitions(struct db *db, int64_t *made, struct err *e)
{
    return count_of(db, &STMTS[PARTITIONS], DB_NO_ARGS, made, e);
}

int chore_retire_jobs(struct db *db, int64_t keep_days, int64_t limit, int64_t *n, struct err *e)
{
    if (db_exec(db, &STMTS[RETIRE], DB_ARGS(DB_INT8(keep_days), DB_INT8(limit)), n, e) < 0)
        return err_wrap(e, "retention of jobs");
    return 0;
}

int chore_drop_events(struct db *db, int64_t keep_days, int64_t *dropped, struct err *e)
{
    return count_of(db, &STMTS[DROP], DB_ARGS(DB_INT8(keep_days)), dropped, e);
}
