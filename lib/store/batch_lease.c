/* SPDX-License-Identifier: Apache-2.0 */
#include "store/batch_lease.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/sql_time.h"

enum stmt {
    CLAIM,
    SEGMENTS,
    LOOK,
    RENEW,
    CHECKPOINT,
    BEGIN,
    FAIL,
    FINALIZE,
    RESULT,
    LAND,
    RELEASE,
    ENDED,
};

#define OPEN      "b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"
#define OURS      "b.id = $1 AND b.epoch = $2::bigint"
#define UNTIL(ms) "clock_timestamp() + " ms "::bigint * interval '1 millisecond'"
#define COUNTS \
    "b.total, b.completed, b.failed, b.input_tokens, b.cached_tokens, b.output_tokens, b.reasoning_tokens, b.total_tokens"

static const struct db_stmt STMTS[] = {
    [CLAIM] = { "batch_claim",
        "WITH free AS (SELECT b.id FROM batch b WHERE " OPEN
        " AND b.lease_until <= clock_timestamp()"
        "  AND b.id <> ALL (string_to_array($3, ' '))"
        "  ORDER BY b.seq LIMIT 1 FOR UPDATE SKIP LOCKED)"
        " UPDATE batch b SET holder = $1, epoch = b.epoch + 1, lease_until = " UNTIL(
            "$2") " FROM free WHERE b.id = free.id"
                  " RETURNING b.id, b.owner, b.input_file_id, b.endpoint, b.aibrix, b.status, b.ends_as = 'expired',"
                  " coalesce(b.output_expires_s, 0), " SQL_US("b.expires_at") ", b.epoch, " COUNTS,
        3 },
    [SEGMENTS] = { "batch_segments",
        "SELECT s.epoch, s.output_bytes, s.error_bytes, s.lines FROM batch_segment s WHERE s.batch_id = $1"
        " AND s.epoch < $2::bigint ORDER BY s.epoch",
        2 },
    [LOOK] = { "batch_look",
        "SELECT b.status, b.expires_at <= clock_timestamp() FROM batch b WHERE " OURS, 2 },
    [RENEW] = { "batch_renew",
        "UPDATE batch b SET lease_until = " UNTIL("$3") " WHERE " OURS " AND " OPEN, 3 },
    [CHECKPOINT] = { "batch_checkpoint",
        "WITH ours AS (UPDATE batch b SET lease_until = " UNTIL(
            "$3") ", completed = $7::bigint, failed = $8::bigint,"
                  "  input_tokens = $9::bigint, cached_tokens = $10::bigint, output_tokens = $11::bigint,"
                  "  reasoning_tokens = $12::bigint, total_tokens = $13::bigint WHERE " OURS
                  " AND " OPEN " RETURNING b.id)"
                  " INSERT INTO batch_segment AS s (batch_id, epoch, output_bytes, error_bytes, lines)"
                  " SELECT ours.id, $2::bigint, $4::bigint, $5::bigint, $6::bigint FROM ours"
                  " ON CONFLICT (batch_id, epoch) DO UPDATE SET output_bytes = excluded.output_bytes,"
                  " error_bytes = excluded.error_bytes, lines = excluded.lines",
        13 },
    [BEGIN] = { "batch_begin",
        "UPDATE batch b SET status = 'in_progress', in_progress_at = clock_timestamp(), total = $3::bigint WHERE " OURS
        " AND b.status = 'validating'",
        3 },
    [FAIL] = { "batch_fail",
        "UPDATE batch b SET status = 'failed', failed_at = clock_timestamp(), errors = $3::jsonb,"
        " lease_until = '-infinity' WHERE " OURS " AND b.status IN ('validating', 'in_progress')",
        3 },
    [FINALIZE] = { "batch_finalize",
        "UPDATE batch b SET status = 'finalizing', finalizing_at = clock_timestamp(),"
        " ends_as = CASE WHEN $3::boolean THEN 'expired' ELSE 'completed' END WHERE " OURS
        " AND b.status = 'in_progress'",
        3 },
    [RESULT] = { "batch_result",
        "INSERT INTO batch_file (id, owner, purpose, filename, bytes, expires_at)"
        " SELECT $3, b.owner, 'batch_output', b.id || $4, $5::bigint,"
        "  clock_timestamp() + b.output_expires_s * interval '1 second' FROM batch b WHERE " OURS,
        5 },
    [LAND] = { "batch_land",
        "UPDATE batch b SET status = CASE b.status WHEN 'cancelling' THEN 'cancelled' ELSE b.ends_as END,"
        " completed_at = CASE WHEN b.status = 'finalizing' AND b.ends_as = 'completed' THEN clock_timestamp() END,"
        " expired_at = CASE WHEN b.status = 'finalizing' AND b.ends_as = 'expired' THEN clock_timestamp() END,"
        " cancelled_at = CASE WHEN b.status = 'cancelling' THEN clock_timestamp() END,"
        " output_file_id = nullif($3, ''), error_file_id = nullif($4, ''), lease_until = '-infinity' WHERE " OURS
        " AND b.status IN ('finalizing', 'cancelling')",
        4 },
    [RELEASE] = { "batch_release",
        "UPDATE batch b SET lease_until = '-infinity', holder = '' WHERE " OURS " AND " OPEN, 2 },
    [ENDED] = { "batch_ended", "SELECT " OPEN " FROM batch b WHERE b.id = $1", 1 },
};

const struct db_stmts BATCH_LEASE_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void batch_lease_fini(struct batch_lease *l)
{
    free(l->aibrix);
    l->aibrix = NULL;
}

static int read_claim(const struct db_rows *r, struct batch_lease *l, struct err *e)
{
    const struct db_int8_at numbers[] = { { 7, &l->output_expires_s }, { 8, &l->expires_us },
        { 9, &l->epoch }, { 10, &l->counts.total }, { 11, &l->counts.completed },
        { 12, &l->counts.failed }, { 13, &l->usage.input_tokens }, { 14, &l->usage.cached_tokens },
        { 15, &l->usage.output_tokens }, { 16, &l->usage.reasoning_tokens },
        { 17, &l->usage.total_tokens } };

    if (str_copy(l->id, sizeof l->id, db_text(r, 0, 0)) < 0 ||
        str_copy(l->owner, sizeof l->owner, db_text(r, 0, 1)) < 0 ||
        str_copy(l->input_file_id, sizeof l->input_file_id, db_text(r, 0, 2)) < 0 ||
        str_copy(l->endpoint, sizeof l->endpoint, db_text(r, 0, 3)) < 0)
        return err_set(e, ERR_INTERNAL, "batch: a text of its row is too long");
    l->status = batch_status_parse(db_text(r, 0, 5));
    if (db_bool(r, 0, 6, &l->expires, e) < 0 ||
        db_int8s(r, 0, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
        return err_wrap(e, "batch");
    l->counts.known = l->usage.known = true;
    if (!db_is_null(r, 0, 4))
        l->aibrix = mem_strdup(db_text(r, 0, 4));
    return 0;
}

int batch_lease_claim(
    struct db *db, const struct batch_claim *c, struct batch_lease *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    struct batch_lease l = { .ttl_ms = c->ttl_ms };
    const int none = db_opt(db, &STMTS[CLAIM],
        DB_ARGS(DB_TEXT(c->holder), DB_INT8(c->ttl_ms), DB_TEXT(c->in_hand)), &rows, e);

    if (none != 0)
        return none < 0 ? err_wrap(e, "claim of a batch") : 1;
    if (read_claim(&rows, &l, e) < 0)
        return -1;
    *out = l;
    return 0;
}

int batch_lease_segments(struct db *db, const struct batch_lease *l, struct batch_segment **out,
    size_t *n, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[SEGMENTS], DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch)), &rows, e) < 0)
        return err_wrap(e, "segments");
    const int count = db_rows_count(&rows);
    cleanup_free struct batch_segment *got = mem_calloc((size_t)count + 1, sizeof *got);
    for (int i = 0; i < count; i++) {
        const struct db_int8_at numbers[] = { { 0, &got[i].epoch }, { 1, &got[i].output_bytes },
            { 2, &got[i].error_bytes }, { 3, &got[i].lines } };
        if (db_int8s(&rows, i, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
            return err_wrap(e, "segments");
    }
    *out = STEAL(got);
    *n = (size_t)count;
    return 0;
}

int batch_lease_look(struct db *db, const struct batch_lease *l, enum batch_status *status,
    bool *late, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none = db_opt(db, &STMTS[LOOK], DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch)), &rows, e);

    if (none != 0)
        return none < 0 ? err_wrap(e, "batch") : 1;
    if (db_bool(&rows, 0, 1, late, e) < 0)
        return err_wrap(e, "batch");
    *status = batch_status_parse(db_text(&rows, 0, 0));
    return batch_status_ended(*status);
}

/* 1 when nothing was changed. */
static int change(struct db *db, enum stmt which, struct db_args a, struct err *e)
{
    int64_t n = 0;

    if (db_exec(db, &STMTS[which], a, &n, e) < 0)
        return err_wrap(e, "batch");
    return n == 0;
}

int batch_lease_renew(struct db *db, const struct batch_lease *l, struct err *e)
{
    return change(db, RENEW, DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch), DB_INT8(l->ttl_ms)), e);
}

int batch_lease_checkpoint(struct db *db, const struct batch_lease *l,
    const struct batch_segment *s, const struct batch_counts *c, const struct batch_usage *u,
    struct err *e)
{
    return change(db, CHECKPOINT,
        DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch), DB_INT8(l->ttl_ms), DB_INT8(s->output_bytes),
            DB_INT8(s->error_bytes), DB_INT8(s->lines), DB_INT8(c->completed), DB_INT8(c->failed),
            DB_INT8(u->input_tokens), DB_INT8(u->cached_tokens), DB_INT8(u->output_tokens),
            DB_INT8(u->reasoning_tokens), DB_INT8(u->total_tokens)),
        e);
}

int batch_lease_begin(struct db *db, const struct batch_lease *l, int64_t total, struct err *e)
{
    return change(db, BEGIN, DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch), DB_INT8(total)), e);
}

int batch_lease_fail(struct db *db, const struct batch_lease *l, const char *errors, struct err *e)
{
    return change(db, FAIL, DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch), DB_TEXT(errors)), e);
}

int batch_lease_finalize(struct db *db, const struct batch_lease *l, bool expires, struct err *e)
{
    return change(db, FINALIZE, DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch), DB_BOOL(expires)), e);
}

static int add_result(struct db *db, const struct batch_lease *l, const struct batch_result *r,
    const char *suffix, struct err *e)
{
    if (r->id[0] == '\0')
        return 0;
    return change(db, RESULT,
        DB_ARGS(
            DB_TEXT(l->id), DB_INT8(l->epoch), DB_TEXT(r->id), DB_TEXT(suffix), DB_INT8(r->bytes)),
        e);
}

int batch_lease_land(struct db *db, const struct batch_lease *l, const struct batch_result *output,
    const struct batch_result *errors, struct err *e)
{
    cleanup_txn struct db_txn t = DB_TXN_INIT;

    if (db_begin(db, &t, e) < 0)
        return -1;
    /* The batch first: its row is what a successor waits for. */
    int rc = change(db, LAND,
        DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch), DB_TEXT(output->id), DB_TEXT(errors->id)), e);
    if (rc == 0)
        rc = add_result(db, l, output, "_output.jsonl", e);
    if (rc == 0)
        rc = add_result(db, l, errors, "_error.jsonl", e);
    return rc == 0 ? db_commit(&t, e) : rc;
}

int batch_lease_release(struct db *db, const struct batch_lease *l, struct err *e)
{
    return change(db, RELEASE, DB_ARGS(DB_TEXT(l->id), DB_INT8(l->epoch)), e);
}

int batch_lease_ended(struct db *db, const char *id, bool *ended, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    bool open = false;
    const int none = db_opt(db, &STMTS[ENDED], DB_ARGS(DB_TEXT(id)), &rows, e);

    if (none < 0 || (none == 0 && db_bool(&rows, 0, 0, &open, e) < 0))
        return err_wrap(e, "batch");
    *ended = !open;
    return 0;
}
