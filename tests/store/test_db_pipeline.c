/* SPDX-License-Identifier: Apache-2.0 */

/* Several statements under way at once: db_start() and db_finish(). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "db/db_row.h"
#include "tests/store/load_fixture.h"

enum stmt { NUMBERS, LATE, SYNTAX, PID, DIE, WAIT, PREPARED };

static const struct db_stmt STMTS[] = {
    [NUMBERS] = { "t_numbers", "SELECT n FROM generate_series(1, $1::bigint) n", 1 },
    [LATE] = { "t_late", "SELECT count(*) FROM made_later", 0 },
    [SYNTAX] = { "t_syntax", "SELEKT", 0 },
    [PID] = { "t_pid", "SELECT pg_backend_pid()", 0 },
    [DIE] = { "t_die", "SELECT pg_terminate_backend(pg_backend_pid())", 0 },
    [WAIT] = { "t_wait", "SELECT pg_advisory_xact_lock(4711)", 0 },
    [PREPARED] = { "t_prepared",
        "SELECT count(*) FROM pg_prepared_statements WHERE name = 't_late'", 0 },
};
static const struct db_stmts LIST = { STMTS, sizeof(STMTS) / sizeof(STMTS[0]) };

static struct db *db;

static void connect_with(const struct stores *s, bool prepared)
{
    struct db_options o = stores_options(s, prepared, &LIST, 1);
    db = db_new(&o);
}

static int connect_prepared(void **state)
{
    (void)state;
    fx.prepared = true;
    connect_with(&fx.stores, true);
    return 0;
}

static int connect_plain(void **state)
{
    (void)state;
    fx.prepared = false;
    connect_with(&fx.stores, false);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    db_close(db);
    db = NULL;
    fx_sql("DROP TABLE IF EXISTS made_later");
    return 0;
}

static int64_t number(const struct db_stmt *s)
{
    struct err e = ERR_INIT;
    int64_t n = -1;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    ok(db_one(db, s, DB_NO_ARGS, &rows, &e));
    ok(db_int8(&rows, 0, 0, &n, &e));
    return n;
}

static void start(enum stmt which)
{
    struct err e = ERR_INIT;
    ok(db_start(db, &STMTS[which], DB_NO_ARGS, &e));
}

static void start_numbers(int64_t n)
{
    struct err e = ERR_INIT;
    ok(db_start(db, &STMTS[NUMBERS], DB_ARGS(DB_INT8(n)), &e));
}

static void finishes(int rows_due)
{
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    ok(db_finish(db, &rows, &e));
    assert_int_equal(db_rows_count(&rows), rows_due);
}

static void fails(enum err_code code, const char *part)
{
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    fx_fails(db_finish(db, &rows, &e), &e, code, part);
    assert_null(rows.res);
}

static void each_has_its_own_answer_and_fails_on_its_own(void **state)
{
    (void)state;
    int64_t pid = number(&STMTS[PID]);
    start_numbers(2);
    start(LATE);
    start(SYNTAX);
    start_numbers(3);
    finishes(2);
    fails(ERR_UNAVAILABLE, "made_later");
    assert_true(db_missing_table(db, "made_later"));
    fails(ERR_INTERNAL, "t_syntax");
    finishes(3);
    assert_int_equal(number(&STMTS[PID]), pid);
}

/* Else they would be one round trip each: here the first answers only after all have been sent. */
static void none_waits_for_the_answer_of_another(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    struct db_options o = stores_options(&fx.stores, false, &LIST, 1);
    cleanup_db struct db *holder = db_new(&o);
    cleanup_rows struct db_rows held = DB_ROWS_INIT;
    {
        cleanup_txn struct db_txn t = DB_TXN_INIT;
        ok(db_begin(holder, &t, &e));
        ok(db_one(holder, &STMTS[WAIT], DB_NO_ARGS, &held, &e));
        start(WAIT);
        start_numbers(3);
    }
    finishes(1);
    finishes(3);
}

/* As where the statement failed to be prepared when the connection was made, its table missing. */
static void what_can_be_prepared_by_now_is_prepared_on_the_way(void **state)
{
    stores_want_session(&fx.stores);
    (void)state;
    int64_t pid = number(&STMTS[PID]);
    fx_sql("CREATE TABLE made_later ()");
    for (int round = 0; round < 3; round++) {
        start(LATE);
        start(LATE);
        finishes(1);
        finishes(1);
    }
    assert_int_equal(number(&STMTS[PREPARED]), fx.prepared ? 1 : 0);
    assert_int_equal(number(&STMTS[LATE]), 0);
    assert_int_equal(number(&STMTS[PID]), pid);

    fx_sql("DROP TABLE made_later");
    start(LATE);
    start_numbers(1);
    fails(ERR_UNAVAILABLE, "made_later");
    finishes(1);
}

static void a_connection_lost_under_way_fails_all_that_were_started(void **state)
{
    stores_want_session(&fx.stores);
    struct err e = ERR_INIT;
    (void)state;
    int64_t pid = number(&STMTS[PID]);
    start(DIE);
    start_numbers(1);
    fails(ERR_UNAVAILABLE, "");
    fails(ERR_UNAVAILABLE, "");
    assert_false(db_connected(db));
    start_numbers(2); /* and the next call connects anew */
    finishes(2);
    assert_int_not_equal(number(&STMTS[PID]), pid);

    start(DIE);
    fails(ERR_UNAVAILABLE, "");
    fx_fails(db_many(db, &STMTS[SYNTAX], DB_NO_ARGS, &(struct db_rows)DB_ROWS_INIT, &e), &e,
        ERR_INTERNAL, "t_syntax");
}

/* A caller that asks another store meanwhile gives what is left of its time. */
static void the_deadline_may_be_set_anew_before_the_answer(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    struct db_options o = stores_options(&fx.stores, false, &LIST, 1);
    cleanup_db struct db *holder = db_new(&o);
    cleanup_rows struct db_rows held = DB_ROWS_INIT;
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    ok(db_begin(holder, &t, &e));
    ok(db_one(holder, &STMTS[WAIT], DB_NO_ARGS, &held, &e));

    db_set_deadline(db, clock_deadline(600000));
    start(WAIT);
    start_numbers(1);
    db_set_deadline(db, clock_deadline(1));
    fails(ERR_TIMEOUT, "in time"); /* where else the lock is given up, with other words */
    fails(ERR_UNAVAILABLE, "");
}

#define BOTH(test) \
    cmocka_unit_test_setup_teardown(test, connect_prepared, leave), \
        cmocka_unit_test_setup_teardown(test, connect_plain, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(each_has_its_own_answer_and_fails_on_its_own),
        BOTH(none_waits_for_the_answer_of_another),
        BOTH(what_can_be_prepared_by_now_is_prepared_on_the_way),
        BOTH(a_connection_lost_under_way_fails_all_that_were_started),
        BOTH(the_deadline_may_be_set_anew_before_the_answer),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
