/* SPDX-License-Identifier: Apache-2.0 */
#include "db/db_row.h"

#include <string.h>

#include "base/str.h"

void db_rows_free(struct db_rows *r)
{
    PQclear(r->res);
    r->res = NULL;
}

int db_rows_count(const struct db_rows *r)
{
    return r->res == NULL ? 0 : PQntuples(r->res);
}

const char *db_text(const struct db_rows *r, int row, int col)
{
    return PQgetvalue(r->res, row, col); /* libpq hands out "" for NULL */
}

bool db_is_null(const struct db_rows *r, int row, int col)
{
    return PQgetisnull(r->res, row, col) != 0;
}

static int bad(const struct db_rows *r, int row, int col, const char *kind, struct err *e)
{
    const char *what = db_is_null(r, row, col) ? "NULL" : "text that is none";
    return err_set(e, ERR_INTERNAL, "column %d holds %s instead of %s", col, what, kind);
}

int db_int8(const struct db_rows *r, int row, int col, int64_t *out, struct err *e)
{
    if (db_is_null(r, row, col) || str_to_i64(db_text(r, row, col), INT64_MIN, INT64_MAX, out) < 0)
        return bad(r, row, col, "an integer", e);
    return 0;
}

int db_int8s(const struct db_rows *r, int row, const struct db_int8_at *at, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (db_int8(r, row, at[i].col, at[i].out, e) < 0)
            return -1;
    }
    return 0;
}

int db_float8(const struct db_rows *r, int row, int col, double *out, struct err *e)
{
    if (db_is_null(r, row, col) || str_to_double(db_text(r, row, col), out) < 0)
        return bad(r, row, col, "a finite number", e);
    return 0;
}

int db_bool(const struct db_rows *r, int row, int col, bool *out, struct err *e)
{
    const char *text = db_text(r, row, col);
    if (strcmp(text, "t") != 0 && strcmp(text, "f") != 0)
        return bad(r, row, col, "a boolean", e);
    *out = text[0] == 't';
    return 0;
}
