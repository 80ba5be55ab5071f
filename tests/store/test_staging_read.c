/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the overlay from a real Redis: what a list leaves out, and which values count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/store/staging_fixture.h"

static void test_an_expired_overlay_is_skipped(void **state)
{
    (void)state;
    (void)must_report("a", report_of("s1", 1, 1));
    (void)must_report("b", report_of("s1", 1, 1));
    (void)must_report("c", report_of("s1", 1, 1));
    (void)RAW(T("PEXPIRE"), T("wb:1:staging:a"), T("0")); /* in the index, without a value */
    (void)RAW(T("ZADD"), T("wb:1:live"), T("1"), T("staging:b")); /* expired by the index */
    (void)RAW(T("ZREM"), T("wb:1:live"), T("staging:c"));         /* not in the index */
    list_is(0, 0);
    cleanup_overlays struct overlays none = must_get("a", 1);
    assert_int_equal(none.malformed, 0);
    /* The next report of any key clears the index of what has expired. */
    (void)must_report("d", report_of("s1", 1, 1));
    list_is(1, 0);
    assert_int_equal(RAW(T("ZCARD"), T("wb:1:live")), 2); /* a, d */
}

#define FAR "99999999999999"

static void index_value(const char *key, const char *value, size_t size)
{
    char name[400];
    char member[400];
    (void)str_format(name, sizeof name, "wb:1:staging:%s", key);
    (void)str_format(member, sizeof member, "staging:%s", key);
    (void)RAW(T("SET"), T(name), { .data = value, .size = size });
    (void)RAW(T("ZADD"), T("wb:1:live"), T(FAR), T(member));
}

static const char *const MALFORMED[] = { "", "not json", "[]", "7", "null",
    "{\"model_id\":\"other\"}", "{\"bytes_sent\":-1}", "{\"bytes_sent\":1.5}",
    "{\"bytes_sent\":9007199254740992}", "{\"bytes_sent\":1e300}", "{\"bytes_sent\":\"7\"}",
    "{\"total_files\":true}", "{\"progress\":NaN}", "{\"progress\":101}", "{\"progress\":-1}",
    "{\"progress\":\"5\"}", "{\"progress\":1e400}", "{\"message\":7}", "{\"message\":null}",
    "{\"message\":\"\xff\"}", "{\"message\":\"a\\u0000b\"}", "{\"message\":\"\\ud800\"}",
    "{\"stamp\":-5}", "{\"speed\":\"1\",\"speed\":\"2\"}", "{} x", "{'a':1}" };

static void test_malformed_values_are_counted_and_break_nothing(void **state)
{
    (void)state;
    const size_t n = sizeof MALFORMED / sizeof MALFORMED[0];
    (void)must_report("good", report_of("s1", 1, 1));
    for (size_t i = 0; i < n; i++) {
        index_value("bad", MALFORMED[i], strlen(MALFORMED[i]));
        cleanup_overlays struct overlays one = must_get("bad", 1);
        if (one.malformed != 1)
            fail_msg("%s: not counted", MALFORMED[i]);
        list_is(1, 1);
    }
    index_value("bad", "{}\0", 3);
    list_is(1, 1);
    cleanup_free char *big = mem_alloc(OVERLAY_VALUE_MAX + 1);
    memset(big, ' ', OVERLAY_VALUE_MAX + 1);
    memcpy(big, "{}", 2);
    index_value("bad", big, OVERLAY_VALUE_MAX + 1);
    list_is(1, 1);
    index_value("bad", big, OVERLAY_VALUE_MAX);
    list_is(2, 0);
}

static void test_missing_fields_have_defaults(void **state)
{
    (void)state;
    static const char VALUE[] =
        "{\"total_bytes\":2e2,\"bytes_sent\":50.0,\"later\":[1,{\"a\":null}]}";
    index_value("m", VALUE, sizeof VALUE - 1);
    cleanup_overlays struct overlays o = must_list();
    assert_int_equal(o.n, 1);
    assert_string_equal(o.overlay->key, "m");
    assert_string_equal(o.overlay->message, "");
    assert_string_equal(o.overlay->session, "");
    assert_int_equal(o.overlay->total_bytes, 200);
    assert_int_equal((int)o.overlay->progress, 25);
    assert_int_equal(o.overlay->stamp_us, 0);
    /* The score tells of the far future, but no overlay lives longer than its TTL. */
    assert_true(clock_left_ms(o.overlay->expires_ns) <= 60000);
}

static void test_odd_members_of_the_index_are_counted_or_left_to_others(void **state)
{
    (void)state;
    (void)must_report("good", report_of("s1", 1, 1));
    (void)RAW(T("ZADD"), T("wb:1:live"), T(FAR), T("op:123"));
    (void)RAW(T("ZADD"), T("wb:1:live"), T(FAR), T("other"));
    list_is(1, 0);
    (void)RAW(T("ZADD"), T("wb:1:live"), T(FAR), T("staging:a\nb"));
    (void)RAW(T("ZADD"), T("wb:1:live"), T(FAR), T("staging:"));
    (void)RAW(T("ZADD"), T("wb:1:live"), T(FAR), T("staging:a/../b"));
    (void)RAW(T("ZADD"), T("wb:1:live"), T(FAR), { .data = "staging:a\0b", .size = 11 });
    (void)RAW(T("ZADD"), T("wb:1:live"), T("+inf"), T("staging:endless"));
    list_is(1, 5);
    (void)RAW(T("DEL"), T("wb:1:staging:good"));
    (void)RAW(T("LPUSH"), T("wb:1:staging:good"), T("x"));
    list_is(0, 5);
}

static void test_a_list_of_thousands_comes_whole_and_in_order(void **state)
{
    (void)state;
    enum { MANY = 2500 };
    char key[32];
    for (int i = 0; i < MANY; i++) {
        (void)str_format(key, sizeof key, "model-%d", i);
        index_value(key, "{}", 2);
    }
    cleanup_overlays struct overlays o = must_list();
    assert_int_equal(o.n, MANY);
    for (size_t i = 1; i < o.n; i++)
        assert_true(strcmp(o.overlay[i - 1].key, o.overlay[i].key) < 0);
}

static void add_values(int n, const char *value)
{
    struct err e = ERR_INIT;
    char name[64];
    for (int i = 0; i < n; i++) {
        (void)str_format(name, sizeof name, "wb:1:staging:m%d", i);
        assert_int_equal(kv_append(staging_kv, KV_ARGS(T("SET"), T(name), T(value)), &e), 0);
        (void)str_format(name, sizeof name, "staging:m%d", i);
        assert_int_equal(
            kv_append(staging_kv, KV_ARGS(T("ZADD"), T("wb:1:live"), T(FAR), T(name)), &e), 0);
        for (int k = 0; k < 2; k++) {
            cleanup_reply redisReply *r = NULL;
            assert_int_equal(kv_take(staging_kv, &r, &e), 0);
        }
    }
}

/* What parsing them takes is not Redis' time: all is read before. The deadline guards against hanging
 * only, for machines that are slow under a sanitizer. */
static void test_malformed_values_by_the_thousand_do_not_make_redis_late(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    struct err e = ERR_INIT;
    add_values(MANY, "{\"message\":[1,[2,[3,[4,[5,[6]]]]]],\"bytes_sent\":-1}");
    cleanup_overlays struct overlays o = OVERLAYS_INIT;
    kv_set_deadline(staging_kv, clock_deadline(MS_PER_S));
    int rc = staging_list(staging_kv, NULL, &o, &e);
    kv_set_deadline(staging_kv, 0);
    if (rc < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(o.n, 0);
    assert_int_equal(o.malformed, MANY);
}

/* Values that did not change since an earlier list are shared with it; those that did are not. */
static void test_a_list_after_another_says_what_is_stored_now(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    (void)must_report("a", report_of("s1", 1, 1));
    (void)must_report("c", report_of("s1", 1, 1));
    (void)must_report("d", report_of("s1", 1, 1));
    struct overlays before = must_list();
    must_end("a");
    (void)must_report("b", report_of("s1", 1, 7));
    (void)must_report("d", report_of("s1", 2, 9));
    cleanup_overlays struct overlays now = OVERLAYS_INIT;
    assert_int_equal(staging_list(staging_kv, &before, &now, &e), 0);
    assert_int_equal(now.n, 3);
    assert_ptr_equal(now.json[1], before.json[1]);
    overlays_free(&before);
    static const char *const KEYS[] = { "b", "c", "d" };
    static const int64_t SENT[] = { 7, 1, 9 };
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(now.overlay[i].key, KEYS[i]);
        assert_int_equal(now.overlay[i].bytes_sent, SENT[i]);
    }
}

static void test_the_value_has_its_fields_in_order(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct report r = report_of("s1", 1700000000000000, 782);
    r.speed = "3 MiB/s";
    r.message = "copying a/b";
    (void)must_report("m", r);
    cleanup_reply redisReply *reply = NULL;
    assert_int_equal(kv_command(staging_kv, KV_ARGS(T("GET"), T("wb:1:staging:m")), &reply, &e), 0);
    assert_string_equal(reply->str,
        "{\"model_id\":\"m\",\"node_name\":\"node-1\",\"file_name\":\"weights.gguf\","
        "\"bytes_sent\":782,\"total_bytes\":1000,\"progress\":78.2,\"speed\":\"3 MiB/s\","
        "\"file_index\":0,\"total_files\":0,\"message\":\"copying a/b\","
        "\"started_at\":\"2023-11-14T22:13:20.000000Z\",\"claim\":\"\",\"session\":\"s1\","
        "\"stamp\":1700000000000000}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_expired_overlay_is_skipped),
        TEST(test_malformed_values_are_counted_and_break_nothing),
        TEST(test_missing_fields_have_defaults),
        TEST(test_odd_members_of_the_index_are_counted_or_left_to_others),
        TEST(test_a_list_of_thousands_comes_whole_and_in_order),
        TEST(test_malformed_values_by_the_thousand_do_not_make_redis_late),
        TEST(test_a_list_after_another_says_what_is_stored_now),
        TEST(test_the_value_has_its_fields_in_order),
    };
    return cmocka_run_group_tests(tests, staging_open, staging_close);
}
