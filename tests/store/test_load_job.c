/* SPDX-License-Identifier: Apache-2.0 */

/* Reports of a load's owner, and how rows read: operations contract, sections 2 and 5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/load_job.h"
#include "tests/store/load_fixture.h"

static const struct load_claimant ALICE = { .owner = "alice", .overlay_claim = "" };
static const struct load_claimant BOB = { .owner = "bob", .overlay_claim = "" };

static void missing_and_empty_fields_leave_stored_ones_alone(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    struct load_update first = { .state = "staging",
        .node_id = "n1",
        .node_name = "node-1",
        .replica_index = 2,
        .bytes_sent = 10,
        .total_bytes = 100,
        .file_index = 1,
        .total_files = 3 };
    ok(load_update(fx.db, LOAD_OWNED("m", token), &first, &out, &changed, &e));
    assert_true(changed);
    load_rows_free(&out);
    fx_age("m", "2 seconds");
    u.state = "";
    u.node_id = "";
    u.node_name = "";
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    assert_false(changed);
    const struct load_row *r = &out.row[0];
    assert_int_equal(r->state, LOAD_STAGING);
    assert_string_equal(r->node_id, "n1");
    assert_string_equal(r->node_name, "node-1");
    assert_int_equal(r->replica_index, 2);
    assert_int_equal(r->bytes_sent, 10);
    assert_int_equal(r->total_bytes, 100);
    assert_int_equal(r->file_index, 1);
    assert_int_equal(r->total_files, 3);
    fx_value("SELECT concat_ws('|', state, node_id, node_name, replica_index, bytes_sent,"
             " total_bytes, file_index, total_files) FROM model_load_jobs",
        "staging|n1|node-1|2|10|100|1|3");
}

/* Updates so many milliseconds after the last write. In a transaction now() stands still, so that no
 * slowness of this machine makes the write due. */
static void update_at_once_after(int64_t ms, const char *token, const struct load_update *u,
    struct load_rows *out, bool *changed)
{
    static const struct db_stmt WROTE = { "t_wrote",
        "UPDATE model_load_jobs SET last_progress = now() - $1::bigint * interval '1 ms'", 1 };
    struct err e = ERR_INIT;
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    ok(db_begin(fx.db, &t, &e));
    ok(db_exec(fx.db, &WROTE, DB_ARGS(DB_INT8(ms)), NULL, &e));
    ok(load_update(fx.db, LOAD_OWNED("m", token), u, out, changed, &e));
    ok(db_commit(&t, &e));
}

static void bytes_are_written_once_a_second_but_always_answered(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    u.state = "staging";
    u.total_bytes = 100;
    u.bytes_sent = 1;
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    assert_false(out.held_back);
    u.bytes_sent = 50;
    load_rows_free(&out);
    update_at_once_after(0, token, &u, &out, &changed);
    assert_false(changed);
    assert_true(out.held_back);
    assert_int_equal(out.row[0].bytes_sent, 50);
    fx_value("SELECT bytes_sent FROM model_load_jobs", "1");
    u.at_once = true; /* nobody else keeps it */
    u.bytes_sent = 51;
    load_rows_free(&out);
    update_at_once_after(0, token, &u, &out, &changed);
    assert_false(out.held_back);
    fx_value("SELECT bytes_sent FROM model_load_jobs", "51");
    u.at_once = false;
    u.bytes_sent = 50;
    u.node_id = "n2"; /* where the load is is never held back */
    load_rows_free(&out);
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    fx_value("SELECT bytes_sent || node_id FROM model_load_jobs", "50n2");

    u.bytes_sent = 60;
    fx_age("m", "2 seconds");
    load_rows_free(&out);
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    assert_false(changed);
    fx_value("SELECT bytes_sent FROM model_load_jobs", "60");
}

/* In a transaction now() stands still, so that the second has a sharp edge. */
static void a_second_is_a_second(void **state)
{
    static const struct {
        int64_t ms;
        const char *total;
    } CASES[] = { { 1000, "0" }, { 1001, "11" }, { -1000, "11" }, { -1001, "13" } };
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    /* A stamp that is further ahead is another machine's clock: it must not hold back what comes. */
    for (int i = 0; i < 4; i++) {
        cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
        u.total_bytes = 10 + i;
        update_at_once_after(CASES[i].ms, token, &u, &out, &changed);
        fx_value("SELECT total_bytes FROM model_load_jobs", CASES[i].total);
    }
}

static void first_bytes_and_a_new_state_are_written_at_once(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    u.state = "staging";
    u.bytes_sent = 0;
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    assert_true(changed);
    assert_int_equal(out.row[0].started_us, 0);
    fx_sql("UPDATE model_load_jobs SET last_progress = now() + interval '1 second'");
    u.bytes_sent = 7;
    load_rows_free(&out);
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    assert_true(changed);
    int64_t started = out.row[0].started_us;
    assert_true(started > 0);
    fx_value("SELECT bytes_sent FROM model_load_jobs WHERE started_at IS NOT NULL", "7");

    fx_sql("UPDATE model_load_jobs SET last_progress = now() + interval '1 second'");
    u.state = "loading";
    u.bytes_sent = 8;
    load_rows_free(&out);
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    assert_true(changed);
    assert_int_equal(out.row[0].started_us, started); /* set once */
    fx_value("SELECT state || bytes_sent FROM model_load_jobs", "loading8");
}

/* A stall is measured from when bytes moved: neither a heartbeat nor a repeated value counts. */
static void heartbeats_do_not_count_as_bytes(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    u.state = "staging";
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    assert_true(out.row[0].bytes_moved_us > 0); /* from the start of staging on */
    fx_sql("UPDATE load_job_claims SET bytes_moved_at = '2020-01-01Z'");
    fx_age("m", "2 seconds");
    load_rows_free(&out);
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    fx_value("SELECT bytes_moved_at = '2020-01-01Z' FROM load_job_claims", "t");
    assert_int_equal(out.row[0].bytes_moved_us, INT64_C(1577836800000000));
    assert_true(load_is_stalled(&out.row[0], out.now_us));

    u.bytes_sent = 1;
    load_rows_free(&out);
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    fx_value("SELECT bytes_moved_at > '2020-01-02Z' FROM load_job_claims", "t");
    assert_false(load_is_stalled(&out.row[0], out.now_us));
}

static void a_failed_load_is_seen_for_15_s_and_then_gone(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char second[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    cleanup_load_rows struct load_rows all = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    ok(load_fail(fx.db, LOAD_OWNED("m", token), "out of disk", &e));
    ok(load_fail(fx.db, LOAD_OWNED("m", token), "said again", &e));
    fx_fails(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e), &e, ERR_CONFLICT,
        "failed");
    ok(load_get(fx.db, "m", &out, &e));
    assert_int_equal(out.row[0].state, LOAD_FAILED);
    assert_string_equal(out.row[0].last_error, "out of disk");
    load_rows_free(&out);
    assert_int_equal(load_claim(fx.db, "m", &BOB, &out, second, &e), 1);

    fx_age("m", "16 seconds");
    load_rows_free(&out);
    fx_fails(load_get(fx.db, "m", &out, &e), &e, ERR_NOT_FOUND, "m");
    ok(load_list(fx.db, &out, &e));
    assert_int_equal(out.n, 0);
    ok(load_list_start(fx.db, &e)); /* but it still hides an overlay of its key */
    ok(load_list_finish(fx.db, &all, &e));
    assert_int_equal(all.n, 1);
    load_rows_free(&out);
    ok(load_claim(fx.db, "m", &BOB, &out, second, &e));
    assert_string_equal(out.row[0].last_error, "");
}

static void a_long_reason_is_cut_at_a_whole_character(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char reason[3 * 5000 + 1] = "";

    (void)state;
    for (size_t i = 0; i < sizeof reason - 1; i += 3)
        memcpy(reason + i, "\xe2\x82\xac", 3);
    fx_claim("m", "alice", token);
    ok(load_fail(fx.db, LOAD_OWNED("m", token), reason, &e));
    fx_value("SELECT length(last_error) FROM model_load_jobs", "4000");
    /* Nor is more read of what another program wrote. */
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    fx_sql("UPDATE model_load_jobs SET last_error = repeat('x', 3000000)");
    ok(load_get(fx.db, "m", &out, &e));
    assert_int_equal(strlen(out.row[0].last_error), 4000);
}

static void an_end_is_idempotent_and_takes_the_claim_along(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];

    (void)state;
    assert_int_equal(load_done(fx.db, LOAD_OWNED("m", "never claimed"), &e), 1);
    fx_claim("m", "alice", token);
    ok(load_done(fx.db, LOAD_OWNED("m", token), &e));
    fx_value("SELECT count(*) FROM model_load_jobs", "0");
    fx_value("SELECT count(*) FROM load_job_claims", "0");
    assert_int_equal(load_done(fx.db, LOAD_OWNED("m", token), &e), 1);
}

static void only_states_of_an_owner_are_taken(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    u.state = "failed";
    fx_fails(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e), &e, ERR_INVALID,
        "state");
    u.state = "ready";
    fx_fails(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e), &e, ERR_INVALID,
        "state");
}

/* The client compares texts of two polls: C order, whatever the database collates by. */
static void the_list_is_in_byte_order(void **state)
{
    static const char *const KEYS[] = { "B", "a", "a b", "a/b", "a:b", "\xc3\xa4" };
    struct err e = ERR_INIT;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    ok(load_list(fx.db, &out, &e));
    assert_int_equal(out.n, 0);
    assert_true(out.now_us > 0); /* the clock comes without rows too */
    load_rows_free(&out);
    fx_sql("ALTER TABLE model_load_jobs ALTER tracking_key TYPE varchar(255) COLLATE \"en-x-icu\"");
    fx_sql(
        "INSERT INTO model_load_jobs (tracking_key, state, updated_at) SELECT k, 'staging', now()"
        " FROM unnest(ARRAY['\xc3\xa4', 'a:b', 'B', 'a/b', 'a', 'a b']) k");
    ok(load_list(fx.db, &out, &e));
    fx_sql("ALTER TABLE model_load_jobs ALTER tracking_key TYPE varchar(255) COLLATE \"default\"");
    assert_int_equal(out.n, sizeof KEYS / sizeof KEYS[0]);
    for (size_t i = 0; i < out.n; i++)
        assert_string_equal(out.row[i].key, KEYS[i]);
}

/* As LocalAI's programs write rows: Go's zero time, and NULL everywhere else. */
static void go_zero_time_and_null_are_unset(void **state)
{
    struct err e = ERR_INIT;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    fx_sql(
        "INSERT INTO model_load_jobs (tracking_key, state, started_at, last_progress, created_at)"
        " VALUES ('go', 'staging', '0001-01-01 00:00:00Z', '0001-01-01 00:00:00Z',"
        " '2024-05-06 07:08:09.123456Z'), ('null', NULL, NULL, NULL, NULL),"
        " ('odd', 'ready', 'infinity', '-infinity', '290000-01-01Z')");
    ok(load_list(fx.db, &out, &e));
    assert_int_equal(out.n, 3);
    assert_int_equal(out.row[0].started_us, 0);
    assert_int_equal(out.row[0].last_progress_us, 0);
    assert_int_equal(out.row[0].updated_us, 0);
    assert_int_equal(out.row[0].created_us, INT64_C(1714979289123456));
    assert_int_equal(out.row[1].state, LOAD_STATE__COUNT);
    assert_string_equal(out.row[1].node_name, "");
    assert_int_equal(out.row[1].bytes_sent, 0);
    assert_int_equal(load_liveness_us(&out.row[1], out.now_us), 0);
    assert_int_equal(out.row[2].state, LOAD_STATE__COUNT);
    assert_true(out.row[2].started_us > out.now_us);
    assert_int_equal(out.row[2].last_progress_us, 0);
    assert_int_equal(load_liveness_us(&out.row[2], out.now_us), out.now_us);
}

static void the_clock_is_learnt_from_every_answer(void **state)
{
    struct err e = ERR_INIT;
    int64_t offset = 0;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    ok(load_list(fx.db, &out, &e));
    assert_true(db_clock_offset_us(&offset));
    assert_in_range(offset + 60 * US_PER_S, 0, 120 * US_PER_S); /* the same machine */
}

/* Beside a LocalAI that has not made its tables there are no loads, and reads say so. What is read first
 * of all by this program: see below. */
static void tables_that_are_missing_yet_read_as_no_rows(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    (void)state;
    fx_sql("ALTER TABLE model_load_jobs RENAME TO elsewhere");
    for (int prepared = 0; prepared < 2; prepared++) {
        fx.prepared = prepared == 1;
        db_close(fx.db);
        fx.db = fx_new_db();
        ok(load_list(fx.db, &out, &e));
        assert_int_equal(out.n, 0);
        ok(load_list_start(fx.db, &e));
        ok(load_list_finish(fx.db, &out, &e));
        assert_int_equal(out.n, 0);
        fx_fails(load_get(fx.db, "m", &out, &e), &e, ERR_NOT_FOUND, "m");
        fx_fails(load_claim(fx.db, "m", &ALICE, &out, token, &e), &e, ERR_UNAVAILABLE,
            "run weighbridge-migrate");
    }
    fx_sql("ALTER TABLE elsewhere RENAME TO model_load_jobs");
    fx_claim("m", "alice", token); /* on the same connection */
    ok(load_list(fx.db, &out, &e));
    assert_int_equal(out.n, 1);
}

static void must_miss(const char *table)
{
    struct err e = ERR_INIT;
    char sql[100];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    ok(load_list(fx.db, &out, &e));
    load_rows_free(&out);
    (void)str_format(sql, sizeof sql, "ALTER TABLE %s RENAME TO elsewhere", table);
    fx_sql(sql);
    struct err list = ERR_INIT;
    struct err finish = ERR_INIT;
    struct err get = ERR_INIT;
    int listed = load_list(fx.db, &out, &list);
    int finished =
        load_list_start(fx.db, &finish) == 0 ? load_list_finish(fx.db, &out, &finish) : -1;
    int got = load_get(fx.db, "m", &out, &get);
    (void)str_format(sql, sizeof sql, "ALTER TABLE elsewhere RENAME TO %s", table);
    fx_sql(sql);
    fx_fails(listed, &list, ERR_UNAVAILABLE, "run weighbridge-migrate");
    fx_fails(finished, &finish, ERR_UNAVAILABLE, "run weighbridge-migrate");
    fx_fails(got, &get, ERR_UNAVAILABLE, "run weighbridge-migrate");
    ok(load_list(fx.db, &out, &e)); /* and it is back at once */
}

/* An outage, during which the last good rows stay: not the news that no load is running. */
static void a_table_that_was_seen_and_goes_is_an_error(void **state)
{
    (void)state;
    must_miss("model_load_jobs");
    must_miss("load_job_claims"); /* ours: not migrated */
}

/* Sections 2 and 6: an older LocalAI's table has fewer columns, and is read all the same. */
static void what_an_older_table_lacks_reads_as_unset(void **state)
{
    struct err e = ERR_INIT;
    cleanup_load_rows struct load_rows list = LOAD_ROWS_INIT;
    cleanup_load_rows struct load_rows got = LOAD_ROWS_INIT;
    cleanup_load_rows struct load_rows later = LOAD_ROWS_INIT;
    (void)state;
    ok(load_list(fx.db, &list, &e));
    load_rows_free(&list);
    fx_sql("ALTER TABLE model_load_jobs RENAME TO elsewhere;"
           " CREATE TABLE model_load_jobs (tracking_key varchar(255) PRIMARY KEY,"
           "  state varchar(16), updated_at timestamptz);"
           " INSERT INTO model_load_jobs VALUES ('m', 'staging', now())");
    int listed = load_list(fx.db, &list, &e);
    int one = load_get(fx.db, "m", &got, &e);
    fx_sql("ALTER TABLE model_load_jobs ADD node_name varchar(64) DEFAULT 'gpu-1',"
           " ADD bytes_sent int DEFAULT 7");
    int again = load_get(fx.db, "m", &later, &e);
    fx_sql("DROP TABLE model_load_jobs; ALTER TABLE elsewhere RENAME TO model_load_jobs");
    fx_ok(listed + one + again, &e, "reading an older table");
    assert_int_equal(list.n, 1);
    const struct load_row *r = &got.row[0];
    assert_int_equal(r->state, LOAD_STAGING);
    assert_string_equal(r->owner, "");
    assert_string_equal(r->node_name, "");
    assert_string_equal(r->last_error, "");
    assert_string_equal(r->claim, "");
    assert_int_equal(r->bytes_sent + r->total_bytes + r->file_index + r->total_files, 0);
    assert_int_equal(r->started_us + r->last_progress_us + r->created_us, 0);
    assert_true(r->updated_us > 0);
    assert_string_equal(later.row[0].node_name, "gpu-1");
    assert_int_equal(later.row[0].bytes_sent, 7);
}

/* What the prepared statements are checked for when the program starts, asked of all of them here. */
static void every_statement_can_be_prepared(void **state)
{
    (void)state;
    fx_prepares(&LOAD_JOB_STMTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            tables_that_are_missing_yet_read_as_no_rows, fx_connect_prepared, fx_clear),
        FX_BOTH(missing_and_empty_fields_leave_stored_ones_alone),
        FX_BOTH(bytes_are_written_once_a_second_but_always_answered),
        FX_BOTH(a_second_is_a_second),
        FX_BOTH(first_bytes_and_a_new_state_are_written_at_once),
        FX_BOTH(heartbeats_do_not_count_as_bytes),
        FX_BOTH(a_failed_load_is_seen_for_15_s_and_then_gone),
        FX_BOTH(a_long_reason_is_cut_at_a_whole_character),
        FX_BOTH(an_end_is_idempotent_and_takes_the_claim_along),
        FX_BOTH(only_states_of_an_owner_are_taken),
        FX_BOTH(the_list_is_in_byte_order),
        FX_BOTH(go_zero_time_and_null_are_unset),
        FX_BOTH(the_clock_is_learnt_from_every_answer),
        FX_BOTH(a_table_that_was_seen_and_goes_is_an_error),
        FX_BOTH(what_an_older_table_lacks_reads_as_unset),
        FX_BOTH(every_statement_can_be_prepared),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
