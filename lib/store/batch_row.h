/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_BATCH_ROW_H
#define WB_STORE_BATCH_ROW_H

/* Batches of the embedded batch service, as its handler sees them; who runs them uses batch_lease.h. Batch contract,
 * "Batches".
 *
 * Who asks: owner is the caller's subject, or NULL for an admin, who sees all. Errors: those of db.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "db/db.h"
#include "model/batch.h"

extern const struct db_stmts BATCH_ROW_STMTS;

struct batch_row { /* texts are borrowed from the rows */
    const char *id;
    const char *owner;
    const char *input_file_id;
    const char *endpoint;
    const char *completion_window;
    const char *metadata; /* JSON; "" none, as the others */
    const char *aibrix;
    const char *errors; /* a JSON array */
    const char *output_file_id;
    const char *error_file_id;
    enum batch_status status;
    struct batch_times times;
    struct batch_counts counts;
    struct batch_usage usage;
};

struct batch_rows {
    struct db_rows rows;
    struct batch_row *row;
    size_t n;
    bool more;
};
#define BATCH_ROWS_INIT \
    { \
        .rows = DB_ROWS_INIT, .row = NULL, .n = 0, .more = false \
    }
void batch_rows_free(struct batch_rows *b);
#define cleanup_batch_rows __attribute__((cleanup(batch_rows_free)))

struct batch_new {
    const char *owner;
    bool admin;         /* may read anybody's file */
    const char *job_id; /* NULL or "": none */
    const char *input_file_id;
    const char *endpoint;
    const char *completion_window;
    int64_t window_s;
    const char *metadata;     /* JSON or NULL */
    const char *aibrix;       /* JSON or NULL */
    int64_t output_expires_s; /* 0: never */
};

/* *out has the batch: a new one, or the one that this owner made for the same job before (1). ERR_NOT_FOUND: there is no
 * such input file. */
int batch_row_create(
    struct db *db, const struct batch_new *b, struct batch_rows *out, struct err *e) WARN_UNUSED;

/* ERR_NOT_FOUND: none, or another's. */
int batch_row_get(struct db *db, const char *id, const char *owner, struct batch_rows *out,
    struct err *e) WARN_UNUSED;

/* Newest first. An unknown `after` has nothing behind it, as in the service that this one stands in for. */
int batch_row_list(struct db *db, const char *owner, const char *after, int64_t limit,
    struct batch_rows *out, struct err *e) WARN_UNUSED;

/* *out has the batch as it is then. 1: it is finalizing or has ended, and goes on. */
int batch_row_cancel(struct db *db, const char *id, const char *owner, struct batch_rows *out,
    struct err *e) WARN_UNUSED;

#endif
