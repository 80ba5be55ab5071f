/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_REQUEST_H
#define WB_JOB_REQUEST_H

/* What a request to create a job must keep to, in both dialects: jobs contract sections 3 and 4, reference
 * 1.5. Whatever the batch service would refuse hours later is refused here. Pure: the handler fills the
 * struct from JSON, and resolves the template itself. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum job_dialect { DIALECT_CONSOLE, DIALECT_OPENAI };

/* What a request can be wrong about. */
enum job_field {
    FIELD_INPUT_FILE,
    FIELD_ENDPOINT,
    FIELD_COMPLETION_WINDOW,
    FIELD_NAME,
    FIELD_MODEL,
    FIELD_TEMPLATE_NAME,
    FIELD_TEMPLATE_VERSION,
    FIELD_REQUEST_COUNT_TOTAL,
    FIELD_REPLICAS,
    FIELD_METADATA,
    FIELD_PRIORITY,
    FIELD_POOL,
    FIELD_OUTPUT_ANCHOR,
    FIELD_OUTPUT_EXPIRES,
    FIELD_MAX_CONCURRENCY,
    FIELD_ADAPTIVE_CONCURRENCY,
    FIELD_ADAPTIVE_MAX_FACTOR,
    FIELD_ADAPTIVE_HEALTHY_WINDOW,
    FIELD_ADAPTIVE_ADDITIVE_INCREASE,
    FIELD_REQUEST_TIMEOUT,
    FIELD_MAX_RETRIES,
    FIELD_BASE_DELAY,
    FIELD_MAX_DELAY,
    FIELD_NO_ENDPOINT_MAX_RETRIES,
    FIELD__COUNT
};

/* As the dialect's clients know it: "input_dataset", "input_file_id"; "client.max_concurrency",
 * "aibrix.client.max_concurrency". */
const char *job_field_name(enum job_dialect dialect, enum job_field field);

#define JOB_UNSET INT64_MIN /* an integer that was not sent */

enum {
    JOB_NAME_MAX = 512,    /* characters */
    JOB_TEXT_MAX = 256,    /* characters of ids, models, template names */
    JOB_METADATA_MAX = 16, /* pairs */
    JOB_METADATA_KEY_MAX = 64,
    JOB_METADATA_VALUE_MAX = 512,
    JOB_REPLICAS_MAX = 1024,
    JOB_CONCURRENCY_MAX = 1024,
    JOB_PRIORITY_MAX = 1000, /* and -1000 the least */
    JOB_IDEM_KEY_MAX = 255,  /* characters */
    JOB_POOL_MAX = 64
};

struct job_pair {
    const char *key;
    const char *value;
};

/* Texts are NULL or "" when unset, integers JOB_UNSET. All borrowed. */
struct job_request {
    enum job_dialect dialect;
    const char *input_file;
    const char *endpoint;
    const char *completion_window;
    const char *name;
    const char *model;
    const char *template_name;
    const char *template_version;
    const char *pool;
    const char *output_anchor;
    int64_t request_count_total;
    int64_t replicas;
    int64_t priority;
    int64_t output_expires_s;
    const struct job_pair *metadata;
    size_t n_metadata;
    struct {
        int64_t max_concurrency;
        int64_t adaptive_max_factor;
        int64_t adaptive_healthy_window;
        int64_t adaptive_additive_increase;
        int64_t request_timeout_s;
        int64_t max_retries;
        double base_delay_s; /* NAN when unset */
        double max_delay_s;
        int64_t no_endpoint_max_retries;
        int64_t adaptive_concurrency; /* 0 or 1 */
    } client;
};
#define JOB_REQUEST_INIT(d) \
    { \
        .dialect = (d), .request_count_total = JOB_UNSET, .replicas = JOB_UNSET, \
        .priority = JOB_UNSET, .output_expires_s = JOB_UNSET, .client = { \
            JOB_UNSET, \
            JOB_UNSET, \
            JOB_UNSET, \
            JOB_UNSET, \
            JOB_UNSET, \
            JOB_UNSET, \
            NAN, \
            NAN, \
            JOB_UNSET, \
            JOB_UNSET \
        } \
    }

/* What a request means where it says nothing: window 24h, replicas 1 (0 means so too), priority 0. */
struct job_terms {
    int64_t window_minutes;
    int64_t replicas;
    int64_t priority;
};

/* 0 with *terms; -1 with ERR_INVALID, *bad the first field that is wrong, and a text that begins with its
 * name. */
int job_request_check(const struct job_request *r, struct job_terms *terms, enum job_field *bad,
    struct err *e) WARN_UNUSED;

/* The eight endpoints of OpenAI's batch API and /v1/rerank. */
bool job_endpoint_known(const char *endpoint);

#endif
