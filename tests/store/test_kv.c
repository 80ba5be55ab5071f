/* SPDX-License-Identifier: Apache-2.0 */
/* lib/kv against a real Redis that is stopped, frozen and started again, and against a fake one for
 * what a real one does not do on demand. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/str.h"
#include "kv/kv.h"
#include "tests/fake/redis_server.h"

enum { HANG_GUARD_MS = 10000, CALL_MS = 150, PATIENT_MS = 5000 };

static struct redis_server server;

static int open_server(void **state)
{
    (void)state;
    redis_server_open(&server, NULL);
    return 0;
}

static int close_server(void **state)
{
    (void)state;
    redis_server_close(&server);
    return 0;
}

static struct kv *connect_to(const char *url, int64_t timeout_ms, struct breaker *b)
{
    struct kv *kv = kv_new(&(struct kv_options){
        .url = url, .name = "test kv", .timeout_ms = timeout_ms, .breaker = b });
    assert_non_null(kv);
    return kv;
}

static struct kv *patient(void)
{
    return connect_to(server.url, PATIENT_MS, NULL);
}

#define COMMAND(kv, out, e, ...) kv_command((kv), KV_ARGS(__VA_ARGS__), (out), (e))
#define T(text)                  kv_text(text)

static void must_say(struct kv *kv, const char *want, struct kv_args a)
{
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    if (kv_command(kv, a, &r, &e) < 0)
        fail_msg("%s", e.msg);
    assert_non_null(r->str);
    assert_string_equal(r->str, want);
}

static int64_t must_count(struct kv *kv, struct kv_args a)
{
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    if (kv_command(kv, a, &r, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(r->type, REDIS_REPLY_INTEGER);
    return r->integer;
}

static void must_fail(struct kv *kv, enum err_code code, const char *part, struct kv_args a)
{
    struct err e = ERR_INIT;
    redisReply *r = NULL;
    assert_int_equal(kv_command(kv, a, &r, &e), -1);
    assert_null(r);
    if (e.code != code || strstr(e.msg, part) == NULL)
        fail_msg("%s: %s", err_name(e.code), e.msg);
}

#define SAYS(kv, want, ...)        must_say((kv), (want), KV_ARGS(__VA_ARGS__))
#define COUNTS(kv, ...)            must_count((kv), KV_ARGS(__VA_ARGS__))
#define FAILS(kv, code, part, ...) must_fail((kv), (code), (part), KV_ARGS(__VA_ARGS__))

/* --- commands -------------------------------------------------------------------------------- */

static void test_arguments_are_bytes(void **state)
{
    (void)state;
    static const char ODD[] = "a\0b\r\n$5\r\n%s \xff";
    struct err e = ERR_INIT;
    cleanup_kv struct kv *kv = patient();
    struct kv_arg odd = { .data = ODD, .size = sizeof ODD - 1 };
    SAYS(kv, "OK", T("SET"), T("odd"), odd);
    cleanup_reply redisReply *r = NULL;
    assert_int_equal(COMMAND(kv, &r, &e, T("GET"), T("odd")), 0);
    assert_int_equal(r->len, odd.size);
    assert_memory_equal(r->str, ODD, odd.size);
    SAYS(kv, "test_kv", T("CLIENT"), T("GETNAME"));
}

/* More than the buffers of the socket hold in either direction. */
static void test_large_values_pass(void **state)
{
    (void)state;
    enum { BIG = 8 << 20 };
    struct err e = ERR_INIT;
    cleanup_free char *big = mem_alloc(BIG);
    memset(big, 'x', BIG);
    cleanup_kv struct kv *kv = patient();
    SAYS(kv, "OK", T("SET"), T("big"), { .data = big, .size = BIG });
    cleanup_reply redisReply *r = NULL;
    assert_int_equal(COMMAND(kv, &r, &e, T("GET"), T("big")), 0);
    assert_int_equal(r->len, BIG);
    assert_int_equal(COUNTS(kv, T("DEL"), T("big")), 1);
}

static void test_no_url_is_unavailable_and_no_outage(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b);
    cleanup_kv struct kv *none = connect_to("", CALL_MS, &b);
    cleanup_kv struct kv *null = connect_to(NULL, CALL_MS, &b);
    cleanup_kv struct kv *bad = connect_to("redis://:hush@h:x", CALL_MS, &b);
    FAILS(none, ERR_UNAVAILABLE, "no redis is configured", T("PING"));
    FAILS(null, ERR_UNAVAILABLE, "no redis is configured", T("PING"));
    FAILS(bad, ERR_UNAVAILABLE, "port", T("PING"));
    assert_false(breaker_is_open(&b));
    breaker_fini(&b);
}

static void test_an_error_reply_keeps_connection_and_breaker(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b);
    cleanup_kv struct kv *kv = connect_to(server.url, PATIENT_MS, &b);
    int64_t id = COUNTS(kv, T("CLIENT"), T("ID"));
    SAYS(kv, "OK", T("SET"), T("text"), T("abc"));
    FAILS(kv, ERR_INTERNAL, "WRONGTYPE", T("LPUSH"), T("text"), T("x"));
    SAYS(kv, "OK", T("CONFIG"), T("SET"), T("maxmemory"), T("1"));
    FAILS(kv, ERR_UNAVAILABLE, "OOM", T("SET"), T("other"), T("x"));
    SAYS(kv, "OK", T("CONFIG"), T("SET"), T("maxmemory"), T("0"));
    SAYS(kv, "OK", T("REPLICAOF"), T("127.0.0.1"), T("1"));
    FAILS(kv, ERR_UNAVAILABLE, "READONLY", T("SET"), T("other"), T("x"));
    assert_false(breaker_is_open(&b));
    assert_int_equal(COUNTS(kv, T("CLIENT"), T("ID")), id);
    SAYS(kv, "OK", T("CONFIG"), T("SET"), T("replica-serve-stale-data"), T("no"));
    FAILS(kv, ERR_UNAVAILABLE, "MASTERDOWN", T("GET"), T("text"));
    assert_true(breaker_is_open(&b));
    cleanup_kv struct kv *other = patient();
    SAYS(other, "OK", T("REPLICAOF"), T("NO"), T("ONE"));
    breaker_fini(&b);
}

/* --- scripts --------------------------------------------------------------------------------- */

static struct kv_script ECHO = { .text = "return {KEYS[1], ARGV[1], ARGV[2]}" };
static struct kv_script FAULTY = { .text = "return redis.call('LPUSH', KEYS[1], 'x')" };

static void run_echo(struct kv *kv)
{
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    if (kv_script_run(kv, &ECHO, KV_ARGS(T("k")), KV_ARGS(T("a"), T("")), &r, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(r->elements, 3);
    assert_string_equal(r->element[0]->str, "k");
    assert_string_equal(r->element[1]->str, "a");
    assert_string_equal(r->element[2]->str, "");
}

static void test_a_script_runs_whether_or_not_redis_knows_it(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_kv struct kv *kv = patient();
    SAYS(kv, "OK", T("SCRIPT"), T("FLUSH"));
    run_echo(kv);
    run_echo(kv);
    SAYS(kv, "OK", T("SCRIPT"), T("FLUSH"));
    run_echo(kv);
    SAYS(kv, "OK", T("SET"), T("text"), T("abc"));
    redisReply *r = NULL;
    assert_int_equal(
        kv_script_run(kv, &FAULTY, KV_ARGS(T("text")), (struct kv_args){ .n = 0 }, &r, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    run_echo(kv);
}

static void *run_shared(void *arg)
{
    static struct kv_script shared = { .text = "return ARGV[1]" };
    char mine[16];
    (void)str_format(mine, sizeof mine, "%p", arg);
    cleanup_kv struct kv *kv = patient();
    for (int i = 0; i < 50; i++) {
        struct err e = ERR_INIT;
        cleanup_reply redisReply *r = NULL;
        if (kv_script_run(kv, &shared, (struct kv_args){ .n = 0 }, KV_ARGS(T(mine)), &r, &e) < 0 ||
            strcmp(r->str, mine) != 0)
            return arg;
    }
    return NULL;
}

static void test_threads_share_a_script(void **state)
{
    (void)state;
    pthread_t t[8];
    static char name[8];
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&t[i], NULL, run_shared, &name[i]), 0);
    for (size_t i = 0; i < 8; i++) {
        void *bad = NULL;
        assert_int_equal(pthread_join(t[i], &bad), 0);
        assert_null(bad);
    }
}

/* --- pipelines ------------------------------------------------------------------------------- */

static void append(struct kv *kv, struct kv_args a)
{
    struct err e = ERR_INIT;
    if (kv_append(kv, a, &e) < 0)
        fail_msg("%s", e.msg);
}

static void takes(struct kv *kv, int type, const char *text)
{
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    if (kv_take(kv, &r, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(r->type, type);
    if (text != NULL)
        assert_non_null(strstr(r->str, text));
}

static void test_a_pipeline_answers_in_order_errors_too(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_kv struct kv *kv = patient();
    append(kv, KV_ARGS(T("SET"), T("p"), T("1")));
    append(kv, KV_ARGS(T("LPUSH"), T("p"), T("x")));
    append(kv, KV_ARGS(T("GET"), T("p")));
    takes(kv, REDIS_REPLY_STATUS, "OK");
    takes(kv, REDIS_REPLY_ERROR, "WRONGTYPE");
    takes(kv, REDIS_REPLY_STRING, "1");
    redisReply *r = NULL;
    assert_int_equal(kv_take(kv, &r, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    SAYS(kv, "PONG", T("PING"));
}

/* Else the next command would be given the answer of another. */
static void test_answers_nobody_took_are_not_given_to_the_next_call(void **state)
{
    (void)state;
    cleanup_kv struct kv *kv = patient();
    append(kv, KV_ARGS(T("ECHO"), T("one")));
    append(kv, KV_ARGS(T("ECHO"), T("two")));
    takes(kv, REDIS_REPLY_STRING, "one");
    SAYS(kv, "three", T("ECHO"), T("three"));
    append(kv, KV_ARGS(T("ECHO"), T("four")));
    SAYS(kv, "five", T("ECHO"), T("five"));
}

/* --- outages --------------------------------------------------------------------------------- */

static void assert_within_guard(int64_t start_ns)
{
    assert_true(clock_mono_ns() - start_ns < HANG_GUARD_MS * INT64_C(1000000));
}

/* Report 18. */
static void test_a_frozen_redis_times_out_again_and_again(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int64_t start = clock_mono_ns();
    cleanup_kv struct kv *kv = connect_to(server.url, CALL_MS, NULL);
    cleanup_kv struct kv *piped = connect_to(server.url, CALL_MS, NULL);
    SAYS(kv, "PONG", T("PING"));
    SAYS(piped, "PONG", T("PING"));
    redis_server_freeze(&server);
    FAILS(kv, ERR_TIMEOUT, "deadline", T("PING")); /* the old connection */
    FAILS(kv, ERR_TIMEOUT, "deadline", T("PING")); /* a new one, which the kernel accepts */
    kv_set_deadline(kv, clock_mono_ns() - 1);
    FAILS(kv, ERR_TIMEOUT, "deadline", T("PING"));
    kv_set_deadline(kv, 0);
    redisReply *r = NULL;
    append(piped, KV_ARGS(T("PING")));
    append(piped, KV_ARGS(T("PING")));
    assert_int_equal(kv_take(piped, &r, &e), -1);
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_int_equal(kv_append(piped, KV_ARGS(T("PING")), &e), -1);
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_within_guard(start);
    redis_server_thaw(&server);
    kv_set_deadline(kv, clock_deadline(HANG_GUARD_MS));
    SAYS(kv, "PONG", T("PING"));
    kv_set_deadline(piped, clock_deadline(HANG_GUARD_MS));
    append(piped, KV_ARGS(T("ECHO"), T("x")));
    takes(piped, REDIS_REPLY_STRING, "x");
}

/* Report 17. */
static void test_a_restart_between_calls_is_no_error(void **state)
{
    (void)state;
    cleanup_kv struct kv *kv = patient();
    cleanup_kv struct kv *piped = patient();
    for (int i = 0; i < 2; i++) {
        SAYS(kv, "PONG", T("PING"));
        SAYS(piped, "PONG", T("PING"));
        redis_server_kill(&server);
        redis_server_start(&server);
        if (i == 0)
            SAYS(kv, "PONG", T("PING"));
        else
            run_echo(kv);
        append(piped, KV_ARGS(T("ECHO"), T("x")));
        takes(piped, REDIS_REPLY_STRING, "x");
    }
}

/* Calls of fn's outage into text: what the log said meanwhile. */
static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p += strlen(part))
        n++;
    return n;
}

static void outage(void)
{
    struct breaker b;
    breaker_init(&b);
    cleanup_kv struct kv *kv = connect_to(server.url, CALL_MS, &b);
    cleanup_kv struct kv *other = connect_to(server.url, CALL_MS, &b);
    SAYS(kv, "PONG", T("PING"));
    SAYS(other, "PONG", T("PING"));
    redis_server_kill(&server);
    FAILS(kv, ERR_UNAVAILABLE, "redis", T("PING"));
    FAILS(other, ERR_UNAVAILABLE, "asked again", T("PING"));
    redisReply *r = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(kv_append(kv, KV_ARGS(T("PING")), &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    int64_t guard = clock_deadline(HANG_GUARD_MS);
    /* Until one call was let through to fail again, and until one succeeds. */
    while (COMMAND(kv, &r, &e, T("PING")) < 0 && strstr(e.msg, "asked again") != NULL)
        assert_true(clock_left_ms(guard) > 0);
    redis_server_start(&server);
    while (COMMAND(kv, &r, &e, T("PING")) < 0)
        assert_true(clock_left_ms(guard) > 0);
    kv_reply_free_p(&r);
    SAYS(other, "PONG", T("PING"));
    assert_false(breaker_is_open(&b));
    breaker_fini(&b);
}

static void test_a_breaker_answers_at_once_and_the_log_tells_once(void **state)
{
    (void)state;
    char log[8192] = "";
    char path[] = "/tmp/wb-log-XXXXXX";
    int fd = mkstemp(path);
    int old = dup(STDERR_FILENO);
    assert_true(fd >= 0 && old >= 0);
    (void)unlink(path);
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    outage();
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    assert_true(pread(fd, log, sizeof log - 1, 0) > 0);
    close(old);
    close(fd);
    assert_int_equal(count(log, "redis does not answer"), 1);
    assert_int_equal(count(log, "redis is back"), 1);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    cleanup_kv struct kv *path = connect_to("unix:/tmp/no/such/socket", CALL_MS, NULL);
    cleanup_kv struct kv *port = connect_to("127.0.0.1:1", CALL_MS, NULL);
    FAILS(path, ERR_UNAVAILABLE, "redis", T("PING"));
    FAILS(port, ERR_UNAVAILABLE, "redis", T("PING"));
}

/* --- a fake: what comes at moments that cannot be hit with a real one ---------------------------- */

static void test_closing_under_a_command_is_retried_once(void **state)
{
    (void)state;
    /* name, PING; the second PING finds the connection closed and makes a new one. */
    static const char *const STEPS[] = { "+OK\r\n", "+PONG\r\n", NULL, "+OK\r\n", "+AGAIN\r\n" };
    struct fake_redis f;
    fake_redis_open(&f, STEPS, 5);
    {
        cleanup_kv struct kv *kv = connect_to(f.url, PATIENT_MS, NULL);
        SAYS(kv, "PONG", T("PING"));
        SAYS(kv, "AGAIN", T("PING"));
    }
    fake_redis_close(&f);
}

static void test_closing_under_a_new_connection_is_an_error(void **state)
{
    (void)state;
    static const char *const STEPS[] = { "+OK\r\n", NULL, NULL, "+OK\r\n", "+PONG\r\n" };
    struct fake_redis f;
    fake_redis_open(&f, STEPS, 5);
    {
        cleanup_kv struct kv *kv = connect_to(f.url, PATIENT_MS, NULL);
        FAILS(kv, ERR_UNAVAILABLE, "redis", T("PING"));
        FAILS(kv, ERR_UNAVAILABLE, "redis", T("PING"));
        SAYS(kv, "PONG", T("PING"));
    }
    fake_redis_close(&f);
}

static void test_what_is_no_redis_is_a_defect(void **state)
{
    (void)state;
    static const char *const STEPS[] = { "+OK\r\n", "HTTP/1.1 400 Bad Request\r\n" };
    struct fake_redis f;
    fake_redis_open(&f, STEPS, 2);
    {
        cleanup_kv struct kv *kv = connect_to(f.url, PATIENT_MS, NULL);
        FAILS(kv, ERR_INTERNAL, "redis", T("PING"));
    }
    fake_redis_close(&f);
}

static void test_while_redis_loads_its_data_it_is_not_asked(void **state)
{
    (void)state;
    static const char *const STEPS[] = { "+OK\r\n", "-LOADING Redis is loading\r\n" };
    struct breaker b;
    struct fake_redis f;
    breaker_init(&b);
    fake_redis_open(&f, STEPS, 2);
    {
        cleanup_kv struct kv *kv = connect_to(f.url, PATIENT_MS, &b);
        FAILS(kv, ERR_UNAVAILABLE, "LOADING", T("PING"));
        FAILS(kv, ERR_UNAVAILABLE, "asked again", T("PING"));
    }
    fake_redis_close(&f);
    breaker_fini(&b);
}

/* --- subscriptions --------------------------------------------------------------------------- */

static void hears(struct kv *kv, const char *want)
{
    struct err e = ERR_INIT;
    cleanup_free char *message = NULL;
    int rc = kv_next_message(kv, -1, clock_deadline(HANG_GUARD_MS), &message, &e);
    if (rc != 0)
        fail_msg("%d %s", rc, e.msg);
    assert_string_equal(message, want);
}

static void test_a_subscription_hears_waits_and_stops(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *message = NULL;
    cleanup_kv struct kv *ear = patient();
    cleanup_kv struct kv *mouth = patient();
    cleanup_fd int stop = stop_event_fd(&e);
    assert_int_equal(kv_subscribe(ear, "ch", &e), 0);
    assert_int_equal(kv_next_message(ear, stop, clock_mono_ns(), &message, &e), 1);
    assert_int_equal(COUNTS(mouth, T("PUBLISH"), T("ch"), T("one")), 1);
    assert_int_equal(COUNTS(mouth, T("PUBLISH"), T("ch"), T("two")), 1);
    assert_int_equal(COUNTS(mouth, T("PUBLISH"), T("other"), T("x")), 0);
    hears(ear, "one");
    hears(ear, "two");
    assert_int_equal(kv_next_message(ear, stop, clock_deadline(20), &message, &e), 1);
    stop_raise(stop);
    int64_t start = clock_mono_ns();
    assert_int_equal(kv_next_message(ear, stop, clock_deadline(600000), &message, &e), 1);
    assert_within_guard(start);
    assert_int_equal(COUNTS(mouth, T("PUBLISH"), T("ch"), T("three")), 1);
    hears(ear, "three");
    assert_null(message);
}

static void test_subscribing_anew_leaves_the_old_channel(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_kv struct kv *ear = patient();
    cleanup_kv struct kv *mouth = patient();
    assert_int_equal(kv_subscribe(ear, "old", &e), 0);
    assert_int_equal(kv_subscribe(ear, "new", &e), 0);
    (void)COUNTS(mouth, T("PUBLISH"), T("old"), T("one"));
    assert_int_equal(COUNTS(mouth, T("PUBLISH"), T("new"), T("two")), 1);
    hears(ear, "two");
}

static void test_a_subscription_notices_the_end_of_redis(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *message = NULL;
    cleanup_kv struct kv *ear = patient();
    assert_int_equal(kv_next_message(ear, -1, clock_mono_ns(), &message, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(kv_subscribe(ear, "ch", &e), 0);
    redis_server_kill(&server);
    assert_int_equal(kv_next_message(ear, -1, clock_deadline(600000), &message, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(kv_subscribe(ear, "ch", &e), -1);
    redis_server_start(&server);
    assert_int_equal(kv_subscribe(ear, "ch", &e), 0);
    cleanup_kv struct kv *mouth = patient();
    assert_int_equal(COUNTS(mouth, T("PUBLISH"), T("ch"), T("back")), 1);
    hears(ear, "back");
}

/* --- greeting -------------------------------------------------------------------------------- */

#define PASSWORD "hush@/%"

static void test_password_and_database_and_the_password_in_no_text(void **state)
{
    (void)state;
    struct redis_server s;
    char good[256];
    char wrong[256];
    char beyond[256];
    redis_server_open(&s, PASSWORD);
    (void)str_format(good, sizeof good, "redis://:hush%%40%%2f%%25@%s/3", s.tcp);
    (void)str_format(wrong, sizeof wrong, "redis://:nothush@%s/3", s.tcp);
    (void)str_format(beyond, sizeof beyond, "redis://:hush%%40%%2f%%25@%s/999", s.tcp);
    {
        struct err e = ERR_INIT;
        cleanup_kv struct kv *kv = connect_to(good, PATIENT_MS, NULL);
        cleanup_kv struct kv *no = connect_to(wrong, PATIENT_MS, NULL);
        cleanup_kv struct kv *none = connect_to(s.tcp, PATIENT_MS, NULL);
        cleanup_kv struct kv *nowhere = connect_to(beyond, PATIENT_MS, NULL);
        cleanup_reply redisReply *r = NULL;
        assert_int_equal(COMMAND(kv, &r, &e, T("CLIENT"), T("INFO")), 0);
        assert_non_null(strstr(r->str, " name=test_kv "));
        assert_non_null(strstr(r->str, " db=3 "));
        FAILS(none, ERR_UNAVAILABLE, "wants a password", T("PING"));
        FAILS(no, ERR_UNAVAILABLE, "refused the password", T("PING"));
        FAILS(nowhere, ERR_UNAVAILABLE, "out of range", T("PING"));
        redisReply *nothing = NULL;
        assert_int_equal(COMMAND(no, &nothing, &e, T("PING")), -1);
        assert_null(strstr(e.msg, "hush"));
    }
    redis_server_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments_are_bytes),
        cmocka_unit_test(test_large_values_pass),
        cmocka_unit_test(test_no_url_is_unavailable_and_no_outage),
        cmocka_unit_test(test_an_error_reply_keeps_connection_and_breaker),
        cmocka_unit_test(test_a_script_runs_whether_or_not_redis_knows_it),
        cmocka_unit_test(test_threads_share_a_script),
        cmocka_unit_test(test_a_pipeline_answers_in_order_errors_too),
        cmocka_unit_test(test_answers_nobody_took_are_not_given_to_the_next_call),
        cmocka_unit_test(test_a_frozen_redis_times_out_again_and_again),
        cmocka_unit_test(test_a_restart_between_calls_is_no_error),
        cmocka_unit_test(test_a_breaker_answers_at_once_and_the_log_tells_once),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_closing_under_a_command_is_retried_once),
        cmocka_unit_test(test_closing_under_a_new_connection_is_an_error),
        cmocka_unit_test(test_what_is_no_redis_is_a_defect),
        cmocka_unit_test(test_while_redis_loads_its_data_it_is_not_asked),
        cmocka_unit_test(test_a_subscription_hears_waits_and_stops),
        cmocka_unit_test(test_subscribing_anew_leaves_the_old_channel),
        cmocka_unit_test(test_a_subscription_notices_the_end_of_redis),
        cmocka_unit_test(test_password_and_database_and_the_password_in_no_text),
    };
    (void)signal(SIGPIPE, SIG_IGN); /* hiredis writes without MSG_NOSIGNAL */
    return cmocka_run_group_tests(tests, open_server, close_server);
}
