/* SPDX-License-Identifier: Apache-2.0 */
#include "store/assignment.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "model/job.h"
#include "store/artifact.h"
#include "store/node.h"
#include "store/sql_time.h"

enum stmt {
    MAKE,
    BY_NAMES,
    GET,
    TODO,
    LIST,
    CONCERNS,
    PROGRESS,
    FENCE,
    LOCK,
    RECEIPT,
    LANDED,
    FAILURE,
    FAIL,
    CANCEL,
};

#define COLUMNS \
    "a.id, a.node, v.artifact, v.version, v.digest, a.state, a.reason, a.phase, v.state, a.load_fence, v.total_bytes," \
    " a.bytes, a.attempts, v.shards, " SQL_US("a.created_at") ", " SQL_US( \
        "a.started_at") ", " SQL_US("a.changed_at")
#define JOINED "artifact_version v ON v.id = a.version_id"
#define ROWS   "SELECT " COLUMNS " FROM assignment a JOIN " JOINED
#define OPEN   "a.state IN ('queued', 'pulling')"
#define MAY_GO "(a.state = 'pulling' OR v.state = 'published')"

static const struct db_stmt STMTS[] = {
    [MAKE] = { "assignment_make",
        "INSERT INTO assignment AS a (node, version_id, assigned_by)"
        " SELECT n.name, v.id, $4 FROM node n, artifact_version v"
        " WHERE n.name = $1 AND v.artifact = $2 AND v.version = $3 AND v.state = 'published'"
        " ON CONFLICT (node, version_id) DO UPDATE SET state = 'queued', attempts = 0, reason = '', phase = 'fetch',"
        " bytes = 0, verified = '', load_fence = '', assigned_by = EXCLUDED.assigned_by, started_at = NULL,"
        " created_at = clock_timestamp(), changed_at = clock_timestamp() WHERE a.state IN ('failed', 'cancelled')"
        " RETURNING id",
        4 },
    [BY_NAMES] = { "assignment_by_names",
        ROWS " WHERE a.node = $1 AND v.artifact = $2 AND v.version = $3", 3 },
    [GET] = { "assignment_get", ROWS " WHERE a.node = $1 AND a.id = $2::uuid", 2 },
    [TODO] = { "assignment_todo",
        ROWS " WHERE a.node = $1 AND " OPEN " AND " MAY_GO " ORDER BY a.created_at, a.id", 1 },
    [LIST] = { "assignment_list", ROWS " WHERE a.node = $1 ORDER BY a.created_at DESC, a.id", 1 },
    [CONCERNS] = { "assignment_concerns",
        "SELECT 1 FROM assignment WHERE node = $1 AND version_id = $2::bigint AND state IN ('pulling', 'landed')",
        2 },
    [PROGRESS] = { "assignment_progress",
        "WITH a AS (UPDATE assignment a SET state = 'pulling', phase = $3, bytes = least(greatest(a.bytes, $4::bigint), v.total_bytes),"
        "  verified = coalesce(decode($5, 'hex'), a.verified),"
        "  started_at = coalesce(a.started_at, clock_timestamp()), changed_at = clock_timestamp()"
        "  FROM artifact_version v WHERE a.node = $1 AND a.id = $2::uuid AND v.id = a.version_id AND " OPEN
        "  AND " MAY_GO " RETURNING a.*)"
        " SELECT " COLUMNS " FROM a JOIN " JOINED,
        5 },
    [FENCE] = { "assignment_fence", "UPDATE assignment SET load_fence = $2 WHERE id = $1::uuid",
        2 },
    [LOCK] = { "assignment_lock", ROWS " WHERE a.node = $1 AND a.id = $2::uuid FOR UPDATE OF a",
        2 },
    [RECEIPT] = { "assignment_receipt",
        "INSERT INTO receipt (assignment, version_id, digest, bytes_fetched, bytes_avoided, per_source, retries, phases,"
        " took_ms) SELECT a.id, a.version_id, $2, $3::bigint, $4::bigint, $5::jsonb, $6::jsonb, $7::jsonb,"
        " greatest(0, (date_part('epoch', clock_timestamp() - a.created_at) * 1000)::bigint)"
        " FROM assignment a WHERE a.id = $1::uuid ON CONFLICT (assignment) DO NOTHING",
        7 },
    [LANDED] = { "assignment_landed",
        "UPDATE assignment a SET state = 'landed', reason = '', bytes = v.total_bytes, changed_at = clock_timestamp()"
        " FROM artifact_version v WHERE a.id = $1::uuid AND v.id = a.version_id",
        1 },
    [FAILURE] = { "assignment_failure",
        "INSERT INTO assignment_failure (assignment, attempt, class, reason, source)"
        " SELECT a.id, a.attempts + 1, $2, $3, $4 FROM assignment a WHERE a.id = $1::uuid",
        4 },
    [FAIL] = { "assignment_fail",
        "UPDATE assignment a SET attempts = a.attempts + 1, reason = $3, verified = '', changed_at = clock_timestamp(),"
        " state = CASE WHEN $2 = 'task_fatal' OR a.attempts + 1 >= 4 THEN 'failed' ELSE 'queued' END"
        " WHERE a.id = $1::uuid",
        3 },
    [CANCEL] = { "assignment_cancel",
        "UPDATE assignment a SET state = 'cancelled', changed_at = clock_timestamp()"
        " WHERE a.node = $1 AND a.id = $2::uuid AND a.state IN ('queued', 'pulling', 'failed')",
        2 },
};

const struct db_stmts ASSIGNMENT_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void assignments_free(struct assignments *a)
{
    free(a->row);
    a->row = NULL;
    a->n = 0;
    db_rows_free(&a->rows);
}

static int read_row(const struct db_rows *rows, int row, struct assignment_row *a, struct err *e)
{
    const struct db_int8_at numbers[] = { { 10, &a->total_bytes }, { 11, &a->bytes },
        { 12, &a->attempts }, { 13, &a->shards }, { 14, &a->created_us }, { 15, &a->started_us },
        { 16, &a->changed_us } };
    const char **const texts[] = { &a->id, &a->node, &a->artifact, &a->version, &a->digest,
        &a->state, &a->reason, &a->phase, &a->version_state, &a->load_fence };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = db_text(rows, row, (int)i);
    return db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e);
}

static int take(struct db_rows *rows, struct assignments *out, struct err *e)
{
    cleanup_assignments struct assignments got = ASSIGNMENTS_INIT;
    const size_t n = (size_t)db_rows_count(rows);

    got.rows.res = STEAL(rows->res);
    got.row = mem_calloc(n + 1, sizeof *got.row);
    for (; got.n < n; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.row[got.n], e) < 0)
            return err_wrap(e, "assignments");
    }
    assignments_free(out);
    HAND_OVER(out, &got, ((struct assignments)ASSIGNMENTS_INIT));
    return 0;
}

static int none_such(const char *node, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "node %s has no such assignment", node);
}

static int one(struct db *db, enum stmt which, struct db_args a, const char *node,
    struct assignments *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none = db_opt(db, &STMTS[which], a, &rows, e);

    if (none != 0)
        return none < 0 ? err_wrap(e, "assignment") : none_such(node, e);
    return take(&rows, out, e);
}

static int many(
    struct db *db, enum stmt which, const char *node, struct assignments *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[which], DB_ARGS(DB_TEXT(node)), &rows, e) < 0)
        return err_wrap(e, "assignments");
    return take(&rows, out, e);
}

static bool is(const struct assignments *a, const char *state)
{
    return strcmp(a->row[0].state, state) == 0;
}

/* Nothing was assigned: is there the node, the version, and which state has that? */
static int why_not(struct db *db, const struct assign *a, struct err *e)
{
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_nodes struct nodes n = NODES_INIT;

    if (node_get(db, a->node, &n, e) < 0 || version_get(db, a->artifact, a->version, &v, e) < 0)
        return -1;
    return err_set(e, ERR_CONFLICT, "version %s of %s is %s, not published", a->version,
        a->artifact, v.row[0].state);
}

int assignment_make(struct db *db, const struct assign *a, struct assignments *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none = db_opt(db, &STMTS[MAKE],
        DB_ARGS(DB_TEXT(a->node), DB_TEXT(a->artifact), DB_TEXT(a->version), DB_TEXT(a->by)), &rows,
        e);

    if (none < 0)
        return err_wrap(e, "assignment");
    if (one(db, BY_NAMES, DB_ARGS(DB_TEXT(a->node), DB_TEXT(a->artifact), DB_TEXT(a->version)),
            a->node, out, e) < 0)
        return e->code == ERR_NOT_FOUND ? why_not(db, a, e) : -1;
    if (none == 1 && (is(out, "failed") || is(out, "cancelled"))) {
        assignments_free(out);
        return why_not(db, a, e);
    }
    return none;
}

int assignment_get(
    struct db *db, const char *node, const char *id, struct assignments *out, struct err *e)
{
    if (!job_uuid_valid(id))
        return none_such(node, e);
    return one(db, GET, DB_ARGS(DB_TEXT(node), DB_TEXT(id)), node, out, e);
}

int assignment_todo(struct db *db, const char *node, struct assignments *out, struct err *e)
{
    return many(db, TODO, node, out, e);
}

int assignment_list(struct db *db, const char *node, struct assignments *out, struct err *e)
{
    return many(db, LIST, node, out, e);
}

int assignment_concerns(struct db *db, const char *node, int64_t version_id, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none =
        db_opt(db, &STMTS[CONCERNS], DB_ARGS(DB_TEXT(node), DB_INT8(version_id)), &rows, e);
    return none < 0 ? err_wrap(e, "assignment") : none;
}

/* Why an assignment that exists was not taken: ERR_CONFLICT. */
static int not_open(
    struct db *db, const char *node, const char *id, struct assignments *out, struct err *e)
{
    if (assignment_get(db, node, id, out, e) < 0)
        return -1;
    const struct assignment_row *a = &out->row[0];
    const bool open = strcmp(a->state, "queued") == 0 || strcmp(a->state, "pulling") == 0;
    err_set(e, ERR_CONFLICT, open ? "the version is %s" : "the assignment is %s",
        open ? a->version_state : a->state);
    assignments_free(out);
    return -1;
}

int assignment_progress(struct db *db, const char *node, const char *id,
    const struct assignment_progress *p, struct assignments *out, struct err *e)
{
    if (!job_uuid_valid(id))
        return none_such(node, e);
    if (one(db, PROGRESS,
            DB_ARGS(DB_TEXT(node), DB_TEXT(id), DB_TEXT(p->phase), DB_INT8(p->bytes),
                DB_TEXT(p->verified)),
            node, out, e) == 0)
        return 0;
    return e->code == ERR_NOT_FOUND ? not_open(db, node, id, out, e) : -1;
}

int assignment_fence(struct db *db, const char *id, const char *token, struct err *e)
{
    return db_exec(db, &STMTS[FENCE], DB_ARGS(DB_TEXT(id), DB_TEXT(token)), NULL, e) < 0
               ? err_wrap(e, "assignment")
               : 0;
}

/* The row, locked until the transaction ends. */
static int lock(
    struct db *db, const char *node, const char *id, struct assignments *out, struct err *e)
{
    if (!job_uuid_valid(id))
        return none_such(node, e);
    return one(db, LOCK, DB_ARGS(DB_TEXT(node), DB_TEXT(id)), node, out, e);
}

int assignment_receive(struct db *db, const char *node, const char *id, const struct receipt *r,
    struct assignments *out, struct err *e)
{
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    cleanup_assignments struct assignments held = ASSIGNMENTS_INIT;

    if (db_begin(db, &t, e) < 0)
        return err_wrap(e, "receipt");
    if (lock(db, node, id, &held, e) < 0)
        return -1;
    if (strcmp(held.row[0].digest, r->digest) != 0)
        return err_set(e, ERR_MISMATCH, "digest: version %s of %s is %s", held.row[0].version,
            held.row[0].artifact, held.row[0].digest);
    if (is(&held, "cancelled"))
        return err_set(e, ERR_CONFLICT, "the assignment is cancelled");
    if (is(&held, "landed")) {
        assignments_free(out);
        HAND_OVER(out, &held, ((struct assignments)ASSIGNMENTS_INIT));
        return 1;
    }
    if (db_exec(db, &STMTS[RECEIPT],
            DB_ARGS(DB_TEXT(id), DB_TEXT(r->digest), DB_INT8(r->bytes_fetched),
                DB_INT8(r->bytes_avoided), DB_TEXT(r->per_source_json), DB_TEXT(r->retries_json),
                DB_TEXT(r->phases_json)),
            NULL, e) < 0 ||
        db_exec(db, &STMTS[LANDED], DB_ARGS(DB_TEXT(id)), NULL, e) < 0 || db_commit(&t, e) < 0)
        return err_wrap(e, "receipt");
    return assignment_get(db, node, id, out, e);
}

int assignment_fail(struct db *db, const char *node, const char *id,
    const struct attempt_failure *f, struct assignments *out, struct err *e)
{
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    cleanup_assignments struct assignments held = ASSIGNMENTS_INIT;

    if (db_begin(db, &t, e) < 0)
        return err_wrap(e, "failure");
    if (lock(db, node, id, &held, e) < 0)
        return -1;
    if (!is(&held, "queued") && !is(&held, "pulling"))
        return err_set(e, ERR_CONFLICT, "the assignment is %s", held.row[0].state);
    if (db_exec(db, &STMTS[FAILURE],
            DB_ARGS(DB_TEXT(id), DB_TEXT(f->grade), DB_TEXT(f->reason), DB_TEXT(f->source)), NULL,
            e) < 0 ||
        db_exec(db, &STMTS[FAIL], DB_ARGS(DB_TEXT(id), DB_TEXT(f->grade), DB_TEXT(f->reason)), NULL,
            e) < 0 ||
        db_commit(&t, e) < 0)
        return err_wrap(e, "failure");
    return assignment_get(db, node, id, out, e);
}

int assignment_cancel(
    struct db *db, const char *node, const char *id, struct assignments *out, struct err *e)
{
    int64_t n = 0;

    if (!job_uuid_valid(id))
        return none_such(node, e);
    if (db_exec(db, &STMTS[CANCEL], DB_ARGS(DB_TEXT(node), DB_TEXT(id)), &n, e) < 0)
        return err_wrap(e, "assignment");
    if (assignment_get(db, node, id, out, e) < 0)
        return -1;
    if (n == 0 && !is(out, "cancelled")) {
        assignments_free(out);
        return err_set(e, ERR_CONFLICT, "the assignment has landed");
    }
    return n == 1 ? 0 : 1;
}
