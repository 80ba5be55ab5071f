/* SPDX-License-Identifier: Apache-2.0 */
#include "store/template.h"

void models_free(struct models *m)
{
    free(m->model);
    db_rows_free(&m->rows);
}

void templates_free(struct templates *t)
{
    free(t->row);
    db_rows_free(&t->rows);
}

const struct db_stmts TEMPLATE_STMTS = { NULL, 0 };

int model_list(
    struct db *db, const char *search, const char *category, struct models *out, struct err *e)
{
    (void)db;
    (void)search;
    (void)category;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "model_list: not there yet");
}

int model_get(struct db *db, const char *id, struct models *out, struct err *e)
{
    (void)db;
    (void)id;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "model_get: not there yet");
}

int model_create(struct db *db, const struct model_row *m, struct models *out, struct err *e)
{
    (void)db;
    (void)m;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "model_create: not there yet");
}

int template_list(struct db *db, const char *model_id, const char *status, const char *name,
    struct templates *out, struct err *e)
{
    (void)db;
    (void)model_id;
    (void)status;
    (void)name;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "template_list: not there yet");
}

int template_get(
    struct db *db, const char *model_id, const char *id, struct templates *out, struct err *e)
{
    (void)db;
    (void)model_id;
    (void)id;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "template_get: not there yet");
}

int template_create(
    struct db *db, const struct template_row *t, struct templates *out, struct err *e)
{
    (void)db;
    (void)t;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "template_create: not there yet");
}

int template_update(
    struct db *db, const struct template_row *t, struct templates *out, struct err *e)
{
    (void)db;
    (void)t;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "template_update: not there yet");
}

int template_delete(struct db *db, const char *model_id, const char *id, struct err *e)
{
    (void)db;
    (void)model_id;
    (void)id;
    return err_set(e, ERR_UNAVAILABLE, "template_delete: not there yet");
}

int template_resolve(struct db *db, const char *model_id, const char *name, const char *version,
    struct templates *out, struct err *e)
{
    (void)db;
    (void)model_id;
    (void)name;
    (void)version;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "template_resolve: not there yet");
}
