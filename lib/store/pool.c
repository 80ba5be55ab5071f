/* SPDX-License-Identifier: Apache-2.0 */
#include "store/pool.h"

#include <string.h>

#include "db/db_row.h"

enum stmt { FIND, MAKE, CHANGE, DRAIN, RESUME };

/* Not one upsert: that would use up a number of the identity at every start of a planner. */
static const struct db_stmt STMTS[] = {
    [FIND] = { "pool_find", "SELECT id, provisioner, policy FROM pool WHERE name = $1", 1 },
    [MAKE] = { "pool_make",
        "INSERT INTO pool (name, provisioner, policy) VALUES ($1, $2, $3)"
        " ON CONFLICT (name) DO NOTHING",
        3 },
    [CHANGE] = { "pool_change", "UPDATE pool SET provisioner = $2, policy = $3 WHERE name = $1",
        3 },
    [DRAIN] = { "pool_drain",
        "UPDATE pool SET drained_by = CASE WHEN drained_at IS NULL THEN $2 ELSE drained_by END,"
        " drained_at = coalesce(drained_at, clock_timestamp()) WHERE name = $1",
        2 },
    [RESUME] = { "pool_resume",
        "UPDATE pool SET drained_at = NULL, drained_by = '', resumed = resumed + 1 WHERE name = $1",
        1 },
};

const struct db_stmts POOL_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

/* 1 when there is none. */
static int look(struct db *db, const char *name, struct db_rows *rows, int64_t *id, struct err *e)
{
    int none = db_opt(db, &STMTS[FIND], DB_ARGS(DB_TEXT(name)), rows, e);
    return none != 0 ? none : db_int8(rows, 0, 0, id, e);
}

int pool_ensure(struct db *db, const char *name, const char *provisioner, const char *policy,
    int64_t *id, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_rows struct db_rows made = DB_ROWS_INIT;
    struct db_args all = DB_ARGS(DB_TEXT(name), DB_TEXT(provisioner), DB_TEXT(policy));
    int64_t found = 0;
    int none = look(db, name, &rows, &found, e);
    if (none == 1)
        none = db_exec(db, &STMTS[MAKE], all, NULL, e) < 0 ? -1 : look(db, name, &made, &found, e);
    else if (none == 0 && (strcmp(db_text(&rows, 0, 1), provisioner) != 0 ||
                              strcmp(db_text(&rows, 0, 2), policy) != 0))
        none = db_exec(db, &STMTS[CHANGE], all, NULL, e);
    if (none == 1)
        return err_set(e, ERR_INTERNAL, "pool %s: was made and is not there", name);
    if (none < 0)
        return err_wrap(e, "pool %s", name);
    *id = found;
    return 0;
}

int pool_find(struct db *db, const char *name, int64_t *id, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none = look(db, name, &rows, id, e);
    if (none == 1)
        return err_set(e, ERR_NOT_FOUND, "there is no pool %s", name);
    return none < 0 ? err_wrap(e, "pool %s", name) : 0;
}

static int change_one(
    struct db *db, const struct db_stmt *s, struct db_args args, const char *name, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, s, args, &n, e) < 0)
        return err_wrap(e, "pool %s", name);
    return n == 1 ? 0 : err_set(e, ERR_NOT_FOUND, "there is no pool %s", name);
}

int pool_drain(struct db *db, const char *name, const char *by, struct err *e)
{
    return change_one(db, &STMTS[DRAIN], DB_ARGS(DB_TEXT(name), DB_TEXT(by)), name, e);
}

int pool_resume(struct db *db, const char *name, struct err *e)
{
    return change_one(db, &STMTS[RESUME], DB_ARGS(DB_TEXT(name)), name, e);
}
