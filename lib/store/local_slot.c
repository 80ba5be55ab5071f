/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local_slot.h"

#include <stdlib.h>

#include "base/mem.h"
#include "db/db_row.h"

enum stmt { LOCK, COUNT, TAKE, OF, TAKEN, LIST, FREE };

static const struct db_stmt STMTS[] = {
    /* Takers come one after the other; readers do not wait for them. */
    [LOCK] = { "local_slot_lock", "LOCK TABLE local_slot IN SHARE ROW EXCLUSIVE MODE", 0 },
    [COUNT] = { "local_slot_count", "SELECT count(*) FROM local_slot WHERE name = $1", 1 },
    [TAKE] = { "local_slot_take",
        "INSERT INTO local_slot (slot, name)"
        " SELECT s, $1 FROM generate_series(1, $3::int) s"
        " WHERE NOT EXISTS (SELECT FROM local_slot l WHERE l.slot = s) ORDER BY s LIMIT $2",
        3 },
    [OF] = { "local_slot_of", "SELECT slot::bigint FROM local_slot WHERE name = $1 ORDER BY slot",
        1 },
    [TAKEN] = { "local_slot_taken", "SELECT count(*) FROM local_slot", 0 },
    [LIST] = { "local_slot_list",
        "SELECT name, count(*) FROM local_slot GROUP BY name ORDER BY name", 0 },
    [FREE] = { "local_slot_free", "DELETE FROM local_slot WHERE name = $1", 1 },
};

const struct db_stmts LOCAL_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

/* Under the lock, in a transaction that the caller rolls back unless 0. */
static int take(struct db *db, const char *name, int64_t n, int64_t slots, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t have = 0;
    int64_t got = 0;
    if (db_exec(db, &STMTS[LOCK], DB_NO_ARGS, NULL, e) < 0 ||
        db_one(db, &STMTS[COUNT], DB_ARGS(DB_TEXT(name)), &rows, e) < 0 ||
        db_int8(&rows, 0, 0, &have, e) < 0)
        return -1;
    if (have >= n)
        return 0;
    if (db_exec(db, &STMTS[TAKE], DB_ARGS(DB_TEXT(name), DB_INT8(n - have), DB_INT8(slots)), &got,
            e) < 0)
        return -1;
    return have + got < n ? 1 : 0;
}

int local_slot_take(struct db *db, const char *name, int64_t n, int64_t slots, struct err *e)
{
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    if (db_begin(db, &t, e) < 0)
        return -1;
    int result = take(db, name, n, slots, e);
    return result == 0 ? db_commit(&t, e) : result;
}

int local_slot_of(
    struct db *db, const char *name, int64_t *out, size_t max, size_t *n, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_many(db, &STMTS[OF], DB_ARGS(DB_TEXT(name)), &rows, e) < 0)
        return -1;
    const int count = db_rows_count(&rows);
    size_t taken = 0;
    for (int i = 0; i < count && taken < max; i++) {
        if (db_int8(&rows, i, 0, &out[taken++], e) < 0)
            return -1;
    }
    *n = taken;
    return 0;
}

int local_slot_taken(struct db *db, int64_t *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    return db_one(db, &STMTS[TAKEN], DB_NO_ARGS, &rows, e) < 0 ? -1 : db_int8(&rows, 0, 0, out, e);
}

void local_slots_free(struct local_slots *l)
{
    free(l->at);
    db_rows_free(&l->rows);
    l->at = NULL;
    l->n = 0;
}

int local_slot_list(struct db *db, struct local_slots *out, struct err *e)
{
    cleanup_local_slots struct local_slots l = LOCAL_SLOTS_INIT;
    if (db_many(db, &STMTS[LIST], DB_NO_ARGS, &l.rows, e) < 0)
        return -1;
    l.n = (size_t)db_rows_count(&l.rows);
    l.at = mem_kept(mem_calloc(l.n, sizeof *l.at));
    for (size_t i = 0; i < l.n; i++) {
        l.at[i].name = db_text(&l.rows, (int)i, 0);
        if (db_int8(&l.rows, (int)i, 1, &l.at[i].slots, e) < 0)
            return -1;
    }
    *out = l;
    l.at = NULL;
    l.rows.res = NULL;
    return 0;
}

int local_slot_free(struct db *db, const char *name, struct err *e)
{
    return db_exec(db, &STMTS[FREE], DB_ARGS(DB_TEXT(name)), NULL, e);
}
