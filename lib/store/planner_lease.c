/* SPDX-License-Identifier: Apache-2.0 */
#include "store/planner_lease.h"

#include "base/clock.h"
#include "base/str.h"
#include "db/db_row.h"

enum stmt { HOLDER, LOOK, TAKE, RENEW, STEP_DOWN };

/* clock_timestamp(), not now(): that is the start of the statement and lies before a wait for the row. */
#define UNTIL(ms) "clock_timestamp() + " ms "::bigint * interval '1 millisecond'"
#define OURS      "l.holder = excluded.holder AND l.expires_at >= clock_timestamp()"

static const struct db_stmt STMTS[] = {
    [HOLDER] = { "lease_holder", "SELECT gen_random_uuid()", 0 },
    [LOOK] = { "lease_look",
        "SELECT 1 FROM planner_lease WHERE pool_id = $1::smallint AND holder <> $2::uuid"
        " AND expires_at > clock_timestamp()",
        2 },
    [TAKE] = { "lease_take",
        "INSERT INTO planner_lease AS l (pool_id, holder, holder_name, epoch, acquired_at,"
        " expires_at) VALUES ($1::smallint, $2::uuid, $3, 1, clock_timestamp(), " UNTIL(
            "$4") ")"
                  " ON CONFLICT (pool_id) DO UPDATE SET holder = excluded.holder,"
                  " holder_name = excluded.holder_name,"
                  " epoch = l.epoch + CASE WHEN " OURS " THEN 0 ELSE 1 END,"
                  " acquired_at = CASE WHEN " OURS " THEN l.acquired_at ELSE clock_timestamp() END,"
                  " expires_at = " UNTIL(
                      "$4") " WHERE l.holder = excluded.holder OR l.expires_at < clock_timestamp() RETURNING epoch",
        4 },
    [RENEW] = { "lease_renew",
        "UPDATE planner_lease SET expires_at = " UNTIL(
            "$4") " WHERE pool_id = $1::smallint AND holder = $2::uuid AND epoch = $3"
                  " AND expires_at > clock_timestamp()",
        4 },
    [STEP_DOWN] = { "lease_step_down",
        "UPDATE planner_lease SET expires_at = clock_timestamp()"
        " WHERE pool_id = $1::smallint AND holder = $2::uuid AND epoch = $3"
        " AND expires_at > clock_timestamp()",
        3 },
};

const struct db_stmts PLANNER_LEASE_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

int lease_new_holder(struct db *db, char out[UUID_SIZE], struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_one(db, &STMTS[HOLDER], DB_NO_ARGS, &rows, e) < 0)
        return -1;
    if (str_copy(out, UUID_SIZE, db_text(&rows, 0, 0)) < 0)
        return err_set(e, ERR_INTERNAL, "postgres made a uuid that is none");
    return 0;
}

int lease_look(struct db *db, int64_t pool_id, const char *holder, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none = db_opt(db, &STMTS[LOOK], DB_ARGS(DB_INT8(pool_id), DB_TEXT(holder)), &rows, e);
    return none < 0 ? err_wrap(e, "lease") : !none;
}

/* Trust is counted from before the question was sent. */
static int64_t trusted_until(int64_t sent_ns, int64_t ttl_ms)
{
    return sent_ns + ttl_ms * NS_PER_MS / 15 * 13;
}

int lease_take(struct db *db, int64_t pool_id, const struct lease_claimant *who, struct lease *out,
    struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t sent_ns = clock_mono_ns();
    int64_t epoch = 0;
    int none = db_opt(db, &STMTS[TAKE],
        DB_ARGS(DB_INT8(pool_id), DB_TEXT(who->holder), DB_TEXT(who->name), DB_INT8(who->ttl_ms)),
        &rows, e);
    if (none == 1)
        return 1;
    if (none < 0 || db_int8(&rows, 0, 0, &epoch, e) < 0)
        return err_wrap(e, "lease");
    *out = (struct lease){
        .pool_id = pool_id,
        .epoch = epoch,
        .ttl_ms = who->ttl_ms,
        .trusted_until_ns = trusted_until(sent_ns, who->ttl_ms),
    };
    (void)str_copy(out->holder, sizeof out->holder, who->holder);
    return 0;
}

int lease_renew(struct db *db, struct lease *l, struct err *e)
{
    int64_t sent_ns = clock_mono_ns();
    int64_t n = 0;
    if (db_exec(db, &STMTS[RENEW],
            DB_ARGS(DB_INT8(l->pool_id), DB_TEXT(l->holder), DB_INT8(l->epoch), DB_INT8(l->ttl_ms)),
            &n, e) < 0)
        return err_wrap(e, "lease");
    if (n == 0)
        return 1;
    l->trusted_until_ns = trusted_until(sent_ns, l->ttl_ms);
    return 0;
}

int lease_step_down(struct db *db, const struct lease *l, struct err *e)
{
    if (db_exec(db, &STMTS[STEP_DOWN],
            DB_ARGS(DB_INT8(l->pool_id), DB_TEXT(l->holder), DB_INT8(l->epoch)), NULL, e) < 0)
        return err_wrap(e, "lease");
    return 0;
}

bool lease_trusted(const struct lease *l, int64_t now_ns)
{
    return now_ns < l->trusted_until_ns;
}
