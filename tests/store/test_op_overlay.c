/* SPDX-License-Identifier: Apache-2.0 */

/* The overlay of gallery operations in a real Redis: operations contract, sections 2, 4 and 5. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/live.h"
#include "tests/store/staging_fixture.h"

#define ID "job-1"

static const struct gallery_node NODES[] = { { .node_id = "1",
    .node_name = "a",
    .status = "downloading",
    .percentage = 40.5,
    .file_name = "layer",
    .current = "1 MiB",
    .total = "",
    .phase = "",
    .error = "" } };

/* As gallery_progress() answers. */
static struct gallery_op a_row(void)
{
    return (struct gallery_op){ .id = ID,
        .element_name = "llama-cpp",
        .cache_key = "localai@llama-cpp",
        .op_type = "backend_install",
        .status = GALLERY_DOWNLOADING,
        .is_backend_op = true,
        .cancellable = true,
        .progress = 25.5,
        .phase = "pull",
        .message = "of the row",
        .error = "slow",
        .file_name = "layer",
        .current_bytes = 25,
        .total_bytes = 100,
        .node = NODES,
        .nodes = 1 };
}

static int report_rc(const struct gallery_op *row, int64_t stamp_us, const struct gallery_report *r,
    enum report_fate *fate, struct err *e)
{
    const struct op_source from = { .id = ID, .row = row, .stamp_us = stamp_us };
    *fate = REPORT_CONFLICT;
    return op_overlay_report(staging_kv, &from, r, fate, e);
}

static enum report_fate report(
    const struct gallery_op *row, int64_t stamp_us, const struct gallery_report *r)
{
    struct err e = ERR_INIT;
    enum report_fate fate;
    if (report_rc(row, stamp_us, r, &fate, &e) < 0)
        fail_msg("%s: %s", err_name(e.code), e.msg);
    return fate;
}

static void refused(const struct gallery_op *row, int64_t stamp_us, const struct gallery_report *r,
    enum err_code code, const char *part)
{
    struct err e = ERR_INIT;
    enum report_fate fate;
    assert_int_equal(report_rc(row, stamp_us, r, &fate, &e), -1);
    if (e.code != code || strstr(e.msg, part) == NULL)
        fail_msg(
            "%s: %s, where %s with \"%s\" was due", err_name(e.code), e.msg, err_name(code), part);
}

static struct op_overlays get(const char *id, int want)
{
    struct err e = ERR_INIT;
    struct op_overlays o = OP_OVERLAYS_INIT;
    int rc = op_overlay_get(staging_kv, id, &o, &e);
    if (rc != want)
        fail_msg("%d %s", rc, e.msg);
    return o;
}

static void end(const char *id)
{
    struct err e = ERR_INIT;
    if (op_overlay_end(staging_kv, id, &e) < 0)
        fail_msg("%s", e.msg);
}

static struct live list_after(const struct live *before)
{
    struct err e = ERR_INIT;
    struct live l = LIVE_INIT;
    if (live_list(staging_kv, before, &l, &e) < 0)
        fail_msg("%s", e.msg);
    return l;
}

/* --- reports --- */

static void test_the_whole_entry_is_stored_with_ttl_and_index(void **state)
{
    (void)state;
    const struct gallery_op row = a_row();
    const struct gallery_report r = GALLERY_REPORT_INIT;
    assert_int_equal(report(&row, 1000, &r), REPORT_FIRST);
    long long ttl = RAW(T("PTTL"), T("wb:1:op:" ID));
    assert_true(ttl > 50000 && ttl <= 60000);
    assert_int_equal(RAW(T("ZCARD"), T("wb:1:live")), 1);
    cleanup_op_overlays struct op_overlays one = get(ID, 0);
    cleanup_live struct live all = list_after(NULL);
    assert_int_equal(all.ops.n, 1);
    assert_int_equal(all.staging.n, 0);
    for (int i = 0; i < 2; i++) {
        const struct gallery_overlay *o = i == 0 ? one.overlay : all.ops.overlay;
        assert_string_equal(o->op.id, ID);
        assert_string_equal(o->op.element_name, "llama-cpp");
        assert_string_equal(o->op.cache_key, "localai@llama-cpp");
        assert_string_equal(o->op.op_type, "backend_install");
        assert_int_equal(o->op.status, GALLERY_DOWNLOADING);
        assert_true(o->op.is_backend_op && o->op.cancellable);
        assert_float_equal(o->op.progress, 25.5, 0);
        assert_string_equal(o->op.phase, "pull");
        assert_string_equal(o->op.message, "of the row");
        assert_string_equal(o->op.error, "slow");
        assert_string_equal(o->op.file_name, "layer");
        assert_int_equal(o->op.current_bytes, 25);
        assert_int_equal(o->op.total_bytes, 100);
        assert_int_equal(o->op.nodes, 1);
        assert_string_equal(o->op.node[0].current, "1 MiB");
        assert_float_equal(o->op.node[0].percentage, 40.5, 0);
        assert_int_equal(o->stamp_us, 1000);
        int64_t left_ms = clock_left_ms(o->expires_ns);
        assert_true(left_ms > 50000 && left_ms <= 60000);
    }
}

static void test_the_value_has_its_fields_in_order(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    const struct gallery_op row = a_row();
    const struct gallery_report r = GALLERY_REPORT_INIT;
    (void)report(&row, 1700000000000000, &r);
    cleanup_reply redisReply *reply = NULL;
    assert_int_equal(kv_command(staging_kv, KV_ARGS(T("GET"), T("wb:1:op:" ID)), &reply, &e), 0);
    assert_string_equal(reply->str,
        "{\"job_id\":\"job-1\",\"gallery_element_name\":\"llama-cpp\",\"cache_key\":"
        "\"localai@llama-cpp\",\"op_type\":\"backend_install\",\"is_backend_op\":true,\"status\":"
        "\"downloading\",\"progress\":25.5,\"phase\":\"pull\",\"message\":\"of the row\",\"error\":"
        "\"slow\",\"file_name\":\"layer\",\"current_bytes\":25,\"total_bytes\":100,"
        "\"cancellable\":true,\"of_row\":true,\"stamp\":1700000000000000,\"nodes\":[{\"node_id\":\"1\","
        "\"node_name\":\"a\",\"status\":\"downloading\",\"percentage\":40.5,\"file_name\":\"layer\","
        "\"current\":\"1 MiB\"}]}");
}

/* The row is written once a second at most, the overlay with every report: what a report that was
 * not due brought is in the overlay only, and must last. Names and state are the row's. */
static void test_a_live_overlay_keeps_what_the_row_does_not_know_yet(void **state)
{
    (void)state;
    struct gallery_op row = a_row();
    struct gallery_report r = GALLERY_REPORT_INIT;
    assert_int_equal(report(&row, 1000, &r), REPORT_FIRST);
    r.message = "fresh";
    r.progress = 50;
    r.has_nodes = true;
    assert_int_equal(report(&row, 2000, &r), REPORT_APPLIED);
    struct gallery_report next = GALLERY_REPORT_INIT;
    next.current_bytes = 60;
    row.status = GALLERY_PROCESSING;
    row.cancellable = false;
    row.cache_key = "renamed";
    row.error = "";
    assert_int_equal(report(&row, 3000, &next), REPORT_APPLIED);
    cleanup_op_overlays struct op_overlays o = get(ID, 0);
    const struct gallery_op *op = &o.overlay[0].op;
    assert_string_equal(op->message, "fresh");
    assert_float_equal(op->progress, 50, 0);
    assert_int_equal(op->nodes, 0);
    assert_int_equal(op->current_bytes, 60);
    assert_int_equal(op->total_bytes, 100);
    assert_int_equal(op->status, GALLERY_PROCESSING);
    assert_false(op->cancellable);
    assert_string_equal(op->cache_key, "renamed");
    assert_string_equal(op->error, "");
    assert_int_equal(o.overlay[0].stamp_us, 3000);
}

static void test_an_older_report_only_fills_what_is_empty(void **state)
{
    (void)state;
    struct gallery_op row = a_row();
    struct gallery_report r = GALLERY_REPORT_INIT;
    row.message = "";
    (void)report(&row, 2000, &r);
    r.progress = 99;
    r.phase = "late";
    assert_int_equal(report(&row, 1000, &r), REPORT_OUTDATED);
    r.message = "late";
    assert_int_equal(report(&row, 1000, &r), REPORT_APPLIED);
    cleanup_op_overlays struct op_overlays o = get(ID, 0);
    assert_float_equal(o.overlay[0].op.progress, 25.5, 0);
    assert_string_equal(o.overlay[0].op.phase, "pull");
    assert_string_equal(o.overlay[0].op.message, "late");
    assert_int_equal(o.overlay[0].stamp_us, 2000);
}

/* Postgres does not answer. */
static void test_without_a_row_only_a_live_overlay_is_kept_fresh(void **state)
{
    (void)state;
    const struct gallery_op row = a_row();
    struct gallery_report r = GALLERY_REPORT_INIT;
    r.progress = 30;
    refused(NULL, 1000, &r, ERR_NOT_FOUND, ID);
    (void)RAW(T("SET"), T("wb:1:op:" ID), T("nonsense"));
    refused(NULL, 1000, &r, ERR_NOT_FOUND, ID);
    (void)report(&row, 1000, &r); /* what makes no sense is replaced */
    r.progress = 40;
    assert_int_equal(report(NULL, 2000, &r), REPORT_APPLIED);
    cleanup_op_overlays struct op_overlays o = get(ID, 0);
    assert_float_equal(o.overlay[0].op.progress, 40, 0);
    assert_string_equal(o.overlay[0].op.cache_key, "localai@llama-cpp");
    assert_true(o.overlay[0].of_row); /* it had one */
    r.status = "completed";           /* which only a row can keep */
    refused(NULL, 3000, &r, ERR_INVALID, "out of range");
}

static void test_long_texts_are_cut_as_in_the_columns(void **state)
{
    (void)state;
    cleanup_free char *text = mem_calloc(20001, 1);
    for (int i = 0; i < 10000; i++)
        memcpy(text + 2 * i, "\xC3\xA4", 2);
    struct gallery_op row = a_row();
    struct gallery_report r = GALLERY_REPORT_INIT;
    row.message = row.error = text;
    for (int round = 0; round < 2; round++) {
        (void)report(&row, 1000 + round, &r);
        cleanup_op_overlays struct op_overlays o = get(ID, 0);
        assert_int_equal(str_utf8_length(o.overlay[0].op.message), GALLERY_TEXT_KEPT);
        assert_int_equal(str_utf8_length(o.overlay[0].op.error), GALLERY_TEXT_KEPT);
        r.message = text;
    }
}

static void test_a_value_that_is_too_large_is_not_stored(void **state)
{
    (void)state;
    cleanup_free char *text = mem_calloc(GALLERY_NODE_TEXT_MAX + 1, 1);
    memset(text, 'x', GALLERY_NODE_TEXT_MAX);
    cleanup_free struct gallery_node *nodes = mem_calloc(GALLERY_NODES_MAX, sizeof(*nodes));
    for (int i = 0; i < GALLERY_NODES_MAX; i++) {
        nodes[i] = NODES[0];
        nodes[i].file_name = text;
    }
    struct gallery_op row = a_row();
    row.node = nodes;
    row.nodes = GALLERY_NODES_MAX;
    const struct gallery_report r = GALLERY_REPORT_INIT;
    refused(&row, 1, &r, ERR_TOO_LARGE, "bytes");
    cleanup_op_overlays struct op_overlays o = get(ID, 1);
}

/* --- the end --- */

static void test_after_the_end_late_reports_are_refused(void **state)
{
    (void)state;
    const struct gallery_op row = a_row();
    const struct gallery_report r = GALLERY_REPORT_INIT;
    for (int stored = 0; stored < 2; stored++) {
        if (stored)
            (void)report(&row, 1000, &r);
        end(ID);
        end(ID);
        cleanup_op_overlays struct op_overlays none = get(ID, 1);
        assert_int_equal(RAW(T("ZCARD"), T("wb:1:live")), 0);
        refused(&row, 2000, &r, ERR_CONFLICT, "this operation has ended");
        long long ttl = RAW(T("PTTL"), T("wb:1:op-ended:" ID));
        assert_true(ttl > 50000 && ttl <= 60000);
        /* a minute later */
        (void)RAW(T("ZADD"), T("wb:1:op-ended:" ID), T("1"), T("any:"));
        assert_int_equal(report(&row, 3000, &r), REPORT_FIRST);
    }
}

/* An id that is used again, the history having been cleared. */
static void test_a_fresh_operation_begins_anew(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    const struct gallery_op row = a_row();
    struct gallery_report r = GALLERY_REPORT_INIT;
    for (int ended = 0; ended < 2; ended++) {
        r.message = "of the earlier one";
        (void)report(&row, 1000, &r);
        if (ended)
            end(ID);
        assert_int_equal(op_overlay_begin(staging_kv, ID, &e), 0);
        cleanup_op_overlays struct op_overlays none = get(ID, 1);
        cleanup_live struct live all = list_after(NULL);
        assert_int_equal(all.ops.n + all.ops.malformed, 0);
        r.message = NULL;
        assert_int_equal(report(&row, 500, &r), REPORT_FIRST);
        cleanup_op_overlays struct op_overlays o = get(ID, 0);
        assert_string_equal(o.overlay[0].op.message, "of the row");
    }
}

static void test_the_end_of_one_is_not_that_of_another(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    enum report_fate fate;
    const struct gallery_report r = GALLERY_REPORT_INIT;
    struct gallery_op other = a_row();
    other.id = "job-2";
    const struct op_source from = { .id = "job-2", .row = &other, .stamp_us = 1 };
    end(ID);
    assert_int_equal(op_overlay_report(staging_kv, &from, &r, &fate, &e), 0);
    (void)must_report(ID, report_of("s1", 1, 1)); /* nor of a copy with the same key */
    end(ID);
    cleanup_overlays struct overlays copy = must_get(ID, 0);
    must_end("job-2");
    cleanup_op_overlays struct op_overlays o = get("job-2", 0);
}

static void test_keys_of_the_wrong_type_are_replaced(void **state)
{
    (void)state;
    const struct gallery_op row = a_row();
    const struct gallery_report r = GALLERY_REPORT_INIT;
    (void)RAW(T("LPUSH"), T("wb:1:op:" ID), T("x"));
    (void)RAW(T("SET"), T("wb:1:live"), T("x"));
    (void)RAW(T("SET"), T("wb:1:op-ended:" ID), T("x"));
    assert_int_equal(report(&row, 1, &r), REPORT_FIRST);
    end(ID);
    refused(&row, 2, &r, ERR_CONFLICT, "ended");
}

/* --- reading --- */

static void index_value(const char *id, const char *value)
{
    char name[100];
    (void)str_format(name, sizeof(name), "wb:1:op:%s", id);
    (void)RAW(T("SET"), T(name), T(value));
    (void)str_format(name, sizeof(name), "op:%s", id);
    (void)RAW(T("ZADD"), T("wb:1:live"), T("99999999999999"), T(name));
}

#define SOUND "\"status\":\"pending\""

static void test_malformed_values_are_counted_and_break_nothing(void **state)
{
    static const char *const MALFORMED[] = { "", "not json", "[]", "7", "null", "{}",
        "{\"status\":\"completed\"}", "{\"status\":\"failed\"}", "{\"status\":\"odd\"}",
        "{\"status\":7}", "{" SOUND ",\"job_id\":\"other\"}", "{" SOUND ",\"progress\":101}",
        "{" SOUND ",\"progress\":-1}", "{" SOUND ",\"progress\":NaN}",
        "{" SOUND ",\"progress\":\"5\"}", "{" SOUND ",\"current_bytes\":-1}",
        "{" SOUND ",\"total_bytes\":9007199254740992}", "{" SOUND ",\"total_bytes\":1.5}",
        "{" SOUND ",\"cancellable\":1}", "{" SOUND ",\"message\":null}",
        "{" SOUND ",\"message\":\"\xff\"}", "{" SOUND ",\"nodes\":{}}",
        "{" SOUND ",\"nodes\":[{\"node_id\":\"1\"}]}", "{" SOUND ",\"stamp\":-5}",
        "{" SOUND "," SOUND "}", "{" SOUND "} x" };
    (void)state;
    const struct gallery_op row = a_row();
    const struct gallery_report r = GALLERY_REPORT_INIT;
    (void)report(&row, 1, &r);
    (void)must_report("copy", report_of("s1", 1, 1));
    for (size_t i = 0; i < sizeof(MALFORMED) / sizeof(MALFORMED[0]); i++) {
        index_value("bad", MALFORMED[i]);
        cleanup_op_overlays struct op_overlays one = get("bad", 1);
        cleanup_live struct live all = list_after(NULL);
        if (one.malformed != 1 || all.ops.malformed != 1 || all.ops.n != 1 || all.staging.n != 1 ||
            all.staging.malformed != 0)
            fail_msg("%s", MALFORMED[i]);
    }
    index_value("bad", "{" SOUND ",\"more\":[1]}"); /* of a later version */
    cleanup_op_overlays struct op_overlays good = get("bad", 0);
    assert_string_equal(good.overlay[0].op.id, "bad");
    assert_string_equal(good.overlay[0].op.cache_key, "");
}

static void test_odd_members_of_the_index_are_counted(void **state)
{
    (void)state;
    static const char *const ODD[] = { "op:", "op:a\nb", "op:..",
        "op:0123456789012345678901234567890123456" };
    for (size_t i = 0; i < sizeof(ODD) / sizeof(ODD[0]); i++)
        (void)RAW(T("ZADD"), T("wb:1:live"), T("99999999999999"), T(ODD[i]));
    (void)RAW(T("ZADD"), T("wb:1:live"), T("99999999999999"), T("other"));
    index_value("expired", "{" SOUND "}");
    (void)RAW(T("ZADD"), T("wb:1:live"), T("1"), T("op:expired"));
    cleanup_live struct live all = list_after(NULL);
    assert_int_equal(all.ops.malformed, 4);
    assert_int_equal(all.ops.n, 0);
    assert_int_equal(all.staging.malformed, 0);
}

static long long reads_by_redis(void)
{
    struct err e = ERR_INIT;
    cleanup_reply redisReply *r = NULL;
    assert_int_equal(kv_command(staging_kv, KV_ARGS(T("INFO"), T("stats")), &r, &e), 0);
    const char *at = strstr(r->str, "total_reads_processed:");
    assert_non_null(at);
    return strtoll(at + strlen("total_reads_processed:"), NULL, 10);
}

/* "readers take the index and one MGET". Copies and operations together: whatever was there at the last
 * list costs one round trip, and is not parsed again. */
static void test_both_kinds_are_read_in_one_round_trip(void **state)
{
    (void)state;
    for (int i = 9; i >= 0; i--) {
        char id[8];
        (void)str_format(id, sizeof(id), "k%d", i);
        index_value(id, "{" SOUND "}");
        (void)must_report(id, report_of("s1", 1, i));
    }
    struct live before = list_after(NULL);
    assert_int_equal(before.staging.n, 10);
    assert_int_equal(before.ops.n, 10);
    long long reads = reads_by_redis();
    cleanup_live struct live now = list_after(&before);
    assert_int_equal(reads_by_redis() - reads, 2); /* the list, and the question itself */
    for (size_t i = 0; i < 10; i++) {
        assert_ptr_equal(now.staging.json[i], before.staging.json[i]);
        assert_ptr_equal(now.ops.json[i], before.ops.json[i]);
    }

    /* And what has come, gone and changed since is as it is. */
    end("k0");
    must_end("k9");
    index_value("k5", "{" SOUND ",\"progress\":7}");
    index_value("a", "{" SOUND ",\"nodes\":[{\"node_id\":\"1\",\"status\":\"queued\"}]}");
    (void)must_report("b", report_of("s1", 1, 77));
    struct live later = list_after(&now);
    live_free(&before);
    live_free(&now);
    assert_int_equal(later.staging.n, 10);
    assert_int_equal(later.ops.n, 10);
    static const char *const OPS[] = { "a", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9" };
    static const char *const COPIES[] = { "b", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7",
        "k8" };
    for (size_t i = 0; i < 10; i++) {
        assert_string_equal(later.ops.overlay[i].op.id, OPS[i]);
        assert_float_equal(later.ops.overlay[i].op.progress, i == 5 ? 7 : 0, 0);
        assert_string_equal(later.staging.overlay[i].key, COPIES[i]);
        assert_int_equal(later.staging.overlay[i].bytes_sent, i == 0 ? 77 : (int)i - 1);
    }
    assert_string_equal(later.ops.overlay[0].op.node[0].node_id, "1");
    live_free(&later);
    cleanup_overlays struct overlays copies = must_list(); /* as GET /api/v1/staging has it */
    assert_int_equal(copies.n, 10);
}

/* --- several at once, and none --- */

enum { THREADS = 6, REPORTS = 40 };

struct race {
    _Atomic int64_t stamp;
    _Atomic int refused;
};

static void *race_reports(void *arg)
{
    struct race *race = arg;
    const struct gallery_op row = a_row();
    cleanup_kv struct kv *mine = staging_connect();
    for (int i = 0; i < REPORTS; i++) {
        struct err e = ERR_INIT;
        enum report_fate fate;
        struct gallery_report r = GALLERY_REPORT_INIT;
        int64_t stamp = atomic_fetch_add(&race->stamp, 1) + 1;
        r.current_bytes = stamp;
        const struct op_source from = { .id = ID, .row = &row, .stamp_us = stamp };
        if (op_overlay_report(mine, &from, &r, &fate, &e) < 0)
            atomic_fetch_add(&race->refused, 1);
    }
    return NULL;
}

static void test_reports_at_once_never_lose_the_newest(void **state)
{
    (void)state;
    pthread_t t[THREADS];
    struct race race = { .stamp = 0, .refused = 0 };
    const struct gallery_op row = a_row();
    const struct gallery_report r = GALLERY_REPORT_INIT;
    (void)report(&row, 0, &r);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, race_reports, &race), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    cleanup_op_overlays struct op_overlays o = get(ID, 0);
    assert_int_equal(race.refused, 0);
    assert_int_equal(o.overlay[0].stamp_us, THREADS * REPORTS);
    assert_int_equal(o.overlay[0].op.current_bytes, THREADS * REPORTS);
}

static void test_without_redis_every_call_says_so(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct live l = LIVE_INIT;
    struct op_overlays o = OP_OVERLAYS_INIT;
    const struct gallery_op row = a_row();
    const struct gallery_report r = GALLERY_REPORT_INIT;
    redis_server_kill(&staging_server);
    refused(&row, 1, &r, ERR_UNAVAILABLE, "");
    assert_int_equal(op_overlay_end(staging_kv, ID, &e), -1);
    assert_int_equal(op_overlay_begin(staging_kv, ID, &e), -1);
    assert_int_equal(op_overlay_get(staging_kv, ID, &o, &e), -1);
    assert_int_equal(live_list(staging_kv, NULL, &l, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(control_publish(staging_kv, ID, GALLERY_CANCEL, &e), -1);
    assert_null(l.ops.overlay);
    redis_server_start(&staging_server);
}

/* "the worker that runs it learns [...] through the Redis channel wb:control". */
static void test_a_control_is_published(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    static const char *const SAYS[] = { "{\"jobID\":\"job-1\",\"control\":\"cancel\"}",
        "{\"jobID\":\"a\\\"b\",\"control\":\"pause\"}" };
    cleanup_kv struct kv *ear = staging_connect();
    assert_int_equal(kv_subscribe(ear, "wb:control", &e), 0);
    assert_int_equal(control_publish(staging_kv, ID, GALLERY_CANCEL, &e), 0);
    assert_int_equal(control_publish(staging_kv, "a\"b", GALLERY_PAUSE, &e), 0);
    for (int i = 0; i < 2; i++) {
        cleanup_free char *message = NULL;
        assert_int_equal(kv_next_message(ear, -1, clock_deadline(PATIENT_MS), &message, &e), 0);
        assert_string_equal(message, SAYS[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_whole_entry_is_stored_with_ttl_and_index),
        TEST(test_the_value_has_its_fields_in_order),
        TEST(test_a_live_overlay_keeps_what_the_row_does_not_know_yet),
        TEST(test_an_older_report_only_fills_what_is_empty),
        TEST(test_without_a_row_only_a_live_overlay_is_kept_fresh),
        TEST(test_long_texts_are_cut_as_in_the_columns),
        TEST(test_a_value_that_is_too_large_is_not_stored),
        TEST(test_after_the_end_late_reports_are_refused),
        TEST(test_a_fresh_operation_begins_anew),
        TEST(test_the_end_of_one_is_not_that_of_another),
        TEST(test_keys_of_the_wrong_type_are_replaced),
        TEST(test_malformed_values_are_counted_and_break_nothing),
        TEST(test_odd_members_of_the_index_are_counted),
        TEST(test_both_kinds_are_read_in_one_round_trip),
        TEST(test_reports_at_once_never_lose_the_newest),
        TEST(test_without_redis_every_call_says_so),
        TEST(test_a_control_is_published),
    };
    return cmocka_run_group_tests(tests, staging_open, staging_close);
}
