/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/key.h"

static void assert_good(const char *key)
{
    struct err e = ERR_INIT;
    if (key_check(key, &e) != 0)
        fail_msg("'%s' was refused: %s", key, e.msg);
}

static void assert_bad(const char *key, const char *reason)
{
    struct err e = ERR_INIT;
    assert_int_equal(key_check(key, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    if (!strstr(e.msg, reason))
        fail_msg("'%s' was refused with: %s", key, e.msg);
}

static void any_text_is_a_key(void **state)
{
    (void)state;
    assert_good("m");
    assert_good("meta/llama@v1:q4%2F");
    assert_good("Modell mit Leerzeichen \xC3\xA4");
    assert_good("\xF0\x9F\x9A\x9A");
    assert_good("/");
    assert_good("a//b/");
}

static void an_empty_key_is_refused(void **state)
{
    (void)state;
    assert_bad("", "empty");
}

static void up_to_255_bytes(void **state)
{
    (void)state;
    char key[KEY_MAX_BYTES + 2] = "";
    memset(key, 'k', KEY_MAX_BYTES);
    assert_good(key);
    key[KEY_MAX_BYTES] = 'k';
    assert_bad(key, "255");
}

static void bytes_not_characters_count(void **state)
{
    (void)state;
    char key[2 * 128 + 1] = "";
    for (size_t i = 0; i < 128; i++)
        memcpy(key + 2 * i, "\xC3\xA4", 2);
    assert_bad(key, "255");
}

static void control_characters_are_refused(void **state)
{
    (void)state;
    assert_bad("a\nb", "control");
    assert_bad("\x01", "control");
    assert_bad("\x1f", "control");
    assert_bad("a\x7f", "control");
    assert_bad("a\xC2\x80", "control");
    assert_bad("a\xC2\x9F", "control");
    assert_good("a\xC2\xA0");
}

static void invalid_utf8_is_refused(void **state)
{
    (void)state;
    assert_bad("\xff", "UTF-8");
    assert_bad("a\xC3", "UTF-8");
    assert_bad("\xED\xA0\x80", "UTF-8");
}

static void dot_segments_are_refused(void **state)
{
    (void)state;
    assert_bad(".", "dot");
    assert_bad("..", "dot");
    assert_bad("../a", "dot");
    assert_bad("a/./b", "dot");
    assert_bad("a/..", "dot");
    assert_bad("a//..", "dot");
}

static void dots_within_a_segment_are_fine(void **state)
{
    (void)state;
    assert_good("...");
    assert_good("a/.../b");
    assert_good(".hidden");
    assert_good("a..b/c.");
    assert_good("..a");
}

static void the_reason_is_optional(void **state)
{
    (void)state;
    assert_int_equal(key_check("", NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_text_is_a_key),
        cmocka_unit_test(an_empty_key_is_refused),
        cmocka_unit_test(up_to_255_bytes),
        cmocka_unit_test(bytes_not_characters_count),
        cmocka_unit_test(control_characters_are_refused),
        cmocka_unit_test(invalid_utf8_is_refused),
        cmocka_unit_test(dot_segments_are_refused),
        cmocka_unit_test(dots_within_a_segment_are_fine),
        cmocka_unit_test(the_reason_is_optional),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
