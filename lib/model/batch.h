/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BATCH_H
#define WB_BATCH_H

/* A batch as the batch service tells of it: a value, shared by its client, the rows and the planner.
 * Pure. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/* BATCH_STATUS_UNKNOWN: a word that we do not know; the job keeps running and is polled (jobs
 * contract, section 2). */
enum batch_status {
#define BATCH_STATUS(id, name, ended) BATCH_##id,
#include "model/batch_status.def"
#undef BATCH_STATUS
    BATCH_STATUS_UNKNOWN,
    BATCH_STATUS__COUNT
};

const char *batch_status_name(enum batch_status s); /* "" for UNKNOWN; static storage */
enum batch_status batch_status_parse(const char *word);
bool batch_status_ended(enum batch_status s);

enum {
    BATCH_ID_SIZE = 129,
    BATCH_JOB_ID_SIZE = 65,
    BATCH_WORD_SIZE = 65,
    BATCH_ERRORS_MAX = 100,
    BATCH_MESSAGE_SIZE = 513
};

struct batch_counts {
    bool known; /* the service leaves them out while total is 0 */
    int64_t total;
    int64_t completed;
    int64_t failed;
};

struct batch_usage {
    bool known; /* absent until the first checkpoint */
    int64_t input_tokens;
    int64_t output_tokens;
    int64_t total_tokens;
    int64_t cached_tokens;
    int64_t reasoning_tokens;
};

/* Seconds since 1970; 0: not told. */
struct batch_times {
    int64_t created_at;
    int64_t in_progress_at;
    int64_t expires_at;
    int64_t finalizing_at;
    int64_t completed_at;
    int64_t failed_at;
    int64_t expired_at;
    int64_t cancelling_at;
    int64_t cancelled_at;
};

struct batch_error {
    char code[BATCH_WORD_SIZE];
    char message[BATCH_MESSAGE_SIZE]; /* cut at a whole character */
    char param[BATCH_WORD_SIZE];
    int64_t line; /* of the input, from 1; 0: about no line */
};

struct batch {
    char id[BATCH_ID_SIZE];
    char job_id[BATCH_JOB_ID_SIZE]; /* aibrix.job_id; "" for a batch that is no job's */
    enum batch_status status;
    char status_word[BATCH_WORD_SIZE]; /* as told */
    char input_file_id[BATCH_ID_SIZE];
    char output_file_id[BATCH_ID_SIZE]; /* "" none */
    char error_file_id[BATCH_ID_SIZE];
    struct batch_times times;
    struct batch_counts counts;
    struct batch_usage usage;
    struct batch_error *error; /* owned; the first BATCH_ERRORS_MAX */
    size_t errors;
};
#define BATCH_INIT \
    { \
        .id = "", .error = NULL, .errors = 0 \
    }
void batch_fini(struct batch *b);
#define cleanup_batch __attribute__((cleanup(batch_fini)))

#endif
