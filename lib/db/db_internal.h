/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DB_INTERNAL_H
#define WB_DB_INTERNAL_H

/* The parts of lib/db that its own files share: the connection below the verbs. Every conn_ function
 * keeps to db->call_until_ns, never blocks beyond it, and on failure sets *e and db->last; where
 * db->last.drop says so the connection is gone (db->conn NULL). */
#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "db/db_map.h"

enum slot_status {
    SLOT_ABSENT, /* preparing it failed, a table being missing: runs with parameters only */
    SLOT_DUE,    /* it ran that way meanwhile: prepare it before the next use */
    SLOT_READY,
};

struct db_slot {
    const struct db_stmt *stmt;
    enum slot_status status;
};

enum { DB_STARTED_MAX = 4 };

/* Between db_start() and db_finish(). */
struct db_started {
    const struct db_stmt *stmt;
    struct db_slot *prepared; /* what was prepared in front of it; NULL: nothing */
};

struct db {
    struct db_options o;
    PGconn *conn;
    struct db_slot *slot;
    size_t slots;
    int64_t deadline_ns;      /* what db_set_deadline() said; 0: none */
    int64_t call_until_ns;    /* of the call under way */
    int64_t patient_until_ns; /* what db_be_patient() said */
    bool in_txn;
    bool fresh;                   /* connected, and nothing has been answered since */
    bool told_to_go;              /* the server announced that it ends the session */
    struct db_verdict last;       /* of the last failure */
    char last_text[ERR_MSG_SIZE]; /* what Postgres or libpq said then */
    size_t n_started;
    struct db_started started[DB_STARTED_MAX]; /* in the order of their answers */
};

static inline void pgresult_clear_p(PGresult **r)
{
    PQclear(*r);
}
#define cleanup_pgresult __attribute__((cleanup(pgresult_clear_p)))

/* Connects and prepares the statements. */
int conn_open(struct db *db, struct err *e) WARN_UNUSED;
void conn_drop(struct db *db);

/* False when the server has closed the idle connection or announced it: seen before anything is sent,
 * so that even a write finds a fresh one. */
bool conn_is_alive(struct db *db);

/* Sends what libpq holds, taking in what comes meanwhile. */
int conn_flush(struct db *db, struct err *e) WARN_UNUSED;
/* The next result, or NULL at the end of one statement's. */
int conn_next(struct db *db, PGresult **out, struct err *e) WARN_UNUSED;
/* All results of a statement: the last one, or the first error. what names the statement in texts. */
int conn_collect(struct db *db, const char *what, PGresult **out, struct err *e) WARN_UNUSED;

/* Hands a statement with its arguments to libpq; nothing is flushed. */
int conn_put(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e) WARN_UNUSED;
/* A statement with its arguments, waiting for no answer (but that of a late PREPARE). */
int conn_send(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e) WARN_UNUSED;
struct db_slot *conn_slot(struct db *db, const struct db_stmt *s); /* NULL: not of db's list */

/* The same with others in one pipeline, each with a sync of its own, so that one failure does not take
 * the rest: adds to db->started. conn_finish() takes the answer to the first of these off it. */
int conn_start(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e) WARN_UNUSED;
int conn_finish(struct db *db, PGresult **out, struct err *e) WARN_UNUSED;
/* One PREPARE's part of a pipeline, up to its sync. A refused statement stays SLOT_ABSENT and says why
 * when it is used. */
int conn_take_prepared(struct db *db, struct db_slot *slot, struct err *e) WARN_UNUSED;

/* Failures: the connection broke, or the deadline passed. Always -1, and the connection is gone. */
int conn_lost(struct db *db, struct err *e);
int conn_late(struct db *db, struct err *e);
/* A result that is an error. Always -1. */
int conn_refused(struct db *db, const char *what, const PGresult *res, struct err *e);

/* Several statements in one text, for migrations: the only way that SQL text is not a db_stmt. Runs in
 * the transaction that is open. */
int db_script(struct db *db, const char *name, const char *sql, struct err *e) WARN_UNUSED;

#endif
