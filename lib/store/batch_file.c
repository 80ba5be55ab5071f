/* SPDX-License-Identifier: Apache-2.0 */
#include "store/batch_file.h"

#include <stdlib.h>

#include "base/mem.h"
#include "db/db_row.h"
#include "store/sql_time.h"

enum stmt { ADD, GET, PLACE, NEWEST, OLDEST, DELETE, EXPIRE, STRANGERS };

#define COLUMNS \
    "f.id, f.owner, f.purpose, f.filename, f.bytes, " SQL_US("f.created_at") ", " SQL_US( \
        "f.expires_at")
#define LIVES "(f.expires_at IS NULL OR f.expires_at > clock_timestamp())"
#define SEEN  "($2::text IS NULL OR f.owner = $2)"
#define READ \
    "EXISTS (SELECT FROM batch b WHERE b.input_file_id = f.id" \
    " AND b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling'))"
#define LIST \
    "SELECT " COLUMNS " FROM batch_file f WHERE ($1::text IS NULL OR f.owner = $1)" \
    " AND ($2::text IS NULL OR f.purpose = $2) AND " LIVES " AND f.seq "

static const struct db_stmt STMTS[] = {
    [ADD] = { "batch_file_add",
        "INSERT INTO batch_file AS f (id, owner, purpose, filename, bytes, expires_at) VALUES ($1, $2, $3, $4, $5::bigint,"
        " CASE WHEN $6::bigint > 0 THEN clock_timestamp() + $6::bigint * interval '1 second' END) RETURNING " COLUMNS,
        6 },
    [GET] = { "batch_file_get",
        "SELECT " COLUMNS " FROM batch_file f WHERE f.id = $1 AND " SEEN " AND " LIVES, 2 },
    [PLACE] = { "batch_file_place", "SELECT f.seq FROM batch_file f WHERE f.id = $1 AND " SEEN, 2 },
    [NEWEST] = { "batch_file_newest", LIST "< $3::bigint ORDER BY f.seq DESC LIMIT $4::bigint", 4 },
    [OLDEST] = { "batch_file_oldest", LIST "> $3::bigint ORDER BY f.seq LIMIT $4::bigint", 4 },
    [DELETE] = { "batch_file_delete",
        "DELETE FROM batch_file f WHERE f.id = $1 AND " SEEN " AND " LIVES " AND NOT " READ, 2 },
    [EXPIRE] = { "batch_file_expire",
        "WITH old AS (SELECT f.id FROM batch_file f WHERE f.expires_at <= clock_timestamp() AND NOT " READ
        " ORDER BY f.expires_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED)"
        " DELETE FROM batch_file f USING old WHERE f.id = old.id RETURNING " COLUMNS,
        1 },
    [STRANGERS] = { "batch_file_strangers",
        "SELECT x.id FROM unnest(string_to_array($1, ' ')) x (id)"
        " WHERE NOT EXISTS (SELECT FROM batch_file f WHERE f.id = x.id)",
        1 },
};

const struct db_stmts BATCH_FILE_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void batch_files_free(struct batch_files *f)
{
    free(f->row);
    f->row = NULL;
    f->n = 0;
    db_rows_free(&f->rows);
}

static int read_row(const struct db_rows *rows, int row, struct batch_file_row *f, struct err *e)
{
    const struct db_int8_at numbers[] = { { 4, &f->bytes }, { 5, &f->created_us },
        { 6, &f->expires_us } };

    f->id = db_text(rows, row, 0);
    f->owner = db_text(rows, row, 1);
    f->purpose = db_text(rows, row, 2);
    f->filename = db_text(rows, row, 3);
    return db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e);
}

static int take(struct db_rows *rows, size_t limit, struct batch_files *out, struct err *e)
{
    cleanup_batch_files struct batch_files got = BATCH_FILES_INIT;
    const size_t n = (size_t)db_rows_count(rows);

    got.rows.res = STEAL(rows->res);
    got.row = mem_calloc(n + 1, sizeof *got.row);
    got.more = n > limit;
    for (; got.n < n && got.n < limit; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.row[got.n], e) < 0)
            return err_wrap(e, "files");
    }
    batch_files_free(out);
    HAND_OVER(out, &got, ((struct batch_files)BATCH_FILES_INIT));
    return 0;
}

static int none_such(const char *id, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "No such File object: %.64s", id);
}

int batch_file_add(
    struct db *db, const struct batch_file_new *f, struct batch_files *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_one(db, &STMTS[ADD],
            DB_ARGS(DB_TEXT(f->id), DB_TEXT(f->owner), DB_TEXT(f->purpose), DB_TEXT(f->filename),
                DB_INT8(f->bytes), DB_INT8(f->expires_s)),
            &rows, e) < 0)
        return err_wrap(e, "file");
    return take(&rows, 1, out, e);
}

int batch_file_get(
    struct db *db, const char *id, const char *owner, struct batch_files *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none = db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(id), DB_TEXT(owner)), &rows, e);

    if (none != 0)
        return none < 0 ? err_wrap(e, "file") : none_such(id, e);
    return take(&rows, 1, out, e);
}

/* Where in the order the page begins. */
static int place(struct db *db, const struct batch_file_list *l, int64_t *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    *out = l->oldest_first ? 0 : INT64_MAX;
    if (l->after == NULL)
        return 0;
    const int none =
        db_opt(db, &STMTS[PLACE], DB_ARGS(DB_TEXT(l->after), DB_TEXT(l->owner)), &rows, e);
    if (none > 0)
        return err_set(e, ERR_INVALID, "after: there is no file %.64s", l->after);
    return none < 0 || db_int8(&rows, 0, 0, out, e) < 0 ? err_wrap(e, "files") : 0;
}

int batch_file_list(
    struct db *db, const struct batch_file_list *l, struct batch_files *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t from = 0;

    if (place(db, l, &from, e) < 0)
        return -1;
    if (db_many(db, &STMTS[l->oldest_first ? OLDEST : NEWEST],
            DB_ARGS(DB_TEXT(l->owner), DB_TEXT(l->purpose), DB_INT8(from), DB_INT8(l->limit + 1)),
            &rows, e) < 0)
        return err_wrap(e, "files");
    return take(&rows, (size_t)l->limit, out, e);
}

int batch_file_delete(struct db *db, const char *id, const char *owner, struct err *e)
{
    cleanup_batch_files struct batch_files there = BATCH_FILES_INIT;
    int64_t n = 0;

    if (batch_file_get(db, id, owner, &there, e) < 0)
        return -1;
    if (db_exec(db, &STMTS[DELETE], DB_ARGS(DB_TEXT(id), DB_TEXT(owner)), &n, e) < 0)
        return err_wrap(e, "file");
    if (n == 0)
        return err_set(e, ERR_CONFLICT, "a batch that has not ended reads this file");
    return 0;
}

int batch_file_expire(struct db *db, int64_t limit, struct batch_files *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[EXPIRE], DB_ARGS(DB_INT8(limit)), &rows, e) < 0)
        return err_wrap(e, "expiry of files");
    return take(&rows, (size_t)limit, out, e);
}

int batch_file_strangers(struct db *db, const char *ids, struct db_rows *out, struct err *e)
{
    return db_many(db, &STMTS[STRANGERS], DB_ARGS(DB_TEXT(ids)), out, e) < 0 ? err_wrap(e, "files")
                                                                             : 0;
}

const char *batch_file_stranger(const struct db_rows *r, int row)
{
    return db_text(r, row, 0);
}
