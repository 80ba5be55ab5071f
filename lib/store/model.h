/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_MODEL_H
#define WB_STORE_MODEL_H

/* The catalog of models, as the create wizard needs it: reference 1.3. Errors are those of db.h. */
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"

extern const struct db_stmts MODEL_STMTS;

struct model_row {
    const char *id;
    const char *name;
    const char *serving_name;
    const char *info_json; /* all else the catalog shows */
    int64_t created_us;
};
struct models {
    struct model_row *model;
    size_t n;
    struct db_rows rows;
};
#define MODELS_INIT \
    { \
        .model = NULL, .n = 0, .rows = DB_ROWS_INIT \
    }
void models_free(struct models *m);
#define cleanup_models __attribute__((cleanup(models_free)))

/* By name. search: part of a name, id or serving name, whatever the case; category: one of
 * info_json's "categories"; NULL or "": all. At most 1000. */
int model_list(struct db *db, const char *search, const char *category, struct models *out,
    struct err *e) WARN_UNUSED;
int model_get(struct db *db, const char *id, struct models *out, struct err *e) WARN_UNUSED;
/* ERR_CONFLICT when the id is taken. */
int model_create(
    struct db *db, const struct model_row *m, struct models *out, struct err *e) WARN_UNUSED;

#endif
