/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer to a request for a shard means: artifacts contract, section 4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "model/fetch_rules.h"

enum { FIRST = 1048576, SIZE = 1048576, TOTAL = 3000000, LAST = FIRST + SIZE - 1 };

static void content_range_is_taken_only_whole(void **state)
{
    static const char *const BAD[] = { "", "bytes", "bytes ", "bytes 0-9", "bytes 0-9/",
        "bytes 0-9/*", "bytes */10", "bytes 0-10/10", "bytes 9-0/10", "bytes -1-9/10",
        "bytes +0-9/10", "bytes 0-9/10 ", "bytes  0-9/10", "bytes 0 -9/10", "bytes=0-9/10",
        "Bytes 0-9/10", "bytes 0-9/99999999999999999999", "bytes 0x0-9/10", "items 0-9/10",
        "bytes 0-9/10,0-9/10" };
    struct content_range r = { 7, 7, 7 };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        if (content_range_parse(BAD[i], &r) == 0)
            fail_msg("taken: '%s'", BAD[i]);
        assert_int_equal(r.first, 7);
    }
    assert_int_equal(content_range_parse("bytes 1048576-2097151/3000000", &r), 0);
    assert_int_equal(r.first, FIRST);
    assert_int_equal(r.last, LAST);
    assert_int_equal(r.total, TOTAL);
}

static struct mishap judged(struct fetch_answer a)
{
    struct mishap m = MISHAP_INIT;
    const int rc = fetch_judge(&a, FIRST, SIZE, TOTAL, &m);
    assert_int_equal(rc, m.reason == MISHAP_NONE ? 0 : -1);
    return m;
}

static void only_a_206_with_just_that_range_and_total_is_accepted(void **state)
{
    static const struct {
        int status;
        const char *range;
        enum mishap_reason reason;
    } CASES[] = {
        { 206, "bytes 1048576-2097151/3000000", MISHAP_NONE },
        { 206, "bytes 1048575-2097150/3000000", MISHAP_WRONG_RANGE },
        { 206, "bytes 1048576-2097150/3000000", MISHAP_WRONG_RANGE },
        { 206, "bytes 0-1048575/3000000", MISHAP_WRONG_RANGE },
        { 206, "bytes 1048576-2097151/3000001", MISHAP_SIZE_CHANGED },
        { 206, "bytes 1048576-2097151/*", MISHAP_WRONG_RANGE },
        { 206, NULL, MISHAP_WRONG_RANGE },
        { 200, "bytes 1048576-2097151/3000000", MISHAP_RANGE_IGNORED },
        { 200, NULL, MISHAP_RANGE_IGNORED },
        { 204, NULL, MISHAP_REFUSED },
        { 302, NULL, MISHAP_REFUSED },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const struct mishap m = judged(
            (struct fetch_answer){ .status = CASES[i].status, .content_range = CASES[i].range });
        if (m.reason != CASES[i].reason)
            fail_msg("%d %s: %s", CASES[i].status, CASES[i].range, mishap_reason_name(m.reason));
        if (m.reason != MISHAP_NONE)
            assert_int_equal(m.grade, MISHAP_SOURCE_FATAL);
    }
}

static void an_encoded_body_is_not_taken(void **state)
{
    struct fetch_answer a = { .status = 206, .content_range = "bytes 1048576-2097151/3000000" };
    (void)state;
    a.content_encoding = "gzip";
    assert_int_equal(judged(a).reason, MISHAP_REFUSED);
    a.content_encoding = "identity";
    assert_int_equal(judged(a).reason, MISHAP_NONE);
}

static void statuses_have_the_classes_of_the_contract(void **state)
{
    static const struct {
        int status;
        enum mishap_class grade;
        enum mishap_reason reason;
    } CASES[] = {
        { 408, MISHAP_RETRYABLE, MISHAP_TIMEOUT },
        { 425, MISHAP_RETRYABLE, MISHAP_TIMEOUT },
        { 429, MISHAP_RETRYABLE, MISHAP_THROTTLED },
        { 500, MISHAP_RETRYABLE, MISHAP_SERVER_ERROR },
        { 502, MISHAP_RETRYABLE, MISHAP_SERVER_ERROR },
        { 503, MISHAP_RETRYABLE, MISHAP_SERVER_ERROR },
        { 504, MISHAP_RETRYABLE, MISHAP_SERVER_ERROR },
        { 401, MISHAP_SOURCE_FATAL, MISHAP_FORBIDDEN },
        { 403, MISHAP_SOURCE_FATAL, MISHAP_FORBIDDEN },
        { 404, MISHAP_SOURCE_FATAL, MISHAP_NOT_FOUND },
        { 410, MISHAP_SOURCE_FATAL, MISHAP_NOT_FOUND },
        { 416, MISHAP_SOURCE_FATAL, MISHAP_RANGE_REFUSED },
        { 400, MISHAP_SOURCE_FATAL, MISHAP_REFUSED },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const struct mishap m = judged((struct fetch_answer){ .status = CASES[i].status });
        if (m.reason != CASES[i].reason || m.grade != CASES[i].grade)
            fail_msg("%d: %s %s", CASES[i].status, mishap_class_name(m.grade),
                mishap_reason_name(m.reason));
        assert_int_equal(m.status, CASES[i].status);
    }
}

/* Reference section 3, row 17: not every 403 is an expired URL. */
static void expired_and_forbidden_differ(void **state)
{
    (void)state;
    assert_int_equal(judged((struct fetch_answer){ .status = 403 }).reason, MISHAP_FORBIDDEN);
    assert_int_equal(
        judged((struct fetch_answer){ .status = 403, .url_expired = true }).reason, MISHAP_EXPIRED);
    assert_int_equal(judged((struct fetch_answer){ .status = 404, .url_expired = true }).reason,
        MISHAP_NOT_FOUND);
}

static void signed_urls_tell_when_they_end(void **state)
{
    static const char AMZ[] = "https://b.s3.example/k?X-Amz-Algorithm=A&X-Amz-Date=20260102T030405Z"
                              "&X-Amz-Expires=60&X-Amz-Signature=s";
    enum { SIGNED_S = 1767323045 }; /* 2026-01-02T03:04:05Z */
    (void)state;
    assert_false(url_expired(AMZ, SIGNED_S + 60));
    assert_true(url_expired(AMZ, SIGNED_S + 61));
    assert_true(url_expired("https://c.example/k?Expires=1000&Signature=x", 1001));
    assert_false(url_expired("https://c.example/k?Expires=1000&Signature=x", 1000));
    assert_true(url_expired("https://c.example/k?a=b&expires=1000", 1001));
    assert_false(url_expired("https://c.example/Expires=1000", 1001));
    assert_false(url_expired("https://c.example/k?NotExpires=1000", 1001));
    assert_false(url_expired("https://c.example/k?X-Amz-Date=no&X-Amz-Expires=60", INT64_MAX));
}

static void rate_limits_say_how_long_to_stay_away(void **state)
{
    (void)state;
    assert_int_equal(rate_limit_wait_ms("\"default\";r=0;t=87"), 87000);
    assert_int_equal(rate_limit_wait_ms("r=0;t=87"), 87000);
    assert_int_equal(rate_limit_wait_ms("limit=10, remaining=0, reset=5"), 5000);
    assert_int_equal(rate_limit_wait_ms("r=3;t=87"), 0);
    assert_int_equal(rate_limit_wait_ms("r=0"), 0);
    assert_int_equal(rate_limit_wait_ms("limit=10, remaining=2, reset=5"), 0);
    assert_int_equal(rate_limit_wait_ms("r=0;t=999999999"), 3600000);
    assert_int_equal(rate_limit_wait_ms("r=0;t=99999999999999999999999"), 0);
    assert_int_equal(rate_limit_wait_ms(""), 0);
    assert_int_equal(rate_limit_wait_ms("nonsense"), 0);
}

static void a_throttled_answer_carries_the_longer_wait(void **state)
{
    struct fetch_answer a = { .status = 429, .retry_after_ms = 2000, .rate_limit = "r=0;t=5" };
    (void)state;
    assert_int_equal(judged(a).wait_ms, 5000);
    a.retry_after_ms = 9000;
    assert_int_equal(judged(a).wait_ms, 9000);
    a.status = 503;
    assert_int_equal(judged(a).wait_ms, 9000);
    a.status = 404;
    assert_int_equal(judged(a).wait_ms, 0);
}

static void a_manifest_is_asked_for_whole(void **state)
{
    struct mishap m = MISHAP_INIT;
    struct fetch_answer a = { .status = 200 };
    (void)state;
    assert_int_equal(fetch_judge_whole(&a, &m), 0);
    a.status = 206;
    assert_int_equal(fetch_judge_whole(&a, &m), -1);
    a.status = 404;
    assert_int_equal(fetch_judge_whole(&a, &m), -1);
    assert_int_equal(m.reason, MISHAP_NOT_FOUND);
}

/* Reference section 3, row 31: write errors are no network errors, and row 29: no space has a reason of its own. */
static void errors_of_the_disk_are_told_apart(void **state)
{
    static const struct {
        int code;
        bool writing;
        enum mishap_reason reason;
    } CASES[] = {
        { ENOSPC, true, MISHAP_DISK_FULL },
        { EDQUOT, true, MISHAP_DISK_FULL },
        { EFBIG, true, MISHAP_DISK_FULL },
        { EROFS, true, MISHAP_READ_ONLY },
        { EACCES, true, MISHAP_PERMISSION },
        { EPERM, false, MISHAP_PERMISSION },
        { EIO, true, MISHAP_DISK_WRITE },
        { EIO, false, MISHAP_DISK_READ },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct mishap m = MISHAP_INIT;
        errno = CASES[i].code;
        assert_int_equal(mishap_errno(&m, CASES[i].writing, "file %d", 7), -1);
        assert_int_equal(m.reason, CASES[i].reason);
        assert_int_equal(m.grade, MISHAP_TASK_FATAL);
        assert_non_null(strstr(m.text, "file 7: "));
    }
}

static void context_is_put_before_the_text(void **state)
{
    struct mishap m = MISHAP_INIT;
    (void)state;
    (void)mishap_set(&m, MISHAP_STALL, "silent for %d s", 60);
    (void)mishap_wrap(&m, "https://a");
    assert_string_equal(m.text, "https://a: silent for 60 s");
    assert_string_equal(mishap_counted_as(m.reason), "timeout");
    assert_string_equal(mishap_class_name(m.grade), "retryable");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_range_is_taken_only_whole),
        cmocka_unit_test(only_a_206_with_just_that_range_and_total_is_accepted),
        cmocka_unit_test(an_encoded_body_is_not_taken),
        cmocka_unit_test(statuses_have_the_classes_of_the_contract),
        cmocka_unit_test(expired_and_forbidden_differ),
        cmocka_unit_test(signed_urls_tell_when_they_end),
        cmocka_unit_test(rate_limits_say_how_long_to_stay_away),
        cmocka_unit_test(a_throttled_answer_carries_the_longer_wait),
        cmocka_unit_test(a_manifest_is_asked_for_whole),
        cmocka_unit_test(errors_of_the_disk_are_told_apart),
        cmocka_unit_test(context_is_put_before_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
