/* SPDX-License-Identifier: Apache-2.0 */

/* What lib/db does when others stand in the way of a statement: db.h, at the top. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "db/db_row.h"
#include "tests/store/store_fixture.h"

enum stmt { PID, DEADLOCK, UNLUCKY, COUNTED, LOCKED, SYNTAX };

static const struct db_stmt STMTS[] = {
    [PID] = { "t_pid", "SELECT pg_backend_pid()", 0 },
    [DEADLOCK] = { "t_deadlock", "DO 'BEGIN RAISE EXCEPTION USING ERRCODE = ''40P01''; END'", 0 },
    /* Deadlocked twice, whatever else is rolled back. */
    [UNLUCKY] = { "t_unlucky",
        "DO 'BEGIN IF nextval(''tries'') < 3 THEN RAISE EXCEPTION USING ERRCODE = ''40P01'';"
        " END IF; END'",
        0 },
    [COUNTED] = { "t_counted", "SELECT last_value FROM tries WHERE is_called", 0 },
    [LOCKED] = { "t_locked", "UPDATE k SET n = n WHERE n = 1", 0 },
    [SYNTAX] = { "t_syntax", "SELEKT", 0 },
};
static const struct db_stmts LIST = { STMTS, sizeof(STMTS) / sizeof(STMTS[0]) };

static int setup(void **state)
{
    (void)state;
    (void)fx_begin(&LIST, 1, "ALTER SEQUENCE tries RESTART");
    fx_sql("CREATE TABLE k (n int); INSERT INTO k VALUES (1); CREATE SEQUENCE tries");
    return 0;
}

static int64_t number(struct db *db, const struct db_stmt *s)
{
    struct err e = ERR_INIT;
    int64_t n = -1;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    ok(db_one(db, s, DB_NO_ARGS, &rows, &e));
    ok(db_int8(&rows, 0, 0, &n, &e));
    return n;
}

static int deadlocked(struct db *on, void *ctx, struct err *e)
{
    int *runs = ctx;
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    ++*runs;
    if (db_begin(on, &t, e) < 0)
        return -1;
    return db_exec(on, &STMTS[DEADLOCK], DB_NO_ARGS, NULL, e);
}

static int refused(struct db *on, void *ctx, struct err *e)
{
    int *runs = ctx;
    ++*runs;
    return db_exec(on, &STMTS[SYNTAX], DB_NO_ARGS, NULL, e);
}

static void a_lost_race_is_run_three_times(void **state)
{
    struct err e = ERR_INIT;
    int runs = 0;

    (void)state;
    fx_fails(db_retry(fx.db, deadlocked, &runs, &e), &e, ERR_CONFLICT, "40P01");
    assert_int_equal(runs, 3);
    runs = 0;
    fx_fails(db_retry(fx.db, refused, &runs, &e), &e, ERR_INTERNAL, "t_syntax");
    assert_int_equal(runs, 1);
}

/* Somebody's lock is not an outage: only this statement fails, and the breaker hears nothing. */
static void a_held_row_is_a_timeout_but_no_outage(void **state)
{
    stores_want_session(&fx.stores);
    struct err e = ERR_INIT;
    struct breaker breaker;
    (void)state;
    if (!fx.prepared)
        skip(); /* without settings of the session only the deadline ends the wait */
    PGconn *holder = PQconnectdb(fx.stores.url);
    PQclear(PQexec(holder, "BEGIN; SELECT * FROM k FOR UPDATE"));
    breaker_init(&breaker);
    struct db_options o = stores_options(&fx.stores, true, &LIST, 1);
    o.breaker = &breaker;
    o.timeout_ms = 2400;
    cleanup_db struct db *db = db_new(&o);
    int64_t pid = number(db, &STMTS[PID]);
    fx_fails(db_exec(db, &STMTS[LOCKED], DB_NO_ARGS, NULL, &e), &e, ERR_TIMEOUT, "55P03");
    assert_false(breaker_is_open(&breaker));
    assert_int_equal(number(db, &STMTS[PID]), pid);
    PQfinish(holder);
    breaker_fini(&breaker);
}

struct waiting {
    struct db *db;
    int result;
    struct err e;
    atomic_bool over;
};

static void *wait_for_held(void *ctx)
{
    struct waiting *w = ctx;
    w->result = db_exec(w->db, &STMTS[LOCKED], DB_NO_ARGS, NULL, &w->e);
    atomic_store(&w->over, true);
    return NULL;
}

/* Somebody has the row for longer than a lock is waited for, and lets it go before the deadline. */
static void a_row_that_is_let_go_in_time_is_waited_for(void **state)
{
    stores_want_session(&fx.stores);
    struct waiting w = { .db = fx.db, .e = ERR_INIT };
    pthread_t thread;
    (void)state;
    if (!fx.prepared)
        skip();
    PGconn *holder = PQconnectdb(fx.stores.url);
    PQclear(PQexec(holder, "BEGIN; SELECT * FROM k FOR UPDATE"));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_held, &w), 0);
    const bool again = stores_waits_again(&fx.stores, &w.over);
    PQfinish(holder);
    pthread_join(thread, NULL);
    fx_ok(w.result, &w.e, "the row that was held");
    assert_true(again);
}

/* What was refused for what others did at the moment is no word about the statement. */
static void a_deadlock_is_tried_again(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    ok(db_exec(fx.db, &STMTS[UNLUCKY], DB_NO_ARGS, NULL, &e));
    assert_int_equal(number(fx.db, &STMTS[COUNTED]), 3);

    fx_sql("SELECT setval('tries', 1, false)");
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    ok(db_begin(fx.db, &t, &e)); /* which would have to run again as a whole */
    fx_fails(db_exec(fx.db, &STMTS[UNLUCKY], DB_NO_ARGS, NULL, &e), &e, ERR_CONFLICT, "40P01");
    db_txn_end(&t);
    assert_int_equal(number(fx.db, &STMTS[COUNTED]), 1);
    fx_fails(db_exec(fx.db, &STMTS[DEADLOCK], DB_NO_ARGS, NULL, &e), &e, ERR_CONFLICT, "40P01");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(a_lost_race_is_run_three_times),
        FX_BOTH(a_held_row_is_a_timeout_but_no_outage),
        FX_BOTH(a_row_that_is_let_go_in_time_is_waited_for),
        FX_BOTH(a_deadlock_is_tried_again),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, setup, fx_teardown);
}
