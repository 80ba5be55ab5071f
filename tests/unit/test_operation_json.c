/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "handlers/operation_json.h"
#include "json/jx.h"

enum { ROOM = 1 << 16 };

static struct op_entry staging_entry(void)
{
    static char id[] = "staging:org/model";
    return (struct op_entry){ .id = id,
        .job_id = id,
        .name = "org/model",
        .full_name = "org/model",
        .progress = 42,
        .task = OP_TASK_STAGING,
        .message = "copying",
        .node_id = "node-id",
        .node_name = "node",
        .phase = "staging",
        .current_bytes = 42,
        .total_bytes = 100 };
}

static void assert_prints(struct op_entry *entry, size_t n, const char *want)
{
    struct ops_list list = { .entry = entry, .n = n };
    cleanup_buf struct buf out = BUF_INIT(ROOM);
    operations_print(&list, &out);
    assert_false(out.overflow);
    assert_string_equal(out.data, want);
}

static void no_operations_are_an_empty_array(void **state)
{
    (void)state;
    assert_prints(NULL, 0, "{\"operations\":[]}");
}

static void the_keys_of_a_staging_entry_come_in_the_contracts_order(void **state)
{
    (void)state;
    struct op_entry e = staging_entry();
    assert_prints(&e, 1,
        "{\"operations\":[{\"id\":\"staging:org/model\",\"jobID\":\"staging:org/model\","
        "\"name\":\"org/model\",\"fullName\":\"org/model\",\"progress\":42,"
        "\"taskType\":\"staging\",\"isDeletion\":false,\"isBackend\":false,\"isQueued\":false,"
        "\"cancellable\":false,\"message\":\"copying\",\"nodeID\":\"node-id\","
        "\"nodeName\":\"node\",\"phase\":\"staging\",\"currentBytes\":42,\"totalBytes\":100}]}");
}

static void an_overlay_alone_has_neither_node_id_nor_phase(void **state)
{
    (void)state;
    struct op_entry e = staging_entry();
    e.node_id = NULL;
    e.phase = NULL;
    e.current_bytes = 0; /* present for a copy, even when zero */
    e.total_bytes = 0;
    assert_prints(&e, 1,
        "{\"operations\":[{\"id\":\"staging:org/model\",\"jobID\":\"staging:org/model\","
        "\"name\":\"org/model\",\"fullName\":\"org/model\",\"progress\":42,"
        "\"taskType\":\"staging\",\"isDeletion\":false,\"isBackend\":false,\"isQueued\":false,"
        "\"cancellable\":false,\"message\":\"copying\","
        "\"nodeName\":\"node\",\"currentBytes\":0,\"totalBytes\":0}]}");
}

static void empty_node_texts_of_a_row_are_present(void **state)
{
    (void)state;
    struct op_entry e = staging_entry();
    e.node_id = "";
    e.node_name = "";
    struct ops_list list = { .entry = &e, .n = 1 };
    cleanup_buf struct buf out = BUF_INIT(ROOM);
    operations_print(&list, &out);
    assert_non_null(strstr(out.data, "\"nodeID\":\"\",\"nodeName\":\"\",\"phase\""));
}

static void other_tasks_leave_out_what_is_zero(void **state)
{
    (void)state;
    static char id[] = "a@b";
    struct op_entry e[2] = { { .id = id,
                                 .job_id = "j1",
                                 .name = "b",
                                 .full_name = "a@b",
                                 .task = OP_TASK_INSTALLATION,
                                 .is_backend = true,
                                 .is_queued = true,
                                 .cancellable = true,
                                 .message = "" },
        { .id = id,
            .job_id = "j2",
            .name = "b",
            .full_name = "a@b",
            .progress = 3,
            .task = OP_TASK_DELETION,
            .is_deletion = true,
            .message = "x",
            .current_bytes = 1,
            .total_bytes = 2,
            .error = "no" } };
    assert_prints(e, 2,
        "{\"operations\":[{\"id\":\"a@b\",\"jobID\":\"j1\",\"name\":\"b\",\"fullName\":\"a@b\","
        "\"progress\":0,\"taskType\":\"installation\",\"isDeletion\":false,\"isBackend\":true,"
        "\"isQueued\":true,\"cancellable\":true,\"message\":\"\"},"
        "{\"id\":\"a@b\",\"jobID\":\"j2\",\"name\":\"b\",\"fullName\":\"a@b\","
        "\"progress\":3,\"taskType\":\"deletion\",\"isDeletion\":true,\"isBackend\":false,"
        "\"isQueued\":false,\"cancellable\":false,\"message\":\"x\",\"currentBytes\":1,"
        "\"totalBytes\":2,\"error\":\"no\"}]}");
}

static void the_keys_of_a_gallery_entry_come_in_the_contracts_order(void **state)
{
    (void)state;
    static char id[] = "llama-cpp";
    static const struct gallery_node NODES[] = {
        { .node_id = "n1",
            .node_name = "gpu-1",
            .status = "downloading",
            .percentage = 12.5,
            .file_name = "w",
            .current = "1 GiB",
            .total = "8 GiB",
            .phase = "fetch",
            .error = "" },
        { .node_id = "n2",
            .node_name = "gpu-2",
            .status = "queued",
            .file_name = "",
            .current = "",
            .total = "",
            .phase = "",
            .error = "" },
    };
    struct op_entry e = { .id = id,
        .job_id = "j1",
        .name = "llama-cpp",
        .full_name = "llama-cpp",
        .progress = 3,
        .task = OP_TASK_INSTALLATION,
        .is_backend = true,
        .cancellable = true,
        .message = "x",
        .node_id = "n1",
        .phase = "downloading",
        .current_bytes = 1,
        .total_bytes = 2,
        .error = "e",
        .node = NODES,
        .nodes = 2 };
    assert_prints(&e, 1,
        "{\"operations\":[{\"id\":\"llama-cpp\",\"jobID\":\"j1\",\"name\":\"llama-cpp\","
        "\"fullName\":\"llama-cpp\",\"progress\":3,\"taskType\":\"installation\","
        "\"isDeletion\":false,\"isBackend\":true,\"isQueued\":false,\"cancellable\":true,"
        "\"message\":\"x\",\"nodeID\":\"n1\",\"phase\":\"downloading\",\"currentBytes\":1,"
        "\"totalBytes\":2,\"error\":\"e\",\"nodes\":[{\"node_id\":\"n1\","
        "\"node_name\":\"gpu-1\",\"status\":\"downloading\",\"percentage\":12.5,"
        "\"file_name\":\"w\",\"current\":\"1 GiB\",\"total\":\"8 GiB\",\"phase\":\"fetch\"},"
        "{\"node_id\":\"n2\",\"node_name\":\"gpu-2\",\"status\":\"queued\","
        "\"percentage\":0}]}]}");
}

/* The message of a printed entry, read back. */
static void assert_message_reads(const char *message, const char *want)
{
    struct op_entry e = staging_entry();
    e.message = message;
    struct ops_list list = { .entry = &e, .n = 1 };
    cleanup_buf struct buf out = BUF_INIT(ROOM);
    operations_print(&list, &out);

    struct err err = ERR_INIT;
    cleanup_json json_object *top = NULL;
    if (jx_parse(out.data, out.len, ROOM, &top, &err) != 0)
        fail_msg("%s: %s", err.msg, out.data);
    json_object *array = json_object_object_get(top, "operations");
    const char *got = NULL;
    assert_true(jx_get_str(json_object_array_get_idx(array, 0), "message", &got));
    assert_string_equal(got, want);
}

static void any_text_is_escaped(void **state)
{
    (void)state;
    assert_message_reads("\"\\/\b\n\t\x01\x7f", "\"\\/\b\n\t\x01\x7f");
    assert_message_reads("\xC3\xA4 \xF0\x9F\x9A\x9A", "\xC3\xA4 \xF0\x9F\x9A\x9A");
}

static void bytes_that_are_no_utf8_become_replacement_characters(void **state)
{
    (void)state;
    assert_message_reads("a\xff"
                         "b",
        "a\xEF\xBF\xBD"
        "b");
    assert_message_reads("\xC3\xA4\xC3", "\xC3\xA4\xEF\xBF\xBD");
    assert_message_reads("\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_message_reads("\xF0\x9F\x9A", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

/* Nothing may be lost on the way from a long text to an empty one and back (a leak check sees it). */
static void texts_of_every_length_follow_each_other(void **state)
{
    (void)state;
    assert_message_reads("", "");
    struct op_entry e[] = { staging_entry(), staging_entry(), staging_entry() };
    e[0].message = "a message that is longer than what a new string has room for";
    e[1].message = "";
    e[1].node_name = "";
    e[2].message = "b";
    struct ops_list list = { .entry = e, .n = 3 };
    cleanup_buf struct buf out = BUF_INIT(ROOM);
    operations_print(&list, &out);
    assert_non_null(strstr(out.data, "\"message\":\"\",\"nodeID\":\"node-id\",\"nodeName\":\"\""));
    assert_non_null(strstr(out.data, "\"message\":\"b\""));
}

static void what_does_not_fit_marks_the_buffer(void **state)
{
    (void)state;
    struct op_entry e = staging_entry();
    struct ops_list list = { .entry = &e, .n = 1 };
    cleanup_buf struct buf out = BUF_INIT(50);
    operations_print(&list, &out);
    assert_true(out.overflow);
}

static void five_thousand_entries_print_and_parse(void **state)
{
    (void)state;
    enum { MANY = 5000, MANY_ROOM = 1 << 22 };
    cleanup_free struct op_entry *e = mem_calloc(MANY, sizeof(*e));
    for (size_t i = 0; i < MANY; i++)
        e[i] = staging_entry();
    struct ops_list list = { .entry = e, .n = MANY };
    cleanup_buf struct buf out = BUF_INIT(MANY_ROOM);
    operations_print(&list, &out);
    assert_false(out.overflow);

    cleanup_json json_object *top = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(jx_parse(out.data, out.len, MANY_ROOM, &top, &err), 0);
    assert_int_equal(json_object_array_length(json_object_object_get(top, "operations")), MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_operations_are_an_empty_array),
        cmocka_unit_test(the_keys_of_a_staging_entry_come_in_the_contracts_order),
        cmocka_unit_test(an_overlay_alone_has_neither_node_id_nor_phase),
        cmocka_unit_test(empty_node_texts_of_a_row_are_present),
        cmocka_unit_test(other_tasks_leave_out_what_is_zero),
        cmocka_unit_test(the_keys_of_a_gallery_entry_come_in_the_contracts_order),
        cmocka_unit_test(any_text_is_escaped),
        cmocka_unit_test(bytes_that_are_no_utf8_become_replacement_characters),
        cmocka_unit_test(texts_of_every_length_follow_each_other),
        cmocka_unit_test(what_does_not_fit_marks_the_buffer),
        cmocka_unit_test(five_thousand_entries_print_and_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
