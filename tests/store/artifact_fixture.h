/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ARTIFACT_FIXTURE_H
#define WB_ARTIFACT_FIXTURE_H

/* What the tests of artifacts share, beside store_fixture.h. */
#include "store/artifact.h"
#include "store/artifact_gate.h"
#include "store/artifact_shard.h"
#include "store/assignment.h"
#include "store/node.h"
#include "tests/store/store_fixture.h"

int artifacts_setup(void **state);

/* A manifest of artifact "m" with one file "f" of two shards; fill tells its content apart. The digests are of nothing that
 * there is. The caller's. */
char *artifact_text(const char *version, char fill);

/* Announces it: what version_announce() gave. */
int artifact_announce(
    struct db *db, const char *text, struct versions *out, struct err *e) WARN_UNUSED;

/* The digest of shard 0 or 1 of fill, 64 hex digits. */
void artifact_shard_of(char fill, int shard, char hex[DIGEST_HEX_SIZE]);

/* Announced and all shards landed (verifying), or published. */
void artifact_uploaded(const char *version, char fill, struct versions *out);
void artifact_published(const char *version, char fill, struct versions *out);

void artifact_node(const char *name);
/* A node with an assignment of m/version: its id. */
void artifact_assigned(const char *node, const char *version, struct assignments *out);

#endif
