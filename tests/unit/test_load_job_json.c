/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "handlers/load_job_json.h"
#include "tests/fake/poll_scene.h"

#define NOW INT64_C(1796055243123456) /* 2026-11-30T16:14:03.123456Z */

static struct load_row row(void)
{
    return (struct load_row){ .key = "org/model",
        .state = LOAD_STAGING,
        .owner = "front-1",
        .node_id = "id",
        .node_name = "node",
        .replica_index = 2,
        .bytes_sent = 7827,
        .total_bytes = 10000,
        .file_index = 1,
        .total_files = 1,
        .started_us = NOW - 10 * US_PER_S,
        .last_progress_us = NOW - 1900000,
        .created_us = NOW - 20 * US_PER_S,
        .updated_us = NOW - 2 * US_PER_S,
        .last_error = "" };
}

static void assert_prints(json_object *o, const char *want)
{
    cleanup_json json_object *mine = o;
    cleanup_buf struct buf out = BUF_INIT(1 << 16);
    jx_print(mine, &out);
    assert_string_equal(out.data, want);
}

static void a_row_has_its_columns_and_what_follows_from_them(void **state)
{
    (void)state;
    struct load_row r = row();
    assert_prints(load_row_to_json(&r, NOW),
        "{\"tracking_key\":\"org/model\",\"state\":\"staging\",\"owner_replica\":\"front-1\","
        "\"node_id\":\"id\",\"node_name\":\"node\",\"replica_index\":2,\"bytes_sent\":7827,"
        "\"total_bytes\":10000,\"file_index\":1,\"total_files\":1,"
        "\"started_at\":\"2026-11-30T16:13:53.123456Z\","
        "\"last_progress\":\"2026-11-30T16:14:01.223456Z\","
        "\"created_at\":\"2026-11-30T16:13:43.123456Z\","
        "\"updated_at\":\"2026-11-30T16:14:01.123456Z\",\"last_error\":\"\",\"progress\":78.27,"
        "\"heartbeat_age_seconds\":1,\"stalled\":false,\"eta_seconds\":3}");
}

static void unset_times_are_null_and_a_meaningless_eta_is_absent(void **state)
{
    (void)state;
    struct load_row r = row();
    r.state = LOAD_PENDING;
    r.started_us = 0;
    r.last_progress_us = 0;
    r.bytes_sent = 0;
    r.last_error = "bad \xff";
    assert_prints(load_row_to_json(&r, NOW),
        "{\"tracking_key\":\"org/model\",\"state\":\"pending\",\"owner_replica\":\"front-1\","
        "\"node_id\":\"id\",\"node_name\":\"node\",\"replica_index\":2,\"bytes_sent\":0,"
        "\"total_bytes\":10000,\"file_index\":1,\"total_files\":1,"
        "\"started_at\":null,\"last_progress\":null,"
        "\"created_at\":\"2026-11-30T16:13:43.123456Z\","
        "\"updated_at\":\"2026-11-30T16:14:01.123456Z\","
        "\"last_error\":\"bad \xEF\xBF\xBD\",\"progress\":0,"
        "\"heartbeat_age_seconds\":2,\"stalled\":false}");
}

/* So that waiting by polling gets its 304. */
static void polls_within_a_second_print_the_same(void **state)
{
    (void)state;
    struct load_row r = row();
    r.state = LOAD_LOADING;
    cleanup_json json_object *first = load_row_to_json(&r, NOW);
    cleanup_json json_object *second = load_row_to_json(&r, NOW + 50000);
    assert_true(json_object_equal(first, second));
}

static void an_absurd_eta_stays_an_exact_number(void **state)
{
    (void)state;
    struct load_row r = row();
    r.bytes_sent = 1;
    r.total_bytes = INT64_MAX;
    r.started_us = 1;
    cleanup_json json_object *o = load_row_to_json(&r, NOW);
    int64_t eta = 0;
    assert_true(jx_get_int(o, "eta_seconds", &eta));
    assert_int_equal(eta, OVERLAY_NUMBER_MAX);
}

static void an_overlay_is_shown_as_it_is(void **state)
{
    (void)state;
    struct overlay o = *poll_scene().overlay;
    o.file_name = "a/b.gguf";
    o.stamp_us = NOW;
    assert_prints(overlay_view_json(&o),
        "{\"model_id\":\"a\",\"node_name\":\"node\",\"file_name\":\"a/b.gguf\",\"bytes_sent\":1,"
        "\"total_bytes\":2,\"progress\":62.5,\"speed\":\"speed\",\"file_index\":3,"
        "\"total_files\":4,\"message\":\"message\",\"started_at\":\"now\",\"claim\":\"0123456789abcdef\","
        "\"session\":\"\",\"stamp\":\"2026-11-30T16:14:03.123456Z\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_its_columns_and_what_follows_from_them),
        cmocka_unit_test(unset_times_are_null_and_a_meaningless_eta_is_absent),
        cmocka_unit_test(polls_within_a_second_print_the_same),
        cmocka_unit_test(an_absurd_eta_stays_an_exact_number),
        cmocka_unit_test(an_overlay_is_shown_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
