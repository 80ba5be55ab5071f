/* SPDX-License-Identifier: Apache-2.0 */

/* How rows of gallery_operations are read: operations contract, sections 2, 3, 4 and 6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "store/gallery_keep.h"
#include "tests/store/gallery_fixture.h"

static void a_row_of_localai_reads_whole(void **state)
{
    (void)state;
    put_op("job-1", "pending", "user_id = 'u', error = 'oops', current_bytes = 11");
    cleanup_gallery_rows struct gallery_rows rows = get_op("job-1");
    const struct gallery_row *r = &rows.row[0];
    assert_string_equal(r->op.id, "job-1");
    assert_string_equal(r->op.element_name, "llama-cpp");
    assert_string_equal(r->op.cache_key, "localai@llama-cpp");
    assert_string_equal(r->op.op_type, "backend_install");
    assert_int_equal(r->op.status, GALLERY_PENDING);
    assert_true(r->op.is_backend_op && r->op.cancellable && !r->dismissed);
    assert_float_equal(r->op.progress, 12.5, 0);
    assert_string_equal(r->op.phase, "downloading");
    assert_string_equal(r->op.message, "pulling");
    assert_string_equal(r->op.error, "oops");
    assert_string_equal(r->op.file_name, "layer");
    assert_int_equal(r->op.current_bytes, 11);
    assert_int_equal(r->op.total_bytes, 80);
    assert_int_equal(r->op.nodes, 0);
    assert_true(r->created_us > 0 && r->created_us <= rows.now_us);
    assert_int_equal(r->created_us, r->updated_us);
    assert_int_equal(gallery_classify(r, rows.now_us), GALLERY_CLASS_ACTIVE);
}

static void what_is_null_reads_as_unset(void **state)
{
    (void)state;
    fx_sql("INSERT INTO gallery_operations (id, status) VALUES ('bare', NULL)");
    cleanup_gallery_rows struct gallery_rows rows = get_op("bare");
    const struct gallery_row *r = &rows.row[0];
    assert_string_equal(r->op.element_name, "");
    assert_string_equal(r->op.cache_key, "");
    assert_string_equal(r->op.op_type, "");
    assert_string_equal(r->op.phase, "");
    assert_string_equal(r->op.message, "");
    assert_string_equal(r->op.error, "");
    assert_string_equal(r->op.file_name, "");
    assert_int_equal(r->op.status, GALLERY_STATUS__COUNT);
    assert_false(r->op.is_backend_op || r->op.cancellable || r->dismissed);
    assert_float_equal(r->op.progress, 0, 0);
    assert_int_equal(r->op.current_bytes + r->op.total_bytes, 0);
    assert_int_equal(r->created_us, 0);
    assert_int_equal(r->updated_us, 0);
}

static void go_zero_time_and_absurd_times_are_read(void **state)
{
    (void)state;
    put_op("zero", "failed", "created_at = '0001-01-01', updated_at = '0001-01-01'");
    put_op("ahead", "failed", "created_at = '-infinity', updated_at = 'infinity'");
    cleanup_gallery_rows struct gallery_rows zero = get_op("zero");
    assert_int_equal(zero.row[0].created_us, 0);
    assert_int_equal(zero.row[0].updated_us, 0);
    cleanup_gallery_rows struct gallery_rows ahead = get_op("ahead");
    assert_int_equal(ahead.row[0].created_us, 0);
    assert_true(ahead.row[0].updated_us > ahead.now_us);
    listed("ahead"); /* a stamp in the future counts as now, an unset one as nothing */
}

/* "one per active row (pending, downloading, processing; updated within 30 minutes) and one per failed row
 * that nobody dismissed and that is under 24 h old"; what ended just now comes too, to hide its
 * overlay. */
static void the_list_has_what_shows_and_what_hides(void **state)
{
    static const char *const ACTIVE[] = { "pending", "downloading", "processing" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        char id[8];
        (void)str_format(id, sizeof(id), "a%d", i);
        put_op(id, ACTIVE[i], "");
        age_op(id, "29 minutes 50 seconds");
        (void)str_format(id, sizeof(id), "old%d", i);
        put_op(id, ACTIVE[i], "");
        age_op(id, "30 minutes 1 second");
    }
    put_op("fail", "failed", "");
    age_op("fail", "23 hours 59 minutes");
    put_op("fail-old", "failed", "");
    age_op("fail-old", "24 hours 1 second");
    put_op("fail-seen", "failed", "");
    age_op("fail-seen", "1 hour");
    put_op("fail-seen-now", "failed", "");
    fx_sql("INSERT INTO operation_control (job_id, dismissed_at) VALUES ('fail-seen', now()),"
           " ('fail-seen-now', now())");
    put_op("done", "completed", "");
    put_op("gone", "cancelled", "");
    age_op("gone", "2 minutes");
    put_op("done-long", "completed", "");
    age_op("done-long", "6 minutes");
    put_op("strange", "paused", "");
    fx_sql("INSERT INTO gallery_operations (id, status) VALUES ('bare', 'pending')");
    listed("a0 a1 a2 done fail fail-seen-now gone");

    cleanup_gallery_rows struct gallery_rows seen = get_op("fail-seen");
    assert_true(seen.row[0].dismissed);
}

/* A row that was made a while ago and never touched again has been active since then only. */
static void an_unset_update_leaves_the_creation(void **state)
{
    (void)state;
    put_op("new", "pending", "updated_at = NULL");
    put_op("old", "pending", "updated_at = NULL, created_at = now() - interval '31 minutes'");
    listed("new");
}

static void any_progress_is_read_as_0_to_100(void **state)
{
    static const struct {
        const char *stored;
        double read;
    } CASES[] = { { "NULL", 0 }, { "0", 0 }, { "-1", 0 }, { "42.75", 42.75 }, { "100", 100 },
        { "100.5", 100 }, { "1e308", 100 }, { "'Infinity'", 100 }, { "'-Infinity'", 0 },
        { "'NaN'", 0 }, { "1e-320", 0 }, { "99.999", 99.999 } };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        put_op("p", "pending", "");
        sqlf("UPDATE gallery_operations SET progress = %s", CASES[i].stored);
        cleanup_gallery_rows struct gallery_rows rows = get_op("p");
        assert_float_equal(rows.row[0].op.progress, CASES[i].read, 0);
        fx_sql("DELETE FROM gallery_operations");
    }
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    put_op("long", "failed", "message = repeat('ä', 5000), error = repeat('x', 100000)");
    cleanup_gallery_rows struct gallery_rows rows = get_op("long");
    assert_int_equal(str_utf8_length(rows.row[0].op.message), GALLERY_TEXT_KEPT);
    assert_int_equal(strlen(rows.row[0].op.error), GALLERY_TEXT_KEPT);
}

static void nodes_are_read_and_sorted(void **state)
{
    (void)state;
    put_op("n", "pending", "");
    fx_sql("INSERT INTO operation_control (job_id, nodes) VALUES ('n', '["
           "{\"node_id\":\"2\",\"node_name\":\"b\",\"status\":\"downloading\",\"percentage\":40.5,"
           "\"file_name\":\"layer\",\"current\":\"1 MiB\",\"total\":9,\"phase\":\"pull\"},"
           "{\"node_id\":\"3\",\"node_name\":\"a\",\"status\":\"error\",\"percentage\":0,"
           "\"error\":\"disk full\"},"
           "{\"node_id\":\"1\",\"node_name\":\"b\",\"status\":\"queued\"}]')");
    cleanup_gallery_rows struct gallery_rows rows = get_op("n");
    const struct gallery_op *op = &rows.row[0].op;
    assert_int_equal(rows.malformed, 0);
    assert_int_equal(op->nodes, 3);
    assert_string_equal(op->node[0].node_id, "3");
    assert_string_equal(op->node[0].error, "disk full");
    assert_string_equal(op->node[1].node_id, "1");
    assert_string_equal(op->node[1].current, "");
    assert_float_equal(op->node[1].percentage, 0, 0);
    assert_string_equal(op->node[2].node_id, "2");
    assert_string_equal(op->node[2].status, "downloading");
    assert_float_equal(op->node[2].percentage, 40.5, 0);
    assert_string_equal(op->node[2].file_name, "layer");
    assert_string_equal(op->node[2].current, "1 MiB");
    assert_string_equal(op->node[2].total, "9");
    assert_string_equal(op->node[2].phase, "pull");
}

/* Whatever somebody wrote into the column: the row is shown, without nodes. */
static void hostile_nodes_never_hide_a_row(void **state)
{
    static const char *const NODES[] = { "'null'", "'{}'", "'7'", "'\"text\"'", "'[7]'", "'[null]'",
        "'[[]]'", "'[{}]'", "'[{\"node_id\":\"1\"}]'",
        "'[{\"node_id\":\"1\",\"status\":\"lost\"}]'",
        "'[{\"node_id\":\"\",\"node_name\":\"\",\"status\":\"queued\"}]'",
        "'[{\"node_id\":\"1\",\"status\":\"queued\",\"percentage\":101}]'",
        "'[{\"node_id\":\"1\",\"status\":\"queued\",\"percentage\":-1}]'",
        "'[{\"node_id\":\"1\",\"status\":\"queued\",\"percentage\":1e400}]'",
        "'[{\"node_id\":\"1\",\"status\":\"queued\",\"percentage\":\"5\"}]'",
        "'[{\"node_id\":1,\"status\":\"queued\"}]'",
        "'[{\"node_id\":\"1\",\"status\":\"queued\",\"current\":1.5}]'",
        "'[{\"node_id\":\"1\",\"status\":\"queued\",\"total\":[]}]'",
        "(repeat('[', 1000) || repeat(']', 1000))::jsonb", "to_jsonb(repeat('x', 200000))",
        "(SELECT jsonb_agg(jsonb_build_object('node_id', n::text, 'status', 'queued'))"
        " FROM generate_series(1, 513) n)",
        "jsonb_build_array(jsonb_build_object('node_id', repeat('x', 513), 'status', 'queued'))" };
    struct err e = ERR_INIT;
    (void)state;
    put_op("good", "pending", "");
    fx_sql("INSERT INTO operation_control (job_id, nodes) VALUES ('good',"
           " '[{\"node_id\":\"1\",\"status\":\"success\",\"percentage\":100}]')");
    put_op("bad", "pending", "");
    for (size_t i = 0; i < sizeof(NODES) / sizeof(NODES[0]); i++) {
        sqlf("INSERT INTO operation_control (job_id, nodes) VALUES ('bad', %s)"
             " ON CONFLICT (job_id) DO UPDATE SET nodes = excluded.nodes",
            NODES[i]);
        cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
        ok(gallery_list(fx.db, &rows, &e));
        qsort(rows.row, rows.n, sizeof(*rows.row), by_id);
        ids_are(&rows, "bad good");
        if (rows.malformed != 1 || rows.row[0].op.nodes != 0 || rows.row[1].op.nodes != 1)
            fail_msg("%s: %zu %zu %zu", NODES[i], rows.malformed, rows.row[0].op.nodes,
                rows.row[1].op.nodes);
    }
}

static void list_after(const struct gallery_rows *before, struct gallery_rows *out)
{
    struct err e = ERR_INIT;
    ok(gallery_list_start(fx.db, &e));
    ok(gallery_list_finish(fx.db, before, out, &e));
}

static void nodes_as_before_are_not_parsed_again(void **state)
{
    (void)state;
    static const char *const IDS[] = { "b", "d", "f" };
    for (size_t i = 0; i < 3; i++) {
        put_op(IDS[i], "pending", "");
        sqlf("INSERT INTO operation_control (job_id, nodes) VALUES ('%s',"
             " '[{\"node_id\":\"of-%s\",\"status\":\"queued\"}]')",
            IDS[i], IDS[i]);
    }
    cleanup_gallery_rows struct gallery_rows first = GALLERY_ROWS_INIT;
    list_after(NULL, &first);
    ids_are(&first, "b d f");

    put_op("a", "pending", ""); /* others come and go, and rows move in the table */
    put_op("e", "pending", "");
    fx_sql("UPDATE gallery_operations SET status = 'a new word' WHERE id = 'b'");
    fx_sql("UPDATE operation_control SET nodes = '[{\"node_id\":\"other\",\"status\":\"queued\"}]'"
           " WHERE job_id = 'd'");
    cleanup_gallery_rows struct gallery_rows second = GALLERY_ROWS_INIT;
    list_after(&first, &second);
    ids_are(&second, "a d e f");
    assert_int_equal(second.row[0].op.nodes, 0);
    assert_string_equal(second.row[1].op.node[0].node_id, "other");
    assert_ptr_not_equal(second.json[1], first.json[1]);
    assert_ptr_equal(second.json[3], first.json[2]);
    assert_ptr_equal(second.row[3].op.node, first.row[2].op.node);

    gallery_rows_free(&first);
    assert_int_equal(second.row[3].op.nodes, 1);
    assert_string_equal(second.row[3].op.node[0].node_id, "of-f");
}

/* What the list leaves out may have an overlay: that row hides or names it, whatever its age. */
static void rows_are_found_by_id_whatever_their_age(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    put_op("live", "downloading", "");
    put_op("old", "completed", "");
    age_op("old", "90 days");
    put_op("stale", "downloading", "");
    age_op("stale", "2 hours");
    put_op("failed", "failed", "");
    age_op("failed", "3 days");
    put_op("with \"quotes\" \\", "cancelled", "");
    age_op("with \"quotes\" \\", "1 day");
    listed("live");
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_find(fx.db,
        "[\"stale\",\"old\",\"old\",\"nobody\",\"failed\",\"with \\\"quotes\\\" \\\\\"]", &rows,
        &e));
    qsort(rows.row, rows.n, sizeof(*rows.row), by_id);
    ids_are(&rows, "failed old stale with \"quotes\" \\");
    assert_int_equal(gallery_classify(&rows.row[1], rows.now_us), GALLERY_CLASS_OVER);
    assert_int_equal(gallery_classify(&rows.row[2], rows.now_us), GALLERY_CLASS_STALE);

    gallery_rows_free(&rows);
    ok(gallery_find(fx.db, "[]", &rows, &e));
    assert_int_equal(rows.n, 0);
}

static void no_operation_still_tells_the_time(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    for (int round = 0; round < 2; round++) {
        cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
        ok(gallery_list_start(fx.db, &e));
        ok(gallery_list_finish(fx.db, NULL, &rows, &e));
        assert_int_equal(rows.n, 0);
        assert_true(rows.now_us > 0);
    }
    cleanup_gallery_rows struct gallery_rows none = GALLERY_ROWS_INIT;
    fx_fails(gallery_get(fx.db, "nobody", &none, &e), &e, ERR_NOT_FOUND, "nobody");
}

/* The poll's round trip: both lists are under way at once. */
static void loads_and_operations_are_asked_together(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    (void)state;
    fx_claim("m", "alice", token);
    put_op("job", "pending", "");
    for (int round = 0; round < 2; round++) {
        cleanup_load_rows struct load_rows loads = LOAD_ROWS_INIT;
        cleanup_gallery_rows struct gallery_rows ops = GALLERY_ROWS_INIT;
        ok(load_list_start(fx.db, &e));
        ok(gallery_list_start(fx.db, &e));
        ok(load_list_finish(fx.db, &loads, &e));
        ok(gallery_list_finish(fx.db, NULL, &ops, &e));
        assert_int_equal(loads.n, 1);
        ids_are(&ops, "job");
    }
}

/* --- history --- */

static void the_history_is_what_ended_newest_first(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    put_op("running", "downloading", "");
    put_op("c", "completed", "");
    age_op("c", "3 hours");
    put_op("f", "failed", "error = 'disk full'");
    age_op("f", "90 days");
    put_op("x", "cancelled", "");
    age_op("x", "2 hours");
    put_op("seen", "failed", "");
    age_op("seen", "1 hour");
    fx_sql("INSERT INTO operation_control (job_id, dismissed_at) VALUES ('seen', now())");
    put_op("b", "completed", "created_at = '0001-01-01', updated_at = NULL");
    put_op("a", "completed", "created_at = NULL, updated_at = '0001-01-01'");
    put_op("0", "completed", "created_at = NULL, updated_at = NULL");
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_history(fx.db, &rows, &e));
    ids_are(&rows, "seen x c f a b 0");
    assert_int_equal(rows.row[1].op.status, GALLERY_CANCELLED);
    assert_string_equal(rows.row[3].op.error, "disk full");
}

static void the_history_has_the_newest_50(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    fx_sql("INSERT INTO gallery_operations (id, status, created_at, updated_at)"
           " SELECT 'job-' || n, 'completed', now() - interval '1 day',"
           "  now() - n * interval '1 second' FROM generate_series(1, 60) n");
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    ok(gallery_history(fx.db, &rows, &e));
    assert_int_equal(rows.n, 50);
    assert_string_equal(rows.row[0].op.id, "job-1");
    assert_string_equal(rows.row[49].op.id, "job-50");
}

/* --- control --- */

static void the_control_is_what_was_asked_for(void **state)
{
    struct err e = ERR_INIT;
    enum gallery_control c = GALLERY_PAUSE;
    (void)state;
    put_op("job", "pending", "");
    ok(gallery_control_get(fx.db, "job", &c, &e));
    assert_int_equal(c, GALLERY_GO_ON);
    fx_sql("INSERT INTO operation_control (job_id, control) VALUES ('job', 'pause'),"
           " ('cleared', 'cancel')");
    ok(gallery_control_get(fx.db, "job", &c, &e));
    assert_int_equal(c, GALLERY_PAUSE);
    ok(gallery_control_get(fx.db, "cleared", &c, &e)); /* its row is gone: who runs it must know */
    assert_int_equal(c, GALLERY_CANCEL);
    fx_fails(gallery_control_get(fx.db, "nobody", &c, &e), &e, ERR_NOT_FOUND, "nobody");
    assert_string_equal(gallery_control_name(GALLERY_GO_ON), "");
    assert_string_equal(gallery_control_name(GALLERY_CANCEL), "cancel");
    assert_string_equal(gallery_control_name(GALLERY_PAUSE), "pause");
}

/* --- tables that are not there --- */

static void read_all(int rc_due, enum err_code code)
{
    struct err e = ERR_INIT;
    enum gallery_control c = GALLERY_GO_ON;
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    int started = gallery_list_start(fx.db, &e);
    int rc[] = { started < 0 ? -1 : gallery_list_finish(fx.db, NULL, &rows, &e),
        gallery_list(fx.db, &rows, &e), gallery_history(fx.db, &rows, &e) };
    for (int i = 0; i < 3; i++)
        assert_int_equal(rc[i], rc_due);
    assert_int_equal(rows.n, 0);
    fx_fails(gallery_get(fx.db, "job", &rows, &e), &e, code, "");
    fx_fails(gallery_control_get(fx.db, "job", &c, &e), &e, code, "");
}

/* First in main(): the table must not have been seen by this program. */
static void a_table_that_is_missing_yet_reads_as_no_rows(void **state)
{
    (void)state;
    fx_sql("ALTER TABLE gallery_operations RENAME TO elsewhere");
    read_all(0, ERR_NOT_FOUND);
    fx_sql("ALTER TABLE elsewhere RENAME TO gallery_operations");
    put_op("job", "pending", "");
    listed("job");
}

/* What is not known must not look like what is not there. */
static void a_table_that_was_seen_and_goes_is_an_error(void **state)
{
    (void)state;
    listed("");
    fx_sql("ALTER TABLE gallery_operations RENAME TO elsewhere");
    read_all(-1, ERR_UNAVAILABLE);
    fx_sql("ALTER TABLE elsewhere RENAME TO gallery_operations");
    listed("");
    fx_sql("ALTER TABLE operation_control RENAME TO elsewhere"); /* ours: not migrated */
    read_all(-1, ERR_UNAVAILABLE);
    fx_sql("ALTER TABLE elsewhere RENAME TO operation_control");
    listed("");
}

/* Beside a LocalAI with one of the two tables. */
static void the_other_table_missing_takes_nothing_from_this_one(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    put_op("job", "pending", "");
    fx_sql("ALTER TABLE model_load_jobs RENAME TO elsewhere");
    cleanup_load_rows struct load_rows loads = LOAD_ROWS_INIT;
    cleanup_gallery_rows struct gallery_rows ops = GALLERY_ROWS_INIT;
    ok(load_list_start(fx.db, &e));
    ok(gallery_list_start(fx.db, &e));
    int rc = load_list_finish(fx.db, &loads, &e);
    int rc_ops = gallery_list_finish(fx.db, NULL, &ops, &e);
    fx_sql("ALTER TABLE elsewhere RENAME TO model_load_jobs");
    assert_int_equal(rc, 0); /* never seen by this test's program before */
    assert_int_equal(rc_ops, 0);
    ids_are(&ops, "job");
}

static int read_three(struct gallery_rows list[2], struct gallery_rows *get, struct err *e)
{
    if (gallery_list(fx.db, &list[0], e) < 0 || gallery_history(fx.db, &list[1], e) < 0)
        return -1;
    return gallery_get(fx.db, "live", get, e);
}

/* Sections 2 and 6: an older LocalAI's table has fewer columns. It is read all the same, on a connection that
 * was there before, and what is added to it later is seen at once. */
static void what_an_older_table_lacks_reads_as_unset(void **state)
{
    struct err e = ERR_INIT;
    cleanup_gallery_rows struct gallery_rows live = GALLERY_ROWS_INIT;
    cleanup_gallery_rows struct gallery_rows ended = GALLERY_ROWS_INIT;
    cleanup_gallery_rows struct gallery_rows got = GALLERY_ROWS_INIT;
    cleanup_gallery_rows struct gallery_rows later = GALLERY_ROWS_INIT;
    struct gallery_rows lists[2] = { GALLERY_ROWS_INIT, GALLERY_ROWS_INIT };
    (void)state;
    listed("");
    fx_sql("ALTER TABLE gallery_operations RENAME TO elsewhere;"
           " CREATE TABLE gallery_operations (id varchar(36) PRIMARY KEY, status varchar(20),"
           "  updated_at timestamptz);"
           " INSERT INTO gallery_operations VALUES ('done', 'completed', now()),"
           "  ('live', 'processing', now())");
    int rc = read_three(lists, &got, &e);
    fx_sql("ALTER TABLE gallery_operations ADD phase varchar(64) DEFAULT 'downloading',"
           " ADD current_bytes int DEFAULT 7");
    int rc_later = gallery_get(fx.db, "live", &later, &e);
    fx_sql("DROP TABLE gallery_operations; ALTER TABLE elsewhere RENAME TO gallery_operations");
    live = lists[0];
    ended = lists[1];
    fx_ok(rc, &e, "reading an older table");
    fx_ok(rc_later, &e, "reading it with more columns");
    ids_are(&live, "done live");
    ids_are(&ended, "done");
    const struct gallery_row *r = &got.row[0];
    assert_int_equal(r->op.status, GALLERY_PROCESSING);
    assert_string_equal(r->op.cache_key, "");
    assert_string_equal(r->op.phase, "");
    assert_int_equal(r->op.current_bytes + r->op.total_bytes, 0);
    assert_false(r->op.is_backend_op || r->op.cancellable);
    assert_int_equal(r->created_us, 0);
    assert_int_equal(gallery_classify(r, got.now_us), GALLERY_CLASS_ACTIVE);
    assert_string_equal(later.row[0].op.phase, "downloading");
    assert_int_equal(later.row[0].op.current_bytes, 7);
}

/* Without these nothing can be told of any operation: never an empty list out of ignorance. */
static void a_table_without_what_tells_life_is_an_error(void **state)
{
    static const char *const COLUMN[] = { "status", "updated_at" };
    struct err e = ERR_INIT;
    cleanup_gallery_rows struct gallery_rows rows = GALLERY_ROWS_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(COLUMN) / sizeof(COLUMN[0]); i++) {
        sqlf("ALTER TABLE gallery_operations RENAME %s TO other", COLUMN[i]);
        int rc = gallery_list(fx.db, &rows, &e);
        sqlf("ALTER TABLE gallery_operations RENAME other TO %s", COLUMN[i]);
        fx_fails(rc, &e, ERR_INTERNAL, COLUMN[i]);
        e = (struct err)ERR_INIT;
    }
}

static void every_statement_can_be_prepared(void **state)
{
    (void)state;
    fx_prepares(&GALLERY_STMTS);
    fx_prepares(&GALLERY_ACT_STMTS);
    fx_prepares(&GALLERY_KEEP_STMTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_table_that_is_missing_yet_reads_as_no_rows, fx_connect_prepared, fx_clear),
        FX_BOTH(the_other_table_missing_takes_nothing_from_this_one),
        FX_BOTH(what_an_older_table_lacks_reads_as_unset),
        FX_BOTH(a_table_without_what_tells_life_is_an_error),
        FX_BOTH(a_row_of_localai_reads_whole),
        FX_BOTH(what_is_null_reads_as_unset),
        FX_BOTH(go_zero_time_and_absurd_times_are_read),
        FX_BOTH(the_list_has_what_shows_and_what_hides),
        FX_BOTH(an_unset_update_leaves_the_creation),
        FX_BOTH(any_progress_is_read_as_0_to_100),
        FX_BOTH(long_texts_are_cut),
        FX_BOTH(nodes_are_read_and_sorted),
        FX_BOTH(hostile_nodes_never_hide_a_row),
        FX_BOTH(nodes_as_before_are_not_parsed_again),
        FX_BOTH(rows_are_found_by_id_whatever_their_age),
        FX_BOTH(no_operation_still_tells_the_time),
        FX_BOTH(loads_and_operations_are_asked_together),
        FX_BOTH(the_history_is_what_ended_newest_first),
        FX_BOTH(the_history_has_the_newest_50),
        FX_BOTH(the_control_is_what_was_asked_for),
        FX_BOTH(a_table_that_was_seen_and_goes_is_an_error),
        FX_BOTH(every_statement_can_be_prepared),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
