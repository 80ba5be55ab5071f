/* SPDX-License-Identifier: Apache-2.0 */
#include "model/job_status.h"

enum job_event job_batch_event(enum batch_status s)
{
    static const enum job_event EVENTS[BATCH_STATUS__COUNT] = {
        [BATCH_SCHEDULING] = EV_BATCH_SCHEDULING,
        [BATCH_VALIDATING] = EV_BATCH_VALIDATING,
        [BATCH_IN_PROGRESS] = EV_BATCH_IN_PROGRESS,
        [BATCH_FINALIZING] = EV_BATCH_FINALIZING,
        [BATCH_CANCELLING] = EV_BATCH_CANCELLING,
        [BATCH_COMPLETED] = EV_BATCH_COMPLETED,
        [BATCH_FAILED] = EV_BATCH_FAILED,
        [BATCH_EXPIRED] = EV_BATCH_EXPIRED,
        [BATCH_CANCELLED] = EV_BATCH_CANCELLED,
        [BATCH_STATUS_UNKNOWN] = JOB_EVENT__COUNT,
    };
    return EVENTS[s];
}

const char *job_openai_status(enum job_state s)
{
    if (s >= JOB_QUEUED && s <= JOB_SCHEDULING)
        return job_state_name(JOB_VALIDATING);
    if (s == JOB_RESOURCE_FAILED || s == JOB_SUBMIT_FAILED)
        return job_state_name(JOB_FAILED);
    return job_state_name(s);
}

const char *job_console_status(enum job_state s)
{
    return job_state_name(s == JOB_PLANNED ? JOB_QUEUED : s);
}
