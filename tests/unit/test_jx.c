/* SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "json/jx.h"
#include "json/jx_write.h"

enum { TEXT_MAX = 4096 };

/* A text literal with its length: some hold NULs. */
#define TEXT(t) (t), sizeof(t) - 1

static int parse(const char *text, size_t size, json_object **out, struct err *e)
{
    return jx_parse(text, size, TEXT_MAX, out, e);
}

static void expect_refused(const char *text, size_t size)
{
    struct err e = ERR_INIT;
    json_object *o = NULL;
    if (parse(text, size, &o, &e) == 0) {
        json_object_put(o);
        fail_msg("taken: %s", text);
    }
    assert_int_equal(e.code, ERR_INVALID);
    assert_true(strlen(e.msg) > 0);
}

/* Parses and prints. */
static void expect_print(const char *text, const char *printed)
{
    struct err e = ERR_INIT;
    cleanup_json json_object *o = NULL;
    cleanup_buf struct buf out = BUF_INIT(TEXT_MAX);
    if (parse(text, strlen(text), &o, &e) < 0)
        fail_msg("refused: %s: %s", text, e.msg);
    jx_print(o, &out);
    assert_string_equal(out.data, printed);
}

static void takes_every_kind_of_value(void **state)
{
    (void)state;
    expect_print("{}", "{}");
    expect_print(" [ ] \r\n\t", "[]");
    expect_print("null", "null");
    expect_print("true", "true");
    expect_print("0", "0");
    expect_print("-0.5e+3", "-0.5e+3");
    expect_print("12", "12");
    expect_print("\"a/b\"", "\"a/b\"");
    expect_print("{\"a\":[1,{\"b\":null}],\"c\":\"x\"}", "{\"a\":[1,{\"b\":null}],\"c\":\"x\"}");
    expect_print("\"\\u00e9\\ud83d\\ude00\\n\"", "\"é😀\\n\"");
    expect_print("{\"a:b\":\"c:d\"}", "{\"a:b\":\"c:d\"}");
}

static void refuses_what_is_not_json(void **state)
{
    (void)state;
    expect_refused(TEXT(""));
    expect_refused(TEXT("   "));
    expect_refused(TEXT("{"));
    expect_refused(TEXT("[1,]"));
    expect_refused(TEXT("[1 2]"));
    expect_refused(TEXT("{\"a\":1,}"));
    expect_refused(TEXT("{a:1}"));
    expect_refused(TEXT("{\"a\" 1}"));
    expect_refused(TEXT("]"));
    expect_refused(TEXT("\"open"));
    expect_refused(TEXT("\"\\x\""));
    expect_refused(TEXT("\"\\u12g4\""));
    expect_refused(TEXT("// note\n1"));
    expect_refused(TEXT("/* note */ 1"));
    expect_refused(TEXT("\xef\xbb\xbf{}")); /* a byte order mark */
}

static void refuses_what_json_c_lets_through(void **state)
{
    (void)state;
    expect_refused(TEXT("{'a':1}"));
    expect_refused(TEXT("['a']"));
    expect_refused(TEXT("NaN"));
    expect_refused(TEXT("[nan]"));
    expect_refused(TEXT("[Infinity]"));
    expect_refused(TEXT("[-Infinity]"));
    expect_refused(TEXT("[TRUE]"));
    expect_refused(TEXT("[Null]"));
}

static void refuses_bad_numbers(void **state)
{
    (void)state;
    expect_refused(TEXT("[01]"));
    expect_refused(TEXT("[-]"));
    expect_refused(TEXT("[+1]"));
    expect_refused(TEXT("[1.]"));
    expect_refused(TEXT("[.5]"));
    expect_refused(TEXT("[1e]"));
    expect_refused(TEXT("[1e+]"));
    expect_refused(TEXT("[0x10]"));
    expect_refused(TEXT("[1e400]"));
    expect_refused(TEXT("{\"a\":{\"b\":-1e400}}"));
}

static void refuses_bad_text(void **state)
{
    (void)state;
    expect_refused(TEXT("[\"a\\u0000\"]"));
    expect_refused(TEXT("{\"a\\u0000\":1}"));
    expect_refused(TEXT("[\"a\0b\"]"));
    expect_refused(TEXT("[\"a\nb\"]"));
    expect_refused(TEXT("[\"\\ud83d\"]"));        /* high half alone */
    expect_refused(TEXT("[\"\\ude00\"]"));        /* low half alone */
    expect_refused(TEXT("[\"\\ud83d\\u0041\"]")); /* high half and no low one */
    expect_refused(TEXT("[\"\\ud83dx\"]"));
    expect_refused(TEXT("[\"\xff\"]"));
    expect_refused(TEXT("[\"\xc0\xaf\"]"));     /* overlong */
    expect_refused(TEXT("[\"\xed\xa0\x80\"]")); /* a surrogate as UTF-8 */
}

static void refuses_equal_names_in_one_object(void **state)
{
    (void)state;
    expect_refused(TEXT("{\"a\":1,\"a\":2}"));
    expect_refused(TEXT("{\"a\":1,\"\\u0061\":2}"));
    expect_refused(TEXT("[{\"x\":{\"a\":1,\"b\":2,\"a\":{\"c\":3}}}]"));
    expect_print("[{\"a\":1},{\"a\":2}]", "[{\"a\":1},{\"a\":2}]");
}

static void refuses_trailing_bytes(void **state)
{
    (void)state;
    expect_refused(TEXT("{} x"));
    expect_refused(TEXT("{}{}"));
    expect_refused(TEXT("1 2"));
    expect_refused(TEXT("{}\0"));
    expect_refused(TEXT("1\0"));
    expect_refused(TEXT("null null"));
}

static void limits_depth_to_16(void **state)
{
    char text[64] = "";
    (void)state;
    memset(text, '[', 16);
    memset(text + 16, '1', 1);
    memset(text + 17, ']', 16);
    expect_print(text, text);
    memset(text, '[', 17);
    memset(text + 17, ']', 17);
    expect_refused(text, 34);
}

static void limits_size(void **state)
{
    struct err e = ERR_INIT;
    json_object *o = NULL;
    (void)state;
    assert_int_equal(jx_parse("[1]", 3, 2, &o, &e), -1);
    assert_int_equal(e.code, ERR_TOO_LARGE);
    assert_int_equal(jx_parse("[1]x", 3, 3, &o, &e), 0); /* looks at no byte past the size */
    json_object_put(o);
}

/* Report 22: 78.27 and not 78.269999999999996. */
static void prints_doubles_shortest(void **state)
{
    (void)state;
    cleanup_json json_object *o = jx_object();
    cleanup_buf struct buf out = BUF_INIT(TEXT_MAX);
    jx_set_double(o, "a", 78.27);
    jx_set_double(o, "b", 0.1);
    jx_set_double(o, "c", 100);
    jx_set_double(o, "d", 1.0 / 3);
    jx_set_double(o, "e", 5e-324);
    jx_print(o, &out);
    assert_string_equal(out.data, "{\"a\":78.27,\"b\":0.1,\"c\":100,\"d\":0.3333333333333333,"
                                  "\"e\":4.94065645841247e-324}");
}

static void builds_members_in_order(void **state)
{
    (void)state;
    cleanup_json json_object *o = jx_object();
    cleanup_buf struct buf out = BUF_INIT(TEXT_MAX);
    json_object *list = jx_array();
    json_object *child = jx_object();
    jx_set_str(child, "path", "/a/\"b\"");
    jx_add(list, child);
    jx_set_str(o, "z", "é");
    jx_set_str(o, "y", NULL);
    jx_set_int(o, "x", INT64_MIN);
    jx_set_bool(o, "w", true);
    jx_set_null(o, "v");
    jx_set(o, "u", list);
    jx_print(o, &out);
    assert_string_equal(out.data, "{\"z\":\"é\",\"y\":null,\"x\":-9223372036854775808,\"w\":true,"
                                  "\"v\":null,\"u\":[{\"path\":\"/a/\\\"b\\\"\"}]}");
}

static void *parse_and_print(void *arg)
{
    uintptr_t wrong = 0;
    (void)arg;
    for (int i = 0; i < 200; i++) {
        struct err e = ERR_INIT;
        cleanup_json json_object *in = NULL;
        cleanup_json json_object *o = jx_object();
        cleanup_buf struct buf out = BUF_INIT(TEXT_MAX);
        double d = 0;
        if (parse(TEXT("{\"d\":78.27}"), &in, &e) < 0 || !jx_get_double(in, "d", &d))
            return (void *)1;
        jx_set_double(o, "d", d);
        jx_print(o, &out);
        wrong |= strcmp(out.data, "{\"d\":78.27}") != 0;
    }
    return (void *)wrong; /* cmocka's asserts are for the main thread */
}

/* Report 23: json-c changes the locale of the thread while it parses. Run under ThreadSanitizer, too. */
static void threads_do_not_disturb_each_other(void **state)
{
    pthread_t thread[4];
    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, parse_and_print, NULL), 0);
    for (size_t i = 0; i < 4; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
    }
}

static void is_the_same_under_a_decimal_comma(void **state)
{
    static const char *const NAMES[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE" };
    const char *set = NULL;
    (void)state;
    for (size_t i = 0; set == NULL && i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        set = setlocale(LC_NUMERIC, NAMES[i]);
    if (set == NULL)
        skip();
    prints_doubles_shortest(state);
    struct err e = ERR_INIT;
    double d = 0;
    cleanup_json json_object *o = NULL;
    assert_int_equal(parse(TEXT("{\"d\":1.5}"), &o, &e), 0);
    assert_true(jx_get_double(o, "d", &d));
    assert_true(d > 1.49 && d < 1.51);
    threads_do_not_disturb_each_other(state);
    (void)setlocale(LC_NUMERIC, "C");
}

/* The int that {"n":text} is read as, or not. */
static bool as_int(const char *text, int64_t *out)
{
    char json[128];
    struct err e = ERR_INIT;
    cleanup_json json_object *o = NULL;
    (void)snprintf(json, sizeof(json), "{\"n\":%s}", text);
    assert_int_equal(parse(json, strlen(json), &o, &e), 0);
    return jx_get_int(o, "n", out);
}

static void reads_whole_numbers_only(void **state)
{
    int64_t n = 0;
    (void)state;
    assert_true(as_int("7", &n) && n == 7);
    assert_true(as_int("1.0", &n) && n == 1);
    assert_true(as_int("1e3", &n) && n == 1000);
    assert_true(as_int("-2.5e1", &n) && n == -25);
    assert_true(as_int("9223372036854775807", &n) && n == INT64_MAX);
    assert_false(as_int("1.5", &n));
    assert_false(as_int("-0.5", &n));
    assert_false(as_int("1e19", &n));
    assert_false(as_int("\"7\"", &n));
    assert_false(as_int("true", &n));
    assert_false(as_int("null", &n));
    assert_false(as_int("{}", &n));
}

static void takes_no_saturated_integer(void **state)
{
    int64_t n = 0;
    (void)state;
    assert_false(as_int("9223372036854775808", &n));
    assert_false(as_int("18446744073709551615", &n));
    assert_false(as_int("99999999999999999999999", &n));
    assert_false(as_int("-9223372036854775809", &n));
    assert_false(as_int("-99999999999999999999999", &n));
}

static void reads_members_by_type(void **state)
{
    struct err e = ERR_INIT;
    const char *s = NULL;
    double d = 0;
    bool b = false;
    cleanup_json json_object *o = NULL;
    (void)state;
    assert_int_equal(parse(TEXT("{\"s\":\"x\",\"d\":2,\"b\":true,\"n\":null}"), &o, &e), 0);
    assert_true(jx_get_str(o, "s", &s));
    assert_string_equal(s, "x");
    assert_true(jx_get_double(o, "d", &d));
    assert_true(d > 1.9 && d < 2.1);
    assert_true(jx_get_bool(o, "b", &b) && b);
    assert_false(jx_get_str(o, "d", &s));
    assert_false(jx_get_str(o, "n", &s));
    assert_false(jx_get_str(o, "absent", &s));
    assert_false(jx_get_bool(o, "d", &b));
    assert_false(jx_get_double(o, "s", &d));
    assert_false(jx_get_str(NULL, "s", &s));
}

static void expect_same_text(const char *text)
{
    cleanup_buf struct buf built = BUF_INIT(TEXT_MAX);
    cleanup_buf struct buf written = BUF_INIT(TEXT_MAX);
    cleanup_json json_object *o = jx_object();
    jx_set_str(o, "k", text);
    jx_print(o, &built);
    buf_puts(&written, "{\"k\":");
    jx_write_text(&written, text);
    buf_putc(&written, '}');
    assert_string_equal(written.data, built.data);
}

static void writes_texts_as_json_c_does(void **state)
{
    (void)state;
    expect_same_text("");
    expect_same_text("a/b \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80");
    for (char c = 1; c < 0x7F; c++) {
        const char text[] = { 'a', c, c, 'b', c, '\0' };
        expect_same_text(text);
    }
    expect_same_text("\x7F");
}

static void writes_numbers_as_json_c_does(void **state)
{
    (void)state;
    static const int64_t INTS[] = { 0, 1, -1, 9, 10, 1234567890123, INT64_MAX, INT64_MIN };
    static const double DOUBLES[] = { 0.0, 100.0, 78.27, 1.0 / 3.0, 1e300, -5e-324 };
    cleanup_buf struct buf built = BUF_INIT(TEXT_MAX);
    cleanup_buf struct buf written = BUF_INIT(TEXT_MAX);
    for (size_t i = 0; i < sizeof(INTS) / sizeof(INTS[0]); i++) {
        cleanup_json json_object *n = json_object_new_int64(INTS[i]);
        jx_print(n, &built);
        jx_write_int(&written, INTS[i]);
    }
    assert_string_equal(written.data, built.data);
    for (size_t i = 0; i < sizeof(DOUBLES) / sizeof(DOUBLES[0]); i++) {
        buf_clear(&built);
        buf_clear(&written);
        cleanup_json json_object *one = jx_object();
        jx_set_double(one, "k", DOUBLES[i]);
        jx_print(one, &built);
        buf_puts(&written, "{\"k\":");
        jx_write_double(&written, DOUBLES[i]);
        buf_putc(&written, '}');
        assert_string_equal(written.data, built.data);
    }
}

/* The same value in other words is the same text; another value is not. */
static void sorted_is_one_spelling(void **state)
{
    static const char WANT[] = "{\"A\":null,\"a\":[{\"c\":3,\"d\":-0.5},true,\"x\"],\"b\":100}";
    static const char *const SAME[] = {
        "{\"b\":100,\"a\":[{\"d\":-0.5,\"c\":3},true,\"x\"],\"A\":null}",
        "{\"A\" : null, \"b\" : 1e2, \"a\" : [ { \"c\" : 3.0, \"d\" : -5e-1 }, true, \"\\u0078\" ] }",
    };
    static const char *const OTHER[] = {
        "{\"A\":null,\"a\":[true,{\"c\":3,\"d\":-0.5},\"x\"],\"b\":100}",
        "{\"A\":null,\"a\":[{\"c\":3,\"d\":-0.5},true,\"x\"],\"b\":\"100\"}",
        "{\"a\":[{\"c\":3,\"d\":-0.5},true,\"x\"],\"b\":100}"
    };
    (void)state;
    for (size_t i = 0; i < 2 + 3; i++) {
        const char *text = i < 2 ? SAME[i] : OTHER[i - 2];
        struct err e = ERR_INIT;
        cleanup_json json_object *o = NULL;
        cleanup_buf struct buf out = BUF_INIT(TEXT_MAX);
        assert_int_equal(jx_parse(text, strlen(text), TEXT_MAX, &o, &e), 0);
        cleanup_json json_object *sorted = jx_sorted(o);
        jx_print(sorted, &out);
        if ((strcmp(out.data, WANT) == 0) != (i < 2))
            fail_msg("%s became %s", text, out.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_kind_of_value),
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(refuses_what_json_c_lets_through),
        cmocka_unit_test(refuses_bad_numbers),
        cmocka_unit_test(refuses_bad_text),
        cmocka_unit_test(refuses_equal_names_in_one_object),
        cmocka_unit_test(refuses_trailing_bytes),
        cmocka_unit_test(limits_depth_to_16),
        cmocka_unit_test(limits_size),
        cmocka_unit_test(prints_doubles_shortest),
        cmocka_unit_test(builds_members_in_order),
        cmocka_unit_test(threads_do_not_disturb_each_other),
        cmocka_unit_test(is_the_same_under_a_decimal_comma),
        cmocka_unit_test(reads_whole_numbers_only),
        cmocka_unit_test(takes_no_saturated_integer),
        cmocka_unit_test(reads_members_by_type),
        cmocka_unit_test(sorted_is_one_spelling),
        cmocka_unit_test(writes_texts_as_json_c_does),
        cmocka_unit_test(writes_numbers_as_json_c_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
