/* SPDX-License-Identifier: Apache-2.0 */
#include "db/db.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "db/db_internal.h"

static const struct db_stmt BEGIN = { "begin", "BEGIN ISOLATION LEVEL READ COMMITTED", 0 };
static const struct db_stmt COMMIT = { "commit", "COMMIT", 0 };
static const struct db_stmt ROLLBACK = { "rollback", "ROLLBACK", 0 };

enum { TRIES = 3 };

struct db *db_new(const struct db_options *o)
{
    struct db *db = mem_calloc(1, sizeof *db);
    db->o = *o;
    for (size_t i = 0; i < o->n_stmts; i++)
        db->slots += o->stmts[i].n;
    db->slot = mem_calloc(db->slots + 1, sizeof *db->slot);
    size_t at = 0;
    for (size_t i = 0; i < o->n_stmts; i++) {
        for (size_t k = 0; k < o->stmts[i].n; k++)
            db->slot[at++].stmt = &o->stmts[i].stmt[k];
    }
    return db;
}

void db_close(struct db *db)
{
    if (db == NULL)
        return;
    conn_drop(db);
    free(db->slot);
    free(db);
}

void db_set_deadline(struct db *db, int64_t deadline_ns)
{
    db->deadline_ns = deadline_ns;
}

bool db_connected(const struct db *db)
{
    return db->conn != NULL;
}

bool db_missing_table(const struct db *db, const char *table)
{
    /* The sentence is in the server's language, the name is not. */
    return db->last.missing_table && strstr(db->last_text, table) != NULL;
}

void db_be_patient(struct db *db, int64_t until_ns)
{
    db->patient_until_ns = until_ns;
}

/* The start of every call: its deadline, and the breaker's word. */
static int enter(struct db *db, struct err *e)
{
    assert(db->n_started == 0);
    db->last = (struct db_verdict){ .code = ERR_OK };
    db->last_text[0] = '\0';
    db->call_until_ns = db->deadline_ns != 0 ? db->deadline_ns : clock_deadline(db->o.timeout_ms);
    if (clock_left_ms(db->call_until_ns) == 0)
        return err_set(e, ERR_TIMEOUT, "no time was left to ask postgres");
    if (db->in_txn || db->o.breaker == NULL || breaker_allows(db->o.breaker, clock_mono_ns()))
        return 0;
    return err_set(e, ERR_UNAVAILABLE, "postgres does not answer; it is tried again shortly");
}

/* The end of every call that entered: what the breaker is told, and the one place that logs it. */
static int leave(struct db *db, int result, const struct err *e)
{
    if (db->o.breaker == NULL)
        return result;
    if (result < 0 && db->last.outage) {
        if (breaker_failed(db->o.breaker, clock_mono_ns())) {
            metric_add(METRIC_OUTAGES_POSTGRES, 1);
            log_warn(LOG_MSG("postgres does not answer"), LOG_S("error", e == NULL ? "" : e->msg),
                LOG_S("reason", db->last_text));
        }
    } else if (breaker_ok(db->o.breaker)) {
        log_info(LOG_MSG("postgres is back"));
    }
    return result;
}

static int have_connection(struct db *db, struct err *e)
{
    if (db->in_txn) {
        if (db->conn != NULL)
            return 0;
        db->last = db_map(NULL);
        return err_set(e, ERR_UNAVAILABLE, "the connection was lost within a transaction");
    }
    if (db->conn != NULL && !conn_is_alive(db))
        conn_drop(db);
    return db->conn != NULL ? 0 : conn_open(db, e);
}

static bool is_read(const struct db_stmt *s)
{
    return str_starts(s->sql, "SELECT");
}

/* May what just failed be done once more? Only when a connection that had been idle was found dead,
 * the statement changes nothing, and there is time. */
static bool may_repeat(const struct db *db, bool harmless, bool fresh)
{
    return harmless && !fresh && !db->in_txn && db->conn == NULL &&
           clock_left_ms(db->call_until_ns) > 0;
}

/* May what others stood in the way of, so that nothing of it happened, be tried again? It may take as long
 * as it took, and must not be cut off by the deadline: then nobody knows what happened, and the server seems to hang. */
static bool may_insist(const struct db *db, int64_t began_ns, int64_t until_ns)
{
    const int64_t now_ns = clock_mono_ns();
    return db->last.retry && until_ns - now_ns > now_ns - began_ns;
}

/* What ran without having been prepared for want of a table can be prepared now. */
static void note_ran(struct db *db, const struct db_stmt *s)
{
    struct db_slot *slot = conn_slot(db, s);
    if (slot != NULL && slot->status == SLOT_ABSENT && db->o.prepared)
        slot->status = SLOT_DUE;
}

static int ask_once(
    struct db *db, const struct db_stmt *s, struct db_args a, PGresult **out, struct err *e)
{
    if (conn_send(db, s, a, e) < 0 || conn_collect(db, s->name, out, e) < 0)
        return -1;
    note_ran(db, s);
    return 0;
}

/* On its own it is a transaction, which the server has undone when it refuses it. */
static int ask_insisting(
    struct db *db, const struct db_stmt *s, struct db_args a, PGresult **out, struct err *e)
{
    for (int tries = 1;; tries++) {
        const int64_t began_ns = clock_mono_ns();
        if (ask_once(db, s, a, out, e) == 0)
            return 0;
        if (tries == TRIES || db->in_txn || !may_insist(db, began_ns, db->call_until_ns))
            return -1;
    }
}

/* One statement and its answer. harmless: it may be sent twice. */
static int ask(struct db *db, const struct db_stmt *s, struct db_args a, bool harmless,
    PGresult **out, struct err *e)
{
    if (have_connection(db, e) < 0)
        return -1;
    bool fresh = db->fresh;
    if (ask_insisting(db, s, a, out, e) == 0)
        return 0;
    if (!may_repeat(db, harmless, fresh) || conn_open(db, e) < 0)
        return -1;
    return ask_insisting(db, s, a, out, e);
}

static int call(struct db *db, const struct db_stmt *s, struct db_args a, bool harmless,
    PGresult **out, struct err *e)
{
    if (enter(db, e) < 0)
        return -1;
    struct err own = ERR_INIT;
    struct err *why = e == NULL ? &own : e;
    return leave(db, ask(db, s, a, harmless, out, why), why);
}

int db_many(
    struct db *db, const struct db_stmt *s, struct db_args a, struct db_rows *out, struct err *e)
{
    return call(db, s, a, is_read(s), &out->res, e);
}

int db_opt(
    struct db *db, const struct db_stmt *s, struct db_args a, struct db_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_many(db, s, a, &rows, e) < 0)
        return -1;
    if (db_rows_count(&rows) > 1)
        return err_set(e, ERR_INTERNAL, "%s: more than one row", s->name);
    if (db_rows_count(&rows) == 0)
        return 1;
    out->res = STEAL(rows.res);
    return 0;
}

int db_one(
    struct db *db, const struct db_stmt *s, struct db_args a, struct db_rows *out, struct err *e)
{
    int result = db_opt(db, s, a, out, e);
    return result == 1 ? err_set(e, ERR_NOT_FOUND, "%s: no row", s->name) : result;
}

int db_exec(
    struct db *db, const struct db_stmt *s, struct db_args a, int64_t *affected, struct err *e)
{
    cleanup_pgresult PGresult *res = NULL;
    if (call(db, s, a, false, &res, e) < 0)
        return -1;
    int64_t n = 0;
    if (str_to_i64(PQcmdTuples(res), 0, INT64_MAX, &n) < 0)
        n = 0; /* a command that counts no rows */
    if (affected != NULL)
        *affected = n;
    return 0;
}

static int start_first(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e)
{
    if (have_connection(db, e) < 0)
        return -1;
    bool fresh = db->fresh;
    if (conn_start(db, s, a, e) == 0)
        return 0;
    if (!may_repeat(db, is_read(s), fresh) || conn_open(db, e) < 0)
        return -1;
    return conn_start(db, s, a, e);
}

/* Beside one that is under way: on its connection and by its deadline. */
static int start_beside(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e)
{
    if (db->conn != NULL)
        return conn_start(db, s, a, e);
    db->last = db_map(NULL);
    return err_set(e, db->last.code, "postgres does not answer");
}

int db_start(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e)
{
    bool beside = db->n_started > 0;
    if (!beside && enter(db, e) < 0)
        return -1;
    int result = beside ? start_beside(db, s, a, e) : start_first(db, s, a, e);
    return result < 0 ? leave(db, -1, e) : 0;
}

int db_finish(struct db *db, struct db_rows *out, struct err *e)
{
    const struct db_stmt *s = db->started[0].stmt;
    const bool longer = db->patient_until_ns != 0 && db->call_until_ns > db->deadline_ns;
    if (db->deadline_ns != 0 && !longer)
        db->call_until_ns = db->deadline_ns;
    int result = conn_finish(db, &out->res, e);
    if (result == 0)
        note_ran(db, s);
    return leave(db, result, e);
}

int db_begin(struct db *db, struct db_txn *t, struct err *e)
{
    assert(!db->in_txn);
    cleanup_pgresult PGresult *res = NULL;
    if (call(db, &BEGIN, DB_NO_ARGS, true, &res, e) < 0)
        return -1;
    db->in_txn = true;
    t->db = db;
    t->open = true;
    return 0;
}

int db_commit(struct db_txn *t, struct err *e)
{
    struct db *db = t->db;
    assert(t->open);
    cleanup_pgresult PGresult *res = NULL;
    int result = call(db, &COMMIT, DB_NO_ARGS, false, &res, e);
    if (result < 0)
        conn_drop(db);
    db->in_txn = false;
    t->open = false;
    if (result == 0 && strcmp(PQcmdStatus(res), "COMMIT") != 0)
        return err_set(e, ERR_INTERNAL, "the transaction had failed and was rolled back");
    return result;
}

void db_txn_end(struct db_txn *t)
{
    if (!t->open)
        return;
    struct db *db = t->db;
    t->open = false;
    if (db->conn != NULL) {
        cleanup_pgresult PGresult *res = NULL;
        if (ask(db, &ROLLBACK, DB_NO_ARGS, false, &res, NULL) < 0)
            conn_drop(db);
    }
    db->in_txn = false;
}

int db_retry(
    struct db *db, int (*fn)(struct db *db, void *ctx, struct err *e), void *ctx, struct err *e)
{
    const int64_t until_ns = db->deadline_ns != 0 ? db->deadline_ns : INT64_MAX;
    for (int tries = 1;; tries++) {
        const int64_t began_ns = clock_mono_ns();
        const int result = fn(db, ctx, e);
        if (result >= 0 || tries == TRIES || !may_insist(db, began_ns, until_ns))
            return result;
    }
}

int db_script(struct db *db, const char *name, const char *sql, struct err *e)
{
    assert(db->in_txn);
    if (enter(db, e) < 0 || have_connection(db, e) < 0)
        return -1;
    if (PQsendQuery(db->conn, sql) == 0)
        return conn_lost(db, e);
    cleanup_pgresult PGresult *res = NULL;
    return conn_flush(db, e) < 0 ? -1 : conn_collect(db, name, &res, e);
}
