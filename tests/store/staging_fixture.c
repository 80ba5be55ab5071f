/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/store/staging_fixture.h"

#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct redis_server staging_server;
struct kv *staging_kv;

struct kv *staging_connect(void)
{
    return kv_new(&(struct kv_options){
        .url = staging_server.url, .name = "test", .timeout_ms = PATIENT_MS, .breaker = NULL });
}

/* A raw command; its integer, if that is its answer. */
long long staging_raw(struct kv_args a)
{
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    if (kv_command(staging_kv, a, &r, &e) < 0)
        fail_msg("%s", e.msg);
    return r->integer;
}

int staging_open(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN); /* hiredis writes without MSG_NOSIGNAL */
    redis_server_open(&staging_server, NULL);
    staging_kv = staging_connect();
    return 0;
}

int staging_close(void **state)
{
    (void)state;
    kv_close(staging_kv);
    redis_server_close(&staging_server);
    return 0;
}

int staging_flush(void **state)
{
    (void)state;
    (void)RAW(T("FLUSHALL"));
    return 0;
}

struct report report_of(const char *session, int64_t stamp_us, int64_t sent)
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

enum report_fate must_report(const char *key, struct report r)
{
    struct err e = ERR_INIT;
    enum report_fate fate = REPORT_CONFLICT;
    if (staging_report(staging_kv, key, &r, &fate, &e) < 0)
        fail_msg("%s: %s", key, e.msg);
    return fate;
}

void must_refuse(const char *key, struct report r, enum err_code code, const char *part)
{
    struct err e = ERR_INIT;
    enum report_fate fate = REPORT_CONFLICT;
    assert_int_equal(staging_report(staging_kv, key, &r, &fate, &e), -1);
    if (e.code != code || strstr(e.msg, part) == NULL)
        fail_msg("%s: %s", err_name(e.code), e.msg);
    assert_int_equal(fate, REPORT_CONFLICT);
}

void must_end(const char *key)
{
    struct err e = ERR_INIT;
    if (staging_end(staging_kv, key, &e) < 0)
        fail_msg("%s", e.msg);
}

struct overlays must_get(const char *key, int want)
{
    struct err e = ERR_INIT;
    struct overlays o = OVERLAYS_INIT;
    int rc = staging_get(staging_kv, key, &o, &e);
    if (rc != want)
        fail_msg("%d %s", rc, e.msg);
    return o;
}

struct overlays must_list(void)
{
    struct err e = ERR_INIT;
    struct overlays o = OVERLAYS_INIT;
    if (staging_list(staging_kv, NULL, &o, &e) < 0)
        fail_msg("%s", e.msg);
    return o;
}

void list_is(size_t n, size_t malformed)
{
    cleanup_overlays struct overlays o = must_list();
    assert_int_equal(o.n, n);
    assert_int_equal(o.malformed, malformed);
}
