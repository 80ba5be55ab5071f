/* SPDX-License-Identifier: Apache-2.0 */
#include "store/gallery_keep.h"

#include "db/db_row.h"

enum stmt { KEEP };

static const struct db_stmt STMTS[] = {
    [KEEP] = { "gallery_keep",
        "WITH told AS (SELECT *, 'epoch'::timestamptz + stamp * interval '1 microsecond' AS at"
        "  FROM jsonb_to_recordset($1::text::jsonb) t (job_id text, progress float8, phase text,"
        "  message text, file_name text, current_bytes int8, total_bytes int8, stamp int8,"
        "  nodes jsonb)),"
        " old AS (SELECT t.* FROM told t JOIN gallery_operations g ON g.id = t.job_id"
        "  WHERE g.status IN ('pending', 'downloading', 'processing')"
        "  AND coalesce(g.updated_at, '-infinity') < t.at FOR UPDATE OF g SKIP LOCKED),"
        " done AS (UPDATE gallery_operations g SET progress = o.progress,"
        "  phase = coalesce(nullif(o.phase, ''), g.phase),"
        "  message = coalesce(nullif(o.message, ''), g.message),"
        "  file_name = coalesce(nullif(o.file_name, ''), g.file_name),"
        "  current_bytes = o.current_bytes, total_bytes = o.total_bytes, updated_at = o.at"
        "  FROM old o WHERE g.id = o.job_id RETURNING g.id),"
        " beside AS (INSERT INTO operation_control AS c (job_id, nodes, changed_at)"
        "  SELECT job_id, nodes, now() FROM old WHERE nodes IS NOT NULL"
        "  ON CONFLICT (job_id) DO UPDATE SET nodes = excluded.nodes, changed_at = now()),"
        " bare AS (UPDATE operation_control c SET nodes = NULL, changed_at = now() FROM old o"
        "  WHERE c.job_id = o.job_id AND o.nodes IS NULL AND c.nodes IS NOT NULL)"
        " SELECT count(*) FROM done",
        1 },
};

const struct db_stmts GALLERY_KEEP_STMTS = { STMTS, sizeof(STMTS) / sizeof(STMTS[0]) };

int gallery_keep(struct db *db, const char *values, int64_t *kept, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t n = 0;
    if (db_one(db, &STMTS[KEEP], DB_ARGS(DB_TEXT(values)), &rows, e) < 0 ||
        db_int8(&rows, 0, 0, &n, e) < 0)
        return err_wrap(e, "operations");
    if (kept != NULL)
        *kept = n;
    return 0;
}
