/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DB_H
#define WB_DB_H

/* Postgres through libpq: one connection, prepared statements, deadlines on everything. A struct db
 * belongs to one thread. It connects when first used and again after any failure that leaves the
 * connection in doubt; connecting is non-blocking and counts against the deadline of the call that
 * needed it. The breaker, shared by the threads of a process, makes calls fail at once with
 * ERR_UNAVAILABLE while the server is known to be down.
 *
 * What is refused because others were in the way at that moment (a row that somebody holds for longer than a
 * quarter of timeout_ms, a deadlock, a serialization failure) has left no trace: outside of a transaction it is tried up to
 * three times while there is time for it. Of a transaction db_retry() does the same.
 *
 * Errors of every verb: ERR_UNAVAILABLE (cannot connect, connection lost, server shutting down),
 * ERR_TIMEOUT (deadline, or a row that is held), ERR_CONFLICT (unique or exclusion violation, serialization failure after
 * retries), ERR_INVALID (check violation, text too long, bad encoding), ERR_INTERNAL (anything else:
 * SQLSTATE in the text). The table is in db_map.c. Connection strings never appear in texts. */
#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/breaker.h"
#include "base/err.h"

enum db_type { DB_T_TEXT, DB_T_INT8, DB_T_BOOL, DB_T_FLOAT8 };

struct db_arg {
    enum db_type type;
    union {
        const char *text; /* NULL is SQL NULL */
        int64_t i8;
        bool b;
        double f8;
    } v;
};

struct db_args {
    const struct db_arg *arg;
    size_t n;
};

enum { DB_ARGS_MAX = 24 };

#define DB_TEXT(x) \
    { \
        .type = DB_T_TEXT, .v.text = (x) \
    }
#define DB_INT8(x) \
    { \
        .type = DB_T_INT8, .v.i8 = (x) \
    }
#define DB_BOOL(x) \
    { \
        .type = DB_T_BOOL, .v.b = (x) \
    }
#define DB_FLOAT8(x) \
    { \
        .type = DB_T_FLOAT8, .v.f8 = (x) \
    }
#define DB_ARGS(...) \
    ((struct db_args){ .arg = (const struct db_arg[]){ __VA_ARGS__ }, \
        .n = sizeof((const struct db_arg[]){ __VA_ARGS__ }) / sizeof(struct db_arg) })
#define DB_NO_ARGS ((struct db_args){ .arg = NULL, .n = 0 })

/* A statement: static const storage only; the name is unique in the program. One that begins with
 * SELECT is a read, which db_one(), db_opt() and db_many() run once more on a fresh connection when an
 * idle one turns out to be dead; whatever changes data begins with another word (WITH, INSERT, ...). */
struct db_stmt {
    const char *name;
    const char *sql;
    int args;
};

/* The statements a connection prepares, in one pipeline, when it connects. */
struct db_stmts {
    const struct db_stmt *stmt;
    size_t n;
};

struct db_options {
    const char *url;              /* libpq connection string; borrowed for the life of the db */
    const char *name;             /* application_name, e.g. "weighbridge-operations/3" */
    bool prepared;                /* off: parameters without named statements (PgBouncer) */
    int64_t timeout_ms;           /* of a call, when no deadline was set; also statement_timeout */
    int64_t patience_ms;          /* 0: none. See db_be_patient() */
    struct breaker *breaker;      /* borrowed, may be NULL */
    const struct db_stmts *stmts; /* borrowed */
    size_t n_stmts;
};

struct db;
void db_close(struct db *db); /* never blocks; NULL is fine */
struct db *db_new(const struct db_options *o) OWNED_BY(db_close);
static inline void db_close_p(struct db **db)
{
    db_close(*db);
}
#define cleanup_db __attribute__((cleanup(db_close_p)))

/* The deadline (monotonic ns) for all calls until it is set again; 0: each call has timeout_ms. */
void db_set_deadline(struct db *db, int64_t deadline_ns);

/* From now on an answer that keeps coming may take until then (0: no longer): each part of it moves the deadline on by
 * timeout_ms. A server that sends nothing for so long hangs; one that has much to say does not. For statements under way by
 * db_start(); the server itself is told patience_ms of the options. */
void db_be_patient(struct db *db, int64_t until_ns);

/* Rows. Owned by the caller; values borrowed from it until it is freed. */
struct db_rows {
    PGresult *res;
};
#define DB_ROWS_INIT \
    { \
        .res = NULL \
    }
void db_rows_free(struct db_rows *r);
#define cleanup_rows __attribute__((cleanup(db_rows_free)))
int db_rows_count(const struct db_rows *r);

/* Exactly one row: none is ERR_NOT_FOUND, more is ERR_INTERNAL. */
int db_one(struct db *db, const struct db_stmt *s, struct db_args a, struct db_rows *out,
    struct err *e) WARN_UNUSED;
/* One row or none: 1 when none (*out untouched). */
int db_opt(struct db *db, const struct db_stmt *s, struct db_args a, struct db_rows *out,
    struct err *e) WARN_UNUSED;
int db_many(struct db *db, const struct db_stmt *s, struct db_args a, struct db_rows *out,
    struct err *e) WARN_UNUSED;
/* No rows wanted; *affected (may be NULL) gets the number of rows changed. */
int db_exec(struct db *db, const struct db_stmt *s, struct db_args a, int64_t *affected,
    struct err *e) WARN_UNUSED;

/* The two halves of db_many(), so that another store can be asked meanwhile. db_start() connects if
 * need be, sends, and does not wait for the answer; db_finish() waits until the deadline. After a
 * successful db_start() db_finish() must follow. Several (four at most) may be started one after the
 * other: that is one round trip, each sees what it sees on its own and fails on its own, and they are
 * finished in the same order. */
int db_start(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e) WARN_UNUSED;
int db_finish(struct db *db, struct db_rows *out, struct err *e) WARN_UNUSED;

/* A transaction rolls back when it goes out of scope uncommitted. READ COMMITTED. If rolling back is
 * not possible in time the connection is dropped, which has the same effect. */
struct db_txn {
    struct db *db;
    bool open;
};
#define DB_TXN_INIT \
    { \
        .db = NULL, .open = false \
    }
int db_begin(struct db *db, struct db_txn *t, struct err *e) WARN_UNUSED;
/* A failure of COMMIT itself leaves it unknown whether it happened: ERR_UNAVAILABLE or ERR_TIMEOUT. */
int db_commit(struct db_txn *t, struct err *e) WARN_UNUSED;
void db_txn_end(struct db_txn *t);
#define cleanup_txn __attribute__((cleanup(db_txn_end)))

/* Runs fn up to three times while others are in its way, as said at the top. fn does the whole transaction. */
int db_retry(struct db *db, int (*fn)(struct db *db, void *ctx, struct err *e), void *ctx,
    struct err *e) WARN_UNUSED;

/* Postgres' clock minus ours, in microseconds, as of the last result that carried it; false before
 * the first. Rows that carry it call db_saw_clock(). Shared by the process, any thread. */
void db_saw_clock(int64_t postgres_us);
bool db_clock_offset_us(int64_t *out);
/* Postgres' time by our clock and that offset (our clock alone while the offset is unknown). */
int64_t db_now_us(void);

/* True when the last call failed because this table does not exist (its code is ERR_UNAVAILABLE). */
bool db_missing_table(const struct db *db, const char *table);

/* True while a connection stands (it may still turn out to be dead). */
bool db_connected(const struct db *db);

#endif
