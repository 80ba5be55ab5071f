/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_GALLERY_ROW_H
#define WB_GALLERY_ROW_H

/* How a row of gallery_operations with its row of operation_control is selected and read: one list of
 * columns, one mapper. NULL reads as "", 0 or false; no stored value makes a row unreadable. */
#include "db/db.h"
#include "json/jx.h"
#include "model/gallery.h"
#include "store/gallery.h"
#include "store/sql_time.h"

/* Of a column nodes that is larger, and of one that makes no sense, there are no nodes. */
#define GALLERY_NODES_BYTES "131072"

/* clang-format off: it would pull the lists apart. */
/* The columns of gallery_row_read() after the clock; g is the row, c its control (all NULL without). */
#define GALLERY_COLUMNS \
    "g.id, g.gallery_element_name, g.cache_key, g.op_type, g.status," \
    " coalesce(g.is_backend_op, false), coalesce(g.cancellable, false)," \
    " CASE WHEN g.progress > 0.000001 AND g.progress <= 100 THEN g.progress::float8" \
    "  WHEN g.progress > 100 AND g.progress < 'NaN' THEN 100 ELSE 0 END," \
    " g.phase, left(g.message, 4000), left(g.error, 4000), g.file_name," \
    " coalesce(g.current_bytes, 0), coalesce(g.total_bytes, 0), " SQL_US("g.created_at") ", " SQL_US( \
        "g.updated_at") "," \
                        " c.dismissed_at IS NOT NULL," \
                        " CASE WHEN octet_length(c.nodes_text) <= " GALLERY_NODES_BYTES \
                        " THEN c.nodes_text" \
                        "  WHEN c.nodes_text IS NOT NULL THEN 'too large' END"

/* When a row last changed; NULL when that is not known. */
#define GALLERY_CHANGED(g) "greatest(" g ".updated_at, " g ".created_at)"

/* The table as g of the columns above, for reading. An older LocalAI's has fewer columns: a name that it does
 * not have is looked up outside it, by the rules of SQL, and found among those that are unset. So the
 * catalog decides anew whenever a statement is planned, and a column that comes later is read at once. The casts
 * keep the types of an answer as they are then. Without id, status and updated_at nothing can be told: those
 * must be there, and an answer without them would be one out of ignorance. */
#define GALLERY_TABLE \
    "(SELECT r.* FROM (VALUES (NULL::text, NULL::text, NULL::text, NULL::bool, NULL::bool," \
    " NULL::float8, NULL::text, NULL::text, NULL::text, NULL::text, NULL::int8, NULL::int8," \
    " NULL::timestamptz)) unset (gallery_element_name, cache_key, op_type, is_backend_op," \
    " cancellable, progress, phase, message, error, file_name, current_bytes, total_bytes," \
    " created_at) CROSS JOIN LATERAL (SELECT id, status, updated_at," \
    " gallery_element_name::text AS gallery_element_name, cache_key::text AS cache_key," \
    " op_type::text AS op_type, is_backend_op::bool AS is_backend_op," \
    " cancellable::bool AS cancellable, progress::float8 AS progress, phase::text AS phase," \
    " message::text AS message, error::text AS error, file_name::text AS file_name," \
    " current_bytes::int8 AS current_bytes, total_bytes::int8 AS total_bytes," \
    " created_at::timestamptz AS created_at FROM gallery_operations) r)"

#define GALLERY_JOIN_CONTROL " LEFT JOIN operation_control c ON c.job_id = g.id"
/* clang-format on */

enum { GALLERY_COL_CLOCK = 0, GALLERY_COL_ID = 1, GALLERY_COL_NEXT = 19 };

/* Reads all rows, which it consumes. A row whose id is NULL only carries the clock. before: as
 * gallery_list_finish() has it; both are in the order of ids. */
int gallery_rows_take(struct db_rows *rows, const struct gallery_rows *before,
    struct gallery_rows *out, struct err *e) WARN_UNUSED;

#endif
