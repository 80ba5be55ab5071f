/* SPDX-License-Identifier: Apache-2.0 */
#include "store/batch_row.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "db/db_row.h"
#include "store/sql_time.h"

enum stmt { CREATE, OF_JOB, GET, PLACE, LIST, CANCEL };

#define COLUMNS \
    "b.id, b.owner, b.input_file_id, b.endpoint, b.completion_window, b.metadata, b.aibrix, b.errors, b.output_file_id," \
    " b.error_file_id, b.status, b.total, b.completed, b.failed, b.input_tokens, b.cached_tokens, b.output_tokens," \
    " b.reasoning_tokens, b.total_tokens, " SQL_US("b.created_at") ", " SQL_US("b.in_progress_at") ", " SQL_US("b.expires_at") ", " SQL_US( \
        "b.finalizing_at") ", " SQL_US("b.completed_at") ", " SQL_US("b.failed_at") ", " SQL_US("b.expired_at") ", " SQL_US("b.cancelling_at") ", " SQL_US("b.cancelled_at")
#define SEEN "($2::text IS NULL OR b.owner = $2)"

enum { COLUMN_STATUS = 10, COLUMN_TOTAL = 11, COLUMN_TIMES = 19 };

static const struct db_stmt STMTS[] = {
    [CREATE] = { "batch_create",
        "INSERT INTO batch AS b (owner, job_id, input_file_id, endpoint, completion_window, metadata, aibrix,"
        " output_expires_s, created_at, expires_at)"
        " SELECT $1, nullif($3, ''), f.id, $5, $6, $8::jsonb, $9::jsonb, nullif($10::bigint, 0), clock_timestamp(),"
        "  clock_timestamp() + $7::bigint * interval '1 second'"
        " FROM batch_file f WHERE f.id = $4 AND ($2::boolean OR f.owner = $1) AND f.purpose = 'batch'"
        "  AND (f.expires_at IS NULL OR f.expires_at > clock_timestamp()) FOR KEY SHARE OF f"
        " ON CONFLICT (owner, job_id) DO NOTHING RETURNING " COLUMNS,
        10 },
    [OF_JOB] = { "batch_of_job",
        "SELECT " COLUMNS " FROM batch b WHERE b.owner = $1 AND b.job_id = $2", 2 },
    [GET] = { "batch_get", "SELECT " COLUMNS " FROM batch b WHERE b.id = $1 AND " SEEN, 2 },
    [PLACE] = { "batch_place", "SELECT b.seq FROM batch b WHERE b.id = $1 AND " SEEN, 2 },
    [LIST] = { "batch_list",
        "SELECT " COLUMNS " FROM batch b WHERE b.seq < $1::bigint AND " SEEN
        " ORDER BY b.seq DESC LIMIT $3::bigint",
        3 },
    [CANCEL] = { "batch_cancel",
        "UPDATE batch b SET status = 'cancelling', cancelling_at = clock_timestamp() WHERE b.id = $1 AND " SEEN
        " AND b.status IN ('validating', 'in_progress')",
        2 },
};

const struct db_stmts BATCH_ROW_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void batch_rows_free(struct batch_rows *b)
{
    free(b->row);
    b->row = NULL;
    b->n = 0;
    db_rows_free(&b->rows);
}

static int read_numbers(const struct db_rows *rows, int row, struct batch_row *b, struct err *e)
{
    int64_t *const totals[] = { &b->counts.total, &b->counts.completed, &b->counts.failed,
        &b->usage.input_tokens, &b->usage.cached_tokens, &b->usage.output_tokens,
        &b->usage.reasoning_tokens, &b->usage.total_tokens };
    int64_t *const times[] = { &b->times.created_at, &b->times.in_progress_at, &b->times.expires_at,
        &b->times.finalizing_at, &b->times.completed_at, &b->times.failed_at, &b->times.expired_at,
        &b->times.cancelling_at, &b->times.cancelled_at };

    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        if (db_int8(rows, row, COLUMN_TOTAL + (int)i, totals[i], e) < 0)
            return -1;
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (db_int8(rows, row, COLUMN_TIMES + (int)i, times[i], e) < 0)
            return -1;
        *times[i] /= US_PER_S;
    }
    return 0;
}

static int read_row(const struct db_rows *rows, int row, struct batch_row *b, struct err *e)
{
    const char **const texts[] = { &b->id, &b->owner, &b->input_file_id, &b->endpoint,
        &b->completion_window, &b->metadata, &b->aibrix, &b->errors, &b->output_file_id,
        &b->error_file_id };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = db_text(rows, row, (int)i);
    b->status = batch_status_parse(db_text(rows, row, COLUMN_STATUS));
    if (read_numbers(rows, row, b, e) < 0)
        return -1;
    b->counts.known = true;
    b->usage.known = b->usage.total_tokens > 0;
    return 0;
}

static int take(struct db_rows *rows, size_t limit, struct batch_rows *out, struct err *e)
{
    cleanup_batch_rows struct batch_rows got = BATCH_ROWS_INIT;
    const size_t n = (size_t)db_rows_count(rows);

    got.rows.res = STEAL(rows->res);
    got.row = mem_calloc(n + 1, sizeof *got.row);
    got.more = n > limit;
    for (; got.n < n && got.n < limit; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.row[got.n], e) < 0)
            return err_wrap(e, "batches");
    }
    batch_rows_free(out);
    HAND_OVER(out, &got, ((struct batch_rows)BATCH_ROWS_INIT));
    return 0;
}

/* Nothing was made: a batch of the same job, else no such file. */
static int find_made(
    struct db *db, const struct batch_new *b, struct batch_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none = 1;

    if (b->job_id != NULL && b->job_id[0] != '\0')
        none = db_opt(db, &STMTS[OF_JOB], DB_ARGS(DB_TEXT(b->owner), DB_TEXT(b->job_id)), &rows, e);
    if (none < 0)
        return err_wrap(e, "batch");
    if (none > 0)
        return err_set(e, ERR_NOT_FOUND, "input_file_id: there is no file %.64s", b->input_file_id);
    return take(&rows, 1, out, e) < 0 ? -1 : 1;
}

int batch_row_create(
    struct db *db, const struct batch_new *b, struct batch_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none = db_opt(db, &STMTS[CREATE],
        DB_ARGS(DB_TEXT(b->owner), DB_BOOL(b->admin), DB_TEXT(b->job_id == NULL ? "" : b->job_id),
            DB_TEXT(b->input_file_id), DB_TEXT(b->endpoint), DB_TEXT(b->completion_window),
            DB_INT8(b->window_s), DB_TEXT(b->metadata), DB_TEXT(b->aibrix),
            DB_INT8(b->output_expires_s)),
        &rows, e);

    if (none < 0)
        return err_wrap(e, "batch");
    return none > 0 ? find_made(db, b, out, e) : take(&rows, 1, out, e);
}

int batch_row_get(
    struct db *db, const char *id, const char *owner, struct batch_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none = db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(id), DB_TEXT(owner)), &rows, e);

    if (none < 0)
        return err_wrap(e, "batch");
    if (none > 0)
        return err_set(e, ERR_NOT_FOUND, "No batch found with id '%.64s'.", id);
    return take(&rows, 1, out, e);
}

static int place(struct db *db, const char *after, const char *owner, int64_t *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    *out = INT64_MAX;
    if (after == NULL)
        return 0;
    *out = 0;
    const int none = db_opt(db, &STMTS[PLACE], DB_ARGS(DB_TEXT(after), DB_TEXT(owner)), &rows, e);
    if (none > 0)
        return 0;
    return none < 0 ? -1 : db_int8(&rows, 0, 0, out, e);
}

int batch_row_list(struct db *db, const char *owner, const char *after, int64_t limit,
    struct batch_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t before = 0;

    if (place(db, after, owner, &before, e) < 0 ||
        db_many(db, &STMTS[LIST], DB_ARGS(DB_INT8(before), DB_TEXT(owner), DB_INT8(limit + 1)),
            &rows, e) < 0)
        return err_wrap(e, "batches");
    return take(&rows, (size_t)limit, out, e);
}

int batch_row_cancel(
    struct db *db, const char *id, const char *owner, struct batch_rows *out, struct err *e)
{
    int64_t n = 0;

    if (db_exec(db, &STMTS[CANCEL], DB_ARGS(DB_TEXT(id), DB_TEXT(owner)), &n, e) < 0)
        return err_wrap(e, "batch");
    if (batch_row_get(db, id, owner, out, e) < 0)
        return -1;
    return n == 0 && out->row[0].status != BATCH_CANCELLING ? 1 : 0;
}
