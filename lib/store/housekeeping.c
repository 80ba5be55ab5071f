/* SPDX-License-Identifier: Apache-2.0 */
#include "store/housekeeping.h"

#include <stdlib.h>
#include <string.h>

#include "db/db_row.h"
#include "store/gallery_row.h"
#include "store/live.h"
#include "store/load_row.h"

/* Rows of a batch, and batches of a step: what is left is for the next run. */
enum { BATCH = 500, BATCHES_MAX = 200 };

enum stmt {
    FAILED,
    ORPHANS,
    DELETE_ORPHAN,
    CLAIMS,
    STALE,
    GIVE_UP,
    HISTORY,
    CONTROLS,
};

/* Not heard of for so long. A stamp in the future is not: it counts as now. One that is unset is. */
#define SILENT(changed, interval) \
    "coalesce(" changed ", '-infinity') < now() - interval '" interval "'"
#define LOAD_SILENT(interval) SILENT(LOAD_CHANGED("j"), interval)

/* Deletes the loads of `old`, and their claims. */
#define DELETE_LOADS \
    " gone AS (DELETE FROM model_load_jobs j USING old WHERE j.tracking_key = old.tracking_key" \
    "  RETURNING j.tracking_key, j.created_at)," \
    " beside AS (DELETE FROM load_job_claims c USING gone j WHERE " LOAD_CLAIM_OF_ROW ")" \
    " SELECT count(*) FROM gone"

#define SHORT_CLAIM "coalesce(left(c.token_sha256, 16), '')"
#define IS_ORPHAN \
    " FROM model_load_jobs j LEFT JOIN load_job_claims c ON " LOAD_CLAIM_OF_ROW \
    " WHERE coalesce(j.state, '') <> 'failed' AND " LOAD_SILENT("60 seconds")

#define STALE_OPERATION \
    "g.status IN ('pending', 'downloading', 'processing') AND " SILENT( \
        GALLERY_CHANGED("g"), "30 minutes")

static const struct db_stmt STMTS[] = {
    [FAILED] = { "housekeeping_failed",
        "WITH old AS (SELECT tracking_key FROM model_load_jobs j WHERE state = 'failed'"
        "  AND " LOAD_SILENT(
            "15 seconds") " LIMIT $1::bigint FOR UPDATE SKIP LOCKED)," DELETE_LOADS,
        1 },
    [ORPHANS] = { "housekeeping_orphans",
        "SELECT j.tracking_key, " SHORT_CLAIM IS_ORPHAN " AND j.tracking_key COLLATE \"C\" > $2"
        " ORDER BY j.tracking_key COLLATE \"C\" LIMIT $1::bigint",
        2 },
    [DELETE_ORPHAN] = { "housekeeping_orphan",
        "WITH old AS (SELECT j.tracking_key" IS_ORPHAN " AND j.tracking_key = $1"
        "  AND " SHORT_CLAIM " = $2 FOR UPDATE OF j SKIP LOCKED)," DELETE_LOADS,
        2 },
    /* Only old claims: one that is taken anew meanwhile is not, whatever this statement saw of its row. */
    [CLAIMS] = { "housekeeping_claims",
        "WITH old AS (SELECT tracking_key FROM load_job_claims c"
        "  WHERE claimed_at < now() - interval '10 minutes' AND NOT EXISTS"
        "  (SELECT FROM model_load_jobs j WHERE " LOAD_CLAIM_OF_ROW ")"
        "  LIMIT $1::bigint FOR UPDATE SKIP LOCKED),"
        " gone AS (DELETE FROM load_job_claims c USING old WHERE c.tracking_key = old.tracking_key"
        "  RETURNING 1)"
        " SELECT count(*) FROM gone",
        1 },
    [STALE] = { "housekeeping_stale",
        "SELECT g.id FROM gallery_operations g WHERE " STALE_OPERATION
        " AND g.id COLLATE \"C\" > $2 ORDER BY g.id COLLATE \"C\" LIMIT $1::bigint",
        2 },
    [GIVE_UP] = { "housekeeping_give_up",
        "WITH old AS (SELECT g.id FROM gallery_operations g WHERE " STALE_OPERATION
        "  AND g.id = $1 FOR UPDATE SKIP LOCKED),"
        " done AS (UPDATE gallery_operations g SET status = 'failed', cancellable = false,"
        "  error = 'given up: nothing was heard of it for 30 minutes', updated_at = now()"
        "  FROM old WHERE g.id = old.id RETURNING 1)"
        " SELECT count(*) FROM done",
        1 },
    [HISTORY] = { "housekeeping_history",
        "WITH old AS (SELECT g.id FROM gallery_operations g"
        "  WHERE g.status IN ('completed', 'failed', 'cancelled')"
        "  AND coalesce(" GALLERY_CHANGED(
            "g") ", '-infinity') < now() - make_interval(days => $2::int)"
                 "  LIMIT $1::bigint FOR UPDATE SKIP LOCKED),"
                 " gone AS (DELETE FROM gallery_operations g USING old WHERE g.id = old.id RETURNING g.id)"
                 " SELECT count(*) FROM gone",
        2 },
    /* A day: whoever does the work may still have to learn that it was cancelled. And as for claims. */
    [CONTROLS] = { "housekeeping_controls",
        "WITH old AS (SELECT job_id FROM operation_control c"
        "  WHERE changed_at < now() - interval '1 day' AND NOT EXISTS"
        "  (SELECT FROM gallery_operations g WHERE g.id = c.job_id)"
        "  LIMIT $1::bigint FOR UPDATE SKIP LOCKED),"
        " gone AS (DELETE FROM operation_control c USING old WHERE c.job_id = old.job_id RETURNING 1)"
        " SELECT count(*) FROM gone",
        1 },
};

const struct db_stmts HOUSEKEEPING_STMTS = { STMTS, sizeof(STMTS) / sizeof(STMTS[0]) };

/* A table of theirs that is not there holds nothing. */
static bool is_absent(const struct db *db)
{
    return db_missing_table(db, "model_load_jobs") || db_missing_table(db, "gallery_operations");
}

/* A statement that says how many rows it took: 1 when its table is absent. */
static int count(struct db *db, enum stmt which, struct db_args a, int64_t *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t n = 0;
    if (db_one(db, &STMTS[which], a, &rows, e) < 0)
        return is_absent(db) ? 1 : err_wrap(e, "%s", STMTS[which].name);
    if (db_int8(&rows, 0, 0, &n, e) < 0)
        return err_wrap(e, "%s", STMTS[which].name);
    *out += n;
    return 0;
}

/* Batch after batch, until one is not full. */
static int sweep(struct db *db, enum stmt which, struct db_args a, int64_t *out, struct err *e)
{
    for (int i = 0; i < BATCHES_MAX; i++) {
        int64_t before = *out;
        int rc = count(db, which, a, out, e);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
        if (*out - before < BATCH)
            return 0;
    }
    return 0;
}

/* --- what Redis may know better ---------------------------------------------------------------- */

/* One batch of candidates after the key `after`. *n is their number; 0 when the table is absent. */
static int candidates(
    struct db *db, enum stmt which, const char *after, struct db_rows *rows, int *n, struct err *e)
{
    db_rows_free(rows);
    *n = 0;
    if (db_many(db, &STMTS[which], DB_ARGS(DB_INT8(BATCH), DB_TEXT(after)), rows, e) < 0)
        return is_absent(db) ? 0 : err_wrap(e, "%s", STMTS[which].name);
    *n = db_rows_count(rows);
    return 0;
}

static int by_key(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item); /* each overlay begins with its key */
}

static bool has_overlay(const struct live *l, const char *key, const char *claim)
{
    const struct overlay *o = l->staging.n == 0 ? NULL
                                                : bsearch(key, l->staging.overlay, l->staging.n,
                                                      sizeof(*l->staging.overlay), by_key);
    return o != NULL && strcmp(o->claim, claim) == 0;
}

static bool has_op_overlay(const struct live *l, const char *id)
{
    return l->ops.n > 0 &&
           bsearch(id, l->ops.overlay, l->ops.n, sizeof(*l->ops.overlay), by_key) != NULL;
}

/* All that is live now: read after the candidates, so that whoever reports in between is seen. False when
 * Redis does not say: then none of them may be touched. */
static bool look_at_redis(struct kv *kv, struct live *out)
{
    struct err ignored = ERR_INIT;
    live_free(out);
    return kv == NULL || live_list(kv, NULL, out, &ignored) == 0;
}

static int delete_orphans(
    struct db *db, const struct db_rows *rows, const struct live *l, int64_t *out, struct err *e)
{
    for (int i = 0; i < db_rows_count(rows); i++) {
        const char *key = db_text(rows, i, 0);
        const char *claim = db_text(rows, i, 1);
        if (!has_overlay(l, key, claim) &&
            count(db, DELETE_ORPHAN, DB_ARGS(DB_TEXT(key), DB_TEXT(claim)), out, e) < 0)
            return -1;
    }
    return 0;
}

static int give_up_stale(
    struct db *db, const struct db_rows *rows, const struct live *l, int64_t *out, struct err *e)
{
    for (int i = 0; i < db_rows_count(rows); i++) {
        const char *id = db_text(rows, i, 0);
        if (!has_op_overlay(l, id) && count(db, GIVE_UP, DB_ARGS(DB_TEXT(id)), out, e) < 0)
            return -1;
    }
    return 0;
}

/* Those that `which` finds, unless Redis says that they live. */
struct doubtful {
    enum stmt which;
    int (*act)(struct db *db, const struct db_rows *rows, const struct live *l, int64_t *out,
        struct err *e);
};

static int sweep_doubtful(struct db *db, struct kv *kv, const struct doubtful *d, int64_t *out,
    bool *redis_silent, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_rows struct db_rows before = DB_ROWS_INIT;
    cleanup_live struct live live = LIVE_INIT;
    const char *after = "";
    for (int i = 0; i < BATCHES_MAX; i++) {
        int n = 0;
        if (candidates(db, d->which, after, &rows, &n, e) < 0)
            return -1;
        if (n == 0)
            return 0;
        if (!look_at_redis(kv, &live)) {
            *redis_silent = true;
            return 0;
        }
        if (d->act(db, &rows, &live, out, e) < 0)
            return -1;
        if (n < BATCH)
            return 0;
        db_rows_free(&before);
        before.res = STEAL(rows.res);
        after = db_text(&before, n - 1, 0);
    }
    return 0;
}

/* --- all of it --------------------------------------------------------------------------------- */

/* What is in the tables that are LocalAI's too. */
static int sweep_shared(struct db *db, struct kv *kv, const struct housekeeping_options *o,
    struct housekeeping *h, struct err *e)
{
    static const struct doubtful LOADS = { ORPHANS, delete_orphans };
    static const struct doubtful OPERATIONS = { STALE, give_up_stale };
    if (sweep(db, FAILED, DB_ARGS(DB_INT8(BATCH)), &h->failed_loads, e) < 0 ||
        sweep_doubtful(db, kv, &LOADS, &h->orphaned_loads, &h->redis_silent, e) < 0 ||
        sweep_doubtful(db, kv, &OPERATIONS, &h->stale_operations, &h->redis_silent, e) < 0)
        return -1;
    return sweep(db, HISTORY, DB_ARGS(DB_INT8(BATCH), DB_INT8(o->keep_days)), &h->history, e);
}

int housekeeping_run(struct db *db, struct kv *kv, const struct housekeeping_options *o,
    struct housekeeping *out, struct err *e)
{
    struct housekeeping h = { .redis_silent = false };
    if (!o->read_only && sweep_shared(db, kv, o, &h, e) < 0)
        return -1;
    if (sweep(db, CLAIMS, DB_ARGS(DB_INT8(BATCH)), &h.claims, e) < 0 ||
        sweep(db, CONTROLS, DB_ARGS(DB_INT8(BATCH)), &h.controls, e) < 0)
        return -1;
    *out = h;
    return 0;
}
