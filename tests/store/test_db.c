/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "db/db.h"
#include "db/db_row.h"
#include "store/ready.h"
#include "tests/store/stores.h"

enum stmt {
    ECHO,
    NUMBERS,
    PUT,
    PID,
    SHOW,
    LATE,
    SLOW,
    COUNT_AND_DIE,
    COUNT_AND_DIE_TOO,
    COUNTED,
    FORGET,
    VALUES_OF_K,
    SYNTAX,
};

static const struct db_stmt STMTS[] = {
    [ECHO] = { "t_echo", "SELECT $1::text, $2::bigint, $3::bool, $4::float8, NULL::bigint", 4 },
    [NUMBERS] = { "t_numbers", "SELECT n FROM generate_series(1, $1::bigint) n", 1 },
    [PUT] = { "t_put", "INSERT INTO k (name, n) VALUES ($1, $2)", 2 },
    [PID] = { "t_pid", "SELECT pg_backend_pid()", 0 },
    [SHOW] = { "t_show", "SELECT current_setting($1)", 1 },
    [LATE] = { "t_late", "SELECT count(*) FROM made_later", 0 },
    [SLOW] = { "t_slow", "SELECT pg_sleep(60)", 0 },
    [COUNT_AND_DIE] = { "t_die", "SELECT nextval('tries'), pg_terminate_backend(pg_backend_pid())",
        0 },
    [COUNT_AND_DIE_TOO] = { "t_die_too",
        "WITH w AS (SELECT nextval('tries'), pg_terminate_backend(pg_backend_pid()))"
        " SELECT * FROM w",
        0 },
    [COUNTED] = { "t_counted", "SELECT last_value FROM tries WHERE is_called", 0 },
    [FORGET] = { "t_forget", "DEALLOCATE ALL", 0 },
    [VALUES_OF_K] = { "t_values", "SELECT n FROM k ORDER BY name", 0 },
    [SYNTAX] = { "t_syntax", "SELEKT", 0 },
};
static const struct db_stmts LIST = { STMTS, sizeof STMTS / sizeof STMTS[0] };

static struct stores stores;
static bool prepared;
static struct db *db;

static int setup(void **state)
{
    (void)state;
    stores_init(&stores, false);
    stores_sql(&stores, "CREATE TABLE k (name varchar(8) PRIMARY KEY, n int CHECK (n < 100));"
                        "CREATE SEQUENCE tries");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stores_fini(&stores);
    return 0;
}

static struct db_options options(void)
{
    return stores_options(&stores, prepared, &LIST, 1);
}

static int connect_on(void **state)
{
    (void)state;
    prepared = true;
    struct db_options o = options();
    db = db_new(&o);
    return 0;
}

static int connect_off(void **state)
{
    (void)state;
    prepared = false;
    struct db_options o = options();
    db = db_new(&o);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    db_close(db);
    db = NULL;
    stores_sql(
        &stores, "TRUNCATE k; ALTER SEQUENCE tries RESTART; DROP TABLE IF EXISTS made_later");
    return 0;
}

#define ok(call) assert_ok_((call), &e, #call)
static void assert_ok_(int result, const struct err *e, const char *what)
{
    if (result < 0)
        fail_msg("%s: %s: %s", what, err_name(e->code), e->msg);
    assert_int_equal(result, 0);
}

static void assert_fails(int result, const struct err *e, enum err_code code, const char *part)
{
    assert_int_equal(result, -1);
    if (e->code != code || strstr(e->msg, part) == NULL)
        fail_msg("%s: %s, where %s with \"%s\" was due", err_name(e->code), e->msg, err_name(code),
            part);
}

static int64_t number(struct db *from, const struct db_stmt *s)
{
    struct err e = ERR_INIT;
    int64_t n = -1;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    ok(db_one(from, s, DB_NO_ARGS, &rows, &e));
    ok(db_int8(&rows, 0, 0, &n, &e));
    return n;
}

static void assert_setting(const char *name, const char *expected)
{
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    ok(db_one(db, &STMTS[SHOW], DB_ARGS(DB_TEXT(name)), &rows, &e));
    assert_string_equal(db_text(&rows, 0, 0), expected);
}

/* Ends the session of db as an admin would, and waits until it is gone. */
static void terminate(int64_t pid)
{
    char sql[100];
    (void)str_format(sql, sizeof sql, "SELECT pg_terminate_backend(%lld, 20000)", (long long)pid);
    cleanup_free char *done = stores_value(&stores, sql);
    assert_string_equal(done, "t");
}

static void the_verb_says_how_many_rows(void **state)
{
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const struct db_stmt *s = &STMTS[NUMBERS];

    (void)state;
    assert_fails(db_one(db, s, DB_ARGS(DB_INT8(0)), &rows, &e), &e, ERR_NOT_FOUND, "t_numbers");
    assert_fails(db_one(db, s, DB_ARGS(DB_INT8(2)), &rows, &e), &e, ERR_INTERNAL, "more than one");
    assert_int_equal(db_opt(db, s, DB_ARGS(DB_INT8(0)), &rows, &e), 1);
    assert_fails(db_opt(db, s, DB_ARGS(DB_INT8(2)), &rows, &e), &e, ERR_INTERNAL, "more than one");
    assert_null(rows.res);
    assert_int_equal(db_rows_count(&rows), 0);
    ok(db_many(db, s, DB_ARGS(DB_INT8(30000)), &rows, &e));
    assert_int_equal(db_rows_count(&rows), 30000);
    db_rows_free(&rows);
    ok(db_one(db, s, DB_ARGS(DB_INT8(1)), &rows, &e));

    int64_t n = -1;
    ok(db_exec(db, &STMTS[PUT], DB_ARGS(DB_TEXT("a"), DB_INT8(1)), &n, &e));
    assert_int_equal(n, 1);
    ok(db_exec(db, s, DB_ARGS(DB_INT8(1)), NULL, &e));
}

static void arguments_arrive_as_they_were_given(void **state)
{
    struct err e = ERR_INIT;
    int64_t n = 0;
    double f = 0;
    bool b = false;
    enum { LONG_TEXT = 4 << 20 };
    cleanup_free char *text = mem_alloc(LONG_TEXT + 1);

    (void)state;
    memset(text, 'x', LONG_TEXT); /* more than a socket takes at once */
    text[LONG_TEXT] = '\0';
    const char *const texts[] = { "", "\xe2\x82\xac'; DROP TABLE k; --", text };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cleanup_rows struct db_rows rows = DB_ROWS_INIT;
        ok(db_one(db, &STMTS[ECHO],
            DB_ARGS(DB_TEXT(texts[i]), DB_INT8(INT64_MIN), DB_BOOL(true), DB_FLOAT8(0.1)), &rows,
            &e));
        assert_string_equal(db_text(&rows, 0, 0), texts[i]);
        ok(db_int8(&rows, 0, 1, &n, &e));
        assert_true(n == INT64_MIN);
        ok(db_bool(&rows, 0, 2, &b, &e));
        assert_true(b);
        ok(db_float8(&rows, 0, 3, &f, &e));
        assert_true(f == 0.1);
    }
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    assert_fails(
        db_many(db, &STMTS[ECHO], DB_ARGS(DB_INT8(1)), &rows, &e), &e, ERR_INTERNAL, "t_echo");
}

static void reads_are_strict(void **state)
{
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t n = 7;
    double f = 7;
    bool b = true;

    (void)state;
    ok(db_one(db, &STMTS[ECHO], DB_ARGS(DB_TEXT("12x"), DB_INT8(5), DB_BOOL(false), DB_FLOAT8(1)),
        &rows, &e));
    assert_fails(db_int8(&rows, 0, 0, &n, &e), &e, ERR_INTERNAL, "column 0");
    assert_fails(db_int8(&rows, 0, 4, &n, &e), &e, ERR_INTERNAL, "column 4 holds NULL");
    assert_fails(db_float8(&rows, 0, 0, &f, &e), &e, ERR_INTERNAL, "column 0");
    assert_fails(db_bool(&rows, 0, 1, &b, &e), &e, ERR_INTERNAL, "column 1");
    assert_int_equal(n, 7);
    assert_true(f == 7);
    assert_true(b);
    assert_true(db_is_null(&rows, 0, 4));
    assert_string_equal(db_text(&rows, 0, 4), "");
}

static void a_refused_statement_has_its_code_and_costs_no_connection(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    ok(db_exec(db, &STMTS[PUT], DB_ARGS(DB_TEXT("a"), DB_INT8(1)), NULL, &e));
    int64_t pid = number(db, &STMTS[PID]);
    assert_fails(db_exec(db, &STMTS[PUT], DB_ARGS(DB_TEXT("a"), DB_INT8(1)), NULL, &e), &e,
        ERR_CONFLICT, "23505");
    assert_fails(db_exec(db, &STMTS[PUT], DB_ARGS(DB_TEXT("b"), DB_INT8(100)), NULL, &e), &e,
        ERR_INVALID, "23514");
    assert_fails(db_exec(db, &STMTS[PUT], DB_ARGS(DB_TEXT("much too long"), DB_INT8(1)), NULL, &e),
        &e, ERR_INVALID, "22001");
    assert_fails(db_exec(db, &STMTS[PUT], DB_ARGS(DB_TEXT("\xff"), DB_INT8(1)), NULL, &e), &e,
        ERR_INVALID, "22021");
    assert_fails(db_exec(db, &STMTS[SYNTAX], DB_NO_ARGS, NULL, &e), &e, ERR_INTERNAL, "t_syntax");
    assert_int_equal(number(db, &STMTS[PID]), pid);
}

static void the_session_is_set_up_in_one_place(void **state)
{
    stores_want_session(&stores);
    char url[1200];

    (void)state;
    (void)str_format(url, sizeof url,
        "%s application_name=theirs client_encoding=LATIN1 options='-c work_mem=123kB -c "
        "lock_timeout=7s'",
        stores.url);
    db_close(db);
    struct db_options o = options();
    o.url = url;
    db = db_new(&o);
    assert_setting("application_name", "weighbridge-test");
    assert_setting("client_encoding", "UTF8");
    assert_setting("work_mem", "123kB");
    assert_setting("lock_timeout", "7s"); /* theirs wins */
    if (prepared) {
        assert_setting("statement_timeout", "5s");
        assert_setting("TimeZone", "UTC");
        assert_setting("idle_in_transaction_session_timeout", "6s");
    } else {
        assert_setting("statement_timeout", "0"); /* a pooler would refuse to set it */
    }
    cleanup_free char *named = stores_value(&stores,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weighbridge-test'");
    assert_string_equal(named, "1");
}

static void a_session_ended_meanwhile_costs_neither_a_read_nor_a_write(void **state)
{
    struct err e = ERR_INIT;
    struct db_txn t = DB_TXN_INIT;

    (void)state;
    terminate(number(db, &STMTS[PID]));
    terminate(number(db, &STMTS[PID]));
    ok(db_exec(db, &STMTS[PUT], DB_ARGS(DB_TEXT("a"), DB_INT8(1)), NULL, &e));
    terminate(number(db, &STMTS[PID]));
    ok(db_begin(db, &t, &e));
    ok(db_commit(&t, &e));
    terminate(number(db, &STMTS[PID]));
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    ok(db_start(db, &STMTS[PID], DB_NO_ARGS, &e));
    ok(db_finish(db, &rows, &e));
}

/* The session dies of the statement itself, which counts how often it ran. */
static void only_a_read_on_an_idle_connection_is_repeated_and_once(void **state)
{
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    (void)state;
    (void)number(db, &STMTS[PID]);
    assert_fails(db_one(db, &STMTS[COUNT_AND_DIE], DB_NO_ARGS, &rows, &e), &e, ERR_UNAVAILABLE, "");
    assert_int_equal(number(db, &STMTS[COUNTED]), 2);
    db_close(db);
    struct db_options o = options();
    db = db_new(&o); /* a fresh connection: what dies of it now is no accident */
    assert_fails(db_one(db, &STMTS[COUNT_AND_DIE], DB_NO_ARGS, &rows, &e), &e, ERR_UNAVAILABLE, "");
    assert_int_equal(number(db, &STMTS[COUNTED]), 3);
    assert_fails(db_exec(db, &STMTS[COUNT_AND_DIE], DB_NO_ARGS, NULL, &e), &e, ERR_UNAVAILABLE, "");
    assert_int_equal(number(db, &STMTS[COUNTED]), 4);
    assert_fails(
        db_one(db, &STMTS[COUNT_AND_DIE_TOO], DB_NO_ARGS, &rows, &e), &e, ERR_UNAVAILABLE, "");
    assert_int_equal(number(db, &STMTS[COUNTED]), 5);
}

static void assert_k(const char *expected)
{
    cleanup_free char *names = stores_value(&stores, "SELECT string_agg(name, ',') FROM k");
    assert_string_equal(names, expected);
}

static int put(const char *name, struct err *e)
{
    return db_exec(db, &STMTS[PUT], DB_ARGS(DB_TEXT(name), DB_INT8(1)), NULL, e);
}

static void a_transaction_that_is_not_committed_is_rolled_back(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    {
        cleanup_txn struct db_txn t = DB_TXN_INIT;
        ok(db_begin(db, &t, &e));
        ok(put("a", &e));
    }
    assert_k("");
    int64_t pid = number(db, &STMTS[PID]);
    {
        cleanup_txn struct db_txn t = DB_TXN_INIT;
        ok(db_begin(db, &t, &e));
        ok(put("a", &e));
        ok(db_commit(&t, &e));
    }
    assert_k("a");
    {
        cleanup_txn struct db_txn t = DB_TXN_INIT;
        ok(db_begin(db, &t, &e));
        assert_fails(put("a", &e), &e, ERR_CONFLICT, "23505");
        assert_fails(db_commit(&t, &e), &e, ERR_INTERNAL, "rolled back");
    }
    assert_int_equal(number(db, &STMTS[PID]), pid);
}

static void a_transaction_never_goes_on_on_another_connection(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    {
        cleanup_txn struct db_txn t = DB_TXN_INIT;
        ok(db_begin(db, &t, &e));
        ok(put("a", &e));
        terminate(number(db, &STMTS[PID]));
        assert_int_equal(put("b", &e), -1);
        assert_int_equal(e.code, ERR_UNAVAILABLE);
        assert_fails(put("c", &e), &e, ERR_UNAVAILABLE, "within a transaction");
        assert_int_equal(db_commit(&t, &e), -1);
        assert_int_equal(e.code, ERR_UNAVAILABLE);
    }
    assert_k("");
    ok(put("d", &e));
}

static void a_table_made_later_is_found_and_its_statement_prepared(void **state)
{
    stores_want_session(&stores);
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    (void)state;
    int64_t pid = number(db, &STMTS[PID]);
    assert_false(db_missing_table(db, "made_later"));
    for (int i = 0; i < 2; i++) {
        assert_fails(db_many(db, &STMTS[LATE], DB_NO_ARGS, &rows, &e), &e, ERR_UNAVAILABLE,
            "run weighbridge-migrate");
        assert_true(db_missing_table(db, "made_later"));
        assert_false(db_missing_table(db, "another"));
    }
    stores_sql(&stores, "CREATE TABLE made_later ()");
    for (int i = 0; i < 3; i++)
        assert_int_equal(number(db, &STMTS[LATE]), 0);
    assert_false(db_missing_table(db, "made_later"));
    assert_int_equal(number(db, &STMTS[PID]), pid);

    static const struct db_stmt NAMES = { "t_names",
        "SELECT count(*) FROM pg_prepared_statements WHERE name = 't_late'", 0 };
    assert_int_equal(number(db, &NAMES), prepared ? 1 : 0);

    stores_sql(&stores, "DROP TABLE made_later"); /* and one that goes, like one never made */
    assert_fails(db_many(db, &STMTS[LATE], DB_NO_ARGS, &rows, &e), &e, ERR_UNAVAILABLE,
        "run weighbridge-migrate");
}

/* Report 20: a pooler handed the session on, or an admin altered a column: made anew, nobody notices. */
static void a_session_that_lost_its_statements_is_replaced(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    (void)number(db, &STMTS[PID]);
    ok(db_exec(db, &STMTS[FORGET], DB_NO_ARGS, NULL, &e));
    (void)number(db, &STMTS[PID]);
    ok(put("a", &e));
    assert_int_equal(number(db, &STMTS[VALUES_OF_K]), 1);
    stores_sql(&stores, "ALTER TABLE k ALTER n TYPE bigint");
    assert_int_equal(number(db, &STMTS[VALUES_OF_K]), 1);
    stores_sql(&stores, "ALTER TABLE k ALTER n TYPE int");
}

static void the_two_halves_of_a_query_leave_time_in_between(void **state)
{
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    (void)state;
    ok(db_start(db, &STMTS[NUMBERS], DB_ARGS(DB_INT8(3)), &e));
    ok(db_finish(db, &rows, &e));
    assert_int_equal(db_rows_count(&rows), 3);
    db_rows_free(&rows);
    ok(db_start(db, &STMTS[SYNTAX], DB_NO_ARGS, &e));
    assert_fails(db_finish(db, &rows, &e), &e, ERR_INTERNAL, "t_syntax");
    ok(db_start(db, &STMTS[LATE], DB_NO_ARGS, &e));
    assert_fails(db_finish(db, &rows, &e), &e, ERR_UNAVAILABLE, "made_later");
    assert_true(db_missing_table(db, "made_later"));
}

static void a_deadline_holds_and_a_passed_one_costs_no_connection(void **state)
{
    stores_want_session(&stores);
    struct err e = ERR_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    (void)state;
    int64_t pid = number(db, &STMTS[PID]);
    db_set_deadline(db, clock_mono_ns() - 1);
    assert_fails(db_many(db, &STMTS[PID], DB_NO_ARGS, &rows, &e), &e, ERR_TIMEOUT, "no time");
    db_set_deadline(db, 0);
    assert_int_equal(number(db, &STMTS[PID]), pid);

    db_set_deadline(db, clock_deadline(50));
    assert_fails(db_many(db, &STMTS[SLOW], DB_NO_ARGS, &rows, &e), &e, ERR_TIMEOUT, "in time");
    assert_false(db_connected(db));
    db_set_deadline(db, 0);
    assert_int_not_equal(number(db, &STMTS[PID]), pid);
}

static void readiness_is_an_answer_with_the_clock(void **state)
{
    struct err e = ERR_INIT;
    int64_t offset = 0;

    (void)state;
    ok(ready_postgres(db, &e));
    assert_true(db_clock_offset_us(&offset));
}

static void a_url_never_shows_in_an_error(void **state)
{
    static const char *const URLS[] = {
        "host=/nowhere password=hunter2 nonsense",
        "host=/nowhere hunter2 dbname=x",
        "host=/nowhere password=hunter2",
        "postgresql://u:hunter2@[/db",
        "postgresql://u:hunter2@%2Fnowhere/db",
    };
    struct err e = ERR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof URLS / sizeof URLS[0]; i++) {
        struct db_options o = options();
        o.url = URLS[i];
        cleanup_db struct db *bad = db_new(&o);
        assert_fails(ready_postgres(bad, &e), &e, ERR_UNAVAILABLE, "postgres");
        assert_null(strstr(e.msg, "hunter2"));
    }
}

static void a_database_that_is_not_utf8_is_refused(void **state)
{
    struct err e = ERR_INIT;
    char url[1200];
    char sql[200];

    (void)state;
    (void)str_format(sql, sizeof sql,
        "CREATE DATABASE %s_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0", stores.name);
    stores_sql(&stores, sql);
    (void)str_format(url, sizeof url, "%s dbname=%s_ascii", stores.url, stores.name);
    struct db_options o = options();
    o.url = url;
    {
        cleanup_db struct db *bad = db_new(&o);
        assert_fails(ready_postgres(bad, &e), &e, ERR_UNAVAILABLE, "SQL_ASCII");
    }
    (void)str_format(sql, sizeof sql, "DROP DATABASE %s_ascii WITH (FORCE)", stores.name);
    stores_sql(&stores, sql);
}

#define BOTH(test) \
    cmocka_unit_test_setup_teardown(test, connect_on, clear), \
        cmocka_unit_test_setup_teardown(test, connect_off, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(the_verb_says_how_many_rows),
        BOTH(arguments_arrive_as_they_were_given),
        BOTH(reads_are_strict),
        BOTH(a_refused_statement_has_its_code_and_costs_no_connection),
        BOTH(the_session_is_set_up_in_one_place),
        BOTH(a_session_ended_meanwhile_costs_neither_a_read_nor_a_write),
        BOTH(only_a_read_on_an_idle_connection_is_repeated_and_once),
        BOTH(a_transaction_that_is_not_committed_is_rolled_back),
        BOTH(a_transaction_never_goes_on_on_another_connection),
        BOTH(a_table_made_later_is_found_and_its_statement_prepared),
        BOTH(a_session_that_lost_its_statements_is_replaced),
        BOTH(the_two_halves_of_a_query_leave_time_in_between),
        BOTH(a_deadline_holds_and_a_passed_one_costs_no_connection),
        BOTH(readiness_is_an_answer_with_the_clock),
        BOTH(a_url_never_shows_in_an_error),
        BOTH(a_database_that_is_not_utf8_is_refused),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, setup, teardown);
}
