/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MODEL_LOAD_JOB_H
#define WB_MODEL_LOAD_JOB_H

/* Rules of load jobs: liveness, progress, stall, ETA. Operations contract sections 2, 3 and 5.
 * Pure: the time is handed in, always Postgres' own, in microseconds since 1970 UTC. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum load_state {
#define LOAD_STATE(id, name, doc) LOAD_##id,
#include "model/load_state.def"
#undef LOAD_STATE
    LOAD_STATE__COUNT, /* also: a state that is none of ours */
};

enum { CLAIM_SHORT_SIZE = 17 }; /* first 16 hex digits of the sha256 of the claim token, and NUL */

/* A row of model_load_jobs joined with its claim. Text is borrowed from whoever filled it, never
 * NULL ("" when the column is). Times: 0 is unset (NULL or Go's zero time). */
struct load_row {
    const char *key;
    enum load_state state;
    const char *owner;
    const char *node_id;
    const char *node_name;
    int64_t replica_index;
    int64_t bytes_sent;
    int64_t total_bytes;
    int64_t file_index; /* from 1; 0 unset */
    int64_t total_files;
    int64_t started_us;
    int64_t last_progress_us;
    int64_t created_us;
    int64_t updated_us;
    int64_t bytes_moved_us; /* from load_job_claims; 0 when it has no claim there */
    const char *last_error;
    char claim[CLAIM_SHORT_SIZE]; /* "" when nobody claimed it through us */
};

#define LOAD_ORPHAN_US      INT64_C(60000000)
#define LOAD_FAILED_KEEP_US INT64_C(15000000)
#define LOAD_STALL_US       INT64_C(300000000)
#define LOAD_TOO_LONG_US    INT64_C(86400000000)

/* How far a copy is: within one claim it does not go back. Contract section 3. */
struct load_numbers {
    int64_t bytes_sent;
    int64_t total_bytes;
    int64_t file_index;
    int64_t total_files;
};
/* Is a further than b, by file_index, then by overall progress? */
bool load_is_further(const struct load_numbers *a, int64_t b_file_index, double b_progress);
double load_progress_of(const struct load_numbers *n);
struct load_numbers load_row_numbers(const struct load_row *r);

const char *load_state_name(enum load_state s); /* "unknown" for LOAD_STATE__COUNT */
enum load_state load_state_parse(const char *name);

/* The latest set one of last_progress, updated_at, created_at; a stamp in the future counts as now;
 * 0 when none is set. */
int64_t load_liveness_us(const struct load_row *r, int64_t now_us);

/* Liveness over 60 s ago. (That no live overlay of its claim exists is the caller's to add.) */
bool load_is_stale(const struct load_row *r, int64_t now_us);

/* A failed row whose failure is over 15 s ago counts as gone, for claims and reads. */
bool load_failed_is_gone(const struct load_row *r, int64_t now_us);

/* What a claim finds: may the row be replaced by a new owner? overlay_live: a live overlay carries
 * the row's claim. */
bool load_may_be_replaced(const struct load_row *r, bool overlay_live, int64_t now_us);

/* Overall progress, 0..100, one formula for row and overlay: contract section 3. */
double load_progress(
    int64_t bytes_sent, int64_t total_bytes, int64_t file_index, int64_t total_files);

double load_heartbeat_age_s(const struct load_row *r, int64_t now_us);

/* Staging and no byte moved for 5 minutes, or over 24 h in all. Without bytes_moved_us the row's
 * updated_us stands for it. */
bool load_is_stalled(const struct load_row *r, int64_t now_us);

/* Seconds left by the rate since started_at. True and *out set only when it means something: state
 * staging, 0 < bytes_sent < total_bytes, started_at set and at least 1 s ago. */
bool load_eta_s(const struct load_row *r, int64_t now_us, double *out);

#endif
