/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_JOB_PROGRESS_H
#define WB_STORE_JOB_PROGRESS_H

/* Counts of running jobs in Redis, wb:1:job:<uuid> with a TTL of 60 s, fresher than Postgres'; and the hint
 * that wakes planners. Redis may be empty, stale or down: what is missing or makes no sense counts as absent.
 * Errors are those of kv.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kv/kv.h"
#include "model/job.h"

enum { JOB_PROGRESS_TTL_S = 60, JOB_PROGRESS_BATCH = 200 };

struct job_progress {
    bool known; /* the other members mean something */
    int64_t total;
    int64_t completed;
    int64_t failed;
    int64_t input_tokens;
    int64_t output_tokens;
    int64_t total_tokens;
};

int job_progress_put(
    struct kv *kv, const char *id, const struct job_progress *p, struct err *e) WARN_UNUSED;

/* Of up to JOB_PROGRESS_BATCH jobs in one round trip; out[i] for ids[i]. */
int job_progress_get(struct kv *kv, const char *const *ids, size_t n, struct job_progress *out,
    struct err *e) WARN_UNUSED;

/* The same values under whole names of keys: those of jobs, and of batches of the embedded batch service
 * (wb:1:batch:<id>). */
#define BATCH_PROGRESS_PREFIX "wb:1:batch:"
int progress_put(
    struct kv *kv, const char *name, const struct job_progress *p, struct err *e) WARN_UNUSED;
int progress_get(struct kv *kv, const char *const *names, size_t n, struct job_progress *out,
    struct err *e) WARN_UNUSED;

/* After a commit that leaves a planner something to do: publishes reason ("enqueue", "cancel", ...) on the
 * channel, at most once in 100 ms for all. A hint that is lost costs a second. */
#define PLANNER_CHANNEL "wb:1:planner"
int planner_wake(struct kv *kv, const char *reason, struct err *e) WARN_UNUSED;

#endif
