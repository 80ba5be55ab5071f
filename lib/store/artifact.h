/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_ARTIFACT_H
#define WB_STORE_ARTIFACT_H

/* Artifacts and their versions in Postgres: artifacts contract, sections 2 and 3. The bytes are artifact_disk.h's. What
 * leads from one state to the next, and that a version never changes its content, holds sql/0012_artifacts.sql.
 * Errors are those of db.h; the texts name the version. */
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "model/manifest.h"

extern const struct db_stmts ARTIFACT_STMTS;

struct version_row {
    int64_t id;
    const char *artifact;
    const char *kind;
    const char *version;
    const char *digest; /* sha256:... of the manifest */
    const char *state;  /* uploading, verifying, published, rejected, withdrawn, dropped */
    const char *reason;
    const char *part; /* uuid: names the folder it is assembled in */
    const char *publisher;
    int64_t total_bytes;
    int64_t shard_bytes;
    int64_t files;
    int64_t shards;
    int64_t missing; /* different contents that are still to be sent */
    int64_t created_us;
    int64_t progress_us;
    int64_t published_us; /* 0: never */
    int64_t withdrawn_us;
};
struct versions {
    struct version_row *row;
    size_t n;
    struct db_rows rows;
};
#define VERSIONS_INIT \
    { \
        .row = NULL, .n = 0, .rows = DB_ROWS_INIT \
    }
void versions_free(struct versions *v);
#define cleanup_versions __attribute__((cleanup(versions_free)))

/* A manifest that passed manifest_read(), with its exact bytes. */
struct published {
    const struct manifest *manifest;
    const char *text; /* UTF-8, no U+0000 */
    size_t size;
    const char *publisher;
};

/* Announces a version: 0 it is new; 1 the same bytes are there already. *out is the row. A version that was rejected or
 * dropped begins anew. Shards that a published version has are not missing. When nothing is missing its state is verifying.
 * Of two publishers at once one waits for the other. ERR_CONFLICT: other bytes have this name, or the artifact is of
 * another kind. */
int version_announce(
    struct db *db, const struct published *p, struct versions *out, struct err *e) WARN_UNUSED;

/* ERR_NOT_FOUND. */
int version_get(struct db *db, const char *artifact, const char *version, struct versions *out,
    struct err *e) WARN_UNUSED;
/* Newest first. ERR_NOT_FOUND: no such artifact. */
int version_list(
    struct db *db, const char *artifact, struct versions *out, struct err *e) WARN_UNUSED;
/* One row for each artifact, by name: its newest published version, or its newest. */
int artifact_list(struct db *db, struct versions *out, struct err *e) WARN_UNUSED;

/* The exact bytes, borrowed from rows, which the caller frees; digest and state as in version_row. */
struct manifest_text {
    const char *text;
    size_t size;
    const char *digest;
    const char *state;
    struct db_rows rows;
};
#define MANIFEST_TEXT_INIT \
    { \
        .text = NULL, .size = 0, .digest = NULL, .state = NULL, .rows = DB_ROWS_INIT \
    }
void manifest_text_free(struct manifest_text *t);
#define cleanup_manifest_text __attribute__((cleanup(manifest_text_free)))
int version_manifest(struct db *db, const char *artifact, const char *version,
    struct manifest_text *out, struct err *e) WARN_UNUSED;

/* Digests (64 hex digits) that are to be sent, one a row, in no order that means anything. */
int version_missing(struct db *db, int64_t id, struct db_rows *out, struct err *e) WARN_UNUSED;

/* The same of the version and path: its size and the state of the version. ERR_NOT_FOUND. */
struct artifact_file_at {
    int64_t version_id;
    int64_t size;
    char state[16];
    char reason[200]; /* as much as fits */
};
int version_file(struct db *db, const char *artifact, const char *version, const char *path,
    struct artifact_file_at *out, struct err *e) WARN_UNUSED;

/* No new distribution starts. 1: it is withdrawn already, with the reason it was. ERR_CONFLICT: it was never
 * published. *out is the row. */
int version_withdraw(struct db *db, const char *artifact, const char *version, const char *reason,
    struct versions *out, struct err *e) WARN_UNUSED;

#endif
