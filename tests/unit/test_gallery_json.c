/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "handlers/gallery_json.h"

enum { ROOM = 1 << 16 };

/* 2026-11-30T17:06:16.248101Z */
#define STARTED  INT64_C(1796058376248101)
#define FINISHED (STARTED + 60000000)

static struct gallery_row ended(void)
{
    return (struct gallery_row){ .op = { .id = "job-1",
                                     .element_name = "localai@llama-cpp",
                                     .cache_key = "node:n1:localai@llama-cpp",
                                     .op_type = "backend_install",
                                     .status = GALLERY_FAILED,
                                     .phase = "",
                                     .message = "",
                                     .error = "disk full",
                                     .file_name = "" },
        .created_us = STARTED,
        .updated_us = FINISHED };
}

static void assert_json(json_object *made, const char *want)
{
    cleanup_json json_object *o = made;
    cleanup_buf struct buf out = BUF_INIT(ROOM);
    jx_print(o, &out);
    assert_string_equal(out.data, want);
}

static void no_history_is_an_empty_array(void **state)
{
    (void)state;
    const struct gallery_rows none = GALLERY_ROWS_INIT;
    assert_json(gallery_history_json(&none), "{\"operations\":[]}");
}

static void the_keys_of_an_ended_operation_come_in_the_contracts_order(void **state)
{
    (void)state;
    struct gallery_row rows[] = { ended() };
    const struct gallery_rows history = { .row = rows, .n = 1 };
    assert_json(gallery_history_json(&history),
        "{\"operations\":[{\"id\":\"localai@llama-cpp\",\"name\":\"llama-cpp\",\"jobID\":\"job-1\","
        "\"isBackend\":true,\"nodeID\":\"n1\",\"taskType\":\"installation\",\"outcome\":\"failed\","
        "\"error\":\"disk full\",\"startedAt\":\"2026-11-30T17:06:16.248101Z\","
        "\"finishedAt\":\"2026-11-30T17:07:16.248101Z\"}]}");
}

static void what_is_empty_is_left_out_and_the_order_is_that_of_the_rows(void **state)
{
    (void)state;
    struct gallery_row rows[] = { ended(), ended() };
    rows[0].op.cache_key = "";
    rows[0].op.element_name = "m";
    rows[0].op.op_type = "model_delete";
    rows[0].op.status = GALLERY_COMPLETED;
    rows[0].op.error = "";
    rows[0].created_us = 0;
    rows[0].updated_us = 0;
    rows[1].op.id = "job-0";
    rows[1].op.status = GALLERY_CANCELLED;
    const struct gallery_rows history = { .row = rows, .n = 2 };
    assert_json(gallery_history_json(&history),
        "{\"operations\":[{\"id\":\"m\",\"name\":\"m\",\"jobID\":\"job-1\",\"isBackend\":false,"
        "\"taskType\":\"deletion\",\"outcome\":\"completed\",\"startedAt\":null,"
        "\"finishedAt\":null},{\"id\":\"localai@llama-cpp\",\"name\":\"llama-cpp\","
        "\"jobID\":\"job-0\",\"isBackend\":true,\"nodeID\":\"n1\",\"taskType\":\"installation\","
        "\"outcome\":\"cancelled\",\"error\":\"disk full\","
        "\"startedAt\":\"2026-11-30T17:06:16.248101Z\","
        "\"finishedAt\":\"2026-11-30T17:07:16.248101Z\"}]}");
}

static void an_admission_answers_with_its_row(void **state)
{
    (void)state;
    struct gallery_row r = ended();
    assert_json(gallery_row_json(&r),
        "{\"id\":\"job-1\",\"gallery_element_name\":\"localai@llama-cpp\","
        "\"cache_key\":\"node:n1:localai@llama-cpp\",\"is_backend_op\":false,"
        "\"op_type\":\"backend_install\",\"status\":\"failed\",\"settled\":false,"
        "\"cancellable\":false,\"created_at\":\"2026-11-30T17:06:16.248101Z\","
        "\"updated_at\":\"2026-11-30T17:07:16.248101Z\"}");
    r.op.status = GALLERY_CANCELLED;
    r.op.cancellable = true;
    cleanup_json json_object *o = gallery_row_json(&r);
    bool settled = false;
    bool cancellable = false;
    assert_true(jx_get_bool(o, "settled", &settled) && settled);
    assert_true(jx_get_bool(o, "cancellable", &cancellable) && cancellable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_history_is_an_empty_array),
        cmocka_unit_test(the_keys_of_an_ended_operation_come_in_the_contracts_order),
        cmocka_unit_test(what_is_empty_is_left_out_and_the_order_is_that_of_the_rows),
        cmocka_unit_test(an_admission_answers_with_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
