/* SPDX-License-Identifier: Apache-2.0 */
/* A batch in the hands of a runner: batch contract, "Running", "Fairness", "Progress". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "model/batch_flow.h"
#include "store/batch_file.h"
#include "store/batch_lease.h"
#include "store/batch_row.h"
#include "tests/store/store_fixture.h"

enum { TTL_MS = 60000 };

static int setup(void **state)
{
    static struct db_stmts all[3];
    (void)state;
    all[0] = BATCH_FILE_STMTS;
    all[1] = BATCH_ROW_STMTS;
    all[2] = BATCH_LEASE_STMTS;
    return fx_begin(all, 3, "TRUNCATE batch, batch_file, batch_segment");
}

static void make(const char *job_id, char id[BATCH_ID_SIZE])
{
    struct err e = ERR_INIT;
    cleanup_batch_rows struct batch_rows made = BATCH_ROWS_INIT;
    const struct batch_new b = { .owner = "alice",
        .job_id = job_id,
        .input_file_id = "file-1",
        .endpoint = "/v1/embeddings",
        .completion_window = "24h",
        .window_s = 86400 };

    fx_sql("INSERT INTO batch_file (id, owner, purpose, filename, bytes) VALUES"
           " ('file-1', 'alice', 'batch', 'a.jsonl', 3) ON CONFLICT DO NOTHING");
    ok(batch_row_create(fx.db, &b, &made, &e));
    assert_int_equal(str_copy(id, BATCH_ID_SIZE, made.row[0].id), 0);
}

static int claim(const char *holder, struct batch_lease *out)
{
    struct err e = ERR_INIT;
    const struct batch_claim c = { holder, TTL_MS, "" };
    const int rc = batch_lease_claim(fx.db, &c, out, &e);
    assert_true(rc >= 0);
    return rc;
}

static void run_out(void)
{
    fx_sql("UPDATE batch SET lease_until = clock_timestamp()");
}

static void one_of_two_has_it_until_its_lease_is_over(void **state)
{
    char id[BATCH_ID_SIZE];
    struct err e = ERR_INIT;
    struct batch_lease a;
    struct batch_lease b;
    (void)state;
    make(NULL, id);
    assert_int_equal(claim("a", &a), 0);
    assert_string_equal(a.id, id);
    assert_int_equal(a.epoch, 1);
    assert_int_equal(claim("b", &b), 1);
    run_out();
    ok(batch_lease_renew(fx.db, &a, &e)); /* nobody came meanwhile */
    assert_int_equal(claim("b", &b), 1);
    run_out();
    assert_int_equal(claim("b", &b), 0);
    assert_int_equal(b.epoch, 2);
    fx_value("SELECT holder FROM batch", "b");
}

static void a_process_does_not_take_over_from_itself(void **state)
{
    char first[BATCH_ID_SIZE];
    char second[BATCH_ID_SIZE];
    struct err e = ERR_INIT;
    struct batch_lease a;
    (void)state;
    make(NULL, first);
    make(NULL, second);
    const struct batch_claim c = { "a", TTL_MS, first };
    ok(batch_lease_claim(fx.db, &c, &a, &e));
    assert_string_equal(a.id, second); /* though the first is older */
}

/* Whatever a holder of an older epoch does changes nothing. */
static void the_epoch_fences(void **state)
{
    const struct batch_segment seg = { 1, 10, 20, 3 };
    const struct batch_counts counts = { .known = true, .completed = 1 };
    const struct batch_usage usage = { .known = true, .total_tokens = 9 };
    const struct batch_result none = { "", 0 };
    const struct batch_result file = { "file-2", 10 };
    char id[BATCH_ID_SIZE];
    enum batch_status status = BATCH_STATUS_UNKNOWN;
    bool late = false;
    struct err e = ERR_INIT;
    struct batch_lease old;
    struct batch_lease now;
    (void)state;
    make(NULL, id);
    assert_int_equal(claim("a", &old), 0);
    run_out();
    assert_int_equal(claim("b", &now), 0);
    assert_int_equal(batch_lease_renew(fx.db, &old, &e), 1);
    assert_int_equal(batch_lease_look(fx.db, &old, &status, &late, &e), 1);
    assert_int_equal(batch_lease_begin(fx.db, &old, 5, &e), 1);
    assert_int_equal(batch_lease_fail(fx.db, &old, "[]", &e), 1);
    ok(batch_lease_begin(fx.db, &now, 5, &e));
    assert_int_equal(batch_lease_checkpoint(fx.db, &old, &seg, &counts, &usage, &e), 1);
    assert_int_equal(batch_lease_finalize(fx.db, &old, false, &e), 1);
    ok(batch_lease_finalize(fx.db, &now, false, &e));
    assert_int_equal(batch_lease_land(fx.db, &old, &file, &none, &e), 1);
    assert_int_equal(batch_lease_release(fx.db, &old, &e), 1);
    fx_value("SELECT concat_ws('|', status, completed, total_tokens, epoch, holder) FROM batch",
        "finalizing|0|0|2|b");
    fx_value("SELECT count(*) FROM batch_segment", "0");
    fx_value("SELECT count(*) FROM batch_file", "1");
}

static void a_checkpoint_records_segment_counts_and_usage_together(void **state)
{
    struct batch_segment seg = { 1, 10, 20, 3 };
    struct batch_counts counts = { .known = true, .completed = 2, .failed = 1 };
    const struct batch_usage usage = { true, 1, 2, 3, 4, 5 };
    cleanup_free struct batch_segment *back = NULL;
    size_t n = 0;
    char id[BATCH_ID_SIZE];
    struct err e = ERR_INIT;
    struct batch_lease l;
    struct batch_lease next;
    (void)state;
    make(NULL, id);
    assert_int_equal(claim("a", &l), 0);
    ok(batch_lease_begin(fx.db, &l, 5, &e));
    ok(batch_lease_checkpoint(fx.db, &l, &seg, &counts, &usage, &e));
    seg.lines = 4;
    seg.output_bytes = 15;
    counts.completed = 3;
    ok(batch_lease_checkpoint(fx.db, &l, &seg, &counts, &usage, &e));
    run_out();
    assert_int_equal(claim("b", &next), 0);
    assert_int_equal(next.counts.completed, 3);
    assert_int_equal(next.usage.output_tokens, 2);
    assert_int_equal(next.usage.reasoning_tokens, 5);
    ok(batch_lease_segments(fx.db, &next, &back, &n, &e));
    assert_int_equal(n, 1);
    assert_int_equal(back[0].epoch, 1);
    assert_int_equal(back[0].output_bytes, 15);
    assert_int_equal(back[0].error_bytes, 20);
    assert_int_equal(back[0].lines, 4);
    /* More results than lines are none. */
    counts.completed = 6;
    fx_fails(batch_lease_checkpoint(fx.db, &next, &seg, &counts, &usage, &e), &e, ERR_INVALID, "");
}

static void landing_gives_the_files_a_row_and_the_batch_its_end_together(void **state)
{
    const struct batch_result output = { "file-2", 10 };
    const struct batch_result errors = { "file-3", 20 };
    char id[BATCH_ID_SIZE];
    struct err e = ERR_INIT;
    struct batch_lease l;
    (void)state;
    make(NULL, id);
    assert_int_equal(claim("a", &l), 0);
    ok(batch_lease_begin(fx.db, &l, 5, &e));
    assert_int_equal(batch_lease_land(fx.db, &l, &output, &errors, &e), 1); /* not finalizing yet */
    ok(batch_lease_finalize(fx.db, &l, true, &e));
    ok(batch_lease_land(fx.db, &l, &output, &errors, &e));
    fx_value("SELECT concat_ws('|', status, output_file_id, error_file_id, expired_at IS NOT NULL,"
             " completed_at IS NOT NULL) FROM batch",
        "expired|file-2|file-3|t|f");
    fx_value(
        "SELECT string_agg(concat_ws('|', id, owner, purpose, bytes), ' ' ORDER BY id) FROM batch_file",
        "file-1|alice|batch|3 file-2|alice|batch_output|10 file-3|alice|batch_output|20");
    assert_int_equal(claim("b", &l), 1);
}

static void a_cancel_goes_before_what_the_runner_was_about_to_do(void **state)
{
    const struct batch_result none = { "", 0 };
    cleanup_batch_rows struct batch_rows now = BATCH_ROWS_INIT;
    char id[BATCH_ID_SIZE];
    enum batch_status status = BATCH_STATUS_UNKNOWN;
    bool late = true;
    struct err e = ERR_INIT;
    struct batch_lease l;
    (void)state;
    make(NULL, id);
    assert_int_equal(claim("a", &l), 0);
    ok(batch_row_cancel(fx.db, id, "alice", &now, &e));
    assert_int_equal(batch_lease_begin(fx.db, &l, 5, &e), 1);
    ok(batch_lease_look(fx.db, &l, &status, &late, &e));
    assert_int_equal(status, BATCH_CANCELLING);
    assert_false(late);
    ok(batch_lease_land(fx.db, &l, &none, &none, &e));
    assert_int_equal(batch_row_cancel(fx.db, id, "alice", &now, &e), 1);
    assert_int_equal(now.row[0].status, BATCH_CANCELLED);
}

static void one_job_has_one_batch_for_each_owner(void **state)
{
    char one[BATCH_ID_SIZE];
    struct err e = ERR_INIT;
    cleanup_batch_rows struct batch_rows made = BATCH_ROWS_INIT;
    struct batch_new b = { .owner = "alice",
        .job_id = "job-1",
        .input_file_id = "file-1",
        .endpoint = "/v1/embeddings",
        .completion_window = "24h",
        .window_s = 60 };
    (void)state;
    make("job-1", one);
    assert_int_equal(batch_row_create(fx.db, &b, &made, &e), 1);
    assert_string_equal(made.row[0].id, one);
    b.owner = "bob";
    fx_fails(batch_row_create(fx.db, &b, &made, &e), &e, ERR_NOT_FOUND, "file-1");
    b.admin = true;
    ok(batch_row_create(fx.db, &b, &made, &e));
    assert_string_not_equal(made.row[0].id, one);
}

/* The trigger's table is the one of lib/model. */
static void the_database_refuses_what_the_table_does_not_have(void **state)
{
    char id[BATCH_ID_SIZE];
    (void)state;
    make(NULL, id);
    fx_sql(
        "CREATE OR REPLACE FUNCTION test_goes(a text, b text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
        " ALTER TABLE batch DISABLE TRIGGER batch_rules; UPDATE batch SET status = a;"
        " ALTER TABLE batch ENABLE TRIGGER batch_rules; UPDATE batch SET status = b; RETURN true;"
        " EXCEPTION WHEN check_violation THEN RETURN false; END $$");
    for (enum batch_status a = BATCH_VALIDATING; a < BATCH_STATUS_UNKNOWN; a++) {
        for (enum batch_status b = BATCH_VALIDATING; b < BATCH_STATUS_UNKNOWN; b++) {
            char sql[128];
            (void)!str_format(sql, sizeof sql, "SELECT test_goes('%s', '%s')", batch_status_name(a),
                batch_status_name(b));
            fx_value(sql, a == b || batch_flow_allows(a, b) ? "t" : "f");
        }
    }
}

static void postgres_takes_every_statement(void **state)
{
    (void)state;
    fx_prepares(&BATCH_FILE_STMTS);
    fx_prepares(&BATCH_ROW_STMTS);
    fx_prepares(&BATCH_LEASE_STMTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(one_of_two_has_it_until_its_lease_is_over),
        FX_BOTH(a_process_does_not_take_over_from_itself),
        FX_BOTH(the_epoch_fences),
        FX_BOTH(a_checkpoint_records_segment_counts_and_usage_together),
        FX_BOTH(landing_gives_the_files_a_row_and_the_batch_its_end_together),
        FX_BOTH(a_cancel_goes_before_what_the_runner_was_about_to_do),
        FX_BOTH(one_job_has_one_batch_for_each_owner),
        FX_BOTH(the_database_refuses_what_the_table_does_not_have),
        FX_BOTH(postgres_takes_every_statement),
    };
    return cmocka_run_group_tests(tests, setup, fx_teardown);
}
