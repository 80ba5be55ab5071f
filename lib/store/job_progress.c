/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job_progress.h"

int job_progress_put(struct kv *kv, const char *id, const struct job_progress *p, struct err *e)
{
    (void)kv;
    (void)id;
    (void)p;
    return err_set(e, ERR_UNAVAILABLE, "job_progress_put: not there yet");
}

int job_progress_get(
    struct kv *kv, const char *const *ids, size_t n, struct job_progress *out, struct err *e)
{
    (void)kv;
    (void)ids;
    (void)n;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "job_progress_get: not there yet");
}

int planner_wake(struct kv *kv, const char *reason, struct err *e)
{
    (void)kv;
    (void)reason;
    return err_set(e, ERR_UNAVAILABLE, "planner_wake: not there yet");
}
