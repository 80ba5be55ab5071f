/* SPDX-License-Identifier: Apache-2.0 */
/* The overlay in a real Redis: what a report stores, who is refused, what a list leaves out. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/staging.h"
#include "tests/fake/redis_server.h"

enum { PATIENT_MS = 10000 };

static struct redis_server server;
static struct kv *kv;

#define T(text) kv_text(text)

static struct kv *connect_server(void)
{
    return kv_new(&(struct kv_options){
        .url = server.url, .name = "test", .timeout_ms = PATIENT_MS, .breaker = NULL });
}

/* A raw command; its integer, if that is its answer. */
static long long raw_args(struct kv_args a)
{
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    if (kv_command(kv, a, &r, &e) < 0)
        fail_msg("%s", e.msg);
    return r->integer;
}
#define RAW(...) raw_args(KV_ARGS(__VA_ARGS__))

static int open_server(void **state)
{
    (void)state;
    redis_server_open(&server, NULL);
    kv = connect_server();
    return 0;
}

static int close_server(void **state)
{
    (void)state;
    kv_close(kv);
    redis_server_close(&server);
    return 0;
}

static int flush_server(void **state)
{
    (void)state;
    (void)RAW(T("FLUSHALL"));
    return 0;
}

static struct report report_of(const char *session, int64_t stamp_us, int64_t sent)
{
    struct report r = REPORT_INIT;
    r.session = session;
    r.stamp_us = stamp_us;
    r.node_name = "node-1";
    r.file_name = "weights.gguf";
    r.bytes_sent = sent;
    r.total_bytes = 1000;
    return r;
}

static enum report_fate must_report(const char *key, struct report r)
{
    struct err e = ERR_INIT;
    enum report_fate fate = REPORT_CONFLICT;
    if (staging_report(kv, key, &r, &fate, &e) < 0)
        fail_msg("%s: %s", key, e.msg);
    return fate;
}

static void must_refuse(const char *key, struct report r, enum err_code code, const char *part)
{
    struct err e = ERR_INIT;
    enum report_fate fate = REPORT_CONFLICT;
    assert_int_equal(staging_report(kv, key, &r, &fate, &e), -1);
    if (e.code != code || strstr(e.msg, part) == NULL)
        fail_msg("%s: %s", err_name(e.code), e.msg);
    assert_int_equal(fate, REPORT_CONFLICT);
}

static void must_end(const char *key)
{
    struct err e = ERR_INIT;
    if (staging_end(kv, key, &e) < 0)
        fail_msg("%s", e.msg);
}

static struct overlays must_get(const char *key, int want)
{
    struct err e = ERR_INIT;
    struct overlays o = OVERLAYS_INIT;
    int rc = staging_get(kv, key, &o, &e);
    if (rc != want)
        fail_msg("%d %s", rc, e.msg);
    return o;
}

static struct overlays must_list(void)
{
    struct err e = ERR_INIT;
    struct overlays o = OVERLAYS_INIT;
    if (staging_list(kv, &o, &e) < 0)
        fail_msg("%s", e.msg);
    return o;
}

static void list_is(size_t n, size_t malformed)
{
    cleanup_overlays struct overlays o = must_list();
    assert_int_equal(o.n, n);
    assert_int_equal(o.malformed, malformed);
}

/* --- reports ----------------------------------------------------------------------------------- */

static void test_a_report_is_stored_with_ttl_and_index(void **state)
{
    (void)state;
    assert_int_equal(must_report("m", report_of("s1", 1000, 250)), REPORT_FIRST);
    assert_int_equal(must_report("m", report_of("s1", 2000, 500)), REPORT_APPLIED);
    long long ttl = RAW(T("PTTL"), T("wb:1:staging:m"));
    assert_true(ttl > 50000 && ttl <= 60000);
    assert_int_equal(RAW(T("ZCARD"), T("wb:1:live")), 1);
    cleanup_overlays struct overlays one = must_get("m", 0);
    cleanup_overlays struct overlays all = must_list();
    assert_int_equal(one.n, 1);
    assert_int_equal(all.n, 1);
    for (int i = 0; i < 2; i++) {
        const struct overlay *o = i == 0 ? one.overlay : all.overlay;
        int64_t left_ms = clock_left_ms(o->expires_ns);
        assert_string_equal(o->key, "m");
        assert_string_equal(o->node_name, "node-1");
        assert_string_equal(o->session, "s1");
        assert_string_equal(o->claim, "");
        assert_int_equal(o->bytes_sent, 500);
        assert_int_equal(o->stamp_us, 2000);
        assert_int_equal((int)o->progress, 50);
        assert_true(left_ms > 50000 && left_ms <= 60000);
    }
}

static void test_missing_fields_keep_what_is_stored_by_another_thread_too(void **state)
{
    (void)state;
    static const char *const VALUE =
        "{\"model_id\":\"m\",\"file_name\":\"a.bin\",\"speed\":\"1 MiB/s\",\"session\":\"s1\","
        "\"stamp\":5,\"total_bytes\":10}";
    (void)RAW(T("SET"), T("wb:1:staging:m"), T(VALUE), T("EX"), T("60"));
    struct report r = REPORT_INIT;
    r.session = "s1";
    r.stamp_us = 6;
    r.bytes_sent = 5;
    assert_int_equal(must_report("m", r), REPORT_APPLIED);
    cleanup_overlays struct overlays o = must_get("m", 0);
    assert_string_equal(o.overlay->file_name, "a.bin");
    assert_string_equal(o.overlay->speed, "1 MiB/s");
    assert_int_equal(o.overlay->bytes_sent, 5);
    assert_int_equal(o.overlay->total_bytes, 10);
}

static void test_another_live_session_is_a_conflict(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1000, 1));
    must_refuse("m", report_of("s2", 2000, 2), ERR_CONFLICT, "another sender");
    must_refuse("m", report_of(NULL, 2000, 2), ERR_CONFLICT, "another sender");
    assert_int_equal(must_report("m", report_of("s1", 3000, 3)), REPORT_APPLIED);
}

static struct report claimed(const char *claim, int64_t stamp_us, int64_t sent)
{
    struct report r = report_of(NULL, stamp_us, sent);
    r.claim = claim;
    return r;
}

static void test_an_owner_may_report_by_claim_and_by_session(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1000, 1));
    assert_int_equal(must_report("m", claimed("aaaa", 1500, 3)), REPORT_APPLIED);
    assert_int_equal(must_report("m", report_of("s1", 3000, 4)), REPORT_APPLIED);
    must_refuse("m", report_of("s2", 4000, 5), ERR_CONFLICT, "another sender");
    {
        cleanup_overlays struct overlays o = must_get("m", 0);
        assert_string_equal(o.overlay->claim, "aaaa");
        assert_string_equal(o.overlay->session, "s1");
        assert_int_equal(o.overlay->bytes_sent, 4);
    }
    /* Another claim starts afresh, whoever reported before. */
    assert_int_equal(must_report("m", claimed("bbbb", 5000, 1)), REPORT_FIRST);
    /* The end refuses all that the overlay knew. */
    assert_int_equal(must_report("m", report_of("s2", 6000, 2)), REPORT_APPLIED);
    must_end("m");
    must_refuse("m", claimed("bbbb", 7000, 9), ERR_CONFLICT, "ended");
    must_refuse("m", report_of("s2", 7000, 9), ERR_CONFLICT, "ended");
}

static void test_an_older_report_changes_nothing(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 2000, 500));
    assert_int_equal(must_report("m", report_of("s1", 1000, 250)), REPORT_OUTDATED);
    cleanup_overlays struct overlays o = must_get("m", 0);
    assert_int_equal(o.overlay->bytes_sent, 500);
}

/* What a thread remembers is only a guess: here it is wrong each time. */
static void test_a_wrong_guess_decides_nothing(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 9000, 900));
    (void)RAW(T("FLUSHALL"));
    assert_int_equal(must_report("m", report_of("s2", 1000, 100)), REPORT_FIRST);
    (void)RAW(T("FLUSHALL"));
    assert_int_equal(must_report("m", report_of("s2", 500, 50)), REPORT_FIRST);
    (void)RAW(T("DEL"), T("wb:1:staging:m"));
    assert_int_equal(must_report("m", report_of("s2", 600, 60)), REPORT_FIRST);
    (void)RAW(T("SET"), T("wb:1:staging:m"), T("{\"session\":\"s3\"}"), T("EX"), T("60"));
    must_refuse("m", report_of("s2", 700, 70), ERR_CONFLICT, "another sender");
    assert_int_equal(must_report("m", report_of("s3", 700, 70)), REPORT_APPLIED);
}

static void test_a_lone_sender_costs_one_round_trip(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1, 1));
    (void)RAW(T("CONFIG"), T("RESETSTAT"));
    for (int i = 2; i <= 21; i++)
        (void)must_report("m", report_of("s1", i, i));
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    assert_int_equal(kv_command(kv, KV_ARGS(T("INFO"), T("commandstats")), &r, &e), 0);
    assert_non_null(strstr(r->str, "cmdstat_evalsha:calls=20,"));
}

static void test_what_makes_no_sense_is_replaced(void **state)
{
    (void)state;
    (void)RAW(T("SET"), T("wb:1:staging:m"), T("junk"), T("EX"), T("60"));
    assert_int_equal(must_report("m", report_of("s1", 1, 1)), REPORT_FIRST);
    (void)RAW(T("DEL"), T("wb:1:staging:m"));
    (void)RAW(T("LPUSH"), T("wb:1:staging:m"), T("junk"));
    assert_int_equal(must_report("m", report_of("s1", 2, 2)), REPORT_FIRST);
    cleanup_free char *big = mem_alloc(100000);
    memset(big, ' ', 100000);
    (void)RAW(T("SET"), T("wb:1:staging:m"), { .data = big, .size = 100000 });
    assert_int_equal(must_report("m", report_of("s1", 3, 3)), REPORT_FIRST);
    list_is(1, 0);
}

static void test_values_that_readers_would_skip_are_not_stored(void **state)
{
    (void)state;
    cleanup_free char *quotes = mem_alloc(4097);
    memset(quotes, '"', 4096); /* each takes two bytes in JSON */
    quotes[4096] = '\0';
    struct report r = report_of("s1", 1, 1);
    r.file_name = quotes;
    r.message = "m";
    must_refuse("m", r, ERR_TOO_LARGE, "8192");
    r.file_name = "\xff";
    must_refuse("m", r, ERR_INVALID, "out of range");
    list_is(0, 0);
    cleanup_free char *key = mem_alloc(400);
    memset(key, 'k', 399);
    key[399] = '\0';
    must_refuse(key, report_of("s1", 1, 1), ERR_INVALID, "255");
}

static void test_keys_may_hold_what_the_contract_says(void **state)
{
    (void)state;
    static const char *const KEYS[] = { "%2e", "a b", "a/b@c:d%e", "\xc3\xa9" };
    for (size_t i = 0; i < 4; i++)
        (void)must_report(KEYS[3 - i], report_of("s1", 1, 1));
    cleanup_overlays struct overlays o = must_list();
    assert_int_equal(o.n, 4);
    for (size_t i = 0; i < 4; i++) /* in byte order */
        assert_string_equal(o.overlay[i].key, KEYS[i]);
}

/* --- ends -------------------------------------------------------------------------------------- */

static void test_after_the_end_late_reports_of_the_sender_are_refused(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1, 1));
    must_end("m");
    list_is(0, 0);
    assert_int_equal(RAW(T("ZCARD"), T("wb:1:live")), 0);
    must_refuse("m", report_of("s1", 2, 2), ERR_CONFLICT, "ended");
    must_end("m");
    must_refuse("m", report_of("s1", 3, 3), ERR_CONFLICT, "ended");
    long long ttl = RAW(T("PTTL"), T("wb:1:ended:m"));
    assert_true(ttl > 50000 && ttl <= 60000);
    /* Another session may begin at once, and its end does not let the first one back in. */
    assert_int_equal(must_report("m", report_of("s2", 4, 4)), REPORT_FIRST);
    must_end("m");
    must_refuse("m", report_of("s1", 5, 5), ERR_CONFLICT, "ended");
    must_refuse("m", report_of("s2", 6, 6), ERR_CONFLICT, "ended");
    assert_int_equal(must_report("other", report_of("s1", 7, 7)), REPORT_FIRST);
    /* 60 s later, by moving the time until which it is refused. */
    (void)RAW(T("ZADD"), T("wb:1:ended:m"), T("1"), T("s:s1"));
    assert_int_equal(must_report("m", report_of("s1", 8, 8)), REPORT_FIRST);
}

static void test_the_end_of_a_claim_refuses_the_claim_only(void **state)
{
    (void)state;
    (void)must_report("m", claimed("aaaa", 1, 1));
    must_end("m");
    must_refuse("m", claimed("aaaa", 1, 1), ERR_CONFLICT, "ended");
    assert_int_equal(must_report("m", claimed("bbbb", 1, 1)), REPORT_FIRST);
    must_end("m");
    assert_int_equal(must_report("m", report_of("bbbb", 2, 2)), REPORT_FIRST);
}

static void test_the_end_of_an_anonymous_copy_refuses_nobody(void **state)
{
    (void)state;
    (void)must_report("m", report_of(NULL, 1, 1));
    must_end("m");
    list_is(0, 0);
    assert_int_equal(must_report("m", report_of(NULL, 2, 2)), REPORT_FIRST);
}

static void test_forgetting_refuses_nobody(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    (void)must_report("m", report_of("s1", 1, 1));
    assert_int_equal(staging_forget(kv, "m", &e), 0);
    assert_int_equal(staging_forget(kv, "m", &e), 0);
    list_is(0, 0);
    assert_int_equal(must_report("m", report_of("s1", 2, 2)), REPORT_FIRST);
    must_end("m");
    must_refuse("m", report_of("s1", 3, 3), ERR_CONFLICT, "ended");
    assert_int_equal(staging_forget(kv, "m", &e), 0);
    assert_int_equal(must_report("m", report_of("s1", 4, 4)), REPORT_FIRST);
}

static void test_the_end_of_what_makes_no_sense(void **state)
{
    (void)state;
    static const char *const VALUES[] = { "junk", "[1]", "7", "{\"claim\":7,\"session\":null}",
        "{\"claim\":\"\"}", "[[[[[[[[[[[[[[[[[[[[" };
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        (void)RAW(T("SET"), T("wb:1:staging:m"), T(VALUES[i]));
        must_end("m");
        assert_int_equal(RAW(T("EXISTS"), T("wb:1:staging:m"), T("wb:1:ended:m")), 0);
    }
    (void)RAW(T("LPUSH"), T("wb:1:staging:m"), T("x"));
    must_end("m");
    assert_int_equal(RAW(T("EXISTS"), T("wb:1:staging:m")), 0);
}

/* --- reads ------------------------------------------------------------------------------------- */

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

static void test_the_value_has_its_fields_in_order(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct report r = report_of("s1", 1700000000000000, 782);
    r.speed = "3 MiB/s";
    r.message = "copying a/b";
    (void)must_report("m", r);
    cleanup_reply redisReply *reply = NULL;
    assert_int_equal(kv_command(kv, KV_ARGS(T("GET"), T("wb:1:staging:m")), &reply, &e), 0);
    assert_string_equal(reply->str,
        "{\"model_id\":\"m\",\"node_name\":\"node-1\",\"file_name\":\"weights.gguf\","
        "\"bytes_sent\":782,\"total_bytes\":1000,\"progress\":78.2,\"speed\":\"3 MiB/s\","
        "\"file_index\":0,\"total_files\":0,\"message\":\"copying a/b\","
        "\"started_at\":\"2023-11-14T22:13:20.000000Z\",\"claim\":\"\",\"session\":\"s1\","
        "\"stamp\":1700000000000000}");
}

/* --- several at once ----------------------------------------------------------------------------- */

enum { THREADS = 8, REPORTS = 60 };

struct race {
    _Atomic int64_t stamp;
    _Atomic int refused;
};

static void *race_reports(void *arg)
{
    struct race *race = arg;
    cleanup_kv struct kv *mine = connect_server();
    for (int i = 0; i < REPORTS; i++) {
        struct err e = ERR_INIT;
        enum report_fate fate = REPORT_APPLIED;
        int64_t stamp = atomic_fetch_add(&race->stamp, 1) + 1;
        struct report r = report_of("s1", stamp, stamp);
        if (staging_report(mine, "m", &r, &fate, &e) < 0)
            atomic_fetch_add(&race->refused, 1);
    }
    return NULL;
}

static void test_reports_at_once_never_lose_the_newest(void **state)
{
    (void)state;
    pthread_t t[THREADS];
    struct race race = { .stamp = 0, .refused = 0 };
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, race_reports, &race), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    cleanup_overlays struct overlays o = must_get("m", 0);
    assert_int_equal(race.refused, 0);
    assert_int_equal(o.overlay->stamp_us, THREADS * REPORTS);
    assert_int_equal(o.overlay->bytes_sent, THREADS * REPORTS);
}

struct starter {
    pthread_barrier_t *barrier;
    char session[16];
    int rc;
    enum err_code code;
    enum report_fate fate;
};

static void *start_copy(void *arg)
{
    struct starter *s = arg;
    struct err e = ERR_INIT;
    struct report r = report_of(s->session, 1, 1);
    cleanup_kv struct kv *mine = connect_server();
    (void)pthread_barrier_wait(s->barrier);
    s->rc = staging_report(mine, "m", &r, &s->fate, &e);
    s->code = e.code;
    return NULL;
}

static void test_of_sessions_that_begin_at_once_one_wins(void **state)
{
    (void)state;
    pthread_t t[THREADS];
    pthread_barrier_t barrier;
    struct starter s[THREADS];
    int won = 0;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        s[i] = (struct starter){ .barrier = &barrier };
        (void)str_format(s[i].session, sizeof s[i].session, "s%zu", i);
        assert_int_equal(pthread_create(&t[i], NULL, start_copy, &s[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(t[i], NULL), 0);
        assert_int_equal(s[i].code, s[i].rc == 0 ? ERR_OK : ERR_CONFLICT);
        won += s[i].rc == 0;
        assert_true(s[i].rc < 0 || s[i].fate == REPORT_FIRST);
    }
    assert_int_equal(won, 1);
    (void)pthread_barrier_destroy(&barrier);
}

/* --- the rest ---------------------------------------------------------------------------------- */

static void test_reports_survive_a_flush_of_scripts_and_a_restart(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1, 1));
    (void)RAW(T("SCRIPT"), T("FLUSH"));
    assert_int_equal(must_report("m", report_of("s1", 2, 2)), REPORT_APPLIED);
    (void)RAW(T("SCRIPT"), T("FLUSH"));
    must_end("m");
    (void)must_report("n", report_of("s1", 1, 1));
    redis_server_kill(&server);
    redis_server_start(&server);
    assert_int_equal(must_report("n", report_of("s1", 2, 2)), REPORT_FIRST);
    list_is(1, 0);
    redis_server_kill(&server);
    redis_server_start(&server);
    list_is(0, 0);
}

static void test_without_redis_every_call_says_so(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct overlays o = OVERLAYS_INIT;
    enum report_fate fate = REPORT_CONFLICT;
    struct report r = report_of("s1", 1, 1);
    redis_server_kill(&server);
    assert_int_equal(staging_report(kv, "m", &r, &fate, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(staging_end(kv, "m", &e), -1);
    assert_int_equal(staging_get(kv, "m", &o, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(staging_list(kv, &o, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(changes_publish(kv, "here", &e), -1);
    assert_null(o.overlay);
    redis_server_start(&server);
}

static void test_changes_are_published(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_free char *message = NULL;
    cleanup_kv struct kv *ear = connect_server();
    assert_int_equal(kv_subscribe(ear, CHANGES_CHANNEL, &e), 0);
    assert_int_equal(changes_publish(kv, "machine-1", &e), 0);
    assert_int_equal(kv_next_message(ear, -1, clock_deadline(PATIENT_MS), &message, &e), 0);
    assert_string_equal(message, "machine-1");
}

#define TEST(f) cmocka_unit_test_setup(f, flush_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_report_is_stored_with_ttl_and_index),
        TEST(test_missing_fields_keep_what_is_stored_by_another_thread_too),
        TEST(test_another_live_session_is_a_conflict),
        TEST(test_an_owner_may_report_by_claim_and_by_session),
        TEST(test_an_older_report_changes_nothing),
        TEST(test_a_wrong_guess_decides_nothing),
        TEST(test_a_lone_sender_costs_one_round_trip),
        TEST(test_what_makes_no_sense_is_replaced),
        TEST(test_values_that_readers_would_skip_are_not_stored),
        TEST(test_keys_may_hold_what_the_contract_says),
        TEST(test_after_the_end_late_reports_of_the_sender_are_refused),
        TEST(test_the_end_of_a_claim_refuses_the_claim_only),
        TEST(test_the_end_of_an_anonymous_copy_refuses_nobody),
        TEST(test_forgetting_refuses_nobody),
        TEST(test_the_end_of_what_makes_no_sense),
        TEST(test_an_expired_overlay_is_skipped),
        TEST(test_malformed_values_are_counted_and_break_nothing),
        TEST(test_missing_fields_have_defaults),
        TEST(test_odd_members_of_the_index_are_counted_or_left_to_others),
        TEST(test_a_list_of_thousands_comes_whole_and_in_order),
        TEST(test_the_value_has_its_fields_in_order),
        TEST(test_reports_at_once_never_lose_the_newest),
        TEST(test_of_sessions_that_begin_at_once_one_wins),
        TEST(test_reports_survive_a_flush_of_scripts_and_a_restart),
        TEST(test_without_redis_every_call_says_so),
        TEST(test_changes_are_published),
    };
    (void)signal(SIGPIPE, SIG_IGN); /* hiredis writes without MSG_NOSIGNAL */
    return cmocka_run_group_tests(tests, open_server, close_server);
}
