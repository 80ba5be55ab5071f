/* SPDX-License-Identifier: Apache-2.0 */
#include "store/artifact_gate.h"

#include "base/str.h"
#include "db/db_row.h"
#include "model/job.h"

enum stmt { CLAIM, DUE, RENEW, RELEASE, PUBLISH, REJECT, DROP, KNOWS };

#define MINE " WHERE id = $1::bigint AND state = 'verifying' AND gate_holder = $2"
#define FREE "gate_holder = '', gate_until = '-infinity'"

static const struct db_stmt STMTS[] = {
    [CLAIM] = { "gate_claim",
        "UPDATE artifact_version SET gate_holder = $1, gate_until = clock_timestamp() + $2::bigint * interval '1 second'"
        " WHERE id = (SELECT id FROM artifact_version WHERE state = 'verifying' AND gate_until < clock_timestamp()"
        "  ORDER BY gate_until, progress_at LIMIT 1 FOR UPDATE SKIP LOCKED)"
        " RETURNING id, artifact, version, part, convert_from(manifest, 'UTF8'), octet_length(manifest)",
        2 },
    [DUE] = { "gate_due",
        "SELECT coalesce(ceil(extract(epoch FROM min(greatest(gate_until, now())) - now()) * 1000)::bigint, $1::bigint)"
        " FROM artifact_version WHERE state = 'verifying'",
        1 },
    [RENEW] = { "gate_renew",
        "UPDATE artifact_version SET gate_until = clock_timestamp() + $3::bigint * interval '1 second'" MINE,
        3 },
    [RELEASE] = { "gate_release",
        "UPDATE artifact_version SET gate_holder = '', gate_until = clock_timestamp() + interval '1 second'" MINE,
        2 },
    [PUBLISH] = { "gate_publish",
        "UPDATE artifact_version SET state = 'published', published_at = clock_timestamp(),"
        " progress_at = clock_timestamp(), " FREE MINE,
        2 },
    [REJECT] = { "gate_reject",
        "WITH v AS (UPDATE artifact_version SET state = 'rejected', reason = $3, progress_at = clock_timestamp(), " FREE
            MINE " RETURNING id),"
        " s AS (UPDATE artifact_shard s SET present = false, source = NULL FROM v WHERE s.version_id = v.id)"
        " SELECT id FROM v",
        3 },
    [DROP] = { "gate_drop",
        "WITH v AS (UPDATE artifact_version SET state = 'dropped', reason = 'no progress for ' || $1 || ' h',"
        "  progress_at = clock_timestamp() WHERE state = 'uploading'"
        "  AND progress_at < clock_timestamp() - $1::bigint * interval '1 hour' RETURNING id, artifact, version, part),"
        " s AS (UPDATE artifact_shard s SET present = false, source = NULL FROM v WHERE s.version_id = v.id)"
        " SELECT artifact, version, part FROM v",
        1 },
    [KNOWS] = { "gate_knows_part",
        "SELECT 1 FROM artifact_version WHERE part = $1::uuid AND state IN ('uploading', 'verifying')",
        1 },
};

const struct db_stmts GATE_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void gate_claim_free(struct gate_claim *c)
{
    db_rows_free(&c->rows);
}

int gate_claim_next(struct db *db, const char *holder, struct gate_claim *out, struct err *e)
{
    cleanup_gate_claim struct gate_claim got = GATE_CLAIM_INIT;
    const int none =
        db_opt(db, &STMTS[CLAIM], DB_ARGS(DB_TEXT(holder), DB_INT8(GATE_CLAIM_S)), &got.rows, e);

    if (none != 0)
        return none < 0 ? err_wrap(e, "release gate") : 1;
    const struct db_int8_at numbers[] = { { 0, &got.id }, { 5, &got.size } };
    if (db_int8s(&got.rows, 0, numbers, 2, e) < 0)
        return -1;
    got.artifact = db_text(&got.rows, 0, 1);
    got.version = db_text(&got.rows, 0, 2);
    got.part = db_text(&got.rows, 0, 3);
    got.text = db_text(&got.rows, 0, 4);
    HAND_OVER(out, &got, ((struct gate_claim)GATE_CLAIM_INIT));
    return 0;
}

/* Changes one row of the holder's. */
static int change(struct db *db, enum stmt which, struct db_args a, struct err *e)
{
    int64_t n = 0;

    if (db_exec(db, &STMTS[which], a, &n, e) < 0)
        return err_wrap(e, "release gate");
    return n == 1 ? 0 : err_set(e, ERR_CONFLICT, "somebody else verifies this version");
}

int gate_due_ms(struct db *db, int64_t most_ms, int64_t *ms, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const struct db_int8_at numbers[] = { { 0, ms } };

    if (db_one(db, &STMTS[DUE], DB_ARGS(DB_INT8(most_ms)), &rows, e) < 0 ||
        db_int8s(&rows, 0, numbers, 1, e) < 0)
        return err_wrap(e, "release gate");
    if (*ms > most_ms)
        *ms = most_ms;
    return 0;
}

int gate_renew(struct db *db, int64_t id, const char *holder, struct err *e)
{
    return change(db, RENEW, DB_ARGS(DB_INT8(id), DB_TEXT(holder), DB_INT8(GATE_CLAIM_S)), e);
}

int gate_release(struct db *db, int64_t id, const char *holder, struct err *e)
{
    return change(db, RELEASE, DB_ARGS(DB_INT8(id), DB_TEXT(holder)), e);
}

int gate_publish(struct db *db, int64_t id, const char *holder, struct err *e)
{
    return change(db, PUBLISH, DB_ARGS(DB_INT8(id), DB_TEXT(holder)), e);
}

int gate_reject(struct db *db, int64_t id, const char *holder, const char *reason, struct err *e)
{
    return change(db, REJECT, DB_ARGS(DB_INT8(id), DB_TEXT(holder), DB_TEXT(reason)), e);
}

int gate_drop(struct db *db, int64_t hours, struct db_rows *out, struct err *e)
{
    return db_many(db, &STMTS[DROP], DB_ARGS(DB_INT8(hours)), out, e) < 0
               ? err_wrap(e, "dropping uploads")
               : 0;
}

int gate_knows_part(struct db *db, const char *part, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none =
        job_uuid_valid(part) ? db_opt(db, &STMTS[KNOWS], DB_ARGS(DB_TEXT(part)), &rows, e) : 1;
    return none < 0 ? err_wrap(e, "parts of the store") : none;
}
