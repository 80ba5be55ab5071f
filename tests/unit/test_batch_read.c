/* SPDX-License-Identifier: Apache-2.0
 * Reading a batch out of an answer, whatever the answer holds (reference 1.10). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "batch/batch_client.h"
#include "json/jx.h"
#include "tests/fake/json_of.h"

static struct batch read_text(const char *text)
{
    struct batch b = BATCH_INIT;
    struct err e = ERR_INIT;
    cleanup_json json_object *o = json_of(text);
    assert_int_equal(batch_read(o, &b, &e), 0);
    return b;
}

static void errors_of_lines_are_read(void **state)
{
    (void)state;
    struct batch b = read_text(
        "{\"id\":\"b\",\"status\":\"failed\",\"errors\":{\"object\":\"list\",\"data\":[{\"code\":\"invalid_input_file\","
        "\"message\":\"Line 3: no url\",\"param\":\"url\",\"line\":3},null,{\"message\":7,\"line\":-1}]}}");
    assert_int_equal(b.status, BATCH_FAILED);
    assert_int_equal(b.errors, 2);
    assert_string_equal(b.error[0].code, "invalid_input_file");
    assert_string_equal(b.error[0].message, "Line 3: no url");
    assert_string_equal(b.error[0].param, "url");
    assert_int_equal(b.error[0].line, 3);
    assert_string_equal(b.error[1].message, "");
    assert_int_equal(b.error[1].line, 0);
    batch_fini(&b);
    b = read_text("{\"id\":\"b\",\"errors\":[{\"message\":\"m\"}]}");
    assert_int_equal(b.errors, 1);
    batch_fini(&b);
}

static void only_so_many_errors_are_kept(void **state)
{
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    (void)state;
    buf_puts(&text, "{\"id\":\"b\",\"errors\":[");
    for (int i = 0; i < 150; i++)
        buf_printf(&text, "%s{\"message\":\"%0600d\",\"line\":%d}", i > 0 ? "," : "", 0, i);
    buf_puts(&text, "]}");
    struct batch b = read_text(text.data);
    assert_int_equal(b.errors, BATCH_ERRORS_MAX);
    assert_int_equal(b.error[99].line, 99);
    assert_int_equal(strlen(b.error[99].message), BATCH_MESSAGE_SIZE - 1);
    batch_fini(&b);
}

static void unknown_words_stay_as_they_are(void **state)
{
    (void)state;
    struct batch b = read_text("{\"id\":\"b\",\"status\":\"pondering\"}");
    assert_int_equal(b.status, BATCH_STATUS_UNKNOWN);
    assert_string_equal(b.status_word, "pondering");
    b = read_text("{\"id\":\"b\"}");
    assert_int_equal(b.status, BATCH_STATUS_UNKNOWN);
    assert_string_equal(b.status_word, "");
}

static void what_makes_no_sense_counts_as_not_told(void **state)
{
    (void)state;
    struct batch b = read_text(
        "{\"id\":\"b\",\"status\":[],\"output_file_id\":{\"x\":1},\"error_file_id\":\"a\\u001b[2J\","
        "\"created_at\":-5,\"expires_at\":1e300,\"completed_at\":\"now\",\"in_progress_at\":1719.75,"
        "\"request_counts\":{\"total\":-1,\"completed\":5},\"usage\":{\"input_tokens\":\"7\",\"output_tokens\":-7,"
        "\"total_tokens\":9007199254740993,\"input_tokens_details\":[]},\"errors\":7,\"aibrix\":[]}");
    assert_int_equal(b.status, BATCH_STATUS_UNKNOWN);
    assert_string_equal(b.output_file_id, "");
    assert_string_equal(b.error_file_id, "");
    assert_int_equal(b.times.created_at, 0);
    assert_int_equal(b.times.expires_at, 0);
    assert_int_equal(b.times.completed_at, 0);
    assert_int_equal(b.times.in_progress_at, 1719);
    assert_false(b.counts.known);
    assert_int_equal(b.counts.total, 0);
    assert_true(b.usage.known);
    assert_int_equal(b.usage.input_tokens, 0);
    assert_int_equal(b.usage.output_tokens, 0);
    assert_int_equal(b.usage.total_tokens, INT64_C(9007199254740993));
    assert_int_equal(b.errors, 0);
    assert_string_equal(b.job_id, "");
}

static void too_long_an_id_is_none(void **state)
{
    char text[512];
    struct batch b = BATCH_INIT;
    struct err e = ERR_INIT;
    (void)state;
    (void)snprintf(text, sizeof text, "{\"id\":\"%0200d\"}", 7);
    cleanup_json json_object *o = json_of(text);
    assert_int_equal(batch_read(o, &b, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_lines_are_read),
        cmocka_unit_test(only_so_many_errors_are_kept),
        cmocka_unit_test(unknown_words_stay_as_they_are),
        cmocka_unit_test(what_makes_no_sense_counts_as_not_told),
        cmocka_unit_test(too_long_an_id_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
