/* SPDX-License-Identifier: Apache-2.0 */

/* What lib/db does when Postgres is killed, frozen, and comes back: operations contract, section 3,
 * failure rules. On a server of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "db/db.h"
#include "db/db_row.h"
#include "tests/store/pg_server.h"

enum { TIMEOUT_MS = 200, HANG_MS = 20000, BACK_MS = 30000, LOOK_MS = 20 };

static const struct db_stmt STMTS[] = {
    { "o_pid", "SELECT pg_backend_pid()", 0 },
    { "o_nothing", "SELECT 1", 0 },
};
static const struct db_stmts LIST = { STMTS, sizeof STMTS / sizeof STMTS[0] };

static struct pg_server server;
static bool installed;
static struct breaker breaker;

static int setup(void **state)
{
    (void)state;
    installed = pg_server_init(&server);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (installed)
        pg_server_fini(&server);
    return 0;
}

static int breaker_new(void **state)
{
    (void)state;
    breaker_init(&breaker);
    return 0;
}

static int breaker_end(void **state)
{
    (void)state;
    breaker_fini(&breaker);
    return 0;
}

static struct db *new_db(bool prepared)
{
    if (!installed)
        skip();
    struct db_options o = {
        .url = server.url,
        .name = "weighbridge-test",
        .prepared = prepared,
        .timeout_ms = TIMEOUT_MS,
        .breaker = &breaker,
        .stmts = &LIST,
        .n_stmts = 1,
    };
    return db_new(&o);
}

/* The pid of the session, or -1. */
static int64_t ask(struct db *db, struct err *e)
{
    int64_t pid = -1;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_one(db, &STMTS[0], DB_NO_ARGS, &rows, e) < 0 || db_int8(&rows, 0, 0, &pid, e) < 0)
        return -1;
    return pid;
}

/* Asks until it answers. That the breaker tries again by itself is what is tested. */
static int64_t ask_until_back(struct db *db)
{
    struct err e = ERR_INIT;
    int64_t deadline = clock_deadline(BACK_MS);
    for (;;) {
        int64_t pid = ask(db, &e);
        if (pid > 0)
            return pid;
        if (clock_left_ms(deadline) == 0)
            fail_msg("not back: %s", e.msg);
        (void)poll(NULL, 0, LOOK_MS);
    }
}

static void a_frozen_session_is_given_up_at_the_deadline(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    for (int prepared = 0; prepared < 2; prepared++) {
        cleanup_db struct db *db = new_db(prepared == 1);
        int64_t pid = ask_until_back(db);
        kill((pid_t)pid, SIGSTOP);
        int64_t hang = clock_deadline(HANG_MS);
        assert_int_equal(ask(db, &e), -1);
        assert_true(clock_left_ms(hang) > 0);
        kill((pid_t)pid, SIGCONT);
        assert_int_equal(e.code, ERR_TIMEOUT);
        assert_false(db_connected(db));
        assert_true(breaker_is_open(&breaker));
        assert_true(ask_until_back(db) != pid);
        assert_false(breaker_is_open(&breaker));
    }
}

static void a_frozen_transaction_is_given_up_and_dropped(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(true);

    (void)state;
    int64_t pid = ask_until_back(db);
    {
        cleanup_txn struct db_txn t = DB_TXN_INIT;
        assert_int_equal(db_begin(db, &t, &e), 0);
        kill((pid_t)pid, SIGSTOP);
        db_set_deadline(db, clock_deadline(TIMEOUT_MS)); /* of all that follows, the end included */
        assert_int_equal(db_exec(db, &STMTS[1], DB_NO_ARGS, NULL, &e), -1);
        assert_int_equal(e.code, ERR_TIMEOUT);
    }
    kill((pid_t)pid, SIGCONT);
    db_set_deadline(db, 0);
    assert_true(ask_until_back(db) != pid);
}

static void a_rollback_that_is_not_answered_drops_the_connection(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(true);

    (void)state;
    int64_t pid = ask_until_back(db);
    {
        cleanup_txn struct db_txn t = DB_TXN_INIT;
        assert_int_equal(db_begin(db, &t, &e), 0);
        kill((pid_t)pid, SIGSTOP);
    }
    kill((pid_t)pid, SIGCONT);
    assert_false(db_connected(db));
    assert_true(ask_until_back(db) != pid);
}

/* connect() succeeds on a frozen server, for its backlog takes it: only the deadline helps. */
static void a_frozen_server_is_given_up_while_connecting(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(true);

    (void)state;
    kill(server.pid, SIGSTOP);
    int64_t hang = clock_deadline(HANG_MS);
    int64_t answer = ask(db, &e);
    kill(server.pid, SIGCONT);
    assert_int_equal(answer, -1);
    assert_true(clock_left_ms(hang) > 0);
    assert_int_equal(e.code, ERR_TIMEOUT);
    (void)ask_until_back(db);
}

static void a_killed_server_is_unavailable_and_then_back(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(true);
    cleanup_db struct db *other = new_db(false);

    (void)state;
    (void)ask_until_back(db);
    (void)ask_until_back(other);
    int64_t outages = metric_get(METRIC_OUTAGES_POSTGRES);
    pg_server_stop(&server);
    for (int i = 0; i < 5; i++) { /* with and without the breaker's word */
        assert_int_equal(ask(db, &e), -1);
        assert_int_equal(e.code, ERR_UNAVAILABLE);
        assert_int_equal(ask(other, &e), -1);
        assert_int_equal(e.code, ERR_UNAVAILABLE);
        struct db_txn t = DB_TXN_INIT;
        assert_int_equal(db_begin(db, &t, &e), -1);
        assert_int_equal(db_start(db, &STMTS[1], DB_NO_ARGS, &e), -1);
    }
    assert_true(breaker_is_open(&breaker));
    assert_int_equal(metric_get(METRIC_OUTAGES_POSTGRES), outages + 1); /* told once, logged once */
    pg_server_start(&server);
    (void)ask_until_back(db);
    assert_false(breaker_is_open(&breaker));
    (void)ask_until_back(other);
}

/* The server goes between the halves of a query and in the middle of a transaction. */
static void a_server_killed_in_between_is_unavailable(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(true);
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    struct db_txn t = DB_TXN_INIT;

    (void)state;
    static const struct db_stmt SLEEP = { "o_sleep", "SELECT pg_sleep(60)", 0 };
    (void)ask_until_back(db);
    db_set_deadline(db, clock_deadline(HANG_MS));
    assert_int_equal(db_start(db, &SLEEP, DB_NO_ARGS, &e), 0);
    pg_server_stop(&server);
    assert_int_equal(db_finish(db, &rows, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    pg_server_start(&server);

    db_set_deadline(db, 0);
    (void)ask_until_back(db);
    assert_int_equal(db_begin(db, &t, &e), 0);
    pg_server_stop(&server);
    int result = db_commit(&t, &e);
    pg_server_start(&server);
    assert_int_equal(result, -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    (void)ask_until_back(db);
}

#define OUTAGE(test) cmocka_unit_test_setup_teardown(test, breaker_new, breaker_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OUTAGE(a_frozen_session_is_given_up_at_the_deadline),
        OUTAGE(a_frozen_transaction_is_given_up_and_dropped),
        OUTAGE(a_rollback_that_is_not_answered_drops_the_connection),
        OUTAGE(a_frozen_server_is_given_up_while_connecting),
        OUTAGE(a_killed_server_is_unavailable_and_then_back),
        OUTAGE(a_server_killed_in_between_is_unavailable),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
