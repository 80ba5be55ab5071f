/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_DEADLINE_H
#define WB_JOB_DEADLINE_H

/* Deadlines of jobs, jobs contract section 2. Pure: the time is handed in, Postgres' own, microseconds. */
#include <stdbool.h>
#include <stdint.h>

#include "model/job.h"

/* Accepted + the longer of the completion window and the configured queue deadline. */
int64_t job_queue_deadline_us(
    int64_t accepted_us, int64_t window_minutes, int64_t queue_deadline_s);

/* The event that is due because a deadline passed, JOB_EVENT__COUNT when none:
 * EV_QUEUE_EXPIRE for queued, planned and resource_preparing past the queue deadline;
 * EV_RUN_EXPIRE for submitting ... finalizing past expires_at and the grace. A job in submitting that has no
 * expires_at yet is held against its queue deadline and the grace, so that a batch service that never
 * answers does not keep machines for ever. Cancelling never expires. */
enum job_event job_overdue(const struct job_run *r, int64_t now_us, int64_t grace_s);

/* True from expires_at on, in the grace: the batch service may still end it by itself. */
bool job_in_grace(const struct job_run *r, int64_t now_us);

/* The window that is left: window_minutes, cut to the whole minutes until allocation_end_us (0: no end).
 * 0 or less: under a minute is left, the batch must not be created (submit_failed). */
int64_t job_minutes_left(int64_t window_minutes, int64_t allocation_end_us, int64_t now_us);

#endif
