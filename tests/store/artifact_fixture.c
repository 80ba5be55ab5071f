/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "store/manifest_json.h"
#include "tests/store/artifact_fixture.h"

int artifacts_setup(void **state)
{
    static struct db_stmts stmts[5];
    const struct db_stmts all[] = { ARTIFACT_STMTS, SHARD_STMTS, GATE_STMTS, NODE_STMTS,
        ASSIGNMENT_STMTS };
    (void)state;
    memcpy(stmts, all, sizeof all);
    return fx_begin(stmts, 5, "TRUNCATE artifact, node CASCADE");
}

void artifact_shard_of(char fill, int shard, char hex[DIGEST_HEX_SIZE])
{
    memset(hex, fill, DIGEST_HEX_SIZE - 1);
    hex[0] = (char)('0' + shard);
    hex[DIGEST_HEX_SIZE - 1] = '\0';
}

char *artifact_text(const char *version, char fill)
{
    struct buf out = BUF_INIT(4096);
    char first[DIGEST_HEX_SIZE];
    char second[DIGEST_HEX_SIZE];

    artifact_shard_of(fill, 0, first);
    artifact_shard_of(fill, 1, second);
    buf_printf(&out,
        "{\"schema\":1,\"artifact\":\"m\",\"version\":\"%s\",\"kind\":\"weights\",\"total_bytes\":1048580,"
        "\"shard_bytes\":1048576,\"files\":[{\"path\":\"f\",\"size\":1048580,\"mode\":\"0444\",\"sha256\":\"sha256:%s\","
        "\"shards\":[\"sha256:%s\",\"sha256:%s\"]}],\"annotations\":{}}",
        version, first, first, second);
    return buf_steal(&out);
}

int artifact_announce(struct db *db, const char *text, struct versions *out, struct err *e)
{
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    if (manifest_read(text, strlen(text), &m, e) < 0)
        return -1;
    const struct published p = { &m, text, strlen(text), "alice" };
    return version_announce(db, &p, out, e);
}

void artifact_uploaded(const char *version, char fill, struct versions *out)
{
    cleanup_free char *text = artifact_text(version, fill);
    cleanup_versions struct versions v = VERSIONS_INIT;
    struct err e = ERR_INIT;
    char hex[DIGEST_HEX_SIZE];
    bool verifying = false;

    ok(artifact_announce(fx.db, text, &v, &e));
    for (int i = 0; i < 2; i++) {
        artifact_shard_of(fill, i, hex);
        ok(shard_landed(fx.db, v.row[0].id, v.row[0].part, hex, &verifying, &e));
        assert_int_equal(verifying, i == 1);
    }
    ok(version_get(fx.db, "m", version, out, &e));
}

void artifact_published(const char *version, char fill, struct versions *out)
{
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_gate_claim struct gate_claim c = GATE_CLAIM_INIT;
    struct err e = ERR_INIT;

    artifact_uploaded(version, fill, &v);
    ok(gate_claim_next(fx.db, "gate", &c, &e));
    ok(gate_publish(fx.db, c.id, "gate", &e));
    ok(version_get(fx.db, "m", version, out, &e));
}

void artifact_node(const char *name)
{
    struct err e = ERR_INIT;
    const struct node_row n = { .name = name,
        .rack = "r1",
        .zone = "z1",
        .address = "",
        .mounts_json = "[]",
        .versions_json = "[]",
        .agent_version = "" };
    ok(node_report(fx.db, &n, &e));
}

void artifact_assigned(const char *node, const char *version, struct assignments *out)
{
    struct err e = ERR_INIT;
    const struct assign a = { node, "m", version, "admin" };
    artifact_node(node);
    ok(assignment_make(fx.db, &a, out, &e));
}
