/* SPDX-License-Identifier: Apache-2.0 */
/* The overlay in a real Redis: what a report stores, who is refused, and several at once. */
#include <pthread.h>
#include <setjmp.h>
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
#include "store/load_job.h"
#include "tests/store/staging_fixture.h"

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

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_a_foreign_session_does_not_write_into_a_claim(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1000, 1));
    assert_int_equal(must_report("m", claimed("aaaa", 1500, 3)), REPORT_APPLIED);
    must_refuse("m", report_of("s1", 3000, 4), ERR_CONFLICT, "another sender");
    must_refuse("m", report_of("s2", 3000, 5), ERR_CONFLICT, "another sender");
    must_refuse("m", report_of(TOKEN, 3000, 5), ERR_CONFLICT, "another sender");
    {
        cleanup_overlays struct overlays o = must_get("m", 0);
        assert_string_equal(o.overlay->claim, "aaaa");
        assert_int_equal(o.overlay->bytes_sent, 3);
    }
    /* Another claim starts afresh, whoever reported before. */
    assert_int_equal(must_report("m", claimed("bbbb", 5000, 1)), REPORT_FIRST);
    /* A script that names neither may still help out. */
    assert_int_equal(must_report("m", report_of(NULL, 6000, 2)), REPORT_APPLIED);
}

/* An owner may use both calls; its token stays out of Redis whether its claim is stored or not. */
static void test_an_owner_may_report_by_its_token_as_session(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char claim[CLAIM_SHORT_SIZE];
    load_claim_short(TOKEN, claim);
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            (void)must_report("m", claimed(claim, 1000, 1));
        (void)must_report("m", report_of(TOKEN, 2000, 2));
        cleanup_overlays struct overlays o = must_get("m", 0);
        assert_string_equal(i == 0 ? o.overlay->claim : o.overlay->session, claim);
        assert_int_equal(o.overlay->bytes_sent, 2);
        cleanup_reply redisReply *r = NULL;
        assert_int_equal(kv_command(staging_kv, KV_ARGS(T("GET"), T("wb:1:staging:m")), &r, &e), 0);
        assert_null(strstr(r->str, TOKEN));
        (void)RAW(T("FLUSHALL"));
    }
}

static void test_an_older_report_changes_nothing_that_is_stored(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 2000, 500));
    assert_int_equal(must_report("m", report_of("s1", 1000, 250)), REPORT_OUTDATED);
    struct report r = report_of("s1", 1000, 250);
    r.speed = "1 B/s";
    assert_int_equal(must_report("m", r), REPORT_APPLIED);
    cleanup_overlays struct overlays o = must_get("m", 0);
    assert_int_equal(o.overlay->bytes_sent, 500);
    assert_string_equal(o.overlay->speed, "1 B/s");
    assert_int_equal(o.overlay->stamp_us, 2000);
}

/* What a process remembers is only a guess: here it is wrong each time. */
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

static void *report_from_a_thread(void *stamp)
{
    struct report r = report_of("s1", *(const int64_t *)stamp, 1);
    enum report_fate fate = REPORT_CONFLICT;
    struct err e = ERR_INIT;
    cleanup_kv struct kv *kv = staging_connect();
    if (staging_report(kv, "m", &r, &fate, &e) < 0)
        fail_msg("%s", e.msg);
    return NULL;
}

/* Whichever thread serves it; and it is neither looked up among the ended nor prunes the index. */
static void test_a_lone_sender_costs_one_small_script(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1, 1));
    (void)RAW(T("CONFIG"), T("RESETSTAT"));
    for (int64_t i = 2; i <= 21; i++) {
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, report_from_a_thread, &i), 0);
        assert_int_equal(pthread_join(t, NULL), 0);
    }
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    assert_int_equal(kv_command(staging_kv, KV_ARGS(T("INFO"), T("commandstats")), &r, &e), 0);
    assert_non_null(strstr(r->str, "cmdstat_evalsha:calls=20,"));
    assert_null(strstr(r->str, "cmdstat_zscore"));
    assert_null(strstr(r->str, "cmdstat_zremrangebyscore"));
}

/* Values that all fit, and one that does not: it is forgotten, and not taken for the one before. */
static void test_what_is_guessed_is_what_was_stored_last(void **state)
{
    (void)state;
    char key[16];
    char message[1100];
    for (int64_t round = 1; round <= 2; round++) {
        for (int i = 0; i < 300; i++) {
            (void)str_format(key, sizeof key, "key-%d", i);
            enum report_fate fate = must_report(key, report_of("s1", round, round * 1000 + i));
            assert_int_equal(fate, round == 1 ? REPORT_FIRST : REPORT_APPLIED);
        }
    }
    for (int i = 0; i < 300; i++) {
        (void)str_format(key, sizeof key, "key-%d", i);
        cleanup_overlays struct overlays o = must_get(key, 0);
        assert_int_equal(o.overlay->bytes_sent, 2000 + i);
    }
    memset(message, 'x', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    struct report large = report_of("s1", 3, 3);
    large.message = message;
    assert_int_equal(must_report("key-0", large), REPORT_APPLIED);
    assert_int_equal(must_report("key-0", report_of("s1", 2, 1)), REPORT_OUTDATED);
    assert_int_equal(must_report("key-0", report_of("s1", 4, 4)), REPORT_APPLIED);
}

static void test_first_reports_prune_the_index(void **state)
{
    (void)state;
    (void)RAW(T("ZADD"), T("wb:1:live"), T("1000"), T("staging:gone"));
    (void)must_report("m", report_of("s1", 1, 1));
    assert_int_equal(RAW(T("ZCARD"), T("wb:1:live")), 1);
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

static void must_end_load(const char *key)
{
    struct err e = ERR_INIT;
    if (staging_end_load(staging_kv, key, &e) < 0)
        fail_msg("%s", e.msg);
}

static void test_the_end_of_a_load_refuses_all_that_its_overlay_names(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1, 1));
    (void)must_report("m", claimed("aaaa", 1, 1));
    must_end_load("m");
    list_is(0, 0);
    must_refuse("m", claimed("aaaa", 2, 2), ERR_CONFLICT, "ended");
    must_refuse("m", report_of("s1", 2, 2), ERR_CONFLICT, "ended");
    assert_int_equal(must_report("m", claimed("bbbb", 1, 1)), REPORT_FIRST);
    must_end_load("m");
    assert_int_equal(must_report("m", report_of("bbbb", 2, 2)), REPORT_FIRST);
}

/* The staging calls know nothing of load jobs, whose owner may go on. */
static void test_the_end_of_a_copy_refuses_its_session_and_no_claim(void **state)
{
    (void)state;
    (void)must_report("m", report_of("s1", 1, 1));
    (void)must_report("m", claimed("aaaa", 1, 1));
    must_end("m");
    list_is(0, 0);
    must_refuse("m", report_of("s1", 2, 2), ERR_CONFLICT, "ended");
    assert_int_equal(must_report("m", claimed("aaaa", 2, 2)), REPORT_FIRST);
}

/* Its overlay names the token's hash, and so do those whose copy ended. */
static void test_the_end_of_a_copy_whose_session_is_a_token(void **state)
{
    (void)state;
    (void)must_report("m", report_of(TOKEN, 1, 1));
    must_end("m");
    must_refuse("m", report_of(TOKEN, 2, 2), ERR_CONFLICT, "ended");
}

static void test_the_end_of_an_anonymous_copy_refuses_nobody(void **state)
{
    (void)state;
    (void)must_report("m", report_of(NULL, 1, 1));
    must_end("m");
    list_is(0, 0);
    assert_int_equal(must_report("m", report_of(NULL, 2, 2)), REPORT_FIRST);
}

static void test_forgetting_neither_refuses_nor_lets_in(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    (void)must_report("m", report_of("s1", 1, 1));
    assert_int_equal(staging_forget(staging_kv, "m", &e), 0);
    assert_int_equal(staging_forget(staging_kv, "m", &e), 0);
    list_is(0, 0);
    assert_int_equal(must_report("m", report_of("s1", 2, 2)), REPORT_FIRST);
    must_end("m");
    must_refuse("m", report_of("s1", 3, 3), ERR_CONFLICT, "ended");
    /* Nor does it let anybody back in, not even past a new claim. */
    assert_int_equal(staging_forget(staging_kv, "m", &e), 0);
    must_refuse("m", report_of("s1", 4, 4), ERR_CONFLICT, "ended");
    assert_int_equal(must_report("m", claimed("aaaa", 5, 5)), REPORT_FIRST);
    assert_int_equal(staging_forget(staging_kv, "m", &e), 0);
    must_refuse("m", report_of("s1", 6, 6), ERR_CONFLICT, "ended");
}

static void test_the_end_of_what_makes_no_sense(void **state)
{
    (void)state;
    static const char *const VALUES[] = { "junk", "[1]", "7", "{\"claim\":7,\"session\":null}",
        "{\"claim\":\"\"}", "[[[[[[[[[[[[[[[[[[[[" };
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        (void)RAW(T("SET"), T("wb:1:staging:m"), T(VALUES[i]));
        must_end_load("m");
        assert_int_equal(RAW(T("EXISTS"), T("wb:1:staging:m"), T("wb:1:ended:m")), 0);
    }
    (void)RAW(T("LPUSH"), T("wb:1:staging:m"), T("x"));
    must_end("m");
    assert_int_equal(RAW(T("EXISTS"), T("wb:1:staging:m")), 0);
}

static void test_keys_of_the_wrong_type_are_replaced(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    (void)RAW(T("SET"), T("wb:1:live"), T("x"));
    (void)RAW(T("SET"), T("wb:1:ended:m"), T("x"));
    list_is(0, 1);
    assert_int_equal(must_report("m", report_of("s1", 1, 1)), REPORT_FIRST);
    list_is(1, 0);
    must_end("m");
    must_refuse("m", report_of("s1", 2, 2), ERR_CONFLICT, "ended");
    (void)RAW(T("SET"), T("wb:1:live"), T("x"));
    must_end("m");
    assert_int_equal(staging_forget(staging_kv, "m", &e), 0);
    list_is(0, 0);
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
    cleanup_kv struct kv *mine = staging_connect();
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
    cleanup_kv struct kv *mine = staging_connect();
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
    redis_server_kill(&staging_server);
    redis_server_start(&staging_server);
    assert_int_equal(must_report("n", report_of("s1", 2, 2)), REPORT_FIRST);
    list_is(1, 0);
    redis_server_kill(&staging_server);
    redis_server_start(&staging_server);
    list_is(0, 0);
}

/* The first script is done, but the connection closes before its answer; it is run again and finds what
 * it stored. A fake, because a real Redis cannot be made to do this on demand. */
static void test_a_report_whose_answer_was_lost_is_a_first_one_all_the_same(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct report r = report_of("s1", 1, 1);
    struct overlay_scratch scratch;
    struct overlay o;
    struct fake_redis f;
    char answer[2048];
    cleanup_buf struct buf value = BUF_INIT(1024);
    assert_int_equal(overlay_apply("lost", NULL, &r, &scratch, &o), REPORT_FIRST);
    overlay_print(&o, &value);
    (void)str_format(
        answer, sizeof answer, "*2\r\n$3\r\nold\r\n$%zu\r\n%s\r\n", value.len, value.data);
    const char *const steps[] = { "+OK\r\n", "+PONG\r\n", NULL, "+OK\r\n", answer };
    fake_redis_open(&f, steps, 5);
    {
        cleanup_kv struct kv *kv = kv_new(&(struct kv_options){
            .url = f.url, .name = "test", .timeout_ms = PATIENT_MS, .breaker = NULL });
        cleanup_reply redisReply *pong = NULL;
        enum report_fate fate = REPORT_CONFLICT;
        assert_int_equal(kv_command(kv, KV_ARGS(T("PING")), &pong, &e), 0);
        if (staging_report(kv, "lost", &r, &fate, &e) < 0)
            fail_msg("%s", e.msg);
        assert_int_equal(fate, REPORT_FIRST);
    }
    fake_redis_close(&f);
}

static void test_without_redis_every_call_says_so(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct overlays o = OVERLAYS_INIT;
    enum report_fate fate = REPORT_CONFLICT;
    struct report r = report_of("s1", 1, 1);
    redis_server_kill(&staging_server);
    assert_int_equal(staging_report(staging_kv, "m", &r, &fate, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(staging_end(staging_kv, "m", &e), -1);
    assert_int_equal(staging_get(staging_kv, "m", &o, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(staging_list(staging_kv, NULL, &o, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(changes_publish(staging_kv, "here", &e), -1);
    assert_null(o.overlay);
    redis_server_start(&staging_server);
}

static void test_changes_are_published(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_free char *message = NULL;
    cleanup_kv struct kv *ear = staging_connect();
    assert_int_equal(kv_subscribe(ear, CHANGES_CHANNEL, &e), 0);
    assert_int_equal(changes_publish(staging_kv, "machine-1", &e), 0);
    assert_int_equal(kv_next_message(ear, -1, clock_deadline(PATIENT_MS), &message, &e), 0);
    assert_string_equal(message, "machine-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_report_is_stored_with_ttl_and_index),
        TEST(test_missing_fields_keep_what_is_stored_by_another_thread_too),
        TEST(test_another_live_session_is_a_conflict),
        TEST(test_a_foreign_session_does_not_write_into_a_claim),
        TEST(test_an_owner_may_report_by_its_token_as_session),
        TEST(test_an_older_report_changes_nothing_that_is_stored),
        TEST(test_a_wrong_guess_decides_nothing),
        TEST(test_a_lone_sender_costs_one_small_script),
        TEST(test_what_is_guessed_is_what_was_stored_last),
        TEST(test_first_reports_prune_the_index),
        TEST(test_what_makes_no_sense_is_replaced),
        TEST(test_values_that_readers_would_skip_are_not_stored),
        TEST(test_keys_may_hold_what_the_contract_says),
        TEST(test_after_the_end_late_reports_of_the_sender_are_refused),
        TEST(test_the_end_of_a_load_refuses_all_that_its_overlay_names),
        TEST(test_the_end_of_a_copy_refuses_its_session_and_no_claim),
        TEST(test_the_end_of_a_copy_whose_session_is_a_token),
        TEST(test_the_end_of_an_anonymous_copy_refuses_nobody),
        TEST(test_forgetting_neither_refuses_nor_lets_in),
        TEST(test_the_end_of_what_makes_no_sense),
        TEST(test_keys_of_the_wrong_type_are_replaced),
        TEST(test_reports_at_once_never_lose_the_newest),
        TEST(test_of_sessions_that_begin_at_once_one_wins),
        TEST(test_reports_survive_a_flush_of_scripts_and_a_restart),
        TEST(test_a_report_whose_answer_was_lost_is_a_first_one_all_the_same),
        TEST(test_without_redis_every_call_says_so),
        TEST(test_changes_are_published),
    };
    return cmocka_run_group_tests(tests, staging_open, staging_close);
}
