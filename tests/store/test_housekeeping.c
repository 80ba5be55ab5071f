/* SPDX-License-Identifier: Apache-2.0 */

/* What housekeeping removes and what it leaves: operations contract, sections 2, 5 ("Liveness") and 6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>

#include "store/housekeeping.h"
#include "store/op_overlay.h"
#include "tests/store/gallery_fixture.h"
#include "tests/store/staging_fixture.h"

static const struct housekeeping_options USUAL = { .read_only = false, .keep_days = 30 };

static struct db *new_db(void)
{
    struct db_options o = stores_options(&fx.stores, fx.prepared, &HOUSEKEEPING_STMTS, 1);
    return db_new(&o);
}

static struct housekeeping run_with(struct kv *kv, const struct housekeeping_options *o)
{
    struct err e = ERR_INIT;
    struct housekeeping h;
    cleanup_db struct db *db = new_db();
    ok(housekeeping_run(db, kv, o, &h, &e));
    return h;
}

static struct housekeeping run(void)
{
    return run_with(staging_kv, &USUAL);
}

static int set_up(void **state)
{
    (void)signal(SIGPIPE, SIG_IGN);
    return fx_setup(state) != 0 || staging_open(state) != 0;
}

static int tear_down(void **state)
{
    return staging_close(state) != 0 || fx_teardown(state) != 0;
}

static int connect_prepared(void **state)
{
    return staging_flush(state) != 0 || fx_connect_prepared(state) != 0;
}

static int connect_plain(void **state)
{
    return staging_flush(state) != 0 || fx_connect_plain(state) != 0;
}

#define BOTH(test) \
    cmocka_unit_test_setup_teardown(test, connect_prepared, fx_clear), \
        cmocka_unit_test_setup_teardown(test, connect_plain, fx_clear)

/* A load that its owner claimed so long ago, without a word since. */
static void put_load(
    const char *key, const char *state, const char *age, char token[TOKEN_HEX_SIZE])
{
    fx_claim(key, "alice", token);
    sqlf("UPDATE model_load_jobs SET state = '%s' WHERE tracking_key = '%s'", state, key);
    fx_age(key, age);
}

static void put_plain_load(const char *key, const char *state, const char *age)
{
    sqlf("INSERT INTO model_load_jobs (tracking_key, state, created_at, updated_at, last_progress)"
         " SELECT '%s', '%s', t, t, t FROM (VALUES (now() - interval '%s')) v (t)",
        key, state, age);
}

static void loads_are(const char *expected)
{
    fx_value("SELECT string_agg(tracking_key, ' ' ORDER BY tracking_key) FROM model_load_jobs",
        expected);
}

static void claims_are(const char *expected)
{
    fx_value("SELECT string_agg(tracking_key, ' ' ORDER BY tracking_key) FROM load_job_claims",
        expected);
}

/* --- loads --- */

/* "A failed row older than 15 s counts as gone [...]; housekeeping in the planner daemon deletes it". */
static void failed_loads_go_after_15_seconds(void **state)
{
    char token[TOKEN_HEX_SIZE];
    (void)state;
    put_load("failed-old", "failed", "16 seconds", token);
    put_load("failed-new", "failed", "10 seconds", token);
    put_load("loading", "loading", "16 seconds", token);
    put_plain_load("theirs", "failed", "16 seconds");
    fx_sql("INSERT INTO model_load_jobs (tracking_key, state) VALUES ('unset', 'failed')");
    put_plain_load("ahead", "failed", "-1 hour");
    struct housekeeping h = run();
    assert_int_equal(h.failed_loads, 3);
    assert_int_equal(h.orphaned_loads, 0);
    loads_are("ahead failed-new loading");
    claims_are("failed-new loading");
}

static void report_claim(const char *key, const char *token)
{
    char claim[CLAIM_SHORT_SIZE];
    load_claim_short(token, claim);
    struct report r = report_of(NULL, 1, 1);
    r.claim = claim;
    (void)must_report(key, r);
}

/* "orphaned (liveness over 60 s ago, and no live overlay of its claim)". */
static void orphaned_loads_go(void **state)
{
    char token[TOKEN_HEX_SIZE];
    char other[TOKEN_HEX_SIZE];
    (void)state;
    digest_token(other);
    put_load("heard-of", "staging", "50 seconds", token);
    put_load("silent", "loading", "61 seconds", token);
    put_load("reports", "staging", "1 hour", token);
    report_claim("reports", token);
    put_load("replaced", "staging", "61 seconds", token); /* its overlay is of another claim */
    report_claim("replaced", other);
    put_load("session", "staging", "61 seconds", token); /* ... or of none */
    (void)must_report("session", report_of("s1", 1, 1));
    put_plain_load("theirs", "pending", "61 seconds");
    put_plain_load("theirs-copied", "staging", "61 seconds"); /* somebody reports without a claim */
    (void)must_report("theirs-copied", report_of("s1", 1, 1));
    put_plain_load("odd", "strange", "61 seconds");
    put_plain_load("ahead", "staging", "-1 hour");
    fx_sql("INSERT INTO model_load_jobs (tracking_key, created_at) VALUES ('unset', '0001-01-01')");
    struct housekeeping h = run();
    assert_false(h.redis_silent);
    assert_int_equal(h.failed_loads, 0);
    assert_int_equal(h.orphaned_loads, 6);
    loads_are("ahead heard-of reports theirs-copied");
    claims_are("heard-of reports");
    h = run();
    assert_int_equal(h.orphaned_loads, 0);
}

/* Whether an owner reports is not known then. */
static void without_redis_nobody_is_given_up(void **state)
{
    char token[TOKEN_HEX_SIZE];
    (void)state;
    put_load("silent", "loading", "1 day", token);
    put_load("failed", "failed", "1 day", token);
    put_op("stale", "downloading", "");
    age_op("stale", "1 day");
    put_op("old", "completed", "");
    age_op("old", "31 days");
    redis_server_kill(&staging_server);
    struct housekeeping h = run();
    redis_server_start(&staging_server);
    assert_true(h.redis_silent);
    assert_int_equal(h.orphaned_loads + h.stale_operations, 0);
    assert_int_equal(h.failed_loads, 1);
    assert_int_equal(h.history, 1);
    loads_are("silent");

    h = run_with(NULL, &USUAL); /* where there is no overlay nothing speaks for them */
    assert_false(h.redis_silent);
    assert_int_equal(h.orphaned_loads, 1);
    assert_int_equal(h.stale_operations, 1);
}

static void claims_without_a_load_go(void **state)
{
    char token[TOKEN_HEX_SIZE];
    (void)state;
    fx_claim("alive", "alice", token);
    fx_claim("gone", "alice", token);
    fx_claim("just-gone", "alice", token);
    fx_claim("anew", "alice", token); /* inserted again by a program that knows nothing of claims */
    fx_sql("DELETE FROM model_load_jobs WHERE tracking_key IN ('gone', 'just-gone', 'anew');"
           "UPDATE load_job_claims SET claimed_at = now() - interval '11 minutes'"
           " WHERE tracking_key <> 'just-gone'");
    put_plain_load("anew", "staging", "1 second");
    struct housekeeping h = run();
    assert_int_equal(h.claims, 2);
    claims_are("alive just-gone");
}

/* --- operations --- */

static void ops_are(const char *expected)
{
    fx_value("SELECT string_agg(id || '=' || status, ' ' ORDER BY id) FROM gallery_operations",
        expected);
}

static void report_op(const char *id)
{
    struct err e = ERR_INIT;
    enum report_fate fate;
    const struct gallery_report r = GALLERY_REPORT_INIT;
    cleanup_gallery_rows struct gallery_rows rows = get_op(id);
    const struct op_source from = { .id = id, .row = &rows.row[0].op, .stamp_us = rows.now_us };
    ok(op_overlay_report(staging_kv, &from, &r, &fate, &e));
}

/* An active row that is not updated for 30 minutes is shown to nobody any more: its failure is. */
static void stale_operations_fail_and_say_why(void **state)
{
    (void)state;
    put_op("fresh", "downloading", "");
    age_op("fresh", "29 minutes");
    put_op("pending", "pending", "");
    age_op("pending", "31 minutes");
    put_op("stale", "downloading", "");
    age_op("stale", "3 days");
    put_op("reports", "processing", "");
    age_op("reports", "31 minutes");
    report_op("reports");
    put_op("unset", "downloading", "created_at = NULL, updated_at = '0001-01-01'");
    put_op("done", "completed", "");
    age_op("done", "31 minutes");
    struct housekeeping h = run();
    assert_int_equal(h.stale_operations, 3);
    assert_int_equal(h.history, 0);
    ops_are("done=completed fresh=downloading pending=failed reports=processing stale=failed"
            " unset=failed");
    fx_value("SELECT string_agg(DISTINCT concat_ws('|', error, cancellable,"
             " updated_at > now() - interval '1 minute'), ' ') FROM gallery_operations"
             " WHERE status = 'failed'",
        "given up: nothing was heard of it for 30 minutes|f|t");
    listed("fresh pending stale unset");
}

/* "failed may still be corrected by the true outcome (a reaper may have given up on an operation that later
 * finished); a correction clears error". */
static void what_was_given_up_may_still_end_well(void **state)
{
    struct err e = ERR_INIT;
    enum gallery_outcome outcome;
    struct gallery_report r = GALLERY_REPORT_INIT;
    (void)state;
    put_op("late", "processing", "");
    age_op("late", "40 minutes");
    assert_int_equal(run().stale_operations, 1);
    r.status = "completed";
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_progress(OWN, "late", &r, &rows, &outcome, &e));
    assert_int_equal(outcome, GALLERY_ENDED);
    ops_are("late=completed");
    fx_value("SELECT error FROM gallery_operations", "");
}

static void the_history_is_kept_for_so_many_days(void **state)
{
    static const char *const ENDED[] = { "completed", "failed", "cancelled" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        char id[16];
        (void)str_format(id, sizeof(id), "%d-old", i);
        put_op(id, ENDED[i], "");
        age_op(id, "7 days 1 minute");
        (void)str_format(id, sizeof(id), "%d-new", i);
        put_op(id, ENDED[i], "");
        age_op(id, "6 days 23 hours");
    }
    put_op("odd", "paused", "");
    age_op("odd", "90 days");
    const struct housekeeping_options week = { .keep_days = 7 };
    assert_int_equal(run_with(staging_kv, &week).history, 3);
    ops_are("0-new=completed 1-new=failed 2-new=cancelled odd=paused");
}

static void controls_without_an_operation_go_after_a_day(void **state)
{
    (void)state;
    put_op("there", "failed", "");
    fx_sql("INSERT INTO operation_control (job_id, control, changed_at) VALUES"
           " ('there', '', now() - interval '3 days'),"
           " ('gone', 'cancel', now() - interval '25 hours'),"
           " ('cleared', 'cancel', now() - interval '23 hours')");
    assert_int_equal(run().controls, 1);
    fx_value(
        "SELECT string_agg(job_id, ' ' ORDER BY job_id) FROM operation_control", "cleared there");
}

/* --- beside a LocalAI --- */

/* "nothing ever written to theirs, by any program of ours". */
static void read_only_leaves_their_tables_alone(void **state)
{
    char token[TOKEN_HEX_SIZE];
    const struct housekeeping_options site = { .read_only = true, .keep_days = 30 };
    (void)state;
    put_load("silent", "loading", "1 day", token);
    put_plain_load("failed", "failed", "1 day");
    put_op("stale", "downloading", "");
    age_op("stale", "1 day");
    put_op("old", "completed", "");
    age_op("old", "90 days");
    fx_sql(
        "INSERT INTO operation_control (job_id, changed_at) VALUES"
        " ('gone', now() - interval '2 days');"
        "INSERT INTO load_job_claims (tracking_key, token_sha256, claimed_at, claimed_created_at)"
        " VALUES ('gone', repeat('0', 64), now() - interval '1 day', now())");
    struct housekeeping h = run_with(staging_kv, &site);
    assert_int_equal(h.failed_loads + h.orphaned_loads + h.stale_operations + h.history, 0);
    assert_int_equal(h.claims, 1);
    assert_int_equal(h.controls, 1);
    loads_are("failed silent");
    ops_are("old=completed stale=downloading");
}

static void a_table_that_is_missing_holds_nothing(void **state)
{
    static const char *const TABLE[] = { "model_load_jobs", "gallery_operations" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        put_plain_load("failed", "failed", "1 day");
        put_op("old", "completed", "");
        age_op("old", "90 days");
        sqlf("ALTER TABLE %s RENAME TO elsewhere", TABLE[i]);
        struct housekeeping h = run();
        sqlf("ALTER TABLE elsewhere RENAME TO %s", TABLE[i]);
        assert_int_equal(h.failed_loads, i);
        assert_int_equal(h.history, 1 - i);
        fx_sql("TRUNCATE model_load_jobs, gallery_operations");
    }
}

static void our_own_table_missing_is_an_error(void **state)
{
    struct err e = ERR_INIT;
    struct housekeeping h;
    (void)state;
    cleanup_db struct db *db = new_db();
    fx_sql("ALTER TABLE operation_control RENAME TO elsewhere");
    int rc = housekeeping_run(db, staging_kv, &USUAL, &h, &e);
    fx_sql("ALTER TABLE elsewhere RENAME TO operation_control");
    fx_fails(rc, &e, ERR_UNAVAILABLE, "run weighbridge-migrate");
}

/* --- many --- */

enum { MANY = 1300 };

/* More of each than a batch has; of the silent loads and operations every second one reports. */
static void put_many(void)
{
    sqlf("INSERT INTO model_load_jobs (tracking_key, state, updated_at)"
         " SELECT 'f' || n, 'failed', now() - interval '1 hour' FROM generate_series(1, %d) n;"
         "INSERT INTO model_load_jobs (tracking_key, state, updated_at)"
         " SELECT 'o' || n, 'staging', now() - interval '1 hour' FROM generate_series(1, %d) n;"
         "INSERT INTO gallery_operations (id, status, updated_at)"
         " SELECT 's' || n, 'pending', now() - interval '1 hour' FROM generate_series(1, %d) n;"
         "INSERT INTO gallery_operations (id, status, updated_at)"
         " SELECT 'h' || n, 'completed', now() - interval '90 days' FROM generate_series(1, %d) n",
        MANY, MANY, MANY, MANY);
    for (int n = 2; n <= MANY; n += 2) {
        char name[40];
        (void)str_format(name, sizeof(name), "wb:1:staging:o%d", n);
        (void)RAW(T("SET"), T(name), T("{}"));
        (void)RAW(T("ZADD"), T("wb:1:live"), T("99999999999999"), T(name + strlen("wb:1:")));
        (void)str_format(name, sizeof(name), "wb:1:op:s%d", n);
        (void)RAW(T("SET"), T(name), T("{\"status\":\"pending\"}"));
        (void)RAW(T("ZADD"), T("wb:1:live"), T("99999999999999"), T(name + strlen("wb:1:")));
    }
}

static void many_are_done_in_batches(void **state)
{
    (void)state;
    put_many();
    struct housekeeping h = run();
    assert_int_equal(h.failed_loads, MANY);
    assert_int_equal(h.orphaned_loads, MANY / 2);
    assert_int_equal(h.stale_operations, MANY / 2);
    assert_int_equal(h.history, MANY);
    fx_value("SELECT count(*) FROM model_load_jobs", "650");
    fx_value("SELECT count(*) FROM gallery_operations WHERE status = 'pending'", "650");
}

enum { AT_ONCE = 4 };

static void *run_too(void *arg)
{
    cleanup_kv struct kv *kv = staging_connect();
    *(struct housekeeping *)arg = run_with(kv, &USUAL);
    return NULL;
}

/* Each row is taken by one of them. */
static void several_at_once_share_the_work(void **state)
{
    pthread_t thread[AT_ONCE];
    struct housekeeping h[AT_ONCE];
    struct housekeeping sum = { .claims = 0 };
    (void)state;
    put_many();
    for (int i = 0; i < AT_ONCE; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_too, &h[i]), 0);
    for (int i = 0; i < AT_ONCE; i++) {
        pthread_join(thread[i], NULL);
        sum.failed_loads += h[i].failed_loads;
        sum.orphaned_loads += h[i].orphaned_loads;
        sum.stale_operations += h[i].stale_operations;
        sum.history += h[i].history;
    }
    /* A row that one passes over because another holds it is that one's; nothing is done twice. */
    assert_int_equal(sum.failed_loads, MANY);
    assert_int_equal(sum.orphaned_loads, MANY / 2);
    assert_int_equal(sum.stale_operations, MANY / 2);
    assert_int_equal(sum.history, MANY);
}

/* Nobody waits for anybody. */
static void rows_that_are_held_are_passed_over(void **state)
{
    static const struct db_stmt HOLD = { "t_hold",
        "SELECT tracking_key, id FROM model_load_jobs, gallery_operations"
        " WHERE tracking_key LIKE 'held%' AND id LIKE 'held%' FOR UPDATE",
        0 };
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    (void)state;
    put_load("held-failed", "failed", "1 hour", token);
    put_load("held-orphan", "staging", "1 hour", token);
    put_load("failed", "failed", "1 hour", token);
    put_op("held-stale", "pending", "");
    age_op("held-stale", "1 hour");
    put_op("held-old", "completed", "");
    age_op("held-old", "90 days");
    put_op("old", "completed", "");
    age_op("old", "90 days");
    cleanup_rows struct db_rows held = DB_ROWS_INIT;
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    ok(db_begin(fx.db, &t, &e));
    ok(db_many(fx.db, &HOLD, DB_NO_ARGS, &held, &e));
    assert_int_equal(db_rows_count(&held), 4);
    struct housekeeping h = run(); /* would fail by lock_timeout */
    assert_int_equal(h.failed_loads, 1);
    assert_int_equal(h.orphaned_loads + h.stale_operations, 0);
    assert_int_equal(h.history, 1);
}

static void every_statement_can_be_prepared(void **state)
{
    (void)state;
    fx_prepares(&HOUSEKEEPING_STMTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(failed_loads_go_after_15_seconds),
        BOTH(orphaned_loads_go),
        BOTH(without_redis_nobody_is_given_up),
        BOTH(claims_without_a_load_go),
        BOTH(stale_operations_fail_and_say_why),
        BOTH(what_was_given_up_may_still_end_well),
        BOTH(the_history_is_kept_for_so_many_days),
        BOTH(controls_without_an_operation_go_after_a_day),
        BOTH(read_only_leaves_their_tables_alone),
        BOTH(a_table_that_is_missing_holds_nothing),
        BOTH(our_own_table_missing_is_an_error),
        BOTH(many_are_done_in_batches),
        BOTH(several_at_once_share_the_work),
        BOTH(rows_that_are_held_are_passed_over),
        BOTH(every_statement_can_be_prepared),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
