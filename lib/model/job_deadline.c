/* SPDX-License-Identifier: Apache-2.0 */
#include "model/job_deadline.h"

#include "base/clock.h"

#define US_PER_MINUTE (60 * US_PER_S)

int64_t job_queue_deadline_us(int64_t accepted_us, int64_t window_minutes, int64_t queue_deadline_s)
{
    int64_t window_us = window_minutes * US_PER_MINUTE;
    int64_t queue_us = queue_deadline_s * US_PER_S;
    return accepted_us + (window_us > queue_us ? window_us : queue_us);
}

/* When a job whose batch is or may be under way must have ended, without the grace; 0: never. */
static int64_t run_deadline_us(const struct job_run *r)
{
    if (r->expires_us != 0)
        return r->expires_us;
    return r->state == JOB_SUBMITTING ? r->queue_deadline_us : 0;
}

static bool passed(int64_t deadline_us, int64_t now_us)
{
    return deadline_us != 0 && now_us >= deadline_us;
}

static bool runs(enum job_state s)
{
    return s >= JOB_SUBMITTING && s <= JOB_FINALIZING;
}

enum job_event job_overdue(const struct job_run *r, int64_t now_us, int64_t grace_s)
{
    if (r->state >= JOB_QUEUED && r->state <= JOB_RESOURCE_PREPARING)
        return passed(r->queue_deadline_us, now_us) ? EV_QUEUE_EXPIRE : JOB_EVENT__COUNT;
    if (runs(r->state) && passed(run_deadline_us(r), now_us - grace_s * US_PER_S))
        return EV_RUN_EXPIRE;
    return JOB_EVENT__COUNT;
}

bool job_in_grace(const struct job_run *r, int64_t now_us)
{
    return runs(r->state) && passed(run_deadline_us(r), now_us);
}

int64_t job_minutes_left(int64_t window_minutes, int64_t allocation_end_us, int64_t now_us)
{
    if (allocation_end_us == 0)
        return window_minutes;
    int64_t left = (allocation_end_us - now_us) / US_PER_MINUTE;
    return left < window_minutes ? left : window_minutes;
}
