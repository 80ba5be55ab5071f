/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: artifacts contract, section 2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "store/manifest_json.h"

#define HEX   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SHARD "\"sha256:" HEX "\""
#define FILE_OF(path, size, shards) \
    "{\"path\":" path ",\"size\":" size ",\"mode\":\"0644\",\"sha256\":\"" HEX \
    "\",\"shards\":[" shards "]}"
#define HEAD(total) \
    "{\"schema\":1,\"artifact\":\"llama-3\",\"version\":\"v1\",\"kind\":\"weights\",\"total_bytes\":" total \
    ",\"shard_bytes\":1048576,"
#define WHOLE(total, files) HEAD(total) "\"files\":[" files "],\"annotations\":{}}"

static int read_text(const char *text, struct manifest *out, struct err *e)
{
    return manifest_read(text, strlen(text), out, e);
}

static void good(const char *text)
{
    struct err e = ERR_INIT;
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    if (read_text(text, &m, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
}

static void bad(const char *text, const char *says)
{
    struct err e = ERR_INIT;
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    if (read_text(text, &m, &e) == 0)
        fail_msg("taken: %s", text);
    assert_int_equal(e.code, ERR_INVALID);
    if (strstr(e.msg, says) == NULL)
        fail_msg("'%s' does not say '%s'", e.msg, says);
    assert_null(m.file);
}

static void a_manifest_is_read_whole(void **state)
{
    struct err e = ERR_INIT;
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    (void)state;
    const char *text = WHOLE("1048577",
        FILE_OF("\"a/b\"", "0",
            "") ","
                "{\"path\":\"run\",\"size\":1048577,\"mode\":493,\"sha256\":\"sha256:" HEX
                "\",\"shards\":[" SHARD "," SHARD "],\"urls\":[\"https://x/run\"]}");
    if (read_text(text, &m, &e) < 0)
        fail_msg("%s", e.msg);
    assert_string_equal(m.artifact, "llama-3");
    assert_string_equal(m.version, "v1");
    assert_int_equal(m.kind, ARTIFACT_WEIGHTS);
    assert_int_equal(m.total_bytes, 1048577);
    assert_int_equal(m.files, 2);
    assert_int_equal(m.shards, 2);
    assert_false(m.file[0].executable);
    assert_true(m.file[1].executable);
    assert_string_equal(m.file[1].url[0], "https://x/run");
    assert_int_equal(m.shard[1].byte[0], 0xe3);
    assert_ptr_equal(manifest_find(&m, "run"), &m.file[1]);
    assert_null(manifest_find(&m, "a"));
}

/* What is printed reads back the same. */
static void printing_and_reading_agree(void **state)
{
    struct err e = ERR_INIT;
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    cleanup_manifest struct manifest again = MANIFEST_INIT;
    cleanup_buf struct buf first = BUF_INIT(1 << 16);
    cleanup_buf struct buf second = BUF_INIT(1 << 16);
    (void)state;
    assert_int_equal(read_text(WHOLE("5", FILE_OF("\"d/\\u00e9\"", "5", SHARD)), &m, &e), 0);
    manifest_print(&m, "{\"by\":\"us\"}", &first);
    assert_int_equal(read_text(first.data, &again, &e), 0);
    manifest_print(&again, "{\"by\":\"us\"}", &second);
    assert_string_equal(first.data, second.data);
    assert_non_null(strstr(first.data, "\"annotations\":{\"by\":\"us\"}"));
}

static void unknown_schemas_are_refused(void **state)
{
    (void)state;
    bad("{\"schema\":2}", "schema");
    bad("{}", "schema");
    bad("[]", "object");
    bad("{\"schema\":1,\"schema\":1}", "");
}

static void names_keep_to_their_alphabet(void **state)
{
    struct err e = ERR_INIT;
    char name[ARTIFACT_NAME_MAX + 2];
    static const char *const BAD[] = { "", "A", ".a", "-a", "_a", "a b", "a/b", "..", "\xc3\xa9" };
    static const char *const GOOD[] = { "a", "0", "llama-3.1_8b", "a..b" };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_int_equal(artifact_name_check("artifact", BAD[i], ARTIFACT_NAME_MAX, &e), -1);
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++)
        assert_int_equal(artifact_name_check("artifact", GOOD[i], ARTIFACT_NAME_MAX, &e), 0);
    memset(name, 'a', sizeof name);
    name[ARTIFACT_NAME_MAX] = '\0';
    assert_int_equal(artifact_name_check("artifact", name, ARTIFACT_NAME_MAX, &e), 0);
    name[ARTIFACT_NAME_MAX] = 'a';
    name[ARTIFACT_NAME_MAX + 1] = '\0';
    assert_int_equal(artifact_name_check("artifact", name, ARTIFACT_NAME_MAX, &e), -1);
}

static void paths_stay_below_their_directory(void **state)
{
    struct err e = ERR_INIT;
    char segment[MANIFEST_SEGMENT_MAX + 2];
    static const char *const BAD[] = { "", "/a", "a/", "a//b", ".", "..", "a/..", "./a", "a/../b",
        "a\nb", "\x7f", "a\xff", "\xed\xa0\x80" };
    static const char *const GOOD[] = { "a", "...", "a b", "a\\b", ".hidden", "a/b/c", "\xc3\xa9" };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        if (manifest_path_check(BAD[i], &e) == 0)
            fail_msg("taken: '%s'", BAD[i]);
        assert_int_equal(e.code, ERR_INVALID);
    }
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++)
        assert_int_equal(manifest_path_check(GOOD[i], &e), 0);
    memset(segment, 'a', sizeof segment);
    segment[MANIFEST_SEGMENT_MAX] = '\0';
    assert_int_equal(manifest_path_check(segment, &e), 0);
    segment[MANIFEST_SEGMENT_MAX] = 'a';
    segment[MANIFEST_SEGMENT_MAX + 1] = '\0';
    assert_int_equal(manifest_path_check(segment, &e), -1);
}

static void files_are_sorted_and_none_is_anothers_parent(void **state)
{
    (void)state;
    good(WHOLE("0",
        FILE_OF("\"a\"", "0", "") "," FILE_OF("\"a-b\"", "0", "") "," FILE_OF("\"b/c\"", "0", "")));
    bad(WHOLE("0", FILE_OF("\"b\"", "0", "") "," FILE_OF("\"a\"", "0", "")), "sorted");
    bad(WHOLE("0", FILE_OF("\"a\"", "0", "") "," FILE_OF("\"a\"", "0", "")), "twice");
    bad(WHOLE("0", FILE_OF("\"a\"", "0", "") "," FILE_OF("\"a-b\"", "0", "") "," FILE_OF(
                       "\"a/b/c\"", "0", "")),
        "parent");
    bad(WHOLE("0", FILE_OF("\"a/b\"", "0", "") "," FILE_OF("\"a/b/c\"", "0", "")), "parent");
    bad(WHOLE("0", ""), "none");
}

static void sizes_add_up(void **state)
{
    (void)state;
    good(WHOLE("3", FILE_OF("\"a\"", "1", SHARD) "," FILE_OF("\"b\"", "2", SHARD)));
    bad(WHOLE("4", FILE_OF("\"a\"", "1", SHARD) "," FILE_OF("\"b\"", "2", SHARD)), "add up to 3");
    bad(WHOLE("-1", FILE_OF("\"a\"", "-1", "")), "size");
    bad(WHOLE("1", FILE_OF("\"a\"", "1.5", SHARD)), "size");
    bad(WHOLE("1", FILE_OF("\"a\"", "\"1\"", SHARD)), "size");
    bad(WHOLE("1125899906842625", FILE_OF("\"a\"", "1125899906842625", SHARD)), "2^50");
    bad(WHOLE("0", FILE_OF("\"a\"", "1125899906842624", SHARD) "," FILE_OF(
                       "\"b\"", "1125899906842624", SHARD)),
        "shards");
}

static void shards_are_as_many_as_the_size_needs(void **state)
{
    (void)state;
    good(WHOLE("1048576", FILE_OF("\"a\"", "1048576", SHARD)));
    bad(WHOLE("1048576", FILE_OF("\"a\"", "1048576", SHARD "," SHARD)), "1 are needed");
    bad(WHOLE("1048577", FILE_OF("\"a\"", "1048577", SHARD)), "2 are needed");
    bad(WHOLE("0", FILE_OF("\"a\"", "0", SHARD)), "0 are needed"); /* an empty file has none */
    bad(WHOLE("1", FILE_OF("\"a\"", "1", "")), "1 are needed");
}

/* An empty digest is an error, never a warning. */
static void digests_are_whole_and_known(void **state)
{
    static const char *const BAD[] = { "\"\"", "\"" HEX "\"", "\"sha256:\"", "\"sha512:" HEX "\"",
        "\"sha256:" HEX "0\"",
        "\"sha256:E3B0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"", "null", "7",
        "true" };
    char text[1024];
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(
            str_format(text, sizeof text, WHOLE("1", FILE_OF("\"a\"", "1", "%s")), BAD[i]), 0);
        bad(text, "shards[0]");
    }
    bad(WHOLE("0", "{\"path\":\"a\",\"size\":0,\"mode\":0,\"sha256\":\"\",\"shards\":[]}"),
        "sha256");
    bad(WHOLE("0", "{\"path\":\"a\",\"size\":0,\"mode\":0,\"shards\":[]}"), "sha256");
}

/* Links, devices, set-user-id: whatever is no plain file. */
static void only_plain_files(void **state)
{
    static const char *const BAD[] = { "\"0120777\"", "41471", "\"04755\"", "-1", "\"\"",
        "\"0x1ff\"", "\"rwx\"", "null", "\"+644\"", "1e9" };
    static const char *const GOOD[] = { "420", "\"0644\"", "\"644\"", "\"0100644\"", "33188", "0" };
    char text[1024];
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        (void)str_format(text, sizeof text,
            WHOLE("0",
                "{\"path\":\"a\",\"size\":0,\"mode\":%s,\"sha256\":\"" HEX "\",\"shards\":[]}"),
            BAD[i]);
        bad(text, "mode");
    }
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        (void)str_format(text, sizeof text,
            WHOLE("0",
                "{\"path\":\"a\",\"size\":0,\"mode\":%s,\"sha256\":\"" HEX "\",\"shards\":[]}"),
            GOOD[i]);
        good(text);
    }
}

static void shard_sizes_are_whole_mebibytes(void **state)
{
    static const char *const BAD[] = { "0", "1", "1048575", "1048577", "1074790400", "-1048576" };
    char text[1024];
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        (void)str_format(text, sizeof text,
            "{\"schema\":1,\"artifact\":\"a\",\"version\":\"v\",\"kind\":\"image\",\"total_bytes\":0,\"shard_bytes\":%s,"
            "\"files\":[" FILE_OF("\"a\"", "0", "") "]}",
            BAD[i]);
        bad(text, "shard_bytes");
    }
    assert_int_equal(manifest_shard_bytes(0), 16 << 20);
    assert_int_equal(manifest_shard_bytes(100000000000), 16 << 20);
    assert_int_equal(manifest_shard_bytes(100000000001), 64 << 20);
}

/* Looked at before the JSON is read: size, and nesting of at most 4. */
static void size_and_depth_are_bounded(void **state)
{
    struct err e = ERR_INIT;
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    (void)state;
    cleanup_free char *large = mem_calloc(1, MANIFEST_BYTES_MAX + 1);
    memset(large, ' ', MANIFEST_BYTES_MAX + 1);
    assert_int_equal(manifest_read(large, MANIFEST_BYTES_MAX + 1, &m, &e), -1);
    assert_int_equal(e.code, ERR_TOO_LARGE);
    good(
        HEAD("0") "\"files\":[" FILE_OF("\"a\"", "0", "") "],\"annotations\":{\"a\":{\"b\":[1]}}}");
    bad(HEAD("0") "\"files\":[" FILE_OF(
            "\"a\"", "0", "") "],\"annotations\":{\"a\":{\"b\":[[1]]}}}",
        "nested");
    good(HEAD("0") "\"files\":[" FILE_OF(
        "\"a\"", "0", "") "],\"annotations\":{\"a\":\"[[[[[\\\"[{{{{{\"}}");
}

static void a_shard_knows_its_place(void **state)
{
    struct err e = ERR_INIT;
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    static const struct shard_place PLACE[] = { { 1, 0, 1048576 }, { 1, 1048576, 1 }, { 3, 0, 7 },
        { 5, 0, 1048576 } };
    (void)state;
    assert_int_equal(
        read_text(
            WHOLE("2097160", FILE_OF("\"a\"", "0", "") "," FILE_OF("\"b\"", "1048577",
                                 SHARD "," SHARD) "," FILE_OF("\"c\"", "0", "") "," FILE_OF("\"d\"",
                                 "7", SHARD) "," FILE_OF("\"e\"", "0", "") "," FILE_OF("\"f\"",
                                 "1048576", SHARD) "," FILE_OF("\"g\"", "0", "")),
            &m, &e),
        0);
    assert_int_equal(m.shards, 4);
    for (size_t i = 0; i < m.shards; i++) {
        const struct shard_place p = manifest_place(&m, i);
        assert_int_equal(p.file, PLACE[i].file);
        assert_int_equal(p.offset, PLACE[i].offset);
        assert_int_equal(p.size, PLACE[i].size);
    }
}

static void urls_are_a_short_list_of_texts(void **state)
{
    static const char *const BAD[] = {
        "[]", "{}", "[7]", "[\"\"]", "\"https://x\"",
        "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]"
    };
    char text[1024];
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        (void)str_format(text, sizeof text,
            WHOLE("0", "{\"path\":\"a\",\"size\":0,\"mode\":0,\"sha256\":\"" HEX
                       "\",\"shards\":[],\"urls\":%s}"),
            BAD[i]);
        bad(text, "urls");
    }
}

/* The digest is over the bytes as they are, not over their meaning. */
static void the_digest_is_of_the_bytes(void **state)
{
    (void)state;
    const struct digest a = manifest_digest("", 0);
    const struct digest b = manifest_digest(" ", 1);
    char text[DIGEST_TEXT_SIZE];
    digest_print(&a, text);
    assert_string_equal(text, "sha256:" HEX);
    assert_memory_not_equal(&a, &b, sizeof a);
}

static void a_hasher_adds_up(void **state)
{
    cleanup_hasher struct hasher *h = hasher_new();
    unsigned char once[DIGEST_SIZE];
    unsigned char parts[DIGEST_SIZE];
    (void)state;
    digest_bytes("weights", 7, once);
    for (int i = 0; i < 2; i++) { /* it begins anew by itself */
        hasher_add(h, "wei", 3);
        hasher_add(h, "", 0);
        hasher_add(h, "ghts", 4);
        hasher_end(h, parts);
        assert_memory_equal(once, parts, DIGEST_SIZE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_is_read_whole),
        cmocka_unit_test(printing_and_reading_agree),
        cmocka_unit_test(unknown_schemas_are_refused),
        cmocka_unit_test(names_keep_to_their_alphabet),
        cmocka_unit_test(paths_stay_below_their_directory),
        cmocka_unit_test(files_are_sorted_and_none_is_anothers_parent),
        cmocka_unit_test(sizes_add_up),
        cmocka_unit_test(shards_are_as_many_as_the_size_needs),
        cmocka_unit_test(digests_are_whole_and_known),
        cmocka_unit_test(only_plain_files),
        cmocka_unit_test(shard_sizes_are_whole_mebibytes),
        cmocka_unit_test(size_and_depth_are_bounded),
        cmocka_unit_test(a_shard_knows_its_place),
        cmocka_unit_test(urls_are_a_short_list_of_texts),
        cmocka_unit_test(the_digest_is_of_the_bytes),
        cmocka_unit_test(a_hasher_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
