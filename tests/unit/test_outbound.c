/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that become manifests: artifacts contract, section 2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "fetch/outbound.h"
#include "store/manifest_json.h"
#include "tests/fake/folder.h"

static const char *at(const char *name)
{
    return folder_at(&test_folder, name);
}

static void put(const char *name, const void *data, size_t size, mode_t mode)
{
    folder_put_bytes(&test_folder, name, data, size, mode);
}

static struct outbound walked(void)
{
    struct err e = ERR_INIT;
    struct outbound t = OUTBOUND_INIT;
    if (outbound_walk(test_folder.path, OUTBOUND_NO_LINKS, NULL, &t, &e) < 0)
        fail_msg("%s", e.msg);
    return t;
}

static void files_come_in_the_order_of_a_manifest(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("a"), 0755), 0);
    assert_int_equal(mkdir(at("empty"), 0755), 0);
    put("b", "1", 1, 0644);
    put("a-b", "22", 2, 0755);
    put("a/z", "", 0, 0600);
    cleanup_outbound struct outbound t = walked();
    assert_int_equal(t.n, 3);
    assert_string_equal(t.file[0].path, "a-b");
    assert_true(t.file[0].executable);
    assert_string_equal(t.file[1].path, "a/z");
    assert_string_equal(t.file[2].path, "b");
    assert_false(t.file[2].executable);
    assert_int_equal(t.bytes, 3);
}

static void refused(enum outbound_links links, enum err_code code, const char *says)
{
    struct err e = ERR_INIT;
    struct outbound t = OUTBOUND_INIT;
    assert_int_equal(outbound_walk(test_folder.path, links, test_folder.path, &t, &e), -1);
    assert_int_equal(e.code, code);
    if (strstr(e.msg, says) == NULL)
        fail_msg("'%s' does not say '%s'", e.msg, says);
}

static void what_is_no_plain_file_is_refused(void **state)
{
    (void)state;
    refused(OUTBOUND_NO_LINKS, ERR_NOT_FOUND, "no file");
    put("f", "1", 1, 0644);
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    refused(OUTBOUND_NO_LINKS, ERR_INVALID, "pipe");
    assert_int_equal(unlink(at("pipe")), 0);
    assert_int_equal(symlink("f", at("link")), 0);
    refused(OUTBOUND_NO_LINKS, ERR_INVALID, "link");
}

static void links_are_followed_only_to_what_lies_within(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_outbound struct outbound t = OUTBOUND_INIT;
    put("blob", "weights", 7, 0644);
    assert_int_equal(symlink("blob", at("model")), 0);
    if (outbound_walk(test_folder.path, OUTBOUND_FOLLOW_LINKS, test_folder.path, &t, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.file[1].size, 7);
    assert_string_equal(strrchr(t.file[1].real, '/'), "/blob");
    assert_int_equal(symlink("/etc/passwd", at("secret")), 0);
    refused(OUTBOUND_FOLLOW_LINKS, ERR_INVALID, "secret: a link that leads outside");
    assert_int_equal(unlink(at("secret")), 0);
    assert_int_equal(symlink("nowhere", at("lost")), 0);
    refused(OUTBOUND_FOLLOW_LINKS, ERR_INVALID, "lost: a link that leads nowhere");
}

static void names_that_a_manifest_may_not_have_are_refused(void **state)
{
    (void)state;
    put("new\nline", "1", 1, 0644);
    refused(OUTBOUND_NO_LINKS, ERR_INVALID, "control character");
}

static void told(void *ctx, int64_t done, int64_t total)
{
    int64_t *last = ctx;
    assert_true(done >= *last && done <= total);
    *last = done;
}

/* Each shard and each whole file has the digest of its bytes, whatever the number of threads. */
static void a_tree_is_hashed_shard_by_shard(void **state)
{
    (void)state;
    const size_t size = (size_t)SHARD_UNIT + 5;
    cleanup_free char *data = mem_calloc(1, size);
    unsigned char digest[DIGEST_SIZE];
    memset(data, 'x', size);
    put("large", data, size, 0644);
    put("small", "abc", 3, 0644);
    put("none", "", 0, 0644);
    cleanup_outbound struct outbound t = walked();
    for (int threads = 1; threads <= 4; threads++) {
        struct err e = ERR_INIT;
        int64_t last = 0;
        cleanup_manifest struct manifest m = MANIFEST_INIT;
        const struct outbound_options o = { "llama", "v1", ARTIFACT_WEIGHTS, SHARD_UNIT, threads,
            told, &last };
        if (outbound_manifest(&t, &o, &m, &e) < 0)
            fail_msg("%s", e.msg);
        assert_int_equal(last, (int64_t)size + 3);
        assert_int_equal(m.shards, 3);
        digest_bytes(data, (size_t)SHARD_UNIT, digest);
        assert_memory_equal(m.shard[0].byte, digest, DIGEST_SIZE);
        digest_bytes("xxxxx", 5, digest);
        assert_memory_equal(m.shard[1].byte, digest, DIGEST_SIZE);
        digest_bytes(data, size, digest);
        assert_memory_equal(m.file[0].sha256.byte, digest, DIGEST_SIZE);
        digest_bytes("abc", 3, digest);
        assert_memory_equal(m.file[2].sha256.byte, digest, DIGEST_SIZE);
        assert_memory_equal(m.shard[2].byte, digest, DIGEST_SIZE);
        cleanup_buf struct buf printed = BUF_INIT(1 << 16);
        cleanup_manifest struct manifest again = MANIFEST_INIT;
        manifest_print(&m, NULL, &printed);
        assert_int_equal(manifest_read(printed.data, printed.len, &again, &e), 0);
    }
}

/* A file that is not as it was when the tree was walked. */
static void a_file_that_changes_its_size_meanwhile_is_told(void **state)
{
    (void)state;
    static const struct outbound_options OPTIONS = {
        .artifact = "a", .version = "v", .threads = 2
    };
    static const char *const NOW[] = { "1", "12345" };
    static const char *const SAYS[] = { "f: became shorter", "f: became longer" };
    put("f", "123", 3, 0644);
    cleanup_outbound struct outbound t = walked();
    for (size_t i = 0; i < 2; i++) {
        struct err e = ERR_INIT;
        struct manifest m = MANIFEST_INIT;
        put("f", NOW[i], strlen(NOW[i]), 0644);
        assert_int_equal(outbound_manifest(&t, &OPTIONS, &m, &e), -1);
        assert_int_equal(e.code, ERR_CONFLICT);
        assert_string_equal(e.msg, SAYS[i]);
    }
}

static void names_and_shard_sizes_are_checked_before_anything_is_read(void **state)
{
    (void)state;
    static const struct outbound_options BAD[] = {
        { .artifact = "A", .version = "v", .threads = 1 },
        { .artifact = "a", .version = "", .threads = 1 },
        { .artifact = "a", .version = "v", .shard_bytes = 5, .threads = 1 },
        { .artifact = "a", .version = "v", .shard_bytes = -SHARD_UNIT, .threads = 1 },
        { .artifact = "a", .version = "v", .shard_bytes = 2 * SHARD_BYTES_MAX, .threads = 1 },
    };
    put("f", "123", 3, 0644);
    cleanup_outbound struct outbound t = walked();
    assert_int_equal(unlink(at("f")), 0);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct err e = ERR_INIT;
        struct manifest m = MANIFEST_INIT;
        assert_int_equal(outbound_manifest(&t, &BAD[i], &m, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_begin, folder_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_come_in_the_order_of_a_manifest),
        TEST(what_is_no_plain_file_is_refused),
        TEST(links_are_followed_only_to_what_lies_within),
        TEST(names_that_a_manifest_may_not_have_are_refused),
        TEST(a_tree_is_hashed_shard_by_shard),
        TEST(a_file_that_changes_its_size_meanwhile_is_told),
        TEST(names_and_shard_sizes_are_checked_before_anything_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
