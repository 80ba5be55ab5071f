/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing against a double of the store: artifacts contract, section 3, "Publishing". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "fetch/publish.h"
#include "json/jx.h"
#include "store/manifest_json.h"
#include "tests/fake/child_server.h"
#include "tests/fake/folder.h"

#define TOKEN  "publisher-token-0123456789"
#define SHARDS "/api/v1/artifacts/llama/versions/v1/shards/"

enum { HANG_S = 20 };

struct scene {
    struct child_server store;
    struct folder folder;
    struct outbound tree;
    struct manifest manifest;
    struct buf text;
    struct publish_options options;
    struct publish_result result;
    struct err e;
    int64_t last; /* progress so far */
};

static struct scene scene;

static void told(void *ctx, enum publish_phase phase, int64_t done, int64_t total)
{
    struct scene *s = ctx;
    if (phase == PUBLISH_VERIFYING)
        return;
    assert_true(done > s->last && done <= total);
    s->last = done;
}

static int begin(void **state)
{
    static const char *const ARGS[] = { "--token", TOKEN, NULL };
    struct scene *s = &scene;
    (void)state;
    *s = (struct scene){ .text = BUF_INIT(1 << 20) };
    child_server_open(&s->store, "fake_store.py", ARGS);
    folder_make(&s->folder);
    folder_put(&s->folder, "a", "first", 0644);
    folder_put(&s->folder, "b", "second", 0644);
    folder_put(&s->folder, "c", "first", 0644); /* the same shard twice */
    folder_put(&s->folder, "d", "", 0644);
    s->options = (struct publish_options){ .url = s->store.url,
        .token = TOKEN,
        .threads = 2,
        .tries = 3,
        .backoff = { 1, 2 },
        .poll_ms = 1,
        .progress = told,
        .ctx = s };
    const struct outbound_options o = { .artifact = "llama", .version = "v1", .threads = 1 };
    if (outbound_walk(s->folder.path, OUTBOUND_NO_LINKS, NULL, &s->tree, &s->e) < 0 ||
        outbound_manifest(&s->tree, &o, &s->manifest, &s->e) < 0)
        return -1;
    manifest_print(&s->manifest, NULL, &s->text);
    return 0;
}

static int end(void **state)
{
    (void)state;
    buf_free(&scene.text);
    manifest_free(&scene.manifest);
    outbound_free(&scene.tree);
    folder_remove(&scene.folder);
    child_server_close(&scene.store);
    return 0;
}

static int run(void)
{
    const struct publication p = { &scene.tree, &scene.manifest, scene.text.data, scene.text.len };
    scene.e = (struct err)ERR_INIT;
    scene.last = 0;
    return publish(&p, &scene.options, &scene.result, &scene.e);
}

static void good(int64_t shards)
{
    if (run() < 0)
        fail_msg("%s", scene.e.msg);
    assert_int_equal(scene.result.shards_sent, shards);
    assert_int_equal(scene.result.shards_there, (int64_t)scene.manifest.shards - shards);
}

static void bad(enum err_code code, const char *says)
{
    assert_int_equal(run(), -1);
    assert_int_equal(scene.e.code, code);
    if (strstr(scene.e.msg, says) == NULL)
        fail_msg("'%s' does not say '%s'", scene.e.msg, says);
    assert_null(strstr(scene.e.msg, TOKEN));
}

static int puts_of_shards(void)
{
    return child_server_requests(&scene.store, "PUT", SHARDS);
}

static void what_is_missing_is_sent_once_each(void **state)
{
    (void)state;
    child_server_order(&scene.store, "{'verifying':3}");
    good(2);
    assert_int_equal(scene.result.bytes_sent, 11);
    assert_int_equal(puts_of_shards(), 2);
    assert_int_equal(scene.last, 11);
}

/* Whoever was killed starts again: what the store has is not sent again. */
static void a_second_run_sends_nothing(void **state)
{
    (void)state;
    good(2);
    good(0);
    assert_int_equal(puts_of_shards(), 2);
}

static void what_other_versions_have_is_not_sent(void **state)
{
    (void)state;
    char order[128];
    unsigned char digest[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    digest_bytes("first", 5, digest);
    str_hex(hex, digest, sizeof digest);
    (void)str_format(order, sizeof order, "{'have':['%s']}", hex);
    child_server_order(&scene.store, order);
    good(1);
    assert_int_equal(scene.result.bytes_sent, 6);
}

static void other_bytes_under_the_same_name_are_a_conflict(void **state)
{
    (void)state;
    good(2);
    buf_puts(&scene.text, " ");
    bad(ERR_CONFLICT, "manifest: 409 this version has other bytes");
}

static void what_goes_away_is_tried_again(void **state)
{
    (void)state;
    child_server_order(&scene.store,
        "{'faults':[{'match':'PUT .*/v1','do':'status','status':503,'body':{'error':'later'}},"
        "{'match':'PUT .*/shards/.*','do':'drop'},{'match':'PUT .*/shards/.*','do':'status','status':429},"
        "{'match':'PUT .*/shards/.*','do':'drop_after'},{'match':'GET .*','do':'status','status':500}]}");
    scene.options.tries = 5;
    good(2);
}

static void tries_are_used_up(void **state)
{
    (void)state;
    child_server_order(&scene.store,
        "{'faults':[{'match':'PUT .*/shards/.*','do':'status','status':503,'body':{'error':'later'},'times':-1}]}");
    bad(ERR_UNAVAILABLE, "503 later");
    assert_true(puts_of_shards() >= 3 && puts_of_shards() <= 6);
}

static void what_does_not_go_away_is_not_tried_again(void **state)
{
    (void)state;
    scene.options.token = "another-token-0123456789";
    bad(ERR_UNAUTHENTICATED, "401 unknown token Bearer ***");
    assert_int_equal(child_server_requests(&scene.store, "PUT", "/"), 1);
}

/* The release gate: published or rejected, with the reason. */
static void the_gate_may_reject_it(void **state)
{
    (void)state;
    child_server_order(&scene.store, "{'reject':'a: read back with another sha256'}");
    bad(ERR_NOT_DONE, "rejected: a: read back");
}

static void what_gets_lost_before_the_gate_is_sent_again(void **state)
{
    (void)state;
    child_server_order(&scene.store, "{'lose':true}");
    scene.options.progress = NULL; /* it begins anew */
    good(4);
    assert_int_equal(puts_of_shards(), 4);
}

/* A file that is written to while it is being published. */
static void a_file_that_changed_is_not_sent(void **state)
{
    (void)state;
    folder_put(&scene.folder, "b", "SECOND", 0644);
    bad(ERR_CONFLICT, "b: changed while it was being published");
    folder_put(&scene.folder, "b", "sec", 0644);
    bad(ERR_CONFLICT, "b: changed while it was being published");
    assert_int_equal(remove(folder_at(&scene.folder, "b")), 0);
    assert_int_equal(mkfifo(folder_at(&scene.folder, "b"), 0644), 0);
    (void)alarm(HANG_S);
    bad(ERR_INTERNAL, "b: ");
    (void)alarm(0);
    cleanup_json json_object *now = child_server_state(&scene.store);
    assert_true(json_object_object_length(jx_get(now, "sent")) <= 1);
}

static void a_service_that_makes_no_sense_is_told(void **state)
{
    (void)state;
    child_server_order(&scene.store,
        "{'faults':[{'match':'PUT .*','do':'status','status':202,'body':{'state':'uploading','missing':['sha256:1']}}]}");
    bad(ERR_INTERNAL, "no digest");
    child_server_order(&scene.store,
        "{'faults':[{'match':'PUT .*','do':'status','status':202,'body':{'state':'uploading','missing':"
        "['sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855']}}]}");
    bad(ERR_INTERNAL, "does not have");
    child_server_order(
        &scene.store, "{'faults':[{'match':'PUT .*','do':'status','status':200,'body':{}}]}");
    bad(ERR_NOT_DONE, "the version is ");
    scene.options.url = "ftp://x";
    bad(ERR_INVALID, "URL");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_missing_is_sent_once_each),
        TEST(a_second_run_sends_nothing),
        TEST(what_other_versions_have_is_not_sent),
        TEST(other_bytes_under_the_same_name_are_a_conflict),
        TEST(what_goes_away_is_tried_again),
        TEST(tries_are_used_up),
        TEST(what_does_not_go_away_is_not_tried_again),
        TEST(the_gate_may_reject_it),
        TEST(what_gets_lost_before_the_gate_is_sent_again),
        TEST(a_file_that_changed_is_not_sent),
        TEST(a_service_that_makes_no_sense_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
