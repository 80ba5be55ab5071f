/* SPDX-License-Identifier: Apache-2.0 */
#include "store/provision.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/sql_time.h"

enum { PAGE_MAX = 200, CURSOR_SIZE = 64 };

enum stmt { GET, CURSOR, LIST };

#define COLUMNS \
    "p.key, p.id, p.job_id, o.name, p.provider, p.status, p.region, p.spec, p.details, p.error, " SQL_US( \
        "p.created_at") ", " SQL_US("p.updated_at") ", " SQL_US("p.starts_at") ", " SQL_US("p.ends_at")
#define FROM " FROM provision p JOIN pool o ON o.id = p.pool_id"

static const struct db_stmt STMTS[] = {
    [GET] = { "provision_get", "SELECT " COLUMNS FROM " WHERE p.key = $1", 1 },
    [CURSOR] = { "provision_cursor", "SELECT created_at::text FROM provision WHERE key = $1", 1 },
    [LIST] = { "provision_list",
        "SELECT " COLUMNS " FROM (SELECT * FROM provision q WHERE (q.created_at, q.key) <"
        "  ($1::timestamptz, $2) AND ($4::text IS NULL OR q.status = $4)"
        "  ORDER BY q.created_at DESC, q.key DESC LIMIT 201) p JOIN pool o ON o.id = p.pool_id"
        " ORDER BY p.created_at DESC, p.key DESC LIMIT $3",
        4 },
};

const struct db_stmts PROVISION_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void provisions_free(struct provisions *p)
{
    free(p->provision);
    p->provision = NULL;
    p->n = 0;
    db_rows_free(&p->rows);
}

enum col {
    COL_KEY,
    COL_ID,
    COL_JOB_ID,
    COL_POOL,
    COL_PROVIDER,
    COL_STATUS,
    COL_REGION,
    COL_SPEC,
    COL_DETAILS,
    COL_ERROR,
    COL_CREATED,
    COL_UPDATED,
    COL_STARTS,
    COL_ENDS
};

static int read_row(const struct db_rows *rows, int row, struct provision *p, struct err *e)
{
    const struct db_int8_at numbers[] = {
        { COL_CREATED, &p->created_us },
        { COL_UPDATED, &p->updated_us },
        { COL_STARTS, &p->starts_us },
        { COL_ENDS, &p->ends_us },
    };
    p->key = db_text(rows, row, COL_KEY);
    p->id = db_text(rows, row, COL_ID);
    (void)str_copy(p->job_id, sizeof p->job_id, db_text(rows, row, COL_JOB_ID));
    p->pool = db_text(rows, row, COL_POOL);
    p->provider = db_text(rows, row, COL_PROVIDER);
    p->status = db_text(rows, row, COL_STATUS);
    p->region = db_text(rows, row, COL_REGION);
    p->spec_json = db_text(rows, row, COL_SPEC);
    p->details_json = db_text(rows, row, COL_DETAILS);
    p->error = db_text(rows, row, COL_ERROR);
    return db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e);
}

static int take(struct db_rows *rows, size_t limit, struct provisions *out, struct err *e)
{
    cleanup_provisions struct provisions got = PROVISIONS_INIT;
    size_t n = (size_t)db_rows_count(rows);
    got.rows.res = STEAL(rows->res);
    got.more = n > limit;
    if (got.more)
        n = limit;
    got.provision = mem_calloc(n + 1, sizeof *got.provision);
    for (; got.n < n; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.provision[got.n], e) < 0)
            return err_wrap(e, "provisions");
    }
    HAND_OVER(out, &got, ((struct provisions)PROVISIONS_INIT));
    return 0;
}

int provision_get(struct db *db, const char *key, struct provisions *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none = db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(key)), &rows, e);
    if (none == 1)
        return err_set(e, ERR_NOT_FOUND, "there is no provision %s", key);
    return none < 0 ? err_wrap(e, "provision %s", key) : take(&rows, 1, out, e);
}

int provision_list(struct db *db, const char *after, const char *status, int64_t limit,
    struct provisions *out, struct err *e)
{
    cleanup_rows struct db_rows cursor = DB_ROWS_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const char *at = "infinity";
    int64_t most = limit < 1 ? 1 : limit > PAGE_MAX ? PAGE_MAX : limit;
    if (after != NULL) {
        int none = db_opt(db, &STMTS[CURSOR], DB_ARGS(DB_TEXT(after)), &cursor, e);
        if (none == 1)
            return err_set(e, ERR_INVALID, "after: names no provision");
        if (none < 0)
            return err_wrap(e, "provisions");
        at = db_text(&cursor, 0, 0);
    }
    if (db_many(db, &STMTS[LIST],
            DB_ARGS(DB_TEXT(at), DB_TEXT(after == NULL ? "" : after), DB_INT8(most + 1),
                DB_TEXT(status)),
            &rows, e) < 0)
        return err_wrap(e, "provisions");
    return take(&rows, (size_t)most, out, e);
}
