/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_ARTIFACT_SHARD_H
#define WB_STORE_ARTIFACT_SHARD_H

/* The shards of a version that is being assembled. Errors are those of db.h. */
#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"
#include "model/job.h"

extern const struct db_stmts SHARD_STMTS;

/* A place of a shard. */
struct shard_at {
    const char *path; /* within the version's files */
    int64_t at;
    int64_t size;
    bool present;
    /* A published version that has the same bytes; from_artifact "" when none is meant to be cloned. */
    const char *from_artifact;
    const char *from_version;
    const char *from_path;
    int64_t from_at;
    int64_t from_id;
    const char *digest; /* 64 hex digits */
};
struct shards_at {
    struct shard_at *place;
    size_t n;
    struct db_rows rows;
};
#define SHARDS_AT_INIT \
    { \
        .place = NULL, .n = 0, .rows = DB_ROWS_INIT \
    }
void shards_at_free(struct shards_at *s);
#define cleanup_shards_at __attribute__((cleanup(shards_at_free)))

/* All places of one content (64 hex digits) in a version. ERR_NOT_FOUND: the manifest has no such shard. */
int shard_places(struct db *db, int64_t version_id, const char *digest, struct shards_at *out,
    struct err *e) WARN_UNUSED;

/* Places that are to be cloned from other versions; none is no error. */
int shard_clones(
    struct db *db, int64_t version_id, struct shards_at *out, struct err *e) WARN_UNUSED;

/* The content lies in all its places and is durable. *verifying: nothing is missing any more. ERR_CONFLICT: the version
 * is no longer assembled in the folder `part`. */
int shard_landed(struct db *db, int64_t version_id, const char *part, const char *digest,
    bool *verifying, struct err *e) WARN_UNUSED;

/* What was to be cloned is bad where it lies: it is not to be had from there any more. */
int shard_spoiled(struct db *db, int64_t version_id, int64_t from_id, const char *digest,
    struct err *e) WARN_UNUSED;

#endif
