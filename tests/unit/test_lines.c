/* SPDX-License-Identifier: Apache-2.0 */
/* Files of lines: reading them, taking them apart, segments, and what is there twice. Batch contract, "Validation",
 * "Running", "Memory". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "lines/jsonl.h"
#include "lines/line.h"
#include "lines/segment.h"
#include "lines/unique.h"
#include "tests/fake/folder.h"

static int file_of(const char *text, size_t size)
{
    folder_put_bytes(&test_folder, "lines", text, size, 0600);
    const int fd = open(folder_at(&test_folder, "lines"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int open_folder(void)
{
    const int fd = open(test_folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* --- reading --- */

/* "number:offset:text|...", a line that is too long as "-". */
static void read_as(const char *text, size_t line_max, const char *expected)
{
    char got[512] = "";
    struct err e = ERR_INIT;
    cleanup_fd int fd = file_of(text, strlen(text));
    cleanup_jsonl struct jsonl *j = jsonl_open(fd, line_max);
    struct jsonl_line l;

    while (jsonl_next(j, &l, &e) == 0) {
        const size_t at = strlen(got);
        (void)snprintf(got + at, sizeof got - at, "%d:%d:%.*s|", (int)l.number, (int)l.offset,
            l.text == NULL ? 1 : (int)l.size, l.text == NULL ? "-" : l.text);
    }
    assert_int_equal(e.code, ERR_OK);
    assert_string_equal(got, expected);
}

static void lines_have_numbers_and_places(void **state)
{
    (void)state;
    read_as("", 10, "");
    read_as("a\nbc\n", 10, "1:0:a|2:2:bc|");
    read_as("a\nbc", 10, "1:0:a|2:2:bc|");
    read_as("\n \t\r\n\na\r\n", 10, "4:6:a\r|");
    read_as("12345\n123456\n1\n", 5, "1:0:12345|2:6:-|3:13:1|");
    read_as("123456", 5, "1:0:-|");
}

static void a_line_longer_than_what_is_read_at_once_comes_whole(void **state)
{
    enum { SIZE = 300000 };
    cleanup_free char *text = mem_alloc(SIZE + 2);
    struct err e = ERR_INIT;
    struct jsonl_line l;
    int64_t last = 0;
    (void)state;

    memset(text, 'x', SIZE);
    memcpy(text + SIZE, "\ny", 2);
    cleanup_fd int fd = file_of(text, SIZE + 2);
    {
        cleanup_jsonl struct jsonl *j = jsonl_open(fd, SIZE);
        assert_int_equal(jsonl_next(j, &l, &e), 0);
        assert_int_equal(l.size, SIZE);
        assert_memory_equal(l.text, text, SIZE);
        assert_int_equal(jsonl_next(j, &l, &e), 0);
        assert_int_equal(l.offset, SIZE + 1);
        assert_int_equal(jsonl_next(j, &l, &e), 1);
        assert_int_equal(jsonl_next(j, &l, &e), 1);
    }
    {
        cleanup_jsonl struct jsonl *j = jsonl_open(fd, SIZE - 1);
        assert_int_equal(jsonl_next(j, &l, &e), 0);
        assert_null(l.text);
        assert_int_equal(jsonl_next(j, &l, &e), 0);
        assert_int_equal(l.number, 2);
    }
    assert_int_equal(jsonl_last(fd, &last, &e), 0);
    assert_int_equal(last, 2);
}

static void the_last_number_counts_blank_lines_too(void **state)
{
    static const struct {
        const char *text;
        int64_t last;
    } TABLE[] = { { "", 0 }, { "a", 1 }, { "a\n", 1 }, { "\n\na\n\n", 4 } };
    struct err e = ERR_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        int64_t last = -1;
        cleanup_fd int fd = file_of(TABLE[i].text, strlen(TABLE[i].text));
        assert_int_equal(jsonl_last(fd, &last, &e), 0);
        assert_int_equal(last, TABLE[i].last);
    }
}

/* --- a line, and its result --- */

static struct line_answer answer_of(const char *body, json_object *parsed)
{
    return (struct line_answer){ .status = 200,
        .request_id = "",
        .body = body,
        .size = strlen(body),
        .parsed = parsed,
        .secret = "sk-secret" };
}

static void put_as(const char *body, const char *expected)
{
    const struct line_of of = { "batch_ab", 7, "id \"7\"" };
    struct err e = ERR_INIT;
    cleanup_buf struct buf out = BUF_INIT(4096);
    cleanup_buf struct buf whole = BUF_INIT(4096);
    cleanup_json json_object *parsed = NULL;

    (void)!jx_parse(body, strlen(body), 4096, &parsed, &e);
    const struct line_answer a = answer_of(body, parsed);
    line_put_answer(&out, &of, &a);
    buf_printf(&whole,
        "{\"id\":\"batch_req_ab_7\",\"custom_id\":\"id \\\"7\\\"\",\"response\":{\"status_code\":200,"
        "\"request_id\":\"batch_req_ab_7\",\"body\":%s},\"error\":null}\n",
        expected);
    assert_string_equal(out.data, whole.data);
}

static void an_answer_stays_as_it_was_written_and_on_one_line(void **state)
{
    (void)state;
    put_as("{ \"n\":1.50 }", "{ \"n\":1.50 }");
    put_as("{\n\"n\" : 1\r\n}\n", "{\"n\":1}");
    put_as("Oops, <html>\n", "{\"error\":{\"message\":\"Oops, <html>?\"}}");
}

static void no_result_tells_our_token(void **state)
{
    struct err e = ERR_INIT;
    cleanup_buf struct buf out = BUF_INIT(4096);
    cleanup_json json_object *parsed = NULL;
    const char *body = "{\"error\":\"bad key sk-secret\"}";
    const struct line_of of = { "batch_ab", 7, "7" };
    (void)state;
    assert_int_equal(jx_parse(body, strlen(body), 4096, &parsed, &e), 0);
    const struct line_answer a = answer_of(body, parsed);
    line_put_answer(&out, &of, &a);
    assert_null(strstr(out.data, "sk-secret"));
    assert_non_null(strstr(out.data, "bad key ***"));
}

static void usage_is_read_in_the_words_of_either_api(void **state)
{
    static const char *const ANSWERS[] = {
        "{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3,"
        "\"prompt_tokens_details\":{\"cached_tokens\":1},\"completion_tokens_details\":null}}",
        "{\"usage\":{\"input_tokens\":10,\"output_tokens\":20,"
        "\"output_tokens_details\":{\"reasoning_tokens\":5}}}",
        "{\"usage\":{\"prompt_tokens\":-5,\"total_tokens\":\"many\"}}",
        "{\"usage\":null}",
        "{}",
    };
    struct batch_usage u = { .known = false };
    struct err e = ERR_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof ANSWERS / sizeof ANSWERS[0]; i++) {
        cleanup_json json_object *o = NULL;
        assert_int_equal(jx_parse(ANSWERS[i], strlen(ANSWERS[i]), 4096, &o, &e), 0);
        line_add_usage(&u, o);
    }
    assert_int_equal(u.input_tokens, 11);
    assert_int_equal(u.output_tokens, 22);
    assert_int_equal(u.total_tokens, 33);
    assert_int_equal(u.cached_tokens, 1);
    assert_int_equal(u.reasoning_tokens, 5);
}

/* --- what is there twice --- */

static void note(void *ctx, int64_t number)
{
    char *got = ctx;
    assert_in_range(number, 0, 63);
    got[number]++;
}

static void texts_that_are_there_twice_are_found_whatever_their_number(void **state)
{
    enum { N = 100000 };
    char got[64] = "";
    char text[32];
    struct err e = ERR_INIT;
    cleanup_fd int at = open_folder();
    cleanup_unique struct unique *u = NULL;
    (void)state;

    assert_int_equal(unique_open(at, &u, &e), 0);
    for (int i = 0; i < 64; i++) { /* 10 to 13 say the same, and 50 what 49 says */
        (void)snprintf(text, sizeof text, "id %d", i >= 10 && i <= 13 ? 10 : i == 50 ? 49 : i);
        assert_int_equal(unique_add(u, text, i, &e), 0);
    }
    for (int i = 64; i < N; i++) {
        (void)snprintf(text, sizeof text, "id %d", i);
        assert_int_equal(unique_add(u, text, i, &e), 0);
    }
    assert_int_equal(unique_end(u, note, got, &e), 0);
    for (int i = 0; i < 64; i++)
        assert_int_equal(got[i], (i >= 11 && i <= 13) || i == 50 ? 1 : 0);
}

/* --- segments --- */

static int never(void *ctx, struct err *e)
{
    (void)ctx;
    (void)e;
    return 0;
}

static void add(struct segment *s, int64_t number, bool failed, const char *text)
{
    struct err e = ERR_INIT;
    assert_int_equal(segment_add(s, number, failed, text, strlen(text), &e), 0);
}

static void joined_is(
    int at, const struct batch_segment *seg, size_t n, bool errors, const char *expected)
{
    char got[256] = "";
    struct err e = ERR_INIT;
    const struct segment_tick tick = { never, NULL };
    int64_t bytes = -1;
    const int fd = openat(at, "joined", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cleanup_fd int owned = fd;

    assert_int_equal(
        segments_join(&(struct segment_choice){ at, seg, n, errors }, owned, &tick, &bytes, &e), 0);
    assert_int_equal(bytes, (int64_t)strlen(expected));
    assert_int_equal(file_read(owned, got, (size_t)bytes), 0);
    assert_string_equal(got, expected);
}

/* What an epoch wrote behind its last checkpoint is no part of the result. */
static void segments_are_cut_at_their_recorded_length(void **state)
{
    struct segment *first = NULL;
    struct segment *second = NULL;
    struct batch_segment seg[2];
    struct batch_segment later;
    struct err e = ERR_INIT;
    uint64_t done[2] = { 0, 0 };
    cleanup_fd int at = open_folder();
    (void)state;

    assert_int_equal(segment_open(at, 1, &first, &e), 0);
    add(first, 3, false, "three\n");
    add(first, 70, true, "seventy\n");
    assert_int_equal(segment_flush(first, &seg[0], &e), 0);
    assert_int_equal(segment_open(at, 2, &second, &e), 0);
    add(first, 4, false, "too late\n");
    assert_int_equal(segment_flush(first, &later, &e), 0);
    add(second, 4, false, "four\n");
    assert_int_equal(segment_flush(second, &seg[1], &e), 0);
    assert_int_equal(segment_sync(second, &e), 0);

    joined_is(at, seg, 2, false, "three\nfour\n");
    joined_is(at, seg, 2, true, "seventy\n");
    assert_int_equal(segments_mark(at, seg, 2, done, 128, &e), 0);
    assert_int_equal(done[0], 1U << 3 | 1U << 4);
    assert_int_equal(done[1], 1U << (70 - 64));
    segment_close(first);
    segment_close(second);
}

static void a_segment_that_is_damaged_is_told(void **state)
{
    struct segment *s = NULL;
    struct batch_segment seg;
    struct batch_segment wrong[2];
    struct err e = ERR_INIT;
    uint64_t done[2] = { 0, 0 };
    cleanup_fd int at = open_folder();
    (void)state;

    assert_int_equal(segment_open(at, 1, &s, &e), 0);
    add(s, 3, false, "three\n");
    assert_int_equal(segment_flush(s, &seg, &e), 0);
    segment_close(s);
    wrong[0] = wrong[1] = seg;
    assert_int_equal(segments_mark(at, wrong, 2, done, 128, &e), -1); /* a line twice */
    assert_int_equal(e.code, ERR_INTERNAL);
    wrong[0].lines = 2;
    memset(done, 0, sizeof done);
    assert_int_equal(segments_mark(at, wrong, 1, done, 128, &e), -1); /* shorter */
    assert_int_equal(e.code, ERR_INTERNAL);
    memset(done, 0, sizeof done);
    assert_int_equal(segments_mark(at, &seg, 1, done, 3, &e), -1); /* of no line */
    assert_int_equal(e.code, ERR_INTERNAL);
}

static void large_results_are_whole_too(void **state)
{
    enum { SIZE = 200000 };
    cleanup_free char *text = mem_alloc(SIZE);
    struct segment *s = NULL;
    struct batch_segment seg;
    struct err e = ERR_INIT;
    struct stat st;
    cleanup_fd int at = open_folder();
    (void)state;

    memset(text, 'x', SIZE);
    assert_int_equal(segment_open(at, 1, &s, &e), 0);
    add(s, 1, false, "small\n");
    assert_int_equal(segment_add(s, 2, false, text, SIZE, &e), 0);
    add(s, 3, false, "small\n");
    assert_int_equal(segment_flush(s, &seg, &e), 0);
    segment_close(s);
    assert_int_equal(seg.output_bytes, SIZE + 12);
    assert_int_equal(fstatat(at, "output.1", &st, 0), 0);
    assert_int_equal(st.st_size, SIZE + 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_have_numbers_and_places, folder_begin, folder_end),
        cmocka_unit_test_setup_teardown(
            a_line_longer_than_what_is_read_at_once_comes_whole, folder_begin, folder_end),
        cmocka_unit_test_setup_teardown(
            the_last_number_counts_blank_lines_too, folder_begin, folder_end),
        cmocka_unit_test(an_answer_stays_as_it_was_written_and_on_one_line),
        cmocka_unit_test(no_result_tells_our_token),
        cmocka_unit_test(usage_is_read_in_the_words_of_either_api),
        cmocka_unit_test_setup_teardown(
            texts_that_are_there_twice_are_found_whatever_their_number, folder_begin, folder_end),
        cmocka_unit_test_setup_teardown(
            segments_are_cut_at_their_recorded_length, folder_begin, folder_end),
        cmocka_unit_test_setup_teardown(
            a_segment_that_is_damaged_is_told, folder_begin, folder_end),
        cmocka_unit_test_setup_teardown(large_results_are_whole_too, folder_begin, folder_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
