/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DB_ROW_H
#define WB_DB_ROW_H

/* Strict reads of one value: a NULL where none is documented, or text that is no such value, is
 * ERR_INTERNAL with the column's number. Pointers are borrowed from the rows. */
#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"

const char *db_text(const struct db_rows *r, int row, int col); /* NULL column reads as "" */
bool db_is_null(const struct db_rows *r, int row, int col);
int db_int8(const struct db_rows *r, int row, int col, int64_t *out, struct err *e) WARN_UNUSED;
/* Several of one row: stops at the first that is none. */
struct db_int8_at {
    int col;
    int64_t *out;
};
int db_int8s(const struct db_rows *r, int row, const struct db_int8_at *at, size_t n,
    struct err *e) WARN_UNUSED;
int db_float8(const struct db_rows *r, int row, int col, double *out, struct err *e) WARN_UNUSED;
int db_bool(const struct db_rows *r, int row, int col, bool *out, struct err *e) WARN_UNUSED;

#endif
