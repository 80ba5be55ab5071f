/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_PROVISION_H
#define WB_STORE_PROVISION_H

/* Provision rows: the machines that were got for jobs, one row for each attempt. Written by plan.h, job_land.h
 * and intent.h; here they are read. Errors are those of db.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "model/job.h"

extern const struct db_stmts PROVISION_STMTS;

struct provision {
    const char *key; /* <job id>:<attempt> */
    const char *id;  /* uuid */
    char job_id[UUID_SIZE];
    const char *pool;
    const char *provider;
    const char *status;
    const char *region;
    const char *spec_json;
    const char *details_json;
    int64_t starts_us;
    int64_t ends_us;
    const char *error;
    int64_t created_us;
    int64_t updated_us;
};
struct provisions {
    struct provision *provision;
    size_t n;
    bool more;
    struct db_rows rows;
};
#define PROVISIONS_INIT \
    { \
        .provision = NULL, .n = 0, .more = false, .rows = DB_ROWS_INIT \
    }
void provisions_free(struct provisions *p);
#define cleanup_provisions __attribute__((cleanup(provisions_free)))

/* By key; ERR_NOT_FOUND. */
int provision_get(
    struct db *db, const char *key, struct provisions *out, struct err *e) WARN_UNUSED;

/* Newest first. after: the key before the page, or NULL; status: NULL for all. ERR_INVALID when after names
 * none. limit 1 ... 200. */
int provision_list(struct db *db, const char *after, const char *status, int64_t limit,
    struct provisions *out, struct err *e) WARN_UNUSED;

#endif
