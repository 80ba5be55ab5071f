/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_PARTS_H
#define WB_JOB_PARTS_H

/* The JSON that a job's row holds (model/job.h: request_json, batch_json), taken apart once for both dialects.
 * Rows are ours, but nothing here trusts them: what makes no sense counts as absent. */
#include <stdint.h>

#include "json/jx.h"
#include "model/job.h"
#include "store/job_progress.h"

struct job_parts {
    json_object *request; /* owned; never NULL */
    json_object *batch;   /* owned; never NULL */
};
#define JOB_PARTS_INIT \
    { \
        .request = NULL, .batch = NULL \
    }
void job_parts_read(const struct job *j, struct job_parts *out);
void job_parts_free(struct job_parts *p);
#define cleanup_job_parts __attribute__((cleanup(job_parts_free)))

/* A member of an object or NULL; borrowed. */
json_object *job_part(json_object *o, const char *key, enum json_type type);

/* Text of a member, or "". */
const char *job_part_text(json_object *o, const char *key);

/* When a state was entered, in seconds: what the batch service says of it, else what we saw; 0 unset. */
int64_t job_entered_s(const struct job *j, const struct job_parts *p, enum job_state s);

/* Counts and usage: Redis' if it has any, else the row's, else what the request announced. known: false when
 * there are none at all. */
struct job_counts {
    bool known;
    int64_t total;
    int64_t completed;
    int64_t failed;
};
struct job_usage {
    bool known;
    int64_t input;
    int64_t output;
    int64_t total;
};
void job_numbers(const struct job_parts *p, const struct job_progress *progress,
    struct job_counts *counts, struct job_usage *usage);

/* {"object":…} with the keys of the batch's errors, and the job's own when it failed before it had any. An
 * array of {code,message,param,line}; line 0: about none. The caller's. */
json_object *job_errors(const struct job *j, const struct job_parts *p);

/* A deep copy of a member that is an object, or an empty object. The caller's. */
json_object *job_part_copy(json_object *o, const char *key);

#endif
