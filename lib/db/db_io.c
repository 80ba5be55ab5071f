/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"
#include "db/db_internal.h"

enum { NUMBER_SIZE = 32 };

void conn_drop(struct db *db)
{
    PQfinish(db->conn); /* never blocks: the connection is non-blocking, or not established */
    db->conn = NULL;
    db->told_to_go = false;
    for (size_t i = 0; i < db->slots; i++)
        db->slot[i].status = SLOT_ABSENT;
}

/* The first line of what libpq says; further ones hold guesses and hints. */
static int first_line(char *dst, size_t size, const char *text)
{
    return str_format(dst, size, "%.*s", (int)strcspn(text, "\n"), text);
}

int conn_lost(struct db *db, struct err *e)
{
    (void)first_line(db->last_text, sizeof db->last_text, PQerrorMessage(db->conn));
    if (db->last_text[0] == '\0')
        (void)str_copy(db->last_text, sizeof db->last_text, "connection lost");
    conn_drop(db);
    db->last = db_map(NULL);
    /* A program with a breaker serves others: where the server is and why it cannot be reached is for
     * its log (see leave() in db.c), not for who called. */
    if (db->o.breaker != NULL)
        return err_set(e, db->last.code, "postgres does not answer");
    return err_set(e, db->last.code, "postgres: %s", db->last_text);
}

int conn_late(struct db *db, struct err *e)
{
    /* PQcancel blocks, and a server that hangs would not hear it: closing is all that helps. */
    conn_drop(db);
    db->last = db_map(NULL);
    db->last.code = ERR_TIMEOUT;
    return err_set(e, ERR_TIMEOUT, "postgres did not answer in time");
}

int conn_refused(struct db *db, const char *what, const PGresult *res, struct err *e)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
    if (state == NULL || text == NULL)
        return conn_lost(db, e);
    db->last = db_map(state);
    (void)first_line(db->last_text, sizeof db->last_text, text);
    if (db->last.missing_table)
        err_set(e, db->last.code, "%s: %s: run weighbridge-migrate", what, db->last_text);
    else
        err_set(e, db->last.code, "%s: %s (SQLSTATE %s)", what, db->last_text, state);
    if (db->last.drop)
        conn_drop(db);
    return -1;
}

static int wait_for(struct db *db, short events, struct err *e)
{
    int ready = wait_fd(PQsocket(db->conn), events, db->call_until_ns);
    if (ready == 0)
        return conn_late(db, e);
    if (ready < 0 || PQconsumeInput(db->conn) == 0)
        return conn_lost(db, e);
    if (db->patient_until_ns != 0)
        db->call_until_ns =
            clock_prolong(db->call_until_ns, db->o.timeout_ms, db->patient_until_ns);
    return 0;
}

int conn_flush(struct db *db, struct err *e)
{
    int left;
    while ((left = PQflush(db->conn)) > 0) {
        if (wait_for(db, POLLIN | POLLOUT, e) < 0)
            return -1;
    }
    return left < 0 ? conn_lost(db, e) : 0;
}

int conn_next(struct db *db, PGresult **out, struct err *e)
{
    while (PQisBusy(db->conn)) {
        if (wait_for(db, POLLIN, e) < 0)
            return -1;
    }
    *out = PQgetResult(db->conn);
    return 0;
}

static bool is_fine(const PGresult *res)
{
    ExecStatusType status = PQresultStatus(res);
    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY;
}

int conn_collect(struct db *db, const char *what, PGresult **out, struct err *e)
{
    cleanup_pgresult PGresult *kept = NULL;
    for (;;) {
        cleanup_pgresult PGresult *res = NULL;
        if (conn_next(db, &res, e) < 0)
            return -1;
        if (res == NULL)
            break;
        if (kept == NULL || is_fine(kept)) {
            PQclear(kept);
            kept = STEAL(res);
        }
        if (kept != NULL && !is_fine(kept) && PQresultStatus(kept) != PGRES_FATAL_ERROR) {
            conn_drop(db); /* COPY, which nothing here speaks, would never end */
            return err_set(e, ERR_INTERNAL, "%s: unexpected kind of result", what);
        }
    }
    if (kept == NULL)
        return conn_lost(db, e);
    if (!is_fine(kept))
        return conn_refused(db, what, kept, e);
    db->fresh = false;
    *out = STEAL(kept);
    return 0;
}

bool conn_is_alive(struct db *db)
{
    /* Bounded: a notice or two may lie there, and the end of the connection behind them. */
    for (int i = 0; i < 16 && wait_fd(PQsocket(db->conn), POLLIN, 0) == 1; i++) {
        if (PQconsumeInput(db->conn) == 0)
            return false;
        (void)PQisBusy(db->conn); /* makes libpq look at what came: notices go to on_notice() */
    }
    return PQstatus(db->conn) == CONNECTION_OK && !db->told_to_go;
}

struct db_slot *conn_slot(struct db *db, const struct db_stmt *s)
{
    for (size_t i = 0; i < db->slots; i++) {
        if (db->slot[i].stmt == s)
            return &db->slot[i];
    }
    return NULL;
}

static int prepare_late(struct db *db, struct db_slot *slot, struct err *e)
{
    if (PQsendPrepare(db->conn, slot->stmt->name, slot->stmt->sql, 0, NULL) == 0)
        return conn_lost(db, e);
    cleanup_pgresult PGresult *res = NULL;
    if (conn_flush(db, e) < 0 || conn_collect(db, slot->stmt->name, &res, e) < 0)
        return -1;
    slot->status = SLOT_READY;
    return 0;
}

/* Arguments as text, the numbers written into number. */
static void args_to_text(
    struct db_args a, char number[][NUMBER_SIZE], const char *value[DB_ARGS_MAX])
{
    for (size_t i = 0; i < a.n; i++) {
        const struct db_arg *arg = &a.arg[i];
        value[i] = number[i];
        switch (arg->type) {
        case DB_T_TEXT:
            value[i] = arg->v.text;
            break;
        case DB_T_INT8:
            (void)str_format(number[i], NUMBER_SIZE, "%lld", (long long)arg->v.i8);
            break;
        case DB_T_BOOL:
            value[i] = arg->v.b ? "t" : "f";
            break;
        case DB_T_FLOAT8:
            (void)str_format(number[i], NUMBER_SIZE, "%.17g", arg->v.f8);
            break;
        }
    }
}

int conn_put(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e)
{
    if (a.n > DB_ARGS_MAX || (int)a.n != s->args)
        return err_set(e, ERR_INTERNAL, "%s: takes %d arguments, not %zu", s->name, s->args, a.n);
    const struct db_slot *slot = conn_slot(db, s);
    char number[DB_ARGS_MAX][NUMBER_SIZE];
    const char *value[DB_ARGS_MAX];
    args_to_text(a, number, value);
    int sent = slot != NULL && slot->status == SLOT_READY
                   ? PQsendQueryPrepared(db->conn, s->name, s->args, value, NULL, NULL, 0)
                   : PQsendQueryParams(db->conn, s->sql, s->args, NULL, value, NULL, NULL, 0);
    return sent == 0 ? conn_lost(db, e) : 0;
}

int conn_send(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e)
{
    struct db_slot *slot = conn_slot(db, s);
    if (slot != NULL && slot->status == SLOT_DUE && prepare_late(db, slot, e) < 0)
        return -1;
    return conn_put(db, s, a, e) < 0 ? -1 : conn_flush(db, e);
}
