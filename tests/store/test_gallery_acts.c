/* SPDX-License-Identifier: Apache-2.0 */

/* How gallery operations are admitted, stopped, dismissed and cleared: operations contract, sections 4,
 * 5 and 6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "tests/store/gallery_fixture.h"

static struct gallery_admission admission(const char *id)
{
    struct gallery_admission a = GALLERY_ADMISSION_INIT;
    a.id = id;
    a.element_name = "llama-cpp";
    a.op_type = "backend_install";
    return a;
}

static int admit(const struct gallery_admission *a, struct gallery_rows *out)
{
    struct err e = ERR_INIT;
    int rc = gallery_admit(OWN, a, out, &e);
    if (rc < 0)
        fail_msg("%s: %s", err_name(e.code), e.msg);
    return rc;
}

static void op_is(const char *id, const char *expression, const char *expected)
{
    char sql[400];
    assert_int_equal(str_format(sql, sizeof(sql),
                         "SELECT %s FROM gallery_operations WHERE id = '%s'", expression, id),
        0);
    fx_value(sql, expected);
}

#define WHOLE \
    "concat_ws('|', user_id, gallery_element_name, cache_key, is_backend_op, op_type, status," \
    " progress, phase, current_bytes, total_bytes, message, error, file_name, cancellable)"

/* --- admission --- */

static void an_admission_is_a_pending_row(void **state)
{
    (void)state;
    struct gallery_admission a = admission("job");
    a.cache_key = "node:n1:llama-cpp";
    a.user_id = "u";
    a.cancellable = 1;
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    assert_int_equal(admit(&a, &rows), 0);
    op_is("job", WHOLE, "u|llama-cpp|node:n1:llama-cpp|t|backend_install|pending|0||0|0||||t");
    op_is("job", "created_at = updated_at AND updated_at > now() - interval '1 minute'", "t");
    assert_int_equal(rows.n, 1);
    const struct gallery_row *r = &rows.row[0];
    assert_string_equal(r->op.id, "job");
    assert_int_equal(r->op.status, GALLERY_PENDING);
    assert_true(gallery_is_queued(&r->op));
    assert_int_equal(gallery_classify(r, rows.now_us), GALLERY_CLASS_ACTIVE);
    listed("job");
}

static void what_an_admission_leaves_out_has_defaults(void **state)
{
    (void)state;
    struct gallery_admission a = GALLERY_ADMISSION_INIT;
    a.element_name = "phi";
    a.op_type = "model_install";
    for (int round = 0; round < 2; round++) {
        cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
        a.id = round == 0 ? NULL : "";
        assert_int_equal(admit(&a, &rows), 0);
        assert_int_equal(strlen(rows.row[0].op.id), 36);
        op_is(rows.row[0].op.id, WHOLE, "|phi||f|model_install|pending|0||0|0||||f");
    }
    fx_value("SELECT count(*) FROM gallery_operations", "2");
}

static void the_same_id_again_fills_in_what_is_missing(void **state)
{
    (void)state;
    fx_sql("INSERT INTO gallery_operations (id, cache_key, status, phase, created_at, updated_at)"
           " VALUES ('job', 'localai@x', 'downloading', 'pull', now(),"
           "  now() - interval '40 minutes')");
    struct gallery_admission a = admission("job");
    a.cache_key = "another";
    a.user_id = "u";
    a.cancellable = 1;
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    assert_int_equal(admit(&a, &rows), 1);
    op_is("job",
        "concat_ws('|', user_id, gallery_element_name, cache_key, op_type, status, phase,"
        " cancellable)",
        "u|llama-cpp|localai@x|backend_install|downloading|pull|t");
    assert_int_equal(rows.row[0].op.status, GALLERY_DOWNLOADING);
    listed("job"); /* it is heard of again */

    gallery_rows_free(&rows);
    a.element_name = "other";
    a.op_type = "model_delete";
    assert_int_equal(admit(&a, &rows), 1);
    op_is("job", "gallery_element_name || op_type", "llama-cppbackend_install");
}

/* "The same id again fills in the descriptive fields and does not reopen a settled row." */
static void what_has_ended_is_not_reopened(void **state)
{
    static const char *const ENDED[] = { "completed", "cancelled", "failed" };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
        struct gallery_admission a = admission(ENDED[i]);
        a.cancellable = 1;
        put_op(ENDED[i], ENDED[i],
            "error = 'why', cancellable = false, updated_at = now() - interval '2 hours'");
        assert_int_equal(admit(&a, &rows), 1);
        op_is(ENDED[i], "concat(status = id, error, cancellable)", "twhyf");
        op_is(ENDED[i], "updated_at < now() - interval '1 hour'", "t");
    }
}

/* An id that was used before the history was cleared. */
static void a_fresh_operation_inherits_no_control(void **state)
{
    struct err e = ERR_INIT;
    enum gallery_control c = GALLERY_CANCEL;
    (void)state;
    fx_sql("INSERT INTO operation_control (job_id, control, dismissed_at, nodes) VALUES"
           " ('job', 'cancel', now(), '[{\"node_id\":\"1\",\"status\":\"error\"}]')");
    struct gallery_admission a = admission("job");
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    assert_int_equal(admit(&a, &rows), 0);
    assert_false(rows.row[0].dismissed);
    assert_int_equal(rows.row[0].op.nodes, 0);
    ok(gallery_control_get(fx.db, "job", &c, &e));
    assert_int_equal(c, GALLERY_GO_ON);
}

static void what_an_admission_must_look_like(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    struct gallery_admission a = admission("job");
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_admission_check(&a, &e));
    a.element_name = "x";
    a.id = "0123456789012345678901234567890123456"; /* 37 */
    fx_fails(gallery_admit(OWN, &a, &rows, &e), &e, ERR_INVALID, "too long");
}

/* --- cancel and pause --- */

static void cancel_and_pause_stop_it_for_good(void **state)
{
    struct err e = ERR_INIT;
    enum gallery_control c = GALLERY_GO_ON;
    (void)state;
    for (int pause = 0; pause < 2; pause++) {
        const char *id = pause ? "paused" : "cancelled";
        put_op(id, pause ? "pending" : "downloading", "updated_at = now() - interval '1 hour'");
        ok(gallery_stop(OWN, id, pause ? GALLERY_PAUSE : GALLERY_CANCEL, &e));
        op_is(id, "concat_ws('|', status, cancellable, updated_at > now() - interval '1 minute')",
            "cancelled|f|t");
        ok(gallery_control_get(fx.db, id, &c, &e));
        assert_int_equal(c, pause ? GALLERY_PAUSE : GALLERY_CANCEL);
        /* settled by now: the second one is refused, and changes nothing */
        fx_fails(gallery_stop(OWN, id, GALLERY_CANCEL, &e), &e, ERR_INVALID, "ended already");
        ok(gallery_control_get(fx.db, id, &c, &e));
        assert_int_equal(c, pause ? GALLERY_PAUSE : GALLERY_CANCEL);
    }
}

/* "400 when unknown, not cancellable, or already settled". */
static void what_cannot_be_stopped_says_why(void **state)
{
    static const char *const ENDED[] = { "completed", "cancelled", "failed" };
    struct err e = ERR_INIT;
    (void)state;
    fx_fails(gallery_stop(OWN, "nobody", GALLERY_CANCEL, &e), &e, ERR_INVALID, "nobody");
    for (size_t i = 0; i < 3; i++) {
        put_op(ENDED[i], ENDED[i], "cancellable = true");
        fx_fails(gallery_stop(OWN, ENDED[i], GALLERY_PAUSE, &e), &e, ERR_INVALID, ENDED[i]);
    }
    put_op("fixed", "downloading", "cancellable = false");
    put_op("null", "downloading", "cancellable = NULL");
    fx_fails(gallery_stop(OWN, "fixed", GALLERY_CANCEL, &e), &e, ERR_INVALID, "not cancellable");
    fx_fails(gallery_stop(OWN, "null", GALLERY_CANCEL, &e), &e, ERR_INVALID, "not cancellable");
    fx_value("SELECT count(*) FROM operation_control", "0");
    op_is("fixed", "status", "downloading");
}

static void *stop_too(void *arg)
{
    struct err e = ERR_INIT;
    int *rc = arg;
    cleanup_db struct db *db = fx_new_db();
    *rc = gallery_stop(GALLERY_DB(db, false), "job", *rc ? GALLERY_PAUSE : GALLERY_CANCEL, &e);
    return NULL;
}

static void of_many_that_stop_it_one_does(void **state)
{
    enum { MANY = 6 };
    pthread_t thread[MANY];
    int rc[MANY];
    int done = 0;
    (void)state;
    put_op("job", "downloading", "");
    for (int i = 0; i < MANY; i++) {
        rc[i] = i % 2;
        assert_int_equal(pthread_create(&thread[i], NULL, stop_too, &rc[i]), 0);
    }
    for (int i = 0; i < MANY; i++) {
        pthread_join(thread[i], NULL);
        done += rc[i] == 0;
    }
    assert_int_equal(done, 1);
}

/* --- dismiss --- */

static void a_dismissed_failure_leaves_the_list_and_stays_in_the_history(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    put_op("job", "failed", "updated_at = now() - interval '1 hour'");
    fx_sql("UPDATE gallery_operations SET created_at = updated_at");
    listed("job");
    ok(gallery_dismiss(fx.db, "job", &e));
    listed("");
    cleanup_free char *when =
        stores_value(&fx.stores, "SELECT dismissed_at FROM operation_control");
    ok(gallery_dismiss(fx.db, "job", &e)); /* again: nothing changes */
    fx_value("SELECT dismissed_at FROM operation_control", when);
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_history(fx.db, &rows, &e));
    ids_are(&rows, "job");
}

/* Else a failure to come would be dismissed before anybody saw it. */
static void only_a_failure_is_dismissed(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    put_op("runs", "downloading", "");
    put_op("done", "completed", "");
    assert_int_equal(gallery_dismiss(fx.db, "runs", &e), 1);
    assert_int_equal(gallery_dismiss(fx.db, "done", &e), 1);
    assert_int_equal(gallery_dismiss(fx.db, "nobody", &e), 1);
    fx_value("SELECT count(*) FROM operation_control", "0");
}

/* --- the history goes --- */

/* "clears the record; live and undismissed failed operations stay". */
static void clearing_takes_what_is_over(void **state)
{
    struct err e = ERR_INIT;
    enum gallery_control c = GALLERY_GO_ON;
    (void)state;
    put_op("done", "completed", "");
    put_op("stopped", "downloading", "");
    ok(gallery_stop(OWN, "stopped", GALLERY_CANCEL, &e));
    put_op("runs", "pending", "");
    put_op("sleeps", "downloading", "updated_at = now() - interval '2 days'");
    put_op("failed", "failed", "updated_at = now() - interval '2 days'");
    put_op("seen", "failed", "");
    ok(gallery_dismiss(fx.db, "seen", &e));
    put_op("strange", "paused", "");
    /* as when LocalAI takes an operation up again that had failed */
    fx_sql("INSERT INTO operation_control (job_id, dismissed_at) VALUES ('done', NULL),"
           " ('runs', now())");
    ok(gallery_history_clear(OWN, &e));
    fx_value("SELECT string_agg(id, ' ' ORDER BY id) FROM gallery_operations",
        "failed runs sleeps strange");
    /* who runs it may not have asked yet */
    ok(gallery_control_get(fx.db, "stopped", &c, &e));
    assert_int_equal(c, GALLERY_CANCEL);
    fx_fails(gallery_control_get(fx.db, "done", &c, &e), &e, ERR_NOT_FOUND, "done");
    /* What the poll reads hides what Redis may still hold of them (section 3). */
    listed("done failed runs seen sleeps stopped");
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_list(fx.db, &rows, &e));
    for (size_t i = 0; i < rows.n; i++)
        if (strcmp(rows.row[i].op.id, "done") == 0)
            assert_int_equal(gallery_classify(&rows.row[i], rows.now_us), GALLERY_CLASS_OVER);
    fx_sql("UPDATE operation_control SET changed_at = now() - interval '6 minutes'");
    listed("failed runs sleeps");
    ok(gallery_history_clear(OWN, &e)); /* nothing left is a success too */
}

/* --- read_only --- */

static void beside_a_localai_nothing_of_its_own_is_written(void **state)
{
    struct err e = ERR_INIT;
    enum gallery_outcome outcome = GALLERY_TAKEN;
    struct gallery_admission a = admission("new");
    struct gallery_report r = GALLERY_REPORT_INIT;
    static const char *const ALL = "SELECT md5(string_agg(g::text, ' ' ORDER BY id)) FROM"
                                   " gallery_operations g";
    (void)state;
    put_op("runs", "pending", "updated_at = now() - interval '1 minute'");
    put_op("done", "completed", "");
    put_op("failed", "failed", "");
    cleanup_free char *before = stores_value(&fx.stores, ALL);
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    fx_fails(gallery_admit(SITE, &a, &rows, &e), &e, ERR_FORBIDDEN, "read_only");
    fx_fails(gallery_stop(SITE, "runs", GALLERY_CANCEL, &e), &e, ERR_FORBIDDEN, "read_only");
    fx_fails(gallery_history_clear(SITE, &e), &e, ERR_FORBIDDEN, "read_only");
    r.status = "processing";
    r.progress = 50;
    r.has_nodes = true;
    ok(gallery_progress(SITE, "runs", &r, &rows, &outcome, &e));
    assert_int_equal(outcome, GALLERY_CHANGED); /* for the overlay */
    assert_int_equal(rows.row[0].op.status, GALLERY_PROCESSING);
    assert_float_equal(rows.row[0].op.progress, 50, 0);
    gallery_rows_free(&rows);
    r.status = "failed";
    ok(gallery_progress(SITE, "runs", &r, &rows, &outcome, &e));
    assert_int_equal(outcome, GALLERY_ENDED);
    fx_value(ALL, before);
    fx_value("SELECT count(*) FROM operation_control", "0");
    ok(gallery_dismiss(fx.db, "failed", &e)); /* a table of ours */
    fx_value(ALL, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(an_admission_is_a_pending_row),
        FX_BOTH(what_an_admission_leaves_out_has_defaults),
        FX_BOTH(the_same_id_again_fills_in_what_is_missing),
        FX_BOTH(what_has_ended_is_not_reopened),
        FX_BOTH(a_fresh_operation_inherits_no_control),
        FX_BOTH(what_an_admission_must_look_like),
        FX_BOTH(cancel_and_pause_stop_it_for_good),
        FX_BOTH(what_cannot_be_stopped_says_why),
        FX_BOTH(of_many_that_stop_it_one_does),
        FX_BOTH(a_dismissed_failure_leaves_the_list_and_stays_in_the_history),
        FX_BOTH(only_a_failure_is_dismissed),
        FX_BOTH(clearing_takes_what_is_over),
        FX_BOTH(beside_a_localai_nothing_of_its_own_is_written),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
