/* SPDX-License-Identifier: Apache-2.0 */
#include "store/load_row.h"

#include "base/str.h"
#include "db/db_row.h"

enum col {
    COL_STATE = LOAD_COL_KEY + 1,
    COL_OWNER,
    COL_NODE_ID,
    COL_NODE_NAME,
    COL_REPLICA_INDEX,
    COL_BYTES_SENT,
    COL_TOTAL_BYTES,
    COL_FILE_INDEX,
    COL_TOTAL_FILES,
    COL_STARTED,
    COL_LAST_PROGRESS,
    COL_CREATED,
    COL_UPDATED,
    COL_LAST_ERROR,
    COL_BYTES_MOVED,
    COL_CLAIM,
    COL__COUNT
};

_Static_assert(COL__COUNT == (int)LOAD_COL_NEXT, "LOAD_COLUMNS and the mapper are one list");

static int read_numbers(const struct db_rows *rows, int row, struct load_row *r, struct err *e)
{
    const struct db_int8_at fields[] = {
        { COL_REPLICA_INDEX, &r->replica_index },
        { COL_BYTES_SENT, &r->bytes_sent },
        { COL_TOTAL_BYTES, &r->total_bytes },
        { COL_FILE_INDEX, &r->file_index },
        { COL_TOTAL_FILES, &r->total_files },
        { COL_STARTED, &r->started_us },
        { COL_LAST_PROGRESS, &r->last_progress_us },
        { COL_CREATED, &r->created_us },
        { COL_UPDATED, &r->updated_us },
        { COL_BYTES_MOVED, &r->bytes_moved_us },
    };
    return db_int8s(rows, row, fields, sizeof fields / sizeof fields[0], e);
}

int load_row_read(const struct db_rows *rows, int row, struct load_row *out, struct err *e)
{
    struct load_row r = {
        .key = db_text(rows, row, LOAD_COL_KEY),
        .state = load_state_parse(db_text(rows, row, COL_STATE)),
        .owner = db_text(rows, row, COL_OWNER),
        .node_id = db_text(rows, row, COL_NODE_ID),
        .node_name = db_text(rows, row, COL_NODE_NAME),
        .last_error = db_text(rows, row, COL_LAST_ERROR),
    };
    if (read_numbers(rows, row, &r, e) < 0)
        return err_wrap(e, "load %s", r.key);
    (void)str_copy(r.claim, sizeof r.claim, db_text(rows, row, COL_CLAIM));
    *out = r;
    return 0;
}
