/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

static void set_formats_and_returns_failure(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    assert_int_equal(err_set(&e, ERR_NOT_FOUND, "no job %d", 7), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_string_equal(e.msg, "no job 7");
}

static void a_caller_may_not_care(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERR_INVALID, "x"), -1);
    assert_int_equal(err_wrap(NULL, "x"), -1);
    assert_int_equal(err_errno(NULL, ERR_INVALID, "x"), -1);
}

static void wrap_keeps_the_code(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    err_set(&e, ERR_TIMEOUT, "no answer");
    assert_int_equal(err_wrap(&e, "job %s", "a"), -1);
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_string_equal(e.msg, "job a: no answer");
}

static void own_message_may_be_an_argument(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    err_set(&e, ERR_TIMEOUT, "inner");
    err_set(&e, ERR_INTERNAL, "outer (%s)", e.msg);
    assert_string_equal(e.msg, "outer (inner)");
}

static void errno_is_read_first(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    errno = ENOENT;
    assert_int_equal(err_errno(&e, ERR_INVALID, "open %s", "/x"), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_string_equal(e.msg, "open /x: No such file or directory");
}

static void long_text_is_cut_at_a_whole_character(void **state)
{
    (void)state;
    /* Every alignment of the three-byte character against the end. */
    for (int shift = 0; shift < 3; shift++) {
        char text[3 * ERR_MSG_SIZE + 4] = "";
        struct err e = ERR_INIT;
        memset(text, 'x', (size_t)shift);
        for (int i = 0; i < ERR_MSG_SIZE; i++)
            memcpy(text + shift + 3 * i, "€", 4);
        err_set(&e, ERR_INVALID, "%s", text);
        assert_in_range(strlen(e.msg), ERR_MSG_SIZE - 3, ERR_MSG_SIZE - 1);
        assert_true(str_utf8_valid(e.msg, strlen(e.msg)));
    }
}

static void wrapping_again_and_again_stays_in_bounds(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    err_set(&e, ERR_INVALID, "origin");
    for (int i = 0; i < 100; i++)
        err_wrap(&e, "context %d", i);
    assert_int_equal(strlen(e.msg), ERR_MSG_SIZE - 1);
    assert_int_equal(strncmp(e.msg, "context 99: context 98: ", 24), 0);
}

static void foreign_bytes_become_question_marks(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    err_set(&e, ERR_INVALID,
        "a\xFF"
        "b\xC3");
    assert_string_equal(e.msg, "a?b?");
}

static void every_code_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int a = 0; a < ERR__COUNT; a++) {
        assert_non_null(err_name((enum err_code)a));
        for (int b = 0; b < a; b++)
            assert_string_not_equal(err_name((enum err_code)a), err_name((enum err_code)b));
    }
    assert_string_equal(err_name(ERR_NOT_FOUND), "not_found");
    assert_string_equal(err_name(ERR__COUNT), "unknown");
}

static void what_was_told_is_no_news(void **state)
{
    struct err last = ERR_INIT;
    struct err now = ERR_INIT;
    (void)state;
    assert_false(err_is_news(&last, &now));
    (void)err_set(&now, ERR_CONFLICT, "somebody else");
    assert_true(err_is_news(&last, &now));
    assert_false(err_is_news(&last, &now));
    (void)err_set(&now, ERR_CONFLICT, "another");
    assert_true(err_is_news(&last, &now));
    now = (struct err)ERR_INIT;
    assert_true(err_is_news(&last, &now)); /* it is well again */
    assert_false(err_is_news(&last, &now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_formats_and_returns_failure),
        cmocka_unit_test(a_caller_may_not_care),
        cmocka_unit_test(wrap_keeps_the_code),
        cmocka_unit_test(own_message_may_be_an_argument),
        cmocka_unit_test(errno_is_read_first),
        cmocka_unit_test(long_text_is_cut_at_a_whole_character),
        cmocka_unit_test(wrapping_again_and_again_stays_in_bounds),
        cmocka_unit_test(foreign_bytes_become_question_marks),
        cmocka_unit_test(every_code_has_a_name_of_its_own),
        cmocka_unit_test(what_was_told_is_no_news),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
