/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_ASSIGNMENT_H
#define WB_STORE_ASSIGNMENT_H

/* A version on its way to a node: artifacts contract, section 3. queued -> pulling -> landed (by a receipt) or failed; a failure that
 * may be retried puts it back to queued, four of them are all a version has on a node. Errors are those of db.h; ERR_NOT_FOUND: the node
 * has no such assignment. */
#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"

extern const struct db_stmts ASSIGNMENT_STMTS;

enum { ASSIGNMENT_ATTEMPTS = 4 };

struct assignment_row {
    const char *id; /* uuid */
    const char *node;
    const char *artifact;
    const char *version;
    const char *digest;
    const char *state;
    const char *reason;
    const char *phase;
    const char *version_state;
    const char *load_fence; /* token of its row in model_load_jobs; "" none yet */
    int64_t total_bytes;
    int64_t bytes;
    int64_t attempts; /* that failed */
    int64_t shards;
    int64_t created_us;
    int64_t started_us; /* 0: not yet */
    int64_t changed_us;
};
struct assignments {
    struct assignment_row *row;
    size_t n;
    struct db_rows rows;
};
#define ASSIGNMENTS_INIT \
    { \
        .row = NULL, .n = 0, .rows = DB_ROWS_INIT \
    }
void assignments_free(struct assignments *a);
#define cleanup_assignments __attribute__((cleanup(assignments_free)))

/* One version to one node. 0: it is queued, with four attempts (one that failed or was cancelled, again); 1: it was assigned
 * already. *out is the row. ERR_NOT_FOUND: no such node or version. ERR_CONFLICT: the version is not published. */
struct assign {
    const char *node;
    const char *artifact;
    const char *version;
    const char *by;
};
int assignment_make(
    struct db *db, const struct assign *a, struct assignments *out, struct err *e) WARN_UNUSED;

int assignment_get(struct db *db, const char *node, const char *id, struct assignments *out,
    struct err *e) WARN_UNUSED;
/* What the node has to do, oldest first: nothing of a version that was withdrawn before it began. */
int assignment_todo(
    struct db *db, const char *node, struct assignments *out, struct err *e) WARN_UNUSED;
/* All of a node, newest first. */
int assignment_list(
    struct db *db, const char *node, struct assignments *out, struct err *e) WARN_UNUSED;
/* Whether the node has to do with the version: 0; 1 not. */
int assignment_concerns(
    struct db *db, const char *node, int64_t version_id, struct err *e) WARN_UNUSED;

/* The node is at it. bytes never go back. verified: hex, a bit for each shard; NULL leaves it. *out is the row. ERR_CONFLICT: it is
 * not open, or the version was withdrawn before it began. */
struct assignment_progress {
    const char *phase;
    const char *verified;
    int64_t bytes;
};
int assignment_progress(struct db *db, const char *node, const char *id,
    const struct assignment_progress *p, struct assignments *out, struct err *e) WARN_UNUSED;

/* The token of the row in model_load_jobs that shows it. */
int assignment_fence(struct db *db, const char *id, const char *token, struct err *e) WARN_UNUSED;

/* Distribution is done. 0; 1: it was handed in before. ERR_MISMATCH: digest is not the published one. ERR_CONFLICT: it was
 * cancelled. *out is the row. */
struct receipt {
    const char *digest;
    const char *per_source_json;
    const char *retries_json;
    const char *phases_json;
    int64_t bytes_fetched;
    int64_t bytes_avoided;
};
int assignment_receive(struct db *db, const char *node, const char *id, const struct receipt *r,
    struct assignments *out, struct err *e) WARN_UNUSED;

/* An attempt failed. Its state is then queued, or failed: class is task_fatal, or no attempt is left. ERR_CONFLICT: it is not open. */
struct attempt_failure {
    const char *grade; /* retryable, source_fatal, task_fatal */
    const char *reason;
    const char *source; /* "" */
};
int assignment_fail(struct db *db, const char *node, const char *id,
    const struct attempt_failure *f, struct assignments *out, struct err *e) WARN_UNUSED;

/* 0; 1: it was cancelled before. ERR_CONFLICT: it has landed. */
int assignment_cancel(struct db *db, const char *node, const char *id, struct assignments *out,
    struct err *e) WARN_UNUSED;

#endif
