/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_TEMPLATE_H
#define WB_STORE_TEMPLATE_H

/* Deployment templates of models: reference 1.6. (model, name, version) is unique; without a
 * version the highest dotted-numeric active one is meant (model/version.h). Errors are those of db.h. */
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "store/model.h"

extern const struct db_stmts TEMPLATE_STMTS;

struct template_row {
    const char *id; /* uuid */
    const char *model_id;
    const char *serving_name; /* of the model */
    const char *name;
    const char *version;
    const char *status; /* active, deprecated, draft */
    const char *spec_json;
    int64_t created_us;
    int64_t updated_us;
};
struct templates {
    struct template_row *row;
    size_t n;
    struct db_rows rows;
};
#define TEMPLATES_INIT \
    { \
        .row = NULL, .n = 0, .rows = DB_ROWS_INIT \
    }
void templates_free(struct templates *t);
#define cleanup_templates __attribute__((cleanup(templates_free)))

/* By name, then version, highest first. status, name: NULL or "" for all. ERR_NOT_FOUND: no such model. */
int template_list(struct db *db, const char *model_id, const char *status, const char *name,
    struct templates *out, struct err *e) WARN_UNUSED;
int template_get(struct db *db, const char *model_id, const char *id, struct templates *out,
    struct err *e) WARN_UNUSED;
/* ERR_NOT_FOUND: no such model; ERR_CONFLICT: the version exists; ERR_INVALID: no such status. version "":
 * v1.0.0, status "": active. */
int template_create(
    struct db *db, const struct template_row *t, struct templates *out, struct err *e) WARN_UNUSED;
/* Replaces what is not NULL. */
int template_update(
    struct db *db, const struct template_row *t, struct templates *out, struct err *e) WARN_UNUSED;
int template_delete(struct db *db, const char *model_id, const char *id, struct err *e) WARN_UNUSED;

/* The template that a job means. model_id "": over all models, the one by the first model's id that has the
 * name. version "": the highest active one. ERR_NOT_FOUND when there is none; ERR_INVALID when the name exists
 * but no version of it is active (grpc FailedPrecondition). */
int template_resolve(struct db *db, const char *model_id, const char *name, const char *version,
    struct templates *out, struct err *e) WARN_UNUSED;

#endif
