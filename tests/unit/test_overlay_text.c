/* SPDX-License-Identifier: Apache-2.0 */
/* Texts made of an overlay, and the values that count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "model/key.h"
#include "model/overlay.h"
#include "model/rfc3339.h"
#include "tests/unit/overlay_scene.h"

#define GIB (INT64_C(1) << 30)
#define MIB (INT64_C(1) << 20)

/* Messages */

static void assert_bytes(int64_t bytes, const char *want)
{
    char text[32];
    overlay_bytes_text(text, bytes);
    assert_string_equal(text, want);
}

static void bytes_have_one_digit_from_kib_on(void **state)
{
    (void)state;
    assert_bytes(0, "0 B");
    assert_bytes(512, "512 B");
    assert_bytes(1023, "1023 B");
    assert_bytes(1024, "1.0 KiB");
    assert_bytes(1536, "1.5 KiB");
    assert_bytes(310 * MIB, "310.0 MiB");
    assert_bytes(1288490189, "1.2 GiB");
    assert_bytes(GIB * 1024 * 3, "3.0 TiB");
    assert_bytes(INT64_C(1) << 50, "1.0 PiB");
    assert_bytes(INT64_MAX, "8.0 EiB");
    assert_bytes(-7, "0 B");
}

static void bytes_never_read_1024_of_a_unit(void **state)
{
    (void)state;
    assert_bytes(MIB - 1, "1.0 MiB");
    assert_bytes(1023 * 1024, "1023.0 KiB");
    assert_bytes(GIB - 1, "1.0 GiB");
}

static void assert_message(
    const char *file, int64_t sent, int64_t total, const char *speed, const char *want)
{
    char text[OVERLAY_MESSAGE_MAX];
    overlay_message(text, file, sent, total, speed);
    assert_string_equal(text, want);
}

static void messages_read_as_the_contract_says(void **state)
{
    (void)state;
    assert_message("weights.gguf", 1288490189, 4 * GIB, "310 MiB/s",
        "weights.gguf (1.2 GiB / 4.0 GiB, 310 MiB/s)");
    assert_message("weights.gguf", 5, 0, "310 MiB/s", "Staging weights.gguf");
    assert_message("weights.gguf", 5, -1, NULL, "Staging weights.gguf");
    assert_message("", 0, 0, "", "Preparing to stage model files");
    assert_message(NULL, 0, 10, "1 B/s", "Preparing to stage model files");
    assert_message(NULL, 5, 10, "1 B/s", "Staging model files (5 B / 10 B)");
}

static void a_message_without_speed_leaves_it_out(void **state)
{
    (void)state;
    assert_message("a", 5, 10, "", "a (5 B / 10 B)");
    assert_message("a", 5, 10, NULL, "a (5 B / 10 B)");
}

static void a_long_message_is_cut_at_a_whole_character(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        char file[2048] = "xxxx";
        for (size_t at = shift; at + 4 < sizeof(file); at += 4)
            memcpy(file + at, "\xF0\x9F\x9A\x9A", 4);
        char text[OVERLAY_MESSAGE_MAX];
        overlay_message(text, file, 0, 0, "");
        size_t size = strlen(text);
        assert_true(size > OVERLAY_MESSAGE_MAX - 6 && size < OVERLAY_MESSAGE_MAX);
        assert_true(str_utf8_valid(text, size));
    }
}

/* Values that count */

static void a_stored_value_is_sane(void **state)
{
    (void)state;
    struct overlay o = stored();
    assert_true(overlay_is_sane(&o));
    o.session = "";
    o.claim = ONE;
    assert_true(overlay_is_sane(&o));
    o.progress = 0;
    assert_true(overlay_is_sane(&o));
    o.progress = 100;
    o.total_bytes = OVERLAY_NUMBER_MAX;
    assert_true(overlay_is_sane(&o));
}

static void absurd_progress_is_not_sane(void **state)
{
    (void)state;
    static const double BAD[] = { NAN, INFINITY, -INFINITY, -0.1, 100.1 };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct overlay o = stored();
        o.progress = BAD[i];
        assert_false(overlay_is_sane(&o));
    }
}

static void absurd_numbers_are_not_sane(void **state)
{
    (void)state;
    static const int64_t BAD[] = { -1, INT64_MIN, OVERLAY_NUMBER_MAX + 1, INT64_MAX };
    for (size_t i = 0; i < 5 * (sizeof BAD / sizeof BAD[0]); i++) {
        struct overlay o = stored();
        int64_t *const field[] = { &o.bytes_sent, &o.total_bytes, &o.file_index, &o.total_files,
            &o.stamp_us };
        *field[i % 5] = BAD[i / 5];
        assert_false(overlay_is_sane(&o));
    }
}

static void invalid_utf8_is_not_sane(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        struct overlay o = stored();
        const char **const field[] = { &o.key, &o.node_name, &o.file_name, &o.speed, &o.message,
            &o.started_at, &o.claim, &o.session };
        *field[i] = "\xff";
        if (i == 6)
            o.session = "";
        assert_false(overlay_is_sane(&o));
    }
}

static void too_long_texts_are_not_sane(void **state)
{
    (void)state;
    char text[OVERLAY_VALUE_MAX];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    for (size_t i = 0; i < 8; i++) {
        struct overlay o = stored();
        const char **const field[] = { &o.key, &o.node_name, &o.file_name, &o.speed, &o.message,
            &o.started_at, &o.claim, &o.session };
        *field[i] = text;
        if (i == 6)
            o.session = "";
        assert_false(overlay_is_sane(&o));
    }
}

static void a_value_under_a_bad_key_is_not_sane(void **state)
{
    (void)state;
    struct overlay o = stored();
    o.key = "a/../b";
    assert_false(overlay_is_sane(&o));
    o.key = "";
    assert_false(overlay_is_sane(&o));
}

/* Times */

static void times_are_utc_with_microseconds(void **state)
{
    (void)state;
    char text[RFC3339_SIZE];
    rfc3339_us(text, STAMP);
    assert_string_equal(text, TIME);
    rfc3339_us(text, 1);
    assert_string_equal(text, "1970-01-01T00:00:00.000001Z");
    rfc3339_us(text, INT64_C(253402300799999999));
    assert_string_equal(text, "9999-12-31T23:59:59.999999Z");
}

static void unset_and_absurd_times_are_empty(void **state)
{
    (void)state;
    static const int64_t NONE[] = { 0, -1, INT64_MIN, INT64_MAX, INT64_C(253402300800000000) };
    for (size_t i = 0; i < sizeof NONE / sizeof NONE[0]; i++) {
        char text[RFC3339_SIZE] = "x";
        rfc3339_us(text, NONE[i]);
        assert_string_equal(text, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_one_digit_from_kib_on),
        cmocka_unit_test(bytes_never_read_1024_of_a_unit),
        cmocka_unit_test(messages_read_as_the_contract_says),
        cmocka_unit_test(a_message_without_speed_leaves_it_out),
        cmocka_unit_test(a_long_message_is_cut_at_a_whole_character),
        cmocka_unit_test(a_stored_value_is_sane),
        cmocka_unit_test(absurd_progress_is_not_sane),
        cmocka_unit_test(absurd_numbers_are_not_sane),
        cmocka_unit_test(invalid_utf8_is_not_sane),
        cmocka_unit_test(too_long_texts_are_not_sane),
        cmocka_unit_test(a_value_under_a_bad_key_is_not_sane),
        cmocka_unit_test(times_are_utc_with_microseconds),
        cmocka_unit_test(unset_and_absurd_times_are_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
