/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/gallery.h"
#include "store/gallery_nodes.h"
#include "store/gallery_row.h"

enum stmt { ADMIT, PROGRESS, STOP, DISMISS, CLEAR };

#define ENDED "('completed', 'cancelled', 'failed')"

static const struct db_stmt STMTS[] = {
    /* The same id again only fills what is empty: neither name nor end of an operation may be taken
     * from it. What belonged to an earlier operation of a fresh one's id goes. */
    [ADMIT] = { "gallery_admit",
        "WITH made AS (INSERT INTO gallery_operations AS g"
        " (id, user_id, gallery_element_name, cache_key, is_backend_op, op_type, status, progress,"
        "  phase, current_bytes, total_bytes, message, error, file_name, total_file_size,"
        "  downloaded_file_size, frontend_id, cancellable, created_at, updated_at)"
        " VALUES (coalesce(nullif($1::text, ''), gen_random_uuid()::text), coalesce($2::text, ''),"
        "  $3::text, coalesce($4::text, ''),"
        "  coalesce($5::boolean, starts_with($6::text, 'backend_')), $6::text, 'pending', 0, '', 0, 0,"
        "  '', '', '', '', '', '', coalesce($7::boolean, false), now(), now())"
        " ON CONFLICT (id) DO UPDATE SET user_id = coalesce(nullif(g.user_id, ''), excluded.user_id),"
        "  gallery_element_name = coalesce(nullif(g.gallery_element_name, ''),"
        "   excluded.gallery_element_name),"
        "  cache_key = coalesce(nullif(g.cache_key, ''), excluded.cache_key),"
        "  op_type = coalesce(nullif(g.op_type, ''), excluded.op_type),"
        "  is_backend_op = coalesce(g.is_backend_op, false) OR coalesce($5::boolean, false),"
        "  cancellable = CASE WHEN g.status IN " ENDED " THEN g.cancellable"
        "   ELSE coalesce($7::boolean, g.cancellable) END,"
        "  updated_at = CASE WHEN g.status IN " ENDED " THEN g.updated_at ELSE now() END"
        " RETURNING g.*, xmax = 0 AS fresh),"
        " reset AS (DELETE FROM operation_control c USING made"
        "  WHERE made.fresh AND c.job_id = made.id)"
        " SELECT " SQL_CLOCK ", " GALLERY_COLUMNS ", g.fresh FROM made g"
        " LEFT JOIN operation_control c ON c.job_id = g.id AND NOT g.fresh",
        7 },
    /* old: the row, locked, and how it is left alone if it has ended. new: what turns with the report.
     * seen: is it due? What is not due is answered but not written. A stamp that is more than a second
     * ahead is another machine's clock. A failure that is told again stays as old as it was. */
    [PROGRESS] = { "gallery_progress",
        "WITH old AS (SELECT g.*, c.dismissed_at, c.nodes_text, nullif($2::text, '') AS says,"
        "  CASE WHEN g.status IN ('completed', 'cancelled') THEN 'settled'"
        "   WHEN g.status = 'failed' AND coalesce($2::text, '') NOT IN " ENDED
        " THEN 'given up' END AS left_so"
        "  FROM gallery_operations g" GALLERY_JOIN_CONTROL " WHERE g.id = $1 FOR UPDATE OF g),"
        " new AS (SELECT *, coalesce(says, status) AS status_,"
        "  coalesce(nullif($4::text, ''), phase) AS phase_,"
        "  CASE WHEN says IN " ENDED " THEN false ELSE coalesce($9::boolean, cancellable) END"
        "   AS cancellable_,"
        "  coalesce(left(nullif($10::text, ''), 4000),"
        "   CASE WHEN says IN ('completed', 'cancelled') THEN '' END, error) AS error_,"
        "  coalesce(status = 'failed' AND says = 'failed', false) AS again FROM old),"
        " seen AS (SELECT *, (status_, phase_) IS DISTINCT FROM (status, phase) AS turned,"
        "  left_so IS NULL AND ((status_, phase_, cancellable_, error_)"
        "   IS DISTINCT FROM (status, phase, cancellable, error) OR (updated_at"
        "   BETWEEN now() - interval '1 second' AND now() + interval '1 second') IS NOT TRUE"
        "   OR $12::boolean) AS due FROM new),"
        " wrote AS (UPDATE gallery_operations g SET status = status_, phase = phase_,"
        "  cancellable = cancellable_, error = error_,"
        "  progress = coalesce(nullif($3::float8, -1), g.progress),"
        "  message = coalesce(left(nullif($5::text, ''), 4000), g.message),"
        "  current_bytes = coalesce(nullif($6::bigint, -1), g.current_bytes),"
        "  total_bytes = coalesce(nullif($7::bigint, -1), g.total_bytes),"
        "  file_name = coalesce(nullif($8::text, ''), g.file_name),"
        "  updated_at = CASE WHEN again THEN g.updated_at ELSE now() END"
        "  FROM seen WHERE g.id = seen.id AND due),"
        " beside AS (INSERT INTO operation_control AS c (job_id, nodes, changed_at)"
        "  SELECT id, $11::text::jsonb, now() FROM seen WHERE due AND $11::text IS NOT NULL"
        "  ON CONFLICT (job_id) DO UPDATE SET nodes = excluded.nodes, changed_at = now())"
        " SELECT " SQL_CLOCK ", " GALLERY_COLUMNS ", coalesce(left_so,"
        "  CASE WHEN says IN " ENDED " THEN 'ended' WHEN turned THEN 'changed' ELSE 'taken' END),"
        "  due AND NOT again FROM seen g CROSS JOIN LATERAL (SELECT g.dismissed_at, g.nodes_text) c",
        12 },
    [STOP] = { "gallery_stop",
        "WITH old AS (SELECT g.id, coalesce(g.status, '') AS was,"
        "  coalesce(g.cancellable, false) AS can"
        "  FROM gallery_operations g WHERE g.id = $1 FOR UPDATE),"
        " done AS (UPDATE gallery_operations g SET status = 'cancelled', cancellable = false,"
        "  updated_at = now() FROM old WHERE g.id = old.id AND old.can AND old.was NOT IN " ENDED
        "  RETURNING g.id),"
        " told AS (INSERT INTO operation_control AS c (job_id, control, changed_at)"
        "  SELECT id, $2, now() FROM done"
        "  ON CONFLICT (job_id) DO UPDATE SET control = excluded.control, changed_at = now())"
        " SELECT old.was, EXISTS (SELECT FROM done) FROM old",
        2 },
    [DISMISS] = { "gallery_dismiss",
        "INSERT INTO operation_control AS c (job_id, dismissed_at, changed_at)"
        " SELECT id, now(), now() FROM gallery_operations WHERE id = $1 AND status = 'failed'"
        " ON CONFLICT (job_id) DO UPDATE SET dismissed_at = coalesce(c.dismissed_at, now()),"
        "  changed_at = now()",
        1 },
    /* A control stays: whoever does the work may not have asked for it yet. And a mark stays in any case, which
     * hides what Redis may still hold of the operation: see LIST. */
    [CLEAR] = { "gallery_clear",
        "WITH gone AS (DELETE FROM gallery_operations g WHERE g.status IN ('completed', 'cancelled')"
        "  OR (g.status = 'failed' AND EXISTS (SELECT FROM operation_control c"
        "   WHERE c.job_id = g.id AND c.dismissed_at IS NOT NULL)) RETURNING g.id)"
        " INSERT INTO operation_control AS c (job_id, dismissed_at, changed_at)"
        " SELECT id, now(), now() FROM gone"
        " ON CONFLICT (job_id) DO UPDATE SET dismissed_at = now(), changed_at = now(), nodes = NULL",
        0 },
};

const struct db_stmts GALLERY_ACT_STMTS = { STMTS, sizeof(STMTS) / sizeof(STMTS[0]) };

static int check_writable(struct gallery_db g, struct err *e)
{
    if (g.read_only)
        return err_set(e, ERR_FORBIDDEN,
            "read_only is on: gallery operations are written by the site's own front ends");
    return 0;
}

static const char *flag(int given)
{
    return given < 0 ? NULL : given ? "t" : "f";
}

int gallery_admit(
    struct gallery_db g, const struct gallery_admission *a, struct gallery_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    bool fresh = false;
    if (check_writable(g, e) < 0)
        return -1;
    if (db_one(g.db, &STMTS[ADMIT],
            DB_ARGS(DB_TEXT(a->id), DB_TEXT(a->user_id), DB_TEXT(a->element_name),
                DB_TEXT(a->cache_key), DB_TEXT(flag(a->is_backend_op)), DB_TEXT(a->op_type),
                DB_TEXT(flag(a->cancellable))),
            &rows, e) < 0 ||
        db_bool(&rows, 0, GALLERY_COL_NEXT, &fresh, e) < 0 ||
        gallery_rows_take(&rows, NULL, out, e) < 0)
        return err_wrap(e, "operation %s", a->id ? a->id : a->element_name);
    return fresh ? 0 : 1;
}

static enum gallery_outcome outcome_of(const char *name)
{
    static const char *const NAME[] = { [GALLERY_TAKEN] = "taken",
        [GALLERY_CHANGED] = "changed",
        [GALLERY_ENDED] = "ended",
        [GALLERY_SETTLED] = "settled",
        [GALLERY_GIVEN_UP] = "given up" };
    unsigned o = 0;
    while (o < GALLERY_GIVEN_UP && strcmp(NAME[o], name) != 0)
        o++;
    return (enum gallery_outcome)o;
}

/* What the statement answered: the row as it was, and what became of the report. */
static int take_progress(struct db_rows *rows, const struct gallery_report *r,
    struct gallery_rows *out, enum gallery_outcome *outcome, struct err *e)
{
    bool wrote = false;
    const enum gallery_outcome o = outcome_of(db_text(rows, 0, GALLERY_COL_NEXT));
    if (db_bool(rows, 0, GALLERY_COL_NEXT + 1, &wrote, e) < 0 ||
        gallery_rows_take(rows, NULL, out, e) < 0)
        return -1;
    struct gallery_row *row = &out->row[0];
    if (o != GALLERY_SETTLED && o != GALLERY_GIVEN_UP)
        gallery_apply(&row->op, r, &row->op);
    out->held_back = !wrote && o == GALLERY_TAKEN;
    if (wrote)
        row->updated_us = out->now_us;
    *outcome = o;
    return 0;
}

/* What a report would do to the row. Nothing is written and nothing locked: the site may have given us no
 * more than the right to read. */
static int look_at_progress(struct db *db, const char *id, const struct gallery_report *r,
    struct gallery_rows *out, enum gallery_outcome *outcome, struct err *e)
{
    if (gallery_get(db, id, out, e) < 0)
        return -1;
    struct gallery_op *op = &out->row[0].op;
    const struct gallery_op was = *op;
    const bool ends = !str_empty(r->status) && gallery_is_final(gallery_status_parse(r->status));
    if (gallery_is_settled(was.status)) {
        *outcome = GALLERY_SETTLED;
        return 0;
    }
    if (was.status == GALLERY_FAILED && !ends) {
        *outcome = GALLERY_GIVEN_UP;
        return 0;
    }
    gallery_apply(&was, r, op);
    const bool turned = op->status != was.status || strcmp(op->phase, was.phase) != 0;
    *outcome = ends ? GALLERY_ENDED : turned ? GALLERY_CHANGED : GALLERY_TAKEN;
    return 0;
}

int gallery_progress(struct gallery_db g, const char *id, const struct gallery_report *r,
    struct gallery_rows *out, enum gallery_outcome *outcome, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_buf struct buf nodes = BUF_INIT(SIZE_MAX / 2);
    if (g.read_only)
        return look_at_progress(g.db, id, r, out, outcome, e);
    if (r->has_nodes)
        gallery_nodes_print(r->node, r->nodes, &nodes);
    int none = db_opt(g.db, &STMTS[PROGRESS],
        DB_ARGS(DB_TEXT(id), DB_TEXT(r->status), DB_FLOAT8(r->progress), DB_TEXT(r->phase),
            DB_TEXT(r->message), DB_INT8(r->current_bytes), DB_INT8(r->total_bytes),
            DB_TEXT(r->file_name), DB_TEXT(flag(r->cancellable)), DB_TEXT(r->error),
            DB_TEXT(nodes.data), DB_TEXT(flag(r->at_once))),
        &rows, e);
    if (none == 1)
        return err_set(e, ERR_NOT_FOUND, "there is no operation %s: admit it first", id);
    if (none < 0 || take_progress(&rows, r, out, outcome, e) < 0)
        return err_wrap(e, "operation %s", id);
    return 0;
}

int gallery_stop(struct gallery_db g, const char *id, enum gallery_control c, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    bool done = false;
    if (check_writable(g, e) < 0)
        return -1;
    int none = db_opt(
        g.db, &STMTS[STOP], DB_ARGS(DB_TEXT(id), DB_TEXT(gallery_control_name(c))), &rows, e);
    if (none < 0)
        return err_wrap(e, "operation %s", id);
    if (none == 1)
        return err_set(e, ERR_INVALID, "there is no operation %s", id);
    if (db_bool(&rows, 0, 1, &done, e) < 0)
        return err_wrap(e, "operation %s", id);
    if (done)
        return 0;
    enum gallery_status was = gallery_status_parse(db_text(&rows, 0, 0));
    if (gallery_is_final(was))
        return err_set(
            e, ERR_INVALID, "operation %s has ended already: %s", id, gallery_status_name(was));
    return err_set(e, ERR_INVALID, "operation %s is not cancellable", id);
}

int gallery_dismiss(struct db *db, const char *id, struct err *e)
{
    cleanup_gallery_rows struct gallery_rows found = GALLERY_ROWS_INIT;
    struct err why = ERR_INIT;
    int64_t n = 0;
    if (gallery_get(db, id, &found, &why) < 0) /* maybe for want of the table */
        return why.code == ERR_NOT_FOUND ? 1 : err_set(e, why.code, "%s", why.msg);
    if (db_exec(db, &STMTS[DISMISS], DB_ARGS(DB_TEXT(id)), &n, e) < 0)
        return err_wrap(e, "operation %s", id);
    return n > 0 ? 0 : 1;
}

int gallery_history_clear(struct gallery_db g, struct err *e)
{
    if (check_writable(g, e) < 0)
        return -1;
    if (db_exec(g.db, &STMTS[CLEAR], DB_NO_ARGS, NULL, e) < 0)
        return err_wrap(e, "operations");
    return 0;
}
