/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_BATCH_LEASE_H
#define WB_STORE_BATCH_LEASE_H

/* A batch in the hands of a runner: a lease with a fencing epoch. Whoever takes a batch over counts the epoch up, and
 * from then on the statements of the holder before it change nothing. Batch contract, "Running" and "Fairness".
 *
 * Every verb here that is not a claim returns 1 when the batch is no longer this epoch's: it must be let go at once.
 * Errors: those of db.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "db/db.h"
#include "model/batch.h"

extern const struct db_stmts BATCH_LEASE_STMTS;

enum { BATCH_HOLDER_MAX = 128, BATCH_ENDPOINT_SIZE = 65, BATCH_OWNER_SIZE = 128 };

/* What a runner has to know of a batch; values, so that it outlives the row. */
struct batch_lease {
    char id[BATCH_ID_SIZE];
    char owner[BATCH_OWNER_SIZE];
    char input_file_id[BATCH_ID_SIZE];
    char endpoint[BATCH_ENDPOINT_SIZE];
    char *aibrix; /* JSON or NULL; owned */
    enum batch_status status;
    bool expires; /* finalizing leads to expired, not to completed */
    int64_t output_expires_s;
    int64_t expires_us;
    int64_t epoch;
    int64_t ttl_ms;
    struct batch_counts counts;
    struct batch_usage usage;
};
void batch_lease_fini(struct batch_lease *l);
#define cleanup_batch_lease __attribute__((cleanup(batch_lease_fini)))

struct batch_claim {
    const char *holder;
    int64_t ttl_ms;
    /* Ids, separated by spaces, of batches that the same process has in hand: it does not take them from itself when a
     * lease has run out because Postgres was away. */
    const char *in_hand;
};
/* The oldest open batch that nobody holds, with its next epoch. 1: there is none. */
int batch_lease_claim(
    struct db *db, const struct batch_claim *c, struct batch_lease *out, struct err *e) WARN_UNUSED;

/* How far the files of an epoch are safely on the disk. */
struct batch_segment {
    int64_t epoch;
    int64_t output_bytes;
    int64_t error_bytes;
    int64_t lines;
};

/* The recorded lengths of all epochs, oldest first; the caller frees them. */
int batch_lease_segments(struct db *db, const struct batch_lease *l, struct batch_segment **out,
    size_t *n, struct err *e) WARN_UNUSED;

/* What the row says now: cancelling is seen here. Renews nothing. */
int batch_lease_look(struct db *db, const struct batch_lease *l, enum batch_status *status,
    bool *late, struct err *e) WARN_UNUSED;

/* Renews the lease. */
int batch_lease_renew(struct db *db, const struct batch_lease *l, struct err *e) WARN_UNUSED;

/* Records how far the epoch is, with the counts and the usage so far, and renews. */
int batch_lease_checkpoint(struct db *db, const struct batch_lease *l,
    const struct batch_segment *s, const struct batch_counts *c, const struct batch_usage *u,
    struct err *e) WARN_UNUSED;

/* validating -> in_progress, with so many lines. 1 also when it was cancelled meanwhile. */
int batch_lease_begin(
    struct db *db, const struct batch_lease *l, int64_t total, struct err *e) WARN_UNUSED;

/* validating or in_progress -> failed. errors: a JSON array. */
int batch_lease_fail(
    struct db *db, const struct batch_lease *l, const char *errors, struct err *e) WARN_UNUSED;

/* in_progress -> finalizing. 1 also when it was cancelled meanwhile. */
int batch_lease_finalize(
    struct db *db, const struct batch_lease *l, bool expires, struct err *e) WARN_UNUSED;

/* A file that comes out of a batch. id "": there is none. */
struct batch_result {
    const char *id;
    int64_t bytes;
};

/* finalizing -> completed or expired, cancelling -> cancelled; with the files, in one transaction. */
int batch_lease_land(struct db *db, const struct batch_lease *l, const struct batch_result *output,
    const struct batch_result *errors, struct err *e) WARN_UNUSED;

/* Hands the batch back, for others to take at once. */
int batch_lease_release(struct db *db, const struct batch_lease *l, struct err *e) WARN_UNUSED;

/* May the working folder of this batch go? True when it has ended, or there is none of that id. */
int batch_lease_ended(struct db *db, const char *id, bool *ended, struct err *e) WARN_UNUSED;

#endif
