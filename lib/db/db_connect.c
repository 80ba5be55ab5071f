/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/wait.h"
#include "db/db_internal.h"

enum {
    LOCK_WAITS = 4,
    LOCK_BRIEF_MS = 400,
    OPTIONS_SIZE = 1024,
    IDLE_IN_TXN_GRACE_MS = 1000,
    PARAMS_MAX = 8
};

struct params {
    const char *key[PARAMS_MAX];
    const char *value[PARAMS_MAX];
    char options[OPTIONS_SIZE];
};

static inline void conninfo_free_p(PQconninfoOption **o)
{
    PQconninfoFree(*o);
}
#define cleanup_conninfo __attribute__((cleanup(conninfo_free_p)))

static bool is_conninfo(const char *url)
{
    return strchr(url, '=') != NULL || str_starts(url, "postgres://") ||
           str_starts(url, "postgresql://");
}

/* Looks the connection string over: *theirs gets its own options, or NULL. libpq's text about a
 * malformed one quotes it, which may show a password: ours does not. */
static int look_over(const char *url, PQconninfoOption **parsed, const char **theirs, struct err *e)
{
    if (!is_conninfo(url))
        return 0; /* a database name, or empty: libpq's own defaults */
    *parsed = PQconninfoParse(url, NULL);
    if (*parsed == NULL)
        return err_set(e, ERR_UNAVAILABLE, "the connection string of postgres is malformed");
    for (const PQconninfoOption *o = *parsed; o->keyword != NULL; o++) {
        if (strcmp(o->keyword, "options") == 0)
            *theirs = o->val;
    }
    return 0;
}

/* The session's settings, and after them those of the connection string, which win. */
static int options_make(const struct db *db, const char *theirs, char *out, struct err *e)
{
    const int64_t patience_ms = db->o.patience_ms;
    const long long ms = (long long)db->o.timeout_ms;
    const long long most_ms = patience_ms > db->o.timeout_ms ? (long long)patience_ms : ms;
    const long long lock_ms = ms < LOCK_BRIEF_MS ? ms / 2 : ms / LOCK_WAITS;
    /* A lock is waited for a part of it only: a row that somebody holds must be told apart from a server that
     * hangs, and what is refused for it can be tried again, if that is not too short to be of any use. */
    if (str_format(out, OPTIONS_SIZE,
            "-c statement_timeout=%lld -c lock_timeout=%lld "
            "-c idle_in_transaction_session_timeout=%lld -c timezone=UTC %s",
            most_ms, lock_ms + 1, ms + IDLE_IN_TXN_GRACE_MS, theirs == NULL ? "" : theirs) < 0)
        return err_set(e, ERR_UNAVAILABLE, "the options for postgres are too long");
    return 0;
}

static int params_make(const struct db *db, struct params *p, struct err *e)
{
    int n = 0;
    const char *theirs = NULL;
    cleanup_conninfo PQconninfoOption *parsed = NULL;
    memset(p, 0, sizeof *p);
    if (look_over(db->o.url, &parsed, &theirs, e) < 0)
        return -1;
    p->key[n] = "dbname"; /* expanded: a later keyword wins over the string's */
    p->value[n++] = db->o.url;
    p->key[n] = "application_name";
    p->value[n++] = db->o.name;
    p->key[n] = "client_encoding";
    p->value[n++] = "UTF8";
    if (db->o
            .prepared) { /* poolers refuse options at the start: our own deadline has to do there */
        if (options_make(db, theirs, p->options, e) < 0)
            return -1;
        p->key[n] = "options";
        p->value[n++] = p->options;
    }
    return 0;
}

/* Nothing that the server remarks goes to stderr; that the session ends is remembered. */
static void on_notice(void *arg, const PGresult *res)
{
    struct db *db = arg;
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    if (state != NULL && db_map(state).drop)
        db->told_to_go = true;
}

static int handshake(struct db *db, struct err *e)
{
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (next != PGRES_POLLING_OK) {
        if (next == PGRES_POLLING_FAILED)
            return conn_lost(db, e);
        short events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        int ready = wait_fd(PQsocket(db->conn), events, db->call_until_ns);
        if (ready == 0)
            return conn_late(db, e);
        if (ready < 0)
            return conn_lost(db, e);
        next = PQconnectPoll(db->conn);
    }
    return 0;
}

/* All in one round trip, each with a sync of its own so that one failure does not take the rest. */
static int prepare_all(struct db *db, struct err *e)
{
    if (!db->o.prepared || db->slots == 0)
        return 0;
    if (PQenterPipelineMode(db->conn) == 0)
        return conn_lost(db, e);
    for (size_t i = 0; i < db->slots; i++) {
        const struct db_stmt *s = db->slot[i].stmt;
        if (PQsendPrepare(db->conn, s->name, s->sql, 0, NULL) == 0 || PQpipelineSync(db->conn) == 0)
            return conn_lost(db, e);
    }
    if (conn_flush(db, e) < 0)
        return -1;
    for (size_t i = 0; i < db->slots; i++) {
        if (conn_take_prepared(db, &db->slot[i], e) < 0)
            return -1;
    }
    return PQexitPipelineMode(db->conn) == 0 ? conn_lost(db, e) : 0;
}

static int check_encoding(struct db *db, struct err *e)
{
    const char *encoding = PQparameterStatus(db->conn, "server_encoding");
    if (encoding != NULL && strcmp(encoding, "UTF8") == 0)
        return 0;
    err_set(e, ERR_UNAVAILABLE, "the database is encoded in %s: it must be UTF8",
        encoding == NULL ? "something unknown" : encoding);
    conn_drop(db);
    db->last = db_map(NULL);
    return -1;
}

int conn_open(struct db *db, struct err *e)
{
    struct params p;
    if (params_make(db, &p, e) < 0)
        return -1;
    db->conn = PQconnectStartParams(p.key, p.value, 1);
    if (PQstatus(db->conn) == CONNECTION_BAD)
        return conn_lost(db, e);
    (void)PQsetNoticeReceiver(db->conn, on_notice, db);
    if (handshake(db, e) < 0)
        return -1;
    if (PQsetnonblocking(db->conn, 1) != 0)
        return conn_lost(db, e);
    if (check_encoding(db, e) < 0 || prepare_all(db, e) < 0)
        return -1;
    db->last = (struct db_verdict){ .code = ERR_OK }; /* refused statements are no failure yet */
    db->fresh = true;
    return 0;
}
