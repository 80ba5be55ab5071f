/* SPDX-License-Identifier: Apache-2.0 */
#include "store/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "model/job.h"
#include "model/version.h"
#include "store/sql_time.h"

enum stmt { LIST, GET, CREATE, UPDATE, DELETE, NAMED };

#define COLUMNS \
    "t.id, t.model_id, m.serving_name, t.name, t.version, t.status, t.spec, " SQL_US( \
        "t.created_at") ", " SQL_US("t.updated_at")
#define JOIN_MODEL " JOIN model m ON m.id = t.model_id"

static const struct db_stmt STMTS[] = {
    [LIST] = { "template_list",
        "SELECT " COLUMNS " FROM model_template t" JOIN_MODEL " WHERE t.model_id = $1"
        " AND ($2 = '' OR t.status = $2) AND ($3 = '' OR t.name = $3) ORDER BY t.name COLLATE \"C\"",
        3 },
    [GET] = { "template_get",
        "SELECT " COLUMNS " FROM model_template t" JOIN_MODEL
        " WHERE t.model_id = $1 AND t.id = $2::uuid",
        2 },
    [CREATE] = { "template_create",
        "WITH t AS (INSERT INTO model_template (model_id, name, version, status, spec)"
        "  SELECT id, $2, $3, $4, $5::jsonb FROM model WHERE id = $1 RETURNING *)"
        " SELECT " COLUMNS " FROM t" JOIN_MODEL,
        5 },
    [UPDATE] = { "template_update",
        "WITH t AS (UPDATE model_template SET name = coalesce($3, name),"
        "  version = coalesce($4, version), status = coalesce($5, status),"
        "  spec = coalesce($6::jsonb, spec), updated_at = clock_timestamp()"
        "  WHERE model_id = $1 AND id = $2::uuid RETURNING *)"
        " SELECT " COLUMNS " FROM t" JOIN_MODEL,
        6 },
    [DELETE] = { "template_delete",
        "DELETE FROM model_template WHERE model_id = $1 AND id = $2::uuid", 2 },
    /* Of the first model that has the name, unless one is named. */
    [NAMED] = { "template_named",
        "SELECT " COLUMNS " FROM model_template t" JOIN_MODEL " WHERE t.name = $2 AND t.model_id ="
        " (SELECT min(f.model_id COLLATE \"C\") FROM model_template f WHERE f.name = $2"
        "  AND ($1 = '' OR f.model_id = $1)) AND ($3 = '' OR t.version = $3)",
        3 },
};

const struct db_stmts TEMPLATE_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void templates_free(struct templates *t)
{
    free(t->row);
    t->row = NULL;
    t->n = 0;
    db_rows_free(&t->rows);
}

enum col {
    COL_ID,
    COL_MODEL_ID,
    COL_SERVING_NAME,
    COL_NAME,
    COL_VERSION,
    COL_STATUS,
    COL_SPEC,
    COL_CREATED,
    COL_UPDATED
};

static int read_row(const struct db_rows *rows, int row, struct template_row *t, struct err *e)
{
    const struct db_int8_at numbers[] = {
        { COL_CREATED, &t->created_us },
        { COL_UPDATED, &t->updated_us },
    };
    t->id = db_text(rows, row, COL_ID);
    t->model_id = db_text(rows, row, COL_MODEL_ID);
    t->serving_name = db_text(rows, row, COL_SERVING_NAME);
    t->name = db_text(rows, row, COL_NAME);
    t->version = db_text(rows, row, COL_VERSION);
    t->status = db_text(rows, row, COL_STATUS);
    t->spec_json = db_text(rows, row, COL_SPEC);
    return db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e);
}

/* By name, then the highest version first. */
static int compare(const void *a, const void *b)
{
    const struct template_row *x = a;
    const struct template_row *y = b;
    int by_name = strcmp(x->name, y->name);
    return by_name != 0 ? by_name : version_compare(y->version, x->version);
}

static int take(struct db_rows *rows, struct templates *out, struct err *e)
{
    cleanup_templates struct templates got = TEMPLATES_INIT;
    size_t n = (size_t)db_rows_count(rows);
    got.rows.res = STEAL(rows->res);
    got.row = mem_calloc(n + 1, sizeof *got.row);
    for (; got.n < n; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.row[got.n], e) < 0)
            return err_wrap(e, "templates");
    }
    qsort(got.row, got.n, sizeof *got.row, compare);
    HAND_OVER(out, &got, ((struct templates)TEMPLATES_INIT));
    return 0;
}

static const char *text_or(const char *text, const char *otherwise)
{
    return str_empty(text) ? otherwise : text;
}

static int check_status(const char *status, struct err *e)
{
    static const char *const STATUS[] = { "active", "deprecated", "draft" };
    for (size_t i = 0; i < sizeof STATUS / sizeof STATUS[0]; i++) {
        if (strcmp(status, STATUS[i]) == 0)
            return 0;
    }
    return err_set(e, ERR_INVALID, "status: must be active, deprecated or draft");
}

static int no_template(const char *id, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "there is no template %s of this model", id);
}

int template_list(struct db *db, const char *model_id, const char *status, const char *name,
    struct templates *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_many(db, &STMTS[LIST],
            DB_ARGS(DB_TEXT(model_id), DB_TEXT(text_or(status, "")), DB_TEXT(text_or(name, ""))),
            &rows, e) < 0)
        return err_wrap(e, "templates");
    if (db_rows_count(&rows) == 0) {
        cleanup_models struct models model = MODELS_INIT;
        if (model_get(db, model_id, &model, e) < 0)
            return -1;
    }
    return take(&rows, out, e);
}

int template_get(
    struct db *db, const char *model_id, const char *id, struct templates *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none = job_uuid_valid(id)
                   ? db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(model_id), DB_TEXT(id)), &rows, e)
                   : 1;
    if (none != 0)
        return none < 0 ? err_wrap(e, "template") : no_template(id, e);
    return take(&rows, out, e);
}

/* A version that exists already, in words of ours. */
static int refused(const struct template_row *t, struct err *e)
{
    if (e != NULL && e->code == ERR_CONFLICT)
        return err_set(
            e, ERR_CONFLICT, "this model has a template of that name and version already");
    return err_wrap(e, "template %s", text_or(t->name, ""));
}

int template_create(
    struct db *db, const struct template_row *t, struct templates *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const char *status = text_or(t->status, "active");
    if (check_status(status, e) < 0)
        return -1;
    int none = db_opt(db, &STMTS[CREATE],
        DB_ARGS(DB_TEXT(t->model_id), DB_TEXT(t->name), DB_TEXT(text_or(t->version, "v1.0.0")),
            DB_TEXT(status), DB_TEXT(t->spec_json)),
        &rows, e);
    if (none == 1)
        return err_set(e, ERR_NOT_FOUND, "there is no model %s", t->model_id);
    return none < 0 ? refused(t, e) : take(&rows, out, e);
}

int template_update(
    struct db *db, const struct template_row *t, struct templates *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (t->status != NULL && check_status(t->status, e) < 0)
        return -1;
    int none = job_uuid_valid(t->id)
                   ? db_opt(db, &STMTS[UPDATE],
                         DB_ARGS(DB_TEXT(t->model_id), DB_TEXT(t->id), DB_TEXT(t->name),
                             DB_TEXT(t->version), DB_TEXT(t->status), DB_TEXT(t->spec_json)),
                         &rows, e)
                   : 1;
    if (none == 1)
        return no_template(t->id, e);
    return none < 0 ? refused(t, e) : take(&rows, out, e);
}

int template_delete(struct db *db, const char *model_id, const char *id, struct err *e)
{
    int64_t n = 0;
    if (job_uuid_valid(id) &&
        db_exec(db, &STMTS[DELETE], DB_ARGS(DB_TEXT(model_id), DB_TEXT(id)), &n, e) < 0)
        return err_wrap(e, "template");
    return n == 0 ? no_template(id, e) : 0;
}

/* The one that is meant: the highest active version, or the version that was named. */
static int pick(const char *version, struct templates *t, struct err *e)
{
    size_t at = 0;
    while (str_empty(version) && at < t->n && strcmp(t->row[at].status, "active") != 0)
        at++;
    if (at == t->n)
        return err_set(e, ERR_INVALID, "no version of template %s is active", t->row[0].name);
    t->row[0] = t->row[at];
    t->n = 1;
    return 0;
}

int template_resolve(struct db *db, const char *model_id, const char *name, const char *version,
    struct templates *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_templates struct templates got = TEMPLATES_INIT;
    if (db_many(db, &STMTS[NAMED],
            DB_ARGS(DB_TEXT(text_or(model_id, "")), DB_TEXT(name), DB_TEXT(text_or(version, ""))),
            &rows, e) < 0 ||
        take(&rows, &got, e) < 0)
        return err_wrap(e, "template %s", name);
    if (got.n == 0)
        return err_set(e, ERR_NOT_FOUND, "there is no template %s%s%s", name,
            str_empty(version) ? "" : " of version ", text_or(version, ""));
    if (pick(version, &got, e) < 0)
        return -1;
    HAND_OVER(out, &got, ((struct templates)TEMPLATES_INIT));
    return 0;
}
