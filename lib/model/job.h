/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MODEL_JOB_H
#define WB_MODEL_JOB_H

/* A batch job as the stores hand it out. Times are Postgres' own, microseconds since 1970 UTC, 0 when unset.
 * Texts are never NULL ("" when unset) and borrowed from the rows that they were read from; those that end
 * in _json are JSON as jsonb prints it, "" when unset. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/job_fsm.h"

enum { UUID_SIZE = 37, JOB_WIRE_ID_SIZE = 41 };

/* The id on the wire, "job_<uuid>", and back: false when text is no such id (lower-case hex; a bare uuid is
 * none either). */
void job_wire_id(const char *uuid, char out[JOB_WIRE_ID_SIZE]);
bool job_wire_id_parse(const char *text, char uuid[UUID_SIZE]);
bool job_uuid_valid(const char *text);

/* The whole of a job: what was asked, and how far it is or how it ended.
 *
 * request_json, written by the handler that accepted it and never changed:
 *   {"model_template":{"name","version","model_id","spec":{…}}, absent without a template
 *    "client":{…}, "replicas":n, "metadata":{…}, "provider_config":{…}, "request_count_total":n,
 *    "output_expires_after":{…}, "injection_config":{…}, "extra_body":{namespace:value}}
 * batch_json, as the batch service last told of it, without what the request says already:
 *   {"status","created_at","in_progress_at","finalizing_at",…,"expires_at" (seconds),
 *    "request_counts":{"total","completed","failed"},"usage":{"input_tokens","output_tokens","total_tokens"},
 *    "output_file_id","error_file_id","errors":[{"code","message","param","line"}],"model"} */
struct job {
    const char *id; /* uuid */
    int64_t seq;    /* order of acceptance, with gaps */
    const char *pool;
    const char *created_by;
    const char *name;
    const char *endpoint;
    const char *model;
    const char *input_file;
    const char *completion_window; /* as asked */
    int64_t window_minutes;
    const char *request_json;
    int64_t created_us;
    /* how far it is, or how it ended */
    enum job_state state;
    int64_t stamp_us[JOB_STATE__COUNT]; /* when each state was last entered */
    int64_t queue_deadline_us;          /* 0 once ended */
    int64_t expires_us;
    int64_t not_before_us; /* of a queued job: when it is tried again */
    int64_t attempts;      /* times it was planned */
    int64_t cancel_requested_us;
    int64_t finished_us;
    const char *batch_id;
    const char *provision_key; /* "" before the first plan; names the last one after */
    const char *error_code;    /* "" or a short word: batch_lost, no_capacity, ... */
    const char *error;
    const char *batch_json;
};

/* What is done to the outside world: written in the transaction of the state change, carried out after it,
 * kept until its result is recorded. */
enum intent_kind {
    INTENT_PROVISION,    /* key provision:<job id>:<attempt> */
    INTENT_CREATE_BATCH, /* key create_batch:<job id>:<attempt> */
    INTENT_CANCEL_BATCH, /* key cancel_batch:<job id>:<batch id> */
    INTENT_RELEASE,      /* key release:<provision key>; may outlive the job */
    INTENT_STRAY_BATCH, /* key stray_batch:<job id>:<batch id>: one that no job holds; as release */
    INTENT__COUNT
};
const char *intent_kind_name(enum intent_kind kind);

/* A live job as its claimant holds it. */
struct job_run {
    char id[UUID_SIZE];
    int64_t pool_id;
    enum job_state state;
    int64_t version;     /* with lease_epoch: what a result must still find unchanged */
    int64_t lease_epoch; /* 0: not claimed */
    int64_t enqueued_us;
    int64_t queue_deadline_us;
    int64_t expires_us;
    int64_t cancel_requested_us;
    int64_t state_us; /* when the state was entered */
    int64_t attempts;
    int64_t timeouts;
    int64_t failures;
    int64_t lost;
    bool machines; /* under provision_key there may be machines */
    const char *provision_key;
    const char *batch_id;
    const char *batch_json;
};

#endif
