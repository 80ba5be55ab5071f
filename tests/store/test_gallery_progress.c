/* SPDX-License-Identifier: Apache-2.0 */

/* Reports of who does the work, as far as the durable row goes: operations contract, sections 2 and 5,
 * `PUT /api/v1/operations/{jobID}`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/store/gallery_fixture.h"

static enum gallery_outcome report(const char *id, struct gallery_report r)
{
    struct err e = ERR_INIT;
    enum gallery_outcome outcome = GALLERY_TAKEN;
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_progress(OWN, id, &r, &rows, &outcome, &e));
    assert_int_equal(rows.n, 1);
    return outcome;
}

static struct gallery_report status(const char *name)
{
    struct gallery_report r = GALLERY_REPORT_INIT;
    r.status = name;
    return r;
}

static struct gallery_report progress(double percent)
{
    struct gallery_report r = GALLERY_REPORT_INIT;
    r.progress = percent;
    return r;
}

static void op_is(const char *expression, const char *expected)
{
    char sql[400];
    assert_int_equal(
        str_format(sql, sizeof(sql), "SELECT %s FROM gallery_operations", expression), 0);
    fx_value(sql, expected);
}

#define FIELDS \
    "concat_ws('|', status, progress, phase, message, current_bytes, total_bytes, file_name," \
    " cancellable, error)"

static void what_a_report_brings_is_written(void **state)
{
    static const struct gallery_node NODES[] = { { .node_id = "1",
        .node_name = "a",
        .status = "downloading",
        .percentage = 40.5,
        .file_name = "layer",
        .current = "",
        .total = "9 MB",
        .phase = "",
        .error = "" } };
    struct err e = ERR_INIT;
    enum gallery_outcome outcome = GALLERY_TAKEN;
    (void)state;
    put_op("job", "pending", "");
    const struct gallery_report r = { .status = "processing",
        .progress = 99.5,
        .phase = "unpacking",
        .message = "layer 3",
        .current_bytes = 5,
        .total_bytes = 6,
        .file_name = "layer-3",
        .cancellable = 0,
        .error = "slow",
        .has_nodes = true,
        .node = NODES,
        .nodes = 1 };
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_progress(OWN, "job", &r, &rows, &outcome, &e));
    assert_int_equal(outcome, GALLERY_CHANGED);
    op_is(FIELDS, "processing|99.5|unpacking|layer 3|5|6|layer-3|f|slow");
    fx_value("SELECT nodes = '[{\"node_id\":\"1\",\"node_name\":\"a\",\"status\":\"downloading\","
             "\"percentage\":40.5,\"file_name\":\"layer\",\"total\":\"9 MB\"}]'"
             " FROM operation_control WHERE job_id = 'job'",
        "t");
    /* The answer is the row as it is now. */
    const struct gallery_row *a = &rows.row[0];
    assert_int_equal(a->op.status, GALLERY_PROCESSING);
    assert_float_equal(a->op.progress, 99.5, 0);
    assert_string_equal(a->op.phase, "unpacking");
    assert_string_equal(a->op.message, "layer 3");
    assert_string_equal(a->op.element_name, "llama-cpp");
    assert_int_equal(a->op.nodes, 1);
    assert_true(a->updated_us > a->created_us && a->updated_us <= rows.now_us);
    cleanup_gallery_rows struct gallery_rows again = get_op("job");
    assert_int_equal(again.row[0].op.nodes, 1);
}

static void missing_and_empty_fields_leave_stored_ones_alone(void **state)
{
    (void)state;
    put_op("job", "pending", "error = 'e', updated_at = now() - interval '2 seconds'");
    fx_sql("INSERT INTO operation_control (job_id, nodes) VALUES ('job', '[]')");
    struct gallery_report r = GALLERY_REPORT_INIT;
    assert_int_equal(report("job", r), GALLERY_TAKEN);
    op_is(FIELDS, "pending|12.5|downloading|pulling|10|80|layer|t|e");
    op_is("updated_at > now() - interval '1 second'", "t"); /* it is heard of all the same */
    r.status = r.phase = r.message = r.file_name = r.error = "";
    fx_sql("UPDATE gallery_operations SET updated_at = now() - interval '2 seconds'");
    assert_int_equal(report("job", r), GALLERY_TAKEN);
    op_is(FIELDS, "pending|12.5|downloading|pulling|10|80|layer|t|e");
    fx_value("SELECT nodes FROM operation_control", "[]");
}

static void a_report_may_take_the_nodes_away(void **state)
{
    (void)state;
    put_op("job", "pending", "updated_at = now() - interval '2 seconds'");
    fx_sql("INSERT INTO operation_control (job_id, control, nodes) VALUES ('job', 'pause',"
           " '[{\"node_id\":\"1\",\"status\":\"queued\"}]')");
    struct gallery_report r = GALLERY_REPORT_INIT;
    r.has_nodes = true;
    assert_int_equal(report("job", r), GALLERY_TAKEN);
    fx_value("SELECT control || nodes FROM operation_control", "pause[]");
}

/* "to the row at most once a second". In a transaction now() stands still, so that the second has a
 * sharp edge. */
static void a_second_is_a_second(void **state)
{
    static const struct db_stmt WROTE = { "t_wrote",
        "UPDATE gallery_operations SET updated_at = now() + $1::bigint * interval '1 ms'", 1 };
    static const struct {
        int64_t ms;
        const char *written;
    } CASES[] = { { -1001, "t" }, { -1000, "f" }, { -1, "f" }, { 0, "f" }, { 1000, "f" },
        { 1001, "t" } }; /* the last: another machine's clock */
    struct err e = ERR_INIT;
    enum gallery_outcome outcome = GALLERY_CHANGED;
    (void)state;
    put_op("job", "downloading", "");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
        const struct gallery_report r = progress((double)(50 + i));
        {
            cleanup_txn struct db_txn t = DB_TXN_INIT;
            ok(db_begin(fx.db, &t, &e));
            ok(db_exec(fx.db, &WROTE, DB_ARGS(DB_INT8(CASES[i].ms)), NULL, &e));
            ok(gallery_progress(OWN, "job", &r, &rows, &outcome, &e));
            ok(db_commit(&t, &e));
        }
        assert_int_equal(outcome, GALLERY_TAKEN);
        assert_float_equal(rows.row[0].op.progress, r.progress, 0); /* answered in any case */
        char sql[100];
        (void)str_format(sql, sizeof(sql), "progress = %zu", 50 + i);
        op_is(sql, CASES[i].written);
    }
    fx_sql("UPDATE gallery_operations SET updated_at = NULL");
    (void)report("job", progress(77));
    op_is("progress", "77");
}

/* "and at once on a change of status or phase"; and what a cancel and the list depend on is not held
 * back either. */
static void what_turns_is_written_at_once(void **state)
{
    struct gallery_report r[6];
    (void)state;
    for (int i = 0; i < 6; i++)
        r[i] = progress(50 + i);
    r[1].status = "downloading"; /* the same */
    r[1].phase = "downloading";
    r[1].message = "m";
    r[1].file_name = "f";
    r[1].current_bytes = r[1].total_bytes = 7;
    r[1].cancellable = 1;
    r[2].status = "processing";
    r[3].phase = "verifying";
    r[4].cancellable = 0;
    r[5].error = "retrying";
    static const char *const WRITTEN[] = { "12.5", "12.5", "52", "53", "54", "55" };
    static const enum gallery_outcome OUTCOME[] = { GALLERY_TAKEN, GALLERY_TAKEN, GALLERY_CHANGED,
        GALLERY_CHANGED, GALLERY_TAKEN, GALLERY_TAKEN };
    for (int i = 0; i < 6; i++) {
        put_op("job", "downloading", "");
        /* written in this very moment, so that nothing is due by time */
        struct err e = ERR_INIT;
        static const struct db_stmt NOW = { "t_now",
            "UPDATE gallery_operations SET updated_at = now()", 0 };
        {
            cleanup_txn struct db_txn t = DB_TXN_INIT;
            ok(db_begin(fx.db, &t, &e));
            ok(db_exec(fx.db, &NOW, DB_NO_ARGS, NULL, &e));
            assert_int_equal(report("job", r[i]), OUTCOME[i]);
            ok(db_commit(&t, &e));
        }
        op_is("progress", WRITTEN[i]);
        fx_sql("DELETE FROM gallery_operations");
    }
}

/* --- ends --- */

static void a_final_status_ends_it(void **state)
{
    static const char *const FINAL[] = { "completed", "failed", "cancelled" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        put_op("job", "processing", "");
        struct gallery_report r = status(FINAL[i]);
        r.progress = 100;
        r.cancellable = 1; /* there is nothing left to cancel */
        assert_int_equal(report("job", r), GALLERY_ENDED);
        char expected[40];
        (void)str_format(expected, sizeof(expected), "%s|100|f", FINAL[i]);
        op_is("concat_ws('|', status, progress, cancellable)", expected);
        fx_sql("DELETE FROM gallery_operations");
    }
}

static void a_failure_says_why(void **state)
{
    (void)state;
    put_op("job", "processing", "");
    struct gallery_report r = status("failed");
    cleanup_free char *reason = mem_calloc(20001, 1);
    memset(reason, 'x', 20000);
    r.error = reason;
    assert_int_equal(report("job", r), GALLERY_ENDED);
    op_is("error = repeat('x', 4000)", "t");
}

/* "a settled row is left alone (200 with settled:true)". */
static void a_settled_row_never_changes(void **state)
{
    static const char *const SETTLED[] = { "completed", "cancelled" };
    static const char *const SAYS[] = { NULL, "pending", "downloading", "processing", "completed",
        "failed", "cancelled" };
    static const char *const ALL = "SELECT g::text FROM gallery_operations g";
    (void)state;
    for (int i = 0; i < 2; i++) {
        put_op("job", SETTLED[i], "updated_at = now() - interval '1 hour'");
        cleanup_free char *before = stores_value(&fx.stores, ALL);
        for (size_t k = 0; k < sizeof(SAYS) / sizeof(SAYS[0]); k++) {
            struct err e = ERR_INIT;
            enum gallery_outcome outcome = GALLERY_TAKEN;
            struct gallery_report r = status(SAYS[k]);
            r.progress = 1;
            r.phase = "again";
            r.error = "e";
            r.cancellable = 1;
            r.has_nodes = true;
            cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
            ok(gallery_progress(OWN, "job", &r, &rows, &outcome, &e));
            assert_int_equal(outcome, GALLERY_SETTLED);
            assert_string_equal(gallery_status_name(rows.row[0].op.status), SETTLED[i]);
            assert_string_equal(rows.row[0].op.phase, "downloading"); /* as it is */
            fx_value(ALL, before);
        }
        fx_value("SELECT count(*) FROM operation_control", "0");
        fx_sql("DELETE FROM gallery_operations");
    }
}

/* "a failed one takes only a final status", and "a correction clears error". */
static void a_failure_is_corrected_by_the_true_outcome_only(void **state)
{
    static const char *const NOT_FINAL[] = { NULL, "", "pending", "downloading", "processing" };
    static const char *const ALL = "SELECT g::text FROM gallery_operations g";
    (void)state;
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        put_op("job", "failed", "error = 'given up', updated_at = now() - interval '1 hour'");
        cleanup_free char *before = stores_value(&fx.stores, ALL);
        for (size_t i = 0; i < sizeof(NOT_FINAL) / sizeof(NOT_FINAL[0]); i++) {
            struct gallery_report r = status(NOT_FINAL[i]);
            r.progress = 99;
            r.phase = "late";
            r.error = "other";
            assert_int_equal(report("job", r), GALLERY_GIVEN_UP);
            fx_value(ALL, before);
        }
        assert_int_equal(
            report("job", status(cancelled ? "cancelled" : "completed")), GALLERY_ENDED);
        op_is("concat_ws('|', status, error, updated_at > now() - interval '1 minute')",
            cancelled ? "cancelled||t" : "completed||t");
        fx_sql("DELETE FROM gallery_operations");
    }
}

/* A worker says again, or better, why it failed: the failure is no younger for that. */
static void a_failure_told_again_stays_as_old_as_it_was(void **state)
{
    (void)state;
    put_op("job", "failed",
        "error = 'given up', cancellable = false, updated_at = '2026-01-01 12:00Z'");
    struct gallery_report r = status("failed");
    assert_int_equal(report("job", r), GALLERY_ENDED);
    op_is("concat_ws('|', error, updated_at = '2026-01-01 12:00Z')", "given up|t");
    r.error = "disk full";
    assert_int_equal(report("job", r), GALLERY_ENDED);
    op_is("concat_ws('|', status, error, updated_at = '2026-01-01 12:00Z')", "failed|disk full|t");
}

static void an_unknown_operation_is_not_made(void **state)
{
    struct err e = ERR_INIT;
    enum gallery_outcome outcome = GALLERY_TAKEN;
    const struct gallery_report r = status("completed");
    (void)state;
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    fx_fails(gallery_progress(OWN, "nobody", &r, &rows, &outcome, &e), &e, ERR_NOT_FOUND, "nobody");
    fx_value("SELECT count(*) FROM gallery_operations", "0");
}

/* LocalAI's rows may hold any of these where we never would. */
static void rows_of_others_take_reports_too(void **state)
{
    (void)state;
    fx_sql("INSERT INTO gallery_operations (id) VALUES ('job')");
    fx_sql("UPDATE gallery_operations SET status = NULL");
    struct gallery_report r = progress(5);
    r.phase = "downloading";
    assert_int_equal(report("job", r), GALLERY_CHANGED);
    op_is("concat_ws('|', status, progress, phase)", "5|downloading");
    assert_int_equal(report("job", status("completed")), GALLERY_ENDED);
    op_is("status", "completed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(what_a_report_brings_is_written),
        FX_BOTH(missing_and_empty_fields_leave_stored_ones_alone),
        FX_BOTH(a_report_may_take_the_nodes_away),
        FX_BOTH(a_second_is_a_second),
        FX_BOTH(what_turns_is_written_at_once),
        FX_BOTH(a_final_status_ends_it),
        FX_BOTH(a_failure_says_why),
        FX_BOTH(a_settled_row_never_changes),
        FX_BOTH(a_failure_is_corrected_by_the_true_outcome_only),
        FX_BOTH(a_failure_told_again_stays_as_old_as_it_was),
        FX_BOTH(an_unknown_operation_is_not_made),
        FX_BOTH(rows_of_others_take_reports_too),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
