/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_STATUS_H
#define WB_JOB_STATUS_H

/* States between us and others: what the batch service says, what the two dialects of ours are told. Jobs
 * contract, sections 2, 3 and 4. Pure. */
#include "model/batch.h"
#include "model/job_fsm.h"

/* The event that a status of the batch service is; JOB_EVENT__COUNT for BATCH_STATUS_UNKNOWN, with which the
 * job keeps running. Whether it moves the job is job_next()'s to say: forward only. */
enum job_event job_batch_event(enum batch_status s);

/* OpenAI's status of a state: queued, planned, resource_preparing, submitting and scheduling are validating;
 * resource_failed and submit_failed are failed; the others by name. */
const char *job_openai_status(enum job_state s);

/* The Console's: by name, but planned is queued. */
const char *job_console_status(enum job_state s);

#endif
