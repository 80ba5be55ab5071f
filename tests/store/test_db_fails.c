/* SPDX-License-Identifier: Apache-2.0 */

/* What lib/db does when libpq or the server fails in a way that no healthy one does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_internal.h"
#include "db/db_row.h"
#include "tests/fake/libpq_fails.h"
#include "tests/store/stores.h"

enum stmt { PID, LATE, PUT, COPY_IN, COPY_OUT };

static const struct db_stmt STMTS[] = {
    [PID] = { "f_pid", "SELECT pg_backend_pid()", 0 },
    [LATE] = { "f_late", "SELECT count(*) FROM made_later", 0 },
    [PUT] = { "f_put", "INSERT INTO k (n) VALUES ($1)", 1 },
    [COPY_IN] = { "f_copy_in", "COPY k FROM STDIN", 0 },
    [COPY_OUT] = { "f_copy_out", "COPY k TO STDOUT", 0 },
};
static const struct db_stmts LIST = { STMTS, sizeof STMTS / sizeof STMTS[0] };

static struct stores stores;

static int setup(void **state)
{
    (void)state;
    stores_init(&stores, false);
    stores_sql(&stores, "CREATE TABLE k (n int)");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stores_fini(&stores);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    stores_sql(&stores, "TRUNCATE k; DROP TABLE IF EXISTS made_later");
    return libpq_failed() ? 0 : -1;
}

static struct db *new_db(bool prepared)
{
    struct db_options o = stores_options(&stores, prepared, &LIST, 1);
    return db_new(&o);
}

static int64_t number(struct db *db, const struct db_stmt *s, struct err *e)
{
    int64_t n = -1;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_one(db, s, DB_NO_ARGS, &rows, e) < 0 || db_int8(&rows, 0, 0, &n, e) < 0)
        return -1;
    return n;
}

static void assert_number(struct db *db, const struct db_stmt *s)
{
    struct err e = ERR_INIT;
    if (number(db, s, &e) < 0)
        fail_msg("%s: %s", s->name, e.msg);
}

static int put(struct db *db, struct err *e)
{
    return db_exec(db, &STMTS[PUT], DB_ARGS(DB_INT8(1)), NULL, e);
}

static void assert_rows(const char *expected)
{
    cleanup_free char *n = stores_value(&stores, "SELECT count(*) FROM k");
    assert_string_equal(n, expected);
}

/* The call failed as one does whose connection broke: nobody takes it for the caller's fault. */
static void assert_lost(struct db *db, int result, const struct err *e, const char *when)
{
    if (result != -1 || e->code != ERR_UNAVAILABLE || db_connected(db))
        fail_msg("%s: %d, %s: %s", when, result, err_name(e->code), e->msg);
    if (!libpq_failed())
        fail_msg("%s: was never called", when);
}

static void whatever_fails_while_connecting_costs_that_connection_only(void **state)
{
    stores_want_session(&stores);
    static const struct {
        const char *what;
        enum libpq_call call;
    } ROWS[] = {
        { "PQconnectPoll", LIBPQ_CONNECT_POLL },
        { "PQsetnonblocking", LIBPQ_SET_NONBLOCKING },
        { "PQenterPipelineMode", LIBPQ_ENTER_PIPELINE },
        { "PQsendPrepare", LIBPQ_SEND_PREPARE },
        { "PQpipelineSync", LIBPQ_PIPELINE_SYNC },
        { "PQflush", LIBPQ_FLUSH },
        { "PQconsumeInput", LIBPQ_CONSUME_INPUT },
        { "PQexitPipelineMode", LIBPQ_EXIT_PIPELINE },
    };

    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct err e = ERR_INIT;
        cleanup_db struct db *db = new_db(true);
        libpq_fails(ROWS[i].call, 0);
        assert_lost(db, number(db, &STMTS[PID], &e) < 0 ? -1 : 0, &e, ROWS[i].what);
        assert_number(db, &STMTS[PID]);
    }
}

/* In the pipeline that prepares: without a look at the connection's state the wait would never end. */
static void a_connection_that_ends_while_statements_are_prepared_is_lost(void **state)
{
    stores_want_session(&stores);
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(true);

    (void)state;
    libpq_fails(LIBPQ_GET_RESULT, 0);
    libpq_fails(LIBPQ_STATUS, 1); /* the first look is at the fresh connection */
    assert_lost(db, number(db, &STMTS[PID], &e) < 0 ? -1 : 0, &e, "while preparing");
    assert_number(db, &STMTS[PID]);
}

/* What libpq had handed on before it failed arrives: the caller cannot know, and it is not sent again. */
static void whatever_fails_while_a_write_is_sent_costs_the_connection(void **state)
{
    stores_want_session(&stores);
    static const struct {
        const char *what;
        enum libpq_call call;
        const char *rows;
    } ROWS[] = {
        { "sending", LIBPQ_SEND, "0" },
        { "PQflush", LIBPQ_FLUSH, "1" },
    };

    (void)state;
    for (int prepared = 0; prepared < 2; prepared++) {
        for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
            struct err e = ERR_INIT;
            cleanup_db struct db *db = new_db(prepared == 1);
            assert_number(db, &STMTS[PID]);
            libpq_fails(ROWS[i].call, 0);
            assert_lost(db, put(db, &e), &e, ROWS[i].what);
            assert_number(db, &STMTS[PID]);
            assert_rows(ROWS[i].rows);
            stores_sql(&stores, "TRUNCATE k");
        }
    }
}

/* That nothing was said does not mean that nothing was done: a write is not sent again. */
static void an_answer_that_never_comes_counts_as_a_lost_connection(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(true);

    (void)state;
    assert_number(db, &STMTS[PID]);
    libpq_fails(LIBPQ_GET_RESULT, 0);
    assert_lost(db, put(db, &e), &e, "PQgetResult");
    assert_non_null(strstr(e.msg, "connection lost"));
    assert_rows("1");
}

static void an_error_without_a_sqlstate_counts_as_a_lost_connection(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(false);

    (void)state;
    libpq_fails(LIBPQ_ERROR_FIELD, 0);
    assert_lost(db, number(db, &STMTS[LATE], &e) < 0 ? -1 : 0, &e, "PQresultErrorField");
    assert_number(db, &STMTS[PID]);
}

/* Its table was missing at first: the statement is prepared when it is used the third time. */
static struct db *db_with_late_statement(void)
{
    struct err e = ERR_INIT;
    struct db *db = new_db(true);
    assert_int_equal(number(db, &STMTS[LATE], &e), -1);
    stores_sql(&stores, "CREATE TABLE made_later ()");
    assert_number(db, &STMTS[LATE]);
    return db;
}

static void a_late_prepare_that_fails_is_repeated_for_a_read(void **state)
{
    stores_want_session(&stores);
    (void)state;
    cleanup_db struct db *db = db_with_late_statement();
    libpq_fails(LIBPQ_SEND_PREPARE, 0);
    assert_number(db, &STMTS[LATE]);
    assert_true(libpq_failed());
}

/* db_start() has the same rule as the calls in one piece: a read whose idle connection turns out to be dead. */
static void a_read_in_two_halves_is_repeated_once(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(true);
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    (void)state;
    assert_number(db, &STMTS[PID]);
    libpq_fails(LIBPQ_SEND, 0);
    assert_int_equal(db_start(db, &STMTS[PID], DB_NO_ARGS, &e), 0);
    assert_int_equal(db_finish(db, &rows, &e), 0);
    assert_true(libpq_failed());

    libpq_fails(LIBPQ_SEND, 0);
    assert_lost(db, db_start(db, &STMTS[PUT], DB_ARGS(DB_INT8(1)), &e), &e, "a write in halves");
}

static void copy_which_nobody_here_speaks_does_not_hang(void **state)
{
    (void)state;
    for (enum stmt s = COPY_IN; s <= COPY_OUT; s++) {
        struct err e = ERR_INIT;
        cleanup_db struct db *db = new_db(true);
        assert_int_equal(db_exec(db, &STMTS[s], DB_NO_ARGS, NULL, &e), -1);
        assert_int_equal(e.code, ERR_INTERNAL);
        assert_non_null(strstr(e.msg, "unexpected kind of result"));
        assert_false(db_connected(db));
        assert_number(db, &STMTS[PID]);
    }
}

static void a_script_in_a_lost_transaction_fails(void **state)
{
    struct err e = ERR_INIT;
    cleanup_db struct db *db = new_db(false);
    static const char INSERT[] = "INSERT INTO k VALUES (1); INSERT INTO k VALUES (2)";

    (void)state;
    {
        cleanup_txn struct db_txn t = DB_TXN_INIT;
        assert_int_equal(db_begin(db, &t, &e), 0);
        libpq_fails(LIBPQ_SEND, 0);
        assert_lost(db, db_script(db, "script", INSERT, &e), &e, "PQsendQuery");
        assert_int_equal(db_script(db, "script", INSERT, &e), -1);
        assert_non_null(strstr(e.msg, "within a transaction"));
        assert_int_equal(db_commit(&t, &e), -1);
    }
    assert_rows("0");
}

static void what_the_server_says_of_a_refused_session_is_said(void **state)
{
    struct err e = ERR_INIT;
    char url[1200];

    (void)state;
    (void)str_format(url, sizeof url, "%s user=wb_test_nobody password=hunter2", stores.url);
    struct db_options o = stores_options(&stores, true, &LIST, 1);
    o.url = url;
    cleanup_db struct db *db = db_new(&o);
    assert_int_equal(number(db, &STMTS[PID], &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "wb_test_nobody"));
    assert_null(strstr(e.msg, "hunter2"));
}

static void options_that_do_not_fit_are_refused_and_not_cut(void **state)
{
    stores_want_session(&stores);
    struct err e = ERR_INIT;
    char path[1000];
    char url[2400];

    (void)state;
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    (void)str_format(url, sizeof url, "%s options='-c search_path=%s'", stores.url, path);
    struct db_options o = stores_options(&stores, true, &LIST, 1);
    o.url = url;
    cleanup_db struct db *db = db_new(&o);
    assert_int_equal(number(db, &STMTS[PID], &e), -1);
    assert_non_null(strstr(e.msg, "too long"));
}

#define TEST(test) cmocka_unit_test_teardown(test, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whatever_fails_while_connecting_costs_that_connection_only),
        TEST(a_connection_that_ends_while_statements_are_prepared_is_lost),
        TEST(whatever_fails_while_a_write_is_sent_costs_the_connection),
        TEST(an_answer_that_never_comes_counts_as_a_lost_connection),
        TEST(an_error_without_a_sqlstate_counts_as_a_lost_connection),
        TEST(a_late_prepare_that_fails_is_repeated_for_a_read),
        TEST(a_read_in_two_halves_is_repeated_once),
        TEST(copy_which_nobody_here_speaks_does_not_hang),
        TEST(a_script_in_a_lost_transaction_fails),
        TEST(what_the_server_says_of_a_refused_session_is_said),
        TEST(options_that_do_not_fit_are_refused_and_not_cut),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, setup, teardown);
}
