/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/str.h"

static void copy_tells_of_a_cut(void **state)
{
    char dst[4];

    (void)state;
    assert_int_equal(str_copy(dst, sizeof dst, "abc"), 0);
    assert_string_equal(dst, "abc");
    assert_int_equal(str_copy(dst, sizeof dst, "abcd"), -1);
    assert_string_equal(dst, "abc");
    assert_int_equal(str_copy(dst, 1, ""), 0);
    assert_string_equal(dst, "");
}

static void format_tells_of_a_cut(void **state)
{
    char dst[4];

    (void)state;
    assert_int_equal(str_format(dst, sizeof dst, "%d", 123), 0);
    assert_string_equal(dst, "123");
    assert_int_equal(str_format(dst, sizeof dst, "%d", 1234), -1);
    assert_string_equal(dst, "123");
}

static void numbers_are_strict(void **state)
{
    static const char *const BAD[] = { "", "-", "+1", " 1", "1 ", "1x", "0x1", "1.0", "--1",
        "9223372036854775808", "-9223372036854775809", "99999999999999999999999" };
    int64_t n = 42;

    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_int_equal(str_to_i64(BAD[i], INT64_MIN, INT64_MAX, &n), -1);
    assert_int_equal(n, 42);
    assert_int_equal(str_to_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &n), 0);
    assert_true(n == INT64_MIN);
    assert_int_equal(str_to_i64("007", 7, 7, &n), 0);
    assert_int_equal(n, 7);
    assert_int_equal(str_to_i64("8", -7, 7, &n), -1);
    assert_int_equal(str_to_i64("-8", -7, 7, &n), -1);
    assert_int_equal(n, 7);
}

static void decimals_are_strict_and_finite(void **state)
{
    static const char *const BAD[] = { "", "-", ".5", "1.", "1e", "1e+", "nan", "inf", "0x1p3",
        " 1", "1 ", "1,5", "1e999", "+1" };
    double d = 42;

    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_int_equal(str_to_double(BAD[i], &d), -1);
    assert_true(d == 42);
    assert_int_equal(str_to_double("-12.5", &d), 0);
    assert_true(d == -12.5);
    assert_int_equal(str_to_double("1.5e+2", &d), 0);
    assert_true(d == 150);
    assert_int_equal(str_to_double("25E-2", &d), 0);
    assert_true(d == 0.25);
    assert_int_equal(str_to_double("3e2", &d), 0);
    assert_true(d == 300);
}

/* RFC 3629, section 4. */
static void utf8_is_checked(void **state)
{
    static const char *const GOOD[] = { "", "a", "ä", "€", "𐍈", "\xC2\x80", "\xDF\xBF",
        "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80",
        "\xF4\x8F\xBF\xBF" };
    static const char *const BAD[] = { "\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2\x41",
        "\xC2\xC0", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xE2\x82", "\xE2\x82\x41",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xF0\x90\x80",
        "\xF0\x90\x41\x80", "ok\xFE" };

    (void)state;
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++)
        assert_true(str_utf8_valid(GOOD[i], strlen(GOOD[i])));
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_false(str_utf8_valid(BAD[i], strlen(BAD[i])));
    assert_false(str_utf8_valid("€", 2));
    assert_true(str_utf8_valid("a\0b", 3));
    assert_int_equal(str_utf8_char("€x", 4), 3);
    assert_int_equal(str_utf8_char("", 0), 0);
}

static void characters_are_counted(void **state)
{
    (void)state;
    assert_int_equal(str_utf8_length(""), 0);
    assert_int_equal(str_utf8_length("aä€𐍈"), 4);
}

static void ends_are_compared(void **state)
{
    (void)state;
    assert_true(str_starts("abc", "ab"));
    assert_true(str_starts("abc", ""));
    assert_false(str_starts("ab", "abc"));
    assert_true(str_ends("abc", "bc"));
    assert_true(str_ends("abc", ""));
    assert_false(str_ends("bc", "abc"));
    assert_false(str_ends("abc", "ab"));
    assert_true(str_empty(NULL));
    assert_true(str_empty(""));
    assert_false(str_empty(" "));
}

static void hex_is_lower_case(void **state)
{
    char dst[9];

    (void)state;
    str_hex(dst, "\x00\x0F\xA5\xFF", 4);
    assert_string_equal(dst, "000fa5ff");
    str_hex(dst, "", 0);
    assert_string_equal(dst, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_tells_of_a_cut),
        cmocka_unit_test(format_tells_of_a_cut),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(decimals_are_strict_and_finite),
        cmocka_unit_test(utf8_is_checked),
        cmocka_unit_test(characters_are_counted),
        cmocka_unit_test(ends_are_compared),
        cmocka_unit_test(hex_is_lower_case),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
