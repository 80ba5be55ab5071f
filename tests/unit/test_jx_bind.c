/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "json/jx_bind.h"

struct body {
    const char *owner;
    int64_t total_bytes;
    double progress;
    int cancellable;
    json_object *nodes;
};

static const struct jx_field FIELDS[] = {
    JX_TEXT(struct body, owner, JX_REQUIRED, 4),
    JX_INT(struct body, total_bytes, 0, 0, INT64_MAX),
    JX_DOUBLE(struct body, progress, 0, 0, 100),
    JX_BOOL(struct body, cancellable, 0),
    JX_RAW(struct body, nodes, 0),
};

#define BODY_INIT \
    { \
        .owner = "before", .total_bytes = -1, .progress = -1, .cancellable = -1, .nodes = NULL \
    }

static json_object *parsed(const char *text)
{
    struct err e = ERR_INIT;
    json_object *o = NULL;
    assert_int_equal(jx_parse(text, strlen(text), 4096, &o, &e), 0);
    return o;
}

static int bind(json_object *o, enum jx_mode mode, struct body *b, struct err *e)
{
    return jx_bind(o, FIELDS, sizeof(FIELDS) / sizeof(FIELDS[0]), mode, b, e);
}

static void expect_refused(const char *text, const char *why)
{
    struct err e = ERR_INIT;
    struct body b = BODY_INIT;
    const struct body before = b;
    cleanup_json json_object *o = parsed(text);
    assert_int_equal(bind(o, JX_STRICT, &b, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_string_equal(e.msg, why);
    assert_memory_equal(&b, &before, sizeof(b)); /* the target is untouched on failure */
}

static void binds_every_type(void **state)
{
    struct err e = ERR_INIT;
    struct body b = BODY_INIT;
    (void)state;
    cleanup_json json_object *o = parsed("{\"owner\":\"éa\",\"total_bytes\":9223372036854775807,"
                                         "\"progress\":12.5,\"cancellable\":false,\"nodes\":[1]}");
    assert_int_equal(bind(o, JX_STRICT, &b, &e), 0);
    assert_string_equal(b.owner, "éa");
    assert_int_equal(b.total_bytes, INT64_MAX);
    assert_true(b.progress > 12.4 && b.progress < 12.6);
    assert_int_equal(b.cancellable, 0);
    assert_int_equal(json_object_array_length(b.nodes), 1);
}

static void leaves_what_is_missing_or_null(void **state)
{
    struct err e = ERR_INIT;
    struct body b = BODY_INIT;
    (void)state;
    cleanup_json json_object *o =
        parsed("{\"owner\":\"x\",\"total_bytes\":null,\"nodes\":null,\"cancellable\":null}");
    assert_int_equal(bind(o, JX_STRICT, &b, &e), 0);
    assert_int_equal(b.total_bytes, -1);
    assert_int_equal(b.cancellable, -1);
    assert_true(b.progress < 0);
    assert_null(b.nodes);
}

static void refuses_and_names_the_field(void **state)
{
    (void)state;
    expect_refused("{}", "owner: is required");
    expect_refused("{\"owner\":null}", "owner: is required");
    expect_refused("{\"owner\":1}", "owner: must be text");
    expect_refused("{\"owner\":\"abcde\"}", "owner: must be at most 4 characters");
    expect_refused("{\"owner\":\"x\",\"total_bytes\":-1}",
        "total_bytes: must be a whole number from 0 to 9223372036854775807");
    expect_refused("{\"owner\":\"x\",\"total_bytes\":\"1\"}",
        "total_bytes: must be a whole number from 0 to 9223372036854775807");
    expect_refused("{\"owner\":\"x\",\"total_bytes\":1.5}",
        "total_bytes: must be a whole number from 0 to 9223372036854775807");
    expect_refused("{\"owner\":\"x\",\"total_bytes\":9223372036854775808}",
        "total_bytes: must be a whole number from 0 to 9223372036854775807");
    expect_refused(
        "{\"owner\":\"x\",\"progress\":100.5}", "progress: must be a number from 0 to 100");
    expect_refused(
        "{\"owner\":\"x\",\"progress\":\"NaN\"}", "progress: must be a number from 0 to 100");
    expect_refused("{\"owner\":\"x\",\"cancellable\":1}", "cancellable: must be true or false");
    expect_refused(
        "{\"owner\":\"x\",\"cancellable\":\"true\"}", "cancellable: must be true or false");
    expect_refused("{\"owner\":\"x\",\"extra\":1}", "unknown field: extra");
}

static void counts_characters_not_bytes(void **state)
{
    struct err e = ERR_INIT;
    struct body b = BODY_INIT;
    (void)state;
    cleanup_json json_object *o = parsed("{\"owner\":\"éé😀é\"}");
    assert_int_equal(bind(o, JX_STRICT, &b, &e), 0);
}

static void takes_objects_only(void **state)
{
    (void)state;
    expect_refused("[]", "must be a JSON object");
    expect_refused("null", "must be a JSON object");
    expect_refused("\"owner\"", "must be a JSON object");
}

static void ignores_unknown_names_when_lenient(void **state)
{
    struct err e = ERR_INIT;
    struct body b = BODY_INIT;
    (void)state;
    cleanup_json json_object *o = parsed("{\"owner\":\"x\",\"extra\":1}");
    assert_int_equal(bind(o, JX_LENIENT, &b, &e), 0);
    assert_string_equal(b.owner, "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binds_every_type),
        cmocka_unit_test(leaves_what_is_missing_or_null),
        cmocka_unit_test(refuses_and_names_the_field),
        cmocka_unit_test(counts_characters_not_bytes),
        cmocka_unit_test(takes_objects_only),
        cmocka_unit_test(ignores_unknown_names_when_lenient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
