/* SPDX-License-Identifier: Apache-2.0 */
#include "store/model.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/sql_time.h"

enum stmt { LIST, GET, CREATE };

#define COLUMNS "m.id, m.name, m.serving_name, m.info, " SQL_US("m.created_at")

static const struct db_stmt STMTS[] = {
    [LIST] = { "model_list",
        "SELECT " COLUMNS
        " FROM model m WHERE ($1 = '' OR strpos(lower(m.name || ' ' || m.id || ' ' ||"
        " m.serving_name), lower($1)) > 0)"
        " AND ($2 = '' OR m.info -> 'categories' ? $2) ORDER BY m.name COLLATE \"C\", m.id COLLATE \"C\""
        " LIMIT 1000",
        2 },
    [GET] = { "model_get", "SELECT " COLUMNS " FROM model m WHERE m.id = $1", 1 },
    [CREATE] = { "model_create",
        "WITH m AS (INSERT INTO model (id, name, serving_name, info) VALUES ($1, $2, $3,"
        "  coalesce($4::jsonb, '{}')) RETURNING *) SELECT " COLUMNS " FROM m",
        4 },
};

const struct db_stmts MODEL_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void models_free(struct models *m)
{
    free(m->model);
    m->model = NULL;
    m->n = 0;
    db_rows_free(&m->rows);
}

static int take(struct db_rows *rows, struct models *out, struct err *e)
{
    cleanup_models struct models got = MODELS_INIT;
    size_t n = (size_t)db_rows_count(rows);
    got.rows.res = STEAL(rows->res);
    got.model = mem_calloc(n + 1, sizeof *got.model);
    for (; got.n < n; got.n++) {
        int row = (int)got.n;
        got.model[got.n] = (struct model_row){
            .id = db_text(&got.rows, row, 0),
            .name = db_text(&got.rows, row, 1),
            .serving_name = db_text(&got.rows, row, 2),
            .info_json = db_text(&got.rows, row, 3),
        };
        if (db_int8(&got.rows, row, 4, &got.model[got.n].created_us, e) < 0)
            return err_wrap(e, "models");
    }
    HAND_OVER(out, &got, ((struct models)MODELS_INIT));
    return 0;
}

static const char *text_of(const char *text)
{
    return text == NULL ? "" : text;
}

int model_list(
    struct db *db, const char *search, const char *category, struct models *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_many(db, &STMTS[LIST], DB_ARGS(DB_TEXT(text_of(search)), DB_TEXT(text_of(category))),
            &rows, e) < 0)
        return err_wrap(e, "models");
    return take(&rows, out, e);
}

int model_get(struct db *db, const char *id, struct models *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none = db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(id)), &rows, e);
    if (none == 1)
        return err_set(e, ERR_NOT_FOUND, "there is no model %s", id);
    return none < 0 ? err_wrap(e, "model %s", id) : take(&rows, out, e);
}

int model_create(struct db *db, const struct model_row *m, struct models *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_one(db, &STMTS[CREATE],
            DB_ARGS(DB_TEXT(m->id), DB_TEXT(m->name), DB_TEXT(text_of(m->serving_name)),
                DB_TEXT(str_empty(m->info_json) ? NULL : m->info_json)),
            &rows, e) < 0) {
        if (e != NULL && e->code == ERR_CONFLICT)
            return err_set(e, ERR_CONFLICT, "there is a model %s already", m->id);
        return err_wrap(e, "model %s", m->id);
    }
    return take(&rows, out, e);
}
