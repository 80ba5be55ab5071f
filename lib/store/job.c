/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job.h"

#include <assert.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "model/job_deadline.h"
#include "store/job_row.h"
#include "store/job_sql.h"

enum stmt {
    ENQUEUE,
    BY_KEY,
    HAVE_POOL,
    GET,
    POSITION,
    CANCEL,
    STATE,
    EVENTS,
    STATS,
    FILE_ACCESS,
    FILES_SEEN,
};

/* The furthest that a position in the queue is counted. */
#define POSITION_MAX "1000"
#define BEHIND_MAX   "100"

/* The queued jobs q of r's pool before and behind it. */
#define QUEUED_WITH_R  "q.pool_id = r.pool_id AND q.state = 0 AND "
#define AHEAD_BY_PRIO  QUEUED_WITH_R "q.prio > r.prio"
#define BEHIND_BY_PRIO QUEUED_WITH_R "q.prio < r.prio"
#define OF_SAME_PRIO(beside) \
    QUEUED_WITH_R "q.prio = r.prio AND (q.enqueued_at, q.job_id) " beside \
                  " (r.enqueued_at, r.job_id)"

/* Whose a file is: NULL when no job names it. When the first job that did is gone, the first of those left. */
#define REFS_OF(file) "FROM job_file_ref n JOIN job o ON o.id = n.job_id WHERE n.file_id = " file
#define FILE_OWNER(file) \
    "coalesce((SELECT o.created_by " REFS_OF( \
        file) " AND n.first)," \
              " (SELECT o.created_by " REFS_OF(file) " ORDER BY n.role = 0, o.seq LIMIT 1))"

static const struct db_stmt STMTS[] = {
    /* All or nothing, in one statement; the trigger of job_run adds the event and the counters. Of two that name a
     * new file at once the second waits for the first, fails on the index job_file_first and begins again. */
    [ENQUEUE] = { "job_enqueue",
        "WITH o AS MATERIALIZED (SELECT " FILE_OWNER(
            "$6") " AS owner,"
                  "  EXISTS (SELECT FROM job_file_ref n WHERE n.file_id = $6 AND n.first) AS taken),"
                  " j AS (INSERT INTO job (pool_id, created_by, name, endpoint, model, input_file,"
                  "  completion_window, window_minutes, request, idem_key, idem_hash)"
                  "  SELECT p.id, $2, $3, $4, $5, $6, $7, $8::int, $9::jsonb, $10, $11 FROM pool p, o"
                  "  WHERE p.name = $1 AND ($18::boolean OR coalesce(o.owner, '') IN ($2, ''))"
                  "  ON CONFLICT (created_by, idem_key) WHERE idem_key IS NOT NULL DO NOTHING RETURNING *),"
                  " r AS (INSERT INTO job_run (job_id, pool_id, tenant, prio, actor, enqueued_at,"
                  "  queue_deadline, replicas, gpus, gpu_type)"
                  "  SELECT j.id, j.pool_id, $12, $13::smallint, j.created_by, j.created_at,"
                  "  j.created_at + $14::bigint * interval '1 microsecond', $15::int, $16::int, $17 FROM j RETURNING *),"
                  " f AS (INSERT INTO job_file_ref (file_id, job_id, role, first)"
                  "  SELECT j.input_file, j.id, 0, NOT o.taken AND coalesce(o.owner, $2) = $2 FROM j, o)"
                  " SELECT " JOB_COLUMNS " FROM j" JOB_JOINS_WITH("(TABLE r)"),
        18 },
    [BY_KEY] = { "job_by_key",
        "SELECT " JOB_COLUMNS ", j.idem_hash FROM job j" JOB_JOINS
        " WHERE j.created_by = $1 AND j.idem_key = $2",
        2 },
    [HAVE_POOL] = { "job_have_pool", "SELECT 1 FROM pool WHERE name = $1", 1 },
    [GET] = { "job_get", "SELECT " JOB_COLUMNS " FROM job j" JOB_JOINS " WHERE j.id = $1::uuid",
        1 },
    /* In the order of the queue: prio, then enqueued_at. Who is among the last hundred, as whoever was just
     * accepted, is counted from the end, which the counters know as of the same snapshot; others from the front.
     * Each is a short walk on the queue's index. */
    [POSITION] = { "job_position",
        "SELECT CASE WHEN b.n < " BEHIND_MAX " THEN least(" POSITION_MAX
        ", greatest(1, (SELECT sum(c.n)::bigint FROM job_count c"
        "  WHERE c.pool_id = r.pool_id AND c.state = 0) - b.n))"
        " ELSE least(" POSITION_MAX ", 1 + (SELECT count(*) FROM (SELECT FROM job_run q"
        "  WHERE " AHEAD_BY_PRIO " LIMIT " POSITION_MAX ") higher)"
        "  + (SELECT count(*) FROM (SELECT FROM job_run q WHERE " OF_SAME_PRIO(
            "<") "   LIMIT " POSITION_MAX ") earlier)) END"
                 " FROM job_run r, LATERAL (SELECT (SELECT count(*) FROM (SELECT FROM job_run q"
                 "  WHERE " BEHIND_BY_PRIO " LIMIT " BEHIND_MAX ") lower)"
                 "  + (SELECT count(*) FROM (SELECT FROM job_run q WHERE " OF_SAME_PRIO(
                     ">") "   LIMIT " BEHIND_MAX ") later) AS n OFFSET 0) b"
                          " WHERE r.job_id = $1::uuid AND r.state = 0",
        1 },
    [CANCEL] = { "job_cancel",
        "WITH r AS (UPDATE job_run SET state = CASE state WHEN " S_QUEUED " THEN " S_CANCELLED
        "  ELSE " S_CANCELLING " END, event = " E_CANCEL ","
        "  event_epoch = 0, actor = $2, detail = NULL,"
        "  cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),"
        "  next_poll_at = '-infinity', version = version + (state = 0)::int"
        "  WHERE job_id = $1::uuid AND (state <> " S_CANCELLING " OR cancel_requested_at IS NULL)"
        "  RETURNING job_id, pool_id, state, batch_id),"
        " i AS (INSERT INTO intent AS i (job_id, pool_id, kind, subject, idem_key)"
        "  SELECT job_id, pool_id, " K_CANCEL_BATCH
        ", batch_id, 'cancel_batch:' || job_id || ':' || batch_id FROM r"
        "  WHERE state = " S_CANCELLING " AND batch_id <> ''"
        "  ON CONFLICT (idem_key) DO UPDATE SET payload = NULL WHERE i.state = 0)"
        " SELECT state FROM r",
        2 },
    [STATE] = { "job_state",
        "SELECT coalesce(r.state, j.final_state), r.state IS NULL FROM job j"
        " LEFT JOIN job_run r ON r.job_id = j.id WHERE j.id = $1::uuid",
        1 },
    [EVENTS] = { "job_events",
        "SELECT coalesce(e.from_state, -1), e.to_state, e.event, " SQL_US(
            "e.at") ", e.epoch, e.actor,"
                    " e.detail FROM job_event e WHERE e.job_id = $1::uuid"
                    " AND e.at >= (SELECT j.created_at FROM job j WHERE j.id = $1::uuid) - interval '1 day'"
                    " ORDER BY e.at, e.seq",
        1 },
    [STATS] = { "job_stats", "SELECT state, sum(n)::bigint FROM job_count GROUP BY state", 0 },
    [FILE_ACCESS] = { "job_file_access",
        "SELECT f.owner IS NOT NULL, coalesce(f.owner IN ($2, ''), false)"
        " FROM (SELECT " FILE_OWNER("$1") " AS owner) f",
        2 },
    [FILES_SEEN] = { "job_files_seen",
        "SELECT coalesce(" FILE_OWNER(
            "f.id") " IN ($2, ''), true)"
                    " FROM json_array_elements_text($1::json) WITH ORDINALITY f (id, place) ORDER BY f.place",
        2 },
};

const struct db_stmts JOB_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

enum { ENQUEUE_ROUNDS = 3, ENQUEUE_AGAIN = 1 };

static const char *const DEFAULT_POOL = "default";

void jobs_free(struct jobs *j)
{
    free(j->job);
    j->job = NULL;
    j->n = 0;
    db_rows_free(&j->rows);
}

void job_history_free(struct job_history *h)
{
    free(h->happening);
    h->happening = NULL;
    h->n = 0;
    db_rows_free(&h->rows);
}

static const char *text_or(const char *text, const char *otherwise)
{
    return str_empty(text) ? otherwise : text;
}

/* ERR_FORBIDDEN when the file is somebody else's. */
static int check_file(struct db *db, const struct job_new *j, struct err *e)
{
    bool named = false;
    bool owned = false;
    if (j->any_file)
        return 0;
    if (job_file_access(db, j->input_file, text_or(j->created_by, ""), &named, &owned, e) < 0)
        return -1;
    if (named && !owned)
        return err_set(e, ERR_FORBIDDEN, "this file belongs to a job of somebody else");
    return 0;
}

int job_of_key(struct db *db, const char *created_by, const char *key, const char *hash,
    struct jobs *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none = db_opt(
        db, &STMTS[BY_KEY], DB_ARGS(DB_TEXT(text_or(created_by, "")), DB_TEXT(key)), &rows, e);

    if (none != 0)
        return none;
    if (strcmp(db_text(&rows, 0, JOB_COL_NEXT), text_or(hash, "")) != 0)
        return err_set(
            e, ERR_CONFLICT, "Idempotency-Key: this one was used with another request before");
    return job_rows_take(&rows, 0, out, e);
}

/* What stood against the insert: 0 with the job that the key made before; ENQUEUE_AGAIN when it has gone
 * meanwhile. */
static int same_as_before(
    struct db *db, const struct job_new *j, const char *pool, struct jobs *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none =
        j->idem_key == NULL ? 1 : job_of_key(db, j->created_by, j->idem_key, j->idem_hash, out, e);
    if (none != 1)
        return none;
    none = db_opt(db, &STMTS[HAVE_POOL], DB_ARGS(DB_TEXT(pool)), &rows, e);
    if (none == 1)
        return err_set(e, ERR_INVALID, "there is no pool %s", pool);
    return none < 0 || check_file(db, j, e) < 0 ? -1 : ENQUEUE_AGAIN;
}

static int enqueue_once(
    struct db *db, const struct job_new *j, struct jobs *out, enum job_fate *fate, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const char *pool = text_or(j->pool, DEFAULT_POOL);
    const char *by = text_or(j->created_by, "");
    int none = db_opt(db, &STMTS[ENQUEUE],
        DB_ARGS(DB_TEXT(pool), DB_TEXT(by), DB_TEXT(text_or(j->name, "")), DB_TEXT(j->endpoint),
            DB_TEXT(text_or(j->model, "")), DB_TEXT(j->input_file), DB_TEXT(j->completion_window),
            DB_INT8(j->window_minutes), DB_TEXT(j->request_json), DB_TEXT(j->idem_key),
            DB_TEXT(j->idem_key == NULL ? NULL : text_or(j->idem_hash, "")),
            DB_TEXT(text_or(j->tenant, by)), DB_INT8(j->priority),
            DB_INT8(job_queue_deadline_us(0, j->window_minutes, j->queue_deadline_s)),
            DB_INT8(j->replicas), DB_INT8(j->gpus), DB_TEXT(text_or(j->gpu_type, "")),
            DB_BOOL(j->any_file)),
        &rows, e);
    if (none < 0)
        return e->code == ERR_CONFLICT ? ENQUEUE_AGAIN : -1; /* job_file_first */
    *fate = none == 0 ? JOB_FATE_NEW : JOB_FATE_SAME;
    return none == 0 ? job_rows_take(&rows, 0, out, e) : same_as_before(db, j, pool, out, e);
}

int job_enqueue(
    struct db *db, const struct job_new *j, struct jobs *out, enum job_fate *fate, struct err *e)
{
    for (int i = 0; i < ENQUEUE_ROUNDS; i++) {
        int again = enqueue_once(db, j, out, fate, e);
        if (again != ENQUEUE_AGAIN)
            return again;
    }
    return err_set(e, ERR_CONFLICT, "others submit the same just now: try again");
}

static int no_job(const char *id, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "there is no job %s", id);
}

int job_get(struct db *db, const char *id, struct jobs *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none = db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(id)), &rows, e);
    if (none != 0)
        return none < 0 ? err_wrap(e, "job %s", id) : no_job(id, e);
    return job_rows_take(&rows, 0, out, e);
}

int job_queue_position(struct db *db, const char *id, int64_t *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t position = 0;
    int none = db_opt(db, &STMTS[POSITION], DB_ARGS(DB_TEXT(id)), &rows, e);
    if (none < 0 || (none == 0 && db_int8(&rows, 0, 0, &position, e) < 0))
        return err_wrap(e, "job %s", id);
    *out = position;
    return 0;
}

static int read_state(const struct db_rows *rows, int col, enum job_state *out, struct err *e)
{
    int64_t state = 0;
    if (db_int8(rows, 0, col, &state, e) < 0)
        return -1;
    *out = (enum job_state)state;
    return 0;
}

/* The cancel changed nothing: 0 when it is under way already, 1 when the job has ended. */
static int not_cancelled(struct db *db, const char *id, enum job_state *state, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    bool ended = false;
    int none = db_opt(db, &STMTS[STATE], DB_ARGS(DB_TEXT(id)), &rows, e);
    if (none != 0)
        return none < 0 ? -1 : no_job(id, e);
    if (db_bool(&rows, 0, 1, &ended, e) < 0 || read_state(&rows, 0, state, e) < 0)
        return -1;
    return ended ? 1 : 0;
}

int job_cancel(
    struct db *db, const char *id, const char *actor, enum job_state *state, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none =
        db_opt(db, &STMTS[CANCEL], DB_ARGS(DB_TEXT(id), DB_TEXT(text_or(actor, ""))), &rows, e);
    int result = none == 0  ? read_state(&rows, 0, state, e)
                 : none < 0 ? -1
                            : not_cancelled(db, id, state, e);
    return result < 0 ? err_wrap(e, "cancel") : result;
}

enum happening_col { EV_FROM, EV_TO, EV_EVENT, EV_AT, EV_EPOCH, EV_ACTOR, EV_DETAIL };

static int read_happening(
    const struct db_rows *rows, int row, struct job_happening *out, struct err *e)
{
    int64_t from = 0;
    int64_t to = 0;
    int64_t event = 0;
    const struct db_int8_at numbers[] = {
        { EV_FROM, &from },
        { EV_TO, &to },
        { EV_EVENT, &event },
        { EV_AT, &out->at_us },
        { EV_EPOCH, &out->epoch },
    };
    if (db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
        return -1;
    out->from = (enum job_state)from;
    out->to = (enum job_state)to;
    out->event = (enum job_event)event;
    out->actor = db_text(rows, row, EV_ACTOR);
    out->detail_json = db_text(rows, row, EV_DETAIL);
    return 0;
}

int job_events(struct db *db, const char *id, struct job_history *out, struct err *e)
{
    cleanup_job_history struct job_history got = JOB_HISTORY_INIT;
    if (db_many(db, &STMTS[EVENTS], DB_ARGS(DB_TEXT(id)), &got.rows, e) < 0)
        return err_wrap(e, "events of job %s", id);
    size_t count = (size_t)db_rows_count(&got.rows);
    if (count == 0) { /* none is kept for ever */
        cleanup_jobs struct jobs job = JOBS_INIT;
        if (job_get(db, id, &job, e) < 0)
            return -1;
    }
    got.happening = mem_kept(mem_calloc(count + 1, sizeof *got.happening));
    for (; got.n < count; got.n++) {
        if (read_happening(&got.rows, (int)got.n, &got.happening[got.n], e) < 0)
            return err_wrap(e, "events of job %s", id);
    }
    HAND_OVER(out, &got, ((struct job_history)JOB_HISTORY_INIT));
    return 0;
}

int job_stats(struct db *db, int64_t count[JOB_STATE__COUNT], struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t got[JOB_STATE__COUNT] = { 0 };
    if (db_many(db, &STMTS[STATS], DB_NO_ARGS, &rows, e) < 0)
        return err_wrap(e, "counters");
    for (int i = 0; i < db_rows_count(&rows); i++) {
        int64_t state = 0;
        int64_t n = 0;
        if (db_int8(&rows, i, 0, &state, e) < 0 || db_int8(&rows, i, 1, &n, e) < 0)
            return err_wrap(e, "counters");
        if (state >= 0 && state < JOB_STATE__COUNT)
            got[state] = n;
    }
    memcpy(count, got, sizeof got);
    return 0;
}

int job_file_access(
    struct db *db, const char *file_id, const char *user, bool *named, bool *owned, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    bool is_named = false;
    bool is_owned = false;
    if (db_one(db, &STMTS[FILE_ACCESS], DB_ARGS(DB_TEXT(file_id), DB_TEXT(user)), &rows, e) < 0 ||
        db_bool(&rows, 0, 0, &is_named, e) < 0 || db_bool(&rows, 0, 1, &is_owned, e) < 0)
        return err_wrap(e, "file %s", file_id);
    *named = is_named;
    *owned = is_owned;
    return 0;
}

int job_files_seen(
    struct db *db, const char *ids_json, const char *user, size_t n, bool *seen, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_many(db, &STMTS[FILES_SEEN], DB_ARGS(DB_TEXT(ids_json), DB_TEXT(user)), &rows, e) < 0)
        return err_wrap(e, "files");
    assert((size_t)db_rows_count(&rows) == n);
    for (size_t i = 0; i < n; i++) {
        if (db_bool(&rows, (int)i, 0, &seen[i], e) < 0)
            return err_wrap(e, "files");
    }
    return 0;
}
