/* SPDX-License-Identifier: Apache-2.0 */

/* How rows of gallery operations come by a last report that only their overlay has: operations contract, section 3,
 * "no-backwards rule". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/gallery_keep.h"
#include "store/op_overlay.h"
#include "tests/store/gallery_fixture.h"

static const struct gallery_node NODES[] = { { .node_id = "1",
    .node_name = "a \"quoted\" \\ name",
    .status = "downloading",
    .percentage = 40.5,
    .file_name = "layer",
    .current = "",
    .total = "9 MB",
    .phase = "",
    .error = "" } };

/* An overlay that was reported so many seconds after the row, which put_op() has made. */
static struct gallery_overlay ahead(const char *id, double seconds)
{
    cleanup_gallery_rows struct gallery_rows rows = get_op(id);
    return (struct gallery_overlay){ .op = { .id = id,
                                         .element_name = "other",
                                         .cache_key = "other",
                                         .op_type = "model_delete",
                                         .status = GALLERY_PROCESSING,
                                         .cancellable = false,
                                         .progress = 99.123456789,
                                         .phase = "unpack",
                                         .message = "it's \xC3\xA4 \\ \"last\"",
                                         .error = "other",
                                         .file_name = "last.tar",
                                         .current_bytes = 79,
                                         .total_bytes = OVERLAY_NUMBER_MAX,
                                         .node = NODES,
                                         .nodes = 1 },
        .of_row = true,
        .stamp_us = rows.row[0].updated_us + (int64_t)(seconds * 1e6) };
}

static int64_t keep(const struct gallery_overlay *o, size_t n)
{
    struct err e = ERR_INIT;
    int64_t kept = -1;
    cleanup_buf struct buf values = BUF_INIT(1 << 20);
    for (size_t i = 0; i < n; i++) {
        buf_putc(&values, i == 0 ? '[' : ',');
        op_overlay_print(&o[i], &values);
    }
    buf_putc(&values, ']');
    ok(gallery_keep(fx.db, values.data, &kept, &e));
    return kept;
}

#define ALL \
    "SELECT concat_ws('|', gallery_element_name, cache_key, op_type, status, progress, phase," \
    " message, error, file_name, current_bytes, total_bytes, cancellable)" \
    " FROM gallery_operations WHERE id = 'job'"
#define AS_MADE \
    "llama-cpp|localai@llama-cpp|backend_install|downloading|12.5|downloading|pulling||layer|10|80|t"

static void the_row_has_what_was_shown_and_its_time(void **state)
{
    (void)state;
    put_op("job", "downloading", "");
    age_op("job", "10 seconds");
    const struct gallery_overlay o = ahead("job", 0.999999);
    assert_int_equal(keep(&o, 1), 1);
    fx_value(ALL, "llama-cpp|localai@llama-cpp|backend_install|downloading|99.123456789|unpack|"
                  "it's \xC3\xA4 \\ \"last\"||last.tar|79|9007199254740991|t");
    cleanup_gallery_rows struct gallery_rows rows = get_op("job");
    assert_int_equal(rows.row[0].updated_us, o.stamp_us);
    assert_int_equal(rows.row[0].op.nodes, 1);
    assert_false(gallery_is_behind(&rows.row[0], &o, rows.now_us));
    assert_int_equal(keep(&o, 1), 0); /* once is enough */
}

static void nodes_that_were_taken_away_stay_away(void **state)
{
    (void)state;
    put_op("job", "downloading", "");
    fx_sql("INSERT INTO operation_control (job_id, control, nodes) VALUES ('job', 'pause',"
           " '[{\"node_id\":\"1\",\"status\":\"error\"}]')");
    struct gallery_overlay o = ahead("job", 1);
    o.op.nodes = 0;
    assert_int_equal(keep(&o, 1), 1);
    fx_value("SELECT concat(control, nodes IS NULL) FROM operation_control", "pauset");
}

static void what_is_empty_takes_nothing_away(void **state)
{
    (void)state;
    put_op("job", "downloading", "");
    struct gallery_overlay o = ahead("job", 1);
    o.op.phase = o.op.message = o.op.file_name = "";
    assert_int_equal(keep(&o, 1), 1);
    fx_value("SELECT concat_ws('|', phase, message, file_name) FROM gallery_operations",
        "downloading|pulling|layer");
}

/* A row without a time is older than anything. */
static void only_active_rows_that_are_older_are_written(void **state)
{
    static const char *const STATUS[] = { "completed", "cancelled", "failed" };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        put_op(STATUS[i], STATUS[i], "");
        const struct gallery_overlay o = ahead(STATUS[i], 1);
        assert_int_equal(keep(&o, 1), 0);
    }
    fx_value("SELECT count(*) FROM gallery_operations WHERE progress = 12.5", "3");
    fx_value("SELECT count(*) FROM operation_control", "0");

    put_op("job", "downloading", "");
    struct gallery_overlay o = ahead("job", 0);
    assert_int_equal(keep(&o, 1), 0);
    o.stamp_us--;
    assert_int_equal(keep(&o, 1), 0);
    fx_value(ALL, AS_MADE);
    fx_sql("UPDATE gallery_operations SET updated_at = NULL WHERE id = 'job'");
    assert_int_equal(keep(&o, 1), 1);
    o.op.id = "nobody";
    assert_int_equal(keep(&o, 1), 0);
}

/* "In one statement; whatever another session holds is passed over". */
static void what_another_holds_is_left_for_later(void **state)
{
    (void)state;
    put_op("job", "downloading", "");
    put_op("free", "pending", "");
    const struct gallery_overlay o[] = { ahead("job", 1), ahead("free", 1) };
    PGconn *other = PQconnectdb(fx.stores.url);
    PQclear(PQexec(other, "BEGIN; SELECT FROM gallery_operations WHERE id = 'job' FOR UPDATE"));
    assert_int_equal(keep(o, 2), 1);
    PQfinish(other);
    fx_value(ALL, AS_MADE);
    assert_int_equal(keep(o, 2), 1);
    fx_value("SELECT count(*) FROM gallery_operations WHERE progress > 99", "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(the_row_has_what_was_shown_and_its_time),
        FX_BOTH(nodes_that_were_taken_away_stay_away),
        FX_BOTH(what_is_empty_takes_nothing_away),
        FX_BOTH(only_active_rows_that_are_older_are_written),
        FX_BOTH(what_another_holds_is_left_for_later),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
