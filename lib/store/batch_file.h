/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_BATCH_FILE_H
#define WB_STORE_BATCH_FILE_H

/* Files of the embedded batch service: their rows. What is in them lies in the content folder (lines/content.h). A file
 * whose time is over is gone for every reader, whether it was swept or not. Batch contract, "Files".
 *
 * Who asks: owner is the caller's subject, or NULL for an admin, who sees all. Errors: those of db.h. Any thread that
 * owns db. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "db/db.h"

extern const struct db_stmts BATCH_FILE_STMTS;

enum { BATCH_FILE_NAME_MAX = 255 }; /* characters */

struct batch_file_row { /* texts are borrowed from the rows */
    const char *id;
    const char *owner;
    const char *purpose;
    const char *filename;
    int64_t bytes;
    int64_t created_us;
    int64_t expires_us; /* 0: never */
};

struct batch_files {
    struct db_rows rows;
    struct batch_file_row *row;
    size_t n;
    bool more;
};
#define BATCH_FILES_INIT \
    { \
        .rows = DB_ROWS_INIT, .row = NULL, .n = 0, .more = false \
    }
void batch_files_free(struct batch_files *f);
#define cleanup_batch_files __attribute__((cleanup(batch_files_free)))

struct batch_file_new {
    const char *id;
    const char *owner;
    const char *purpose;
    const char *filename;
    int64_t bytes;
    int64_t expires_s; /* from now; 0: never */
};

/* *out has the new row alone. */
int batch_file_add(struct db *db, const struct batch_file_new *f, struct batch_files *out,
    struct err *e) WARN_UNUSED;

/* ERR_NOT_FOUND: none, another's, or its time is over. */
int batch_file_get(struct db *db, const char *id, const char *owner, struct batch_files *out,
    struct err *e) WARN_UNUSED;

struct batch_file_list {
    const char *owner;
    const char *purpose; /* NULL: any */
    const char *after;   /* NULL: from the start */
    int64_t limit;
    bool oldest_first;
};
/* ERR_INVALID: there is no file `after`. */
int batch_file_list(struct db *db, const struct batch_file_list *l, struct batch_files *out,
    struct err *e) WARN_UNUSED;

/* ERR_NOT_FOUND as above; ERR_CONFLICT: a batch that has not ended reads it. */
int batch_file_delete(struct db *db, const char *id, const char *owner, struct err *e) WARN_UNUSED;

/* Takes away the rows of files whose time is over, up to limit; out has them. Files that a batch reads stay. */
int batch_file_expire(
    struct db *db, int64_t limit, struct batch_files *out, struct err *e) WARN_UNUSED;

/* Those of the ids, separated by spaces, that have no row, whatever their time. */
int batch_file_strangers(
    struct db *db, const char *ids, struct db_rows *out, struct err *e) WARN_UNUSED;
const char *batch_file_stranger(const struct db_rows *r, int row);

#endif
