/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LOAD_ROW_H
#define WB_LOAD_ROW_H

/* How a row of model_load_jobs with its claim is selected and read: one list of columns, one mapper.
 * Numbers that are NULL read as 0, times that are unset (NULL, Go's zero time) as 0. */
#include <stdint.h>

#include "db/db.h"
#include "model/load_job.h"
#include "store/sql_time.h"

/* clang-format off: it would pull the list apart. */
/* The columns of load_row_read() after the clock; j is the row, c its claim (all NULL without). */
#define LOAD_COLUMNS \
    "j.tracking_key, j.state, j.owner_replica, j.node_id, j.node_name," \
    " coalesce(j.replica_index, 0), coalesce(j.bytes_sent, 0), coalesce(j.total_bytes, 0)," \
    " coalesce(j.file_index, 0), coalesce(j.total_files, 0), " SQL_US("j.started_at") ", " SQL_US("j.last_progress") ", " SQL_US( \
        "j.created_at") ", " SQL_US("j.updated_at") ", left(j.last_error, 4000), " SQL_US("c.bytes_moved_at") ", left(c.token_sha256, 16)"

/* The table as j of the columns above, for reading: as GALLERY_TABLE has it. tracking_key, state and updated_at
 * must be there. */
#define LOAD_TABLE \
    "(SELECT r.* FROM (VALUES (NULL::text, NULL::text, NULL::text, NULL::int8, NULL::int8," \
    " NULL::int8, NULL::int8, NULL::int8, NULL::timestamptz, NULL::timestamptz," \
    " NULL::timestamptz, NULL::text)) unset (owner_replica, node_id, node_name, replica_index," \
    " bytes_sent, total_bytes, file_index, total_files, started_at, last_progress, created_at," \
    " last_error) CROSS JOIN LATERAL (SELECT tracking_key, state, updated_at," \
    " owner_replica::text AS owner_replica, node_id::text AS node_id," \
    " node_name::text AS node_name, replica_index::int8 AS replica_index," \
    " bytes_sent::int8 AS bytes_sent, total_bytes::int8 AS total_bytes," \
    " file_index::int8 AS file_index, total_files::int8 AS total_files," \
    " started_at::timestamptz AS started_at, last_progress::timestamptz AS last_progress," \
    " created_at::timestamptz AS created_at, last_error::text AS last_error" \
    " FROM model_load_jobs) r)"
/* clang-format on */

/* A claim counts only beside the row that it was made for. */
#define LOAD_CLAIM_OF_ROW "c.tracking_key = j.tracking_key AND c.claimed_created_at = j.created_at"

/* When a load was last heard of; NULL when that is not known. */
#define LOAD_CHANGED(j) "greatest(" j ".last_progress, " j ".updated_at, " j ".created_at)"

/* The columns after these, if a statement has any. */
enum { LOAD_COL_CLOCK = 0, LOAD_COL_KEY = 1, LOAD_COL_NEXT = 18 };

/* Reads row number row. The texts are borrowed from rows. */
int load_row_read(
    const struct db_rows *rows, int row, struct load_row *out, struct err *e) WARN_UNUSED;

#endif
