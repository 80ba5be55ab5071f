/* SPDX-License-Identifier: Apache-2.0 */
#include "store/gallery.h"

#include <string.h>

#include "db/db_row.h"
#include "store/gallery_row.h"
#include "store/table_seen.h"

enum stmt { LIST, FIND, GET, HISTORY, CONTROL };

/* Newest first: by when they ended, then by id, so that the order is one. */
#define NEWEST " ORDER BY " GALLERY_CHANGED("g") " DESC NULLS LAST, g.id COLLATE \"C\""

/* What was cleared from the history a moment ago, in the columns of GALLERY_TABLE: as long as its overlay may
 * live, something has to hide it. */
#define CLEARED \
    "SELECT m.job_id, 'cancelled', m.changed_at, NULL, NULL, NULL, NULL::bool, NULL::bool," \
    " NULL::float8, NULL, NULL, NULL, NULL, NULL::int8, NULL::int8, NULL::timestamptz" \
    " FROM operation_control m WHERE m.dismissed_at IS NOT NULL" \
    " AND m.changed_at >= now() - interval '5 minutes'" \
    " AND NOT EXISTS (SELECT FROM gallery_operations o WHERE o.id = m.job_id)"

static const struct db_stmt STMTS[] = {
    /* One row at least, so that the clock comes even when there is no operation. Of what is not shown
     * only what may hide a live overlay: overlays live 60 s, so 5 minutes are ample. The table holds all
     * that ever was, and is read five times a second: what is old goes by one cheap test. */
    [LIST] = { "gallery_list",
        "SELECT " SQL_CLOCK ", " GALLERY_COLUMNS " FROM (VALUES (1)) one"
        " LEFT JOIN ((SELECT * FROM " GALLERY_TABLE " t UNION ALL " CLEARED
        ") g" GALLERY_JOIN_CONTROL ") ON " GALLERY_CHANGED(
            "g") " >= now() - interval '24 hours' AND ("
                 "  (g.status IN ('pending', 'downloading', 'processing')"
                 "   AND " GALLERY_CHANGED(
                     "g") " >= now() - interval '30 minutes')"
                          "  OR (g.status = 'failed' AND c.dismissed_at IS NULL)"
                          "  OR (g.status IN ('completed', 'cancelled', 'failed')"
                          "   AND " GALLERY_CHANGED("g") " >= now() - interval '5 minutes'))"
                                                         " ORDER BY g.id COLLATE \"C\"",
        0 },
    [FIND] = { "gallery_find",
        "SELECT " SQL_CLOCK ", " GALLERY_COLUMNS
        " FROM (SELECT DISTINCT id FROM jsonb_array_elements_text($1::text::jsonb) k (id)) k"
        " JOIN " GALLERY_TABLE " g ON g.id = k.id" GALLERY_JOIN_CONTROL,
        1 },
    [GET] = { "gallery_get",
        "SELECT " SQL_CLOCK ", " GALLERY_COLUMNS " FROM " GALLERY_TABLE " g" GALLERY_JOIN_CONTROL
        " WHERE g.id = $1",
        1 },
    [HISTORY] = { "gallery_history",
        "SELECT " SQL_CLOCK ", " GALLERY_COLUMNS " FROM (SELECT * FROM " GALLERY_TABLE " g"
        " WHERE g.status IN ('completed', 'failed', 'cancelled')" NEWEST
        " LIMIT 50) g" GALLERY_JOIN_CONTROL NEWEST,
        0 },
    /* The control outlives the operation's row, which an admin may have cleared from the history. */
    [CONTROL] = { "gallery_control",
        "SELECT coalesce(c.control, '') FROM (VALUES ($1::text)) k (id)"
        " LEFT JOIN gallery_operations g ON g.id = k.id"
        " LEFT JOIN operation_control c ON c.job_id = k.id"
        " WHERE g.id IS NOT NULL OR c.control <> ''",
        1 },
};

_Static_assert(GALLERY_HISTORY_MAX == 50, "the limit of HISTORY");

const struct db_stmts GALLERY_STMTS = { STMTS, sizeof(STMTS) / sizeof(STMTS[0]) };

static struct table_seen table = { .name = "gallery_operations" };

static int no_rows(struct gallery_rows *out)
{
    *out = (struct gallery_rows)GALLERY_ROWS_INIT;
    out->now_us = db_now_us();
    return 0;
}

/* After a statement that may give any number of rows but failed. */
static int take_failed(struct db *db, struct gallery_rows *out, struct err *e)
{
    return table_is_none_yet(&table, db) ? no_rows(out) : err_wrap(e, "operations");
}

int gallery_list_start(struct db *db, struct err *e)
{
    return db_start(db, &STMTS[LIST], DB_NO_ARGS, e);
}

int gallery_list_finish(
    struct db *db, const struct gallery_rows *before, struct gallery_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (table_saw(&table, db_finish(db, &rows, e)) < 0)
        return take_failed(db, out, e);
    return gallery_rows_take(&rows, before, out, e);
}

static int many(
    struct db *db, enum stmt which, struct db_args a, struct gallery_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (table_saw(&table, db_many(db, &STMTS[which], a, &rows, e)) < 0)
        return take_failed(db, out, e);
    return gallery_rows_take(&rows, NULL, out, e);
}

int gallery_list(struct db *db, struct gallery_rows *out, struct err *e)
{
    return many(db, LIST, DB_NO_ARGS, out, e);
}

int gallery_find(struct db *db, const char *ids, struct gallery_rows *out, struct err *e)
{
    return many(db, FIND, DB_ARGS(DB_TEXT(ids)), out, e);
}

int gallery_history(struct db *db, struct gallery_rows *out, struct err *e)
{
    return many(db, HISTORY, DB_NO_ARGS, out, e);
}

/* Of a statement about one operation: 0, or -1 with ERR_NOT_FOUND when there is none. */
static int one(struct db *db, enum stmt which, const char *id, struct db_rows *rows, struct err *e)
{
    int none = table_saw(&table, db_opt(db, &STMTS[which], DB_ARGS(DB_TEXT(id)), rows, e));
    if (none < 0 && !table_is_none_yet(&table, db))
        return err_wrap(e, "operation %s", id);
    return none == 0 ? 0 : err_set(e, ERR_NOT_FOUND, "there is no operation %s", id);
}

int gallery_get(struct db *db, const char *id, struct gallery_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    return one(db, GET, id, &rows, e) < 0 ? -1 : gallery_rows_take(&rows, NULL, out, e);
}

const char *gallery_control_name(enum gallery_control c)
{
    static const char *const NAME[] = {
        [GALLERY_GO_ON] = "", [GALLERY_CANCEL] = "cancel", [GALLERY_PAUSE] = "pause"
    };
    return NAME[c];
}

int gallery_control_get(struct db *db, const char *id, enum gallery_control *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (one(db, CONTROL, id, &rows, e) < 0)
        return -1;
    const char *name = db_text(&rows, 0, 0);
    *out = GALLERY_GO_ON;
    for (int c = GALLERY_CANCEL; c <= GALLERY_PAUSE; c++) {
        if (strcmp(name, gallery_control_name((enum gallery_control)c)) == 0)
            *out = (enum gallery_control)c;
    }
    return 0;
}
