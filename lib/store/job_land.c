/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job_land.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "db/db_row.h"
#include "store/job_sql.h"

/* Progress of a batch goes to Postgres at most this often while its state stays (jobs contract, section 5). */
#define BATCH_EVERY "30"

enum stmt {
    LOCK,
    TAKEN,
    SETTLE,
    UNDO,
    OPEN,
    PROVISION,
    MOVE,
    CREATE,
    CANCEL,
    STOP,
    STRAY_MACHINES,
    STRAY_BATCH
};

static const struct db_stmt STMTS[] = {
    [LOCK] = { "land_lock",
        "SELECT state, cancel_requested_at IS NOT NULL, batch_id, batch_at IS NULL OR"
        " batch_at <= clock_timestamp() - interval '" BATCH_EVERY " seconds' FROM job_run"
        " WHERE job_id = $1::uuid AND version = $2::int AND lease_epoch = $3 FOR UPDATE",
        3 },
    [TAKEN] = { "land_taken", "SELECT batch_is_anothers($2, $1::uuid)", 2 },
    [SETTLE] = { "land_settle",
        "UPDATE intent SET state = 1, ended_at = clock_timestamp(), result = $3::jsonb"
        " WHERE job_id = $1::uuid AND state = 0 AND kind = ANY ($2::smallint[])",
        3 },
    /* When it was begun before that, and that is not known to have done nothing, it still may have. */
    [UNDO] = { "land_undo",
        "UPDATE intent SET attempts = attempts - 1,"
        " began_at = CASE WHEN attempts > 1 THEN began_at END"
        " WHERE job_id = $1::uuid AND state = 0 AND kind = ANY ($2::smallint[]) AND attempts > 0",
        2 },
    [OPEN] = { "land_open",
        "SELECT id, kind FROM intent WHERE job_id = $1::uuid AND state = 0 AND kind < " K_RELEASE
        " ORDER BY id LIMIT 1",
        1 },
    [PROVISION] = { "land_provision",
        "UPDATE provision SET provider = coalesce($2, provider), status = coalesce($3, status),"
        " region = coalesce($4, region), details = coalesce($5::jsonb, details),"
        " error = coalesce($6, error), updated_at = clock_timestamp(),"
        " starts_at = coalesce(to_timestamp(nullif($7::bigint, 0) / 1000000.0), starts_at),"
        " ends_at = coalesce(to_timestamp(nullif($8::bigint, 0) / 1000000.0), ends_at)"
        " WHERE key = $1",
        8 },
    /* The trigger does the rest when the state changes: see sql/0006. */
    [MOVE] = { "land_move",
        "UPDATE job_run SET state = $2::smallint, event = coalesce($3::smallint, event),"
        " event_epoch = lease_epoch, actor = $4, detail = $5::jsonb, version = version + 1,"
        " lease_owner = CASE WHEN $6::boolean THEN lease_owner END,"
        " lease_until = CASE WHEN $6::boolean THEN lease_until END,"
        " next_poll_at = CASE WHEN $6::boolean THEN next_poll_at ELSE " NEXT_POLL_IN(
            "$7") " END,"
                  " not_before = now() + nullif($8::bigint, -1) * interval '1 millisecond',"
                  " error_code = CASE WHEN $9::text IS NULL THEN error_code ELSE nullif($9, '') END,"
                  " error = CASE WHEN $9::text IS NULL THEN error WHEN $9 <> '' THEN $10::text END,"
                  " machines = machines AND $11::boolean, batch_id = coalesce($12, batch_id),"
                  " batch = coalesce($13::jsonb, batch),"
                  " batch_at = CASE WHEN $13::jsonb IS NULL THEN batch_at ELSE clock_timestamp() END,"
                  " expires_at = coalesce(to_timestamp(nullif($14::bigint, 0) / 1000000.0), expires_at),"
                  " timeouts = timeouts + $15::boolean::int,"
                  " failures = CASE WHEN $16::boolean THEN failures + 1 ELSE 0 END,"
                  " lost = CASE WHEN $17::boolean THEN lost + 1 ELSE 0 END"
                  " WHERE job_id = $1::uuid RETURNING version",
        17 },
    [CREATE] = { "land_create",
        "INSERT INTO intent (job_id, pool_id, kind, subject, idem_key) VALUES ($1::uuid,"
        " $2::smallint, " K_CREATE_BATCH ", $3, 'create_batch:' || $3)",
        3 },
    [CANCEL] = { "land_cancel",
        "INSERT INTO intent (job_id, pool_id, kind, subject, idem_key) VALUES ($1::uuid,"
        " $2::smallint, " K_CANCEL_BATCH ", $3, 'cancel_batch:' || $1 || ':' || $3)"
        " ON CONFLICT (idem_key) DO NOTHING",
        3 },
    [STOP] = { "land_stop",
        "INSERT INTO intent (job_id, pool_id, kind, subject, idem_key, payload) VALUES ($1::uuid,"
        " $2::smallint, " K_CANCEL_BATCH ", $3, 'cancel_batch:' || $1 || ':' || $3,"
        " jsonb_build_object('then', $4::text, 'code', $5::text, 'message', $6::text))"
        " ON CONFLICT (idem_key) DO NOTHING",
        6 },
    /* Machines made after somebody else took the job over: all under one name, so those of a job that still
     * has that name go with it. The epoch turns away whoever is releasing right now and may have looked before
     * they were there. */
    [STRAY_MACHINES] = { "land_stray_machines",
        "INSERT INTO intent AS i (job_id, pool_id, kind, subject, idem_key)"
        " SELECT $1::uuid, $2::smallint, " K_RELEASE ", $3, 'release:' || $3"
        " WHERE NOT EXISTS (SELECT FROM job_run r WHERE r.job_id = $1::uuid"
        "  AND r.provision_key = $3 AND r.machines)"
        " ON CONFLICT (idem_key) DO UPDATE SET state = 0, ended_at = NULL, payload = NULL,"
        " next_at = clock_timestamp(), lease_owner = NULL, lease_until = NULL,"
        " lease_epoch = i.lease_epoch + 1",
        3 },
    /* A batch made after somebody else took the job over: one that is still being looked for is found. */
    [STRAY_BATCH] = { "land_stray_batch",
        "INSERT INTO intent (job_id, pool_id, kind, subject, idem_key)"
        " SELECT j.id, $2::smallint, " K_STRAY_BATCH ", $3, 'stray_batch:' || $1 || ':' || $3"
        " FROM job j LEFT JOIN job_run r ON r.job_id = j.id WHERE j.id = $1::uuid"
        " AND CASE WHEN r.job_id IS NULL THEN j.batch_id IS DISTINCT FROM $3"
        "  ELSE r.batch_id <> $3 END AND NOT batch_is_anothers($3, j.id)"
        " ON CONFLICT (idem_key) DO NOTHING",
        3 },
};

const struct db_stmts JOB_LAND_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

int land_batch_taken(struct db *db, const char *job_id, const char *batch_id, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    bool taken = false;
    if (db_one(db, &STMTS[TAKEN], DB_ARGS(DB_TEXT(job_id), DB_TEXT(batch_id)), &rows, e) < 0 ||
        db_bool(&rows, 0, 0, &taken, e) < 0)
        return err_wrap(e, "batch %s", batch_id);
    return taken;
}

/* A landing under way. */
struct landing {
    struct db *db;
    const struct job_run *r;
    const struct land *l;
    bool keep;
    bool cancel;    /* asked for by the user */
    bool batch_due; /* the batch is written even when the state stays */
    enum job_state from;
    struct landed got;
    bool superseded;
    bool taken;  /* the batch that it brings is another job's */
    bool brings; /* a batch that the row does not have yet */
};

static bool is_set(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* Locks the row if it is still ours: 1 when it is not. */
static int lock(struct landing *g, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t state = 0;
    int none = db_opt(g->db, &STMTS[LOCK],
        DB_ARGS(DB_TEXT(g->r->id), DB_INT8(g->r->version), DB_INT8(g->r->lease_epoch)), &rows, e);
    if (none != 0)
        return none;
    if (db_int8(&rows, 0, 0, &state, e) < 0 || db_bool(&rows, 0, 1, &g->cancel, e) < 0 ||
        db_bool(&rows, 0, 3, &g->batch_due, e) < 0)
        return -1;
    g->from = (enum job_state)state;
    g->brings =
        g->l != NULL && is_set(g->l->batch_id) && strcmp(g->l->batch_id, db_text(&rows, 0, 2)) != 0;
    g->batch_due |= g->brings;
    return 0;
}

/* Looks whether the batch that it brings is another job's. */
static int check_batch(struct landing *g, struct err *e)
{
    g->taken = false;
    if (!g->brings)
        return 0;
    const int rc = land_batch_taken(g->db, g->r->id, g->l->batch_id, e);
    g->taken = rc == 1;
    return rc < 0 ? -1 : 0;
}

enum { KINDS_SIZE = 32 };

/* As the text of a smallint[]; false when there are none. */
static bool kinds_text(unsigned bits, char out[KINDS_SIZE])
{
    size_t at = 0;
    for (int kind = 0; kind < INTENT_RELEASE; kind++) {
        if ((bits & 1U << kind) != 0)
            at += (size_t)snprintf(out + at, KINDS_SIZE - at, "%c%d", at == 0 ? '{' : ',', kind);
    }
    (void)str_copy(out + at, KINDS_SIZE - at, "}");
    return at > 0;
}

static int settle(const struct landing *g, struct err *e)
{
    char kinds[KINDS_SIZE];
    if (kinds_text(g->l->settles, kinds) &&
        db_exec(g->db, &STMTS[SETTLE],
            DB_ARGS(DB_TEXT(g->r->id), DB_TEXT(kinds), DB_TEXT(g->l->detail_json)), NULL, e) < 0)
        return -1;
    if (kinds_text(g->l->undone, kinds) &&
        db_exec(g->db, &STMTS[UNDO], DB_ARGS(DB_TEXT(g->r->id), DB_TEXT(kinds)), NULL, e) < 0)
        return -1;
    return 0;
}

static int write_provision(const struct landing *g, struct err *e)
{
    const struct land_provision *p = g->l->provision;
    if (p == NULL)
        return 0;
    return db_exec(g->db, &STMTS[PROVISION],
        DB_ARGS(DB_TEXT(g->r->provision_key), DB_TEXT(p->provider), DB_TEXT(p->status),
            DB_TEXT(p->region), DB_TEXT(p->details_json), DB_TEXT(p->error), DB_INT8(p->starts_us),
            DB_INT8(p->ends_us)),
        NULL, e);
}

static int move(struct landing *g, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const struct land *l = g->l;
    enum job_state to = g->from;
    g->got.moved = l->event != JOB_EVENT__COUNT && job_next(g->from, l->event, &to) == 0;
    g->got.state = to;
    g->got.cancel = g->cancel;
    bool queued = g->got.moved && to == JOB_QUEUED;
    struct db_arg event =
        g->got.moved ? (struct db_arg)DB_INT8(l->event) : (struct db_arg)DB_TEXT(NULL);
    if (db_one(g->db, &STMTS[MOVE],
            DB_ARGS(DB_TEXT(g->r->id), DB_INT8(to), event, DB_TEXT(l->actor),
                DB_TEXT(l->detail_json), DB_BOOL(g->keep && !queued), DB_INT8(l->poll_ms),
                DB_INT8(queued ? l->delay_ms : -1), DB_TEXT(l->error_code), DB_TEXT(l->error),
                DB_BOOL(l->machines == LAND_MACHINES_KEEP),
                DB_TEXT(is_set(l->batch_id) ? l->batch_id : NULL),
                DB_TEXT(g->got.moved || g->batch_due ? l->batch_json : NULL),
                DB_INT8(l->expires_us), DB_BOOL(l->timed_out), DB_BOOL(l->call_failed),
                DB_BOOL(l->batch_missing)),
            &rows, e) < 0)
        return -1;
    return db_int8(&rows, 0, 0, &g->got.version, e);
}

/* What there is to do outside because of the move; releases are the trigger's. */
static int write_intents(const struct landing *g, struct err *e)
{
    const struct job_run *r = g->r;
    const char *batch_id = is_set(g->l->batch_id) ? g->l->batch_id : r->batch_id;
    if (g->got.moved && g->got.state == JOB_SUBMITTING)
        return db_exec(g->db, &STMTS[CREATE],
            DB_ARGS(DB_TEXT(r->id), DB_INT8(r->pool_id), DB_TEXT(r->provision_key)), NULL, e);
    if (g->got.state == JOB_CANCELLING && g->cancel && is_set(batch_id))
        return db_exec(g->db, &STMTS[CANCEL],
            DB_ARGS(DB_TEXT(r->id), DB_INT8(r->pool_id), DB_TEXT(batch_id)), NULL, e);
    return 0;
}

/* What whoever goes on with the job finds to do. */
static int read_intent(struct landing *g, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t kind = 0;
    if (!g->keep || job_is_terminal(g->got.state))
        return 0;
    int none = db_opt(g->db, &STMTS[OPEN], DB_ARGS(DB_TEXT(g->r->id)), &rows, e);
    if (none != 0)
        return none < 0 ? -1 : 0;
    if (db_int8(&rows, 0, 0, &g->got.intent_id, e) < 0 || db_int8(&rows, 0, 1, &kind, e) < 0)
        return -1;
    g->got.intent_kind = (enum intent_kind)kind;
    return 0;
}

/* What was made although the job was no longer ours. */
static int write_strays(const struct landing *g, struct err *e)
{
    const struct job_run *r = g->r;
    bool machines = r->state == JOB_PLANNED || g->l->event == EV_PROVISIONED;
    if (machines && g->l->machines == LAND_MACHINES_KEEP && is_set(r->provision_key) &&
        db_exec(g->db, &STMTS[STRAY_MACHINES],
            DB_ARGS(DB_TEXT(r->id), DB_INT8(r->pool_id), DB_TEXT(r->provision_key)), NULL, e) < 0)
        return -1;
    if (r->state != JOB_SUBMITTING || !is_set(g->l->batch_id))
        return 0;
    return db_exec(g->db, &STMTS[STRAY_BATCH],
        DB_ARGS(DB_TEXT(r->id), DB_INT8(r->pool_id), DB_TEXT(g->l->batch_id)), NULL, e);
}

static int land_once(struct db *db, void *ctx, struct err *e)
{
    struct landing *g = ctx;
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    if (db_begin(db, &t, e) < 0)
        return -1;
    int lost = lock(g, e);
    if (lost < 0)
        return -1;
    g->superseded = lost == 1;
    if (g->superseded)
        return write_strays(g, e) < 0 ? -1 : db_commit(&t, e);
    if (check_batch(g, e) < 0)
        return -1;
    if (g->taken)
        return 0;
    if (settle(g, e) < 0 || write_provision(g, e) < 0 || move(g, e) < 0 ||
        write_intents(g, e) < 0 || read_intent(g, e) < 0)
        return -1;
    return db_commit(&t, e);
}

int land(struct db *db, const struct job_run *r, const struct land *l, bool keep,
    struct landed *out, struct err *e)
{
    struct landing g = { .db = db, .r = r, .l = l, .keep = keep };
    if (db_retry(db, land_once, &g, e) < 0)
        return err_wrap(e, "job %s", r->id);
    if (g.superseded)
        return 1;
    if (g.taken)
        return 2;
    *out = g.got;
    return 0;
}

int land_stop(struct db *db, const struct job_run *r, enum job_event then, const char *code,
    const char *message, struct err *e)
{
    struct landing g = { .db = db, .r = r };
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    assert(is_set(r->batch_id));
    if (db_begin(db, &t, e) < 0)
        return err_wrap(e, "job %s", r->id);
    int lost = lock(&g, e);
    if (lost != 0)
        return lost < 0 ? err_wrap(e, "job %s", r->id) : 1;
    if (g.from != JOB_CANCELLING &&
        db_exec(db, &STMTS[STOP],
            DB_ARGS(DB_TEXT(r->id), DB_INT8(r->pool_id), DB_TEXT(r->batch_id),
                DB_TEXT(job_event_name(then)), DB_TEXT(code), DB_TEXT(message)),
            NULL, e) < 0)
        return err_wrap(e, "job %s", r->id);
    return db_commit(&t, e) < 0 ? err_wrap(e, "job %s", r->id) : 0;
}
