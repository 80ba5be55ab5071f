/* SPDX-License-Identifier: Apache-2.0 */
/* An example of a policy (docs/policies.md): the job with the fewest GPUs first, and of those with as many the oldest. Many
 * small jobs get through quickly, a large one may wait until its queue deadline. */
#include "tests/examples/examples.h"

#include <stdlib.h>

#include "base/mem.h"

static int64_t size_of(const struct policy_job *j)
{
    return j->replicas * j->gpus;
}

static int smaller_first(const void *a, const void *b)
{
    const struct policy_job *x = *(const struct policy_job *const *)a;
    const struct policy_job *y = *(const struct policy_job *const *)b;
    if (size_of(x) != size_of(y))
        return size_of(x) < size_of(y) ? -1 : 1;
    return (x->enqueued_us > y->enqueued_us) - (x->enqueued_us < y->enqueued_us);
}

void policy_smallest(const struct policy_snapshot *s, struct policy_plan *out)
{
    const int64_t free_places = s->max_provisioning - s->provisioning;
    const struct policy_job **job = mem_calloc(s->n_jobs + 1, sizeof *job);

    for (size_t i = 0; i < s->n_jobs; i++)
        job[i] = &s->job[i];
    qsort(job, s->n_jobs, sizeof *job, smaller_first);
    for (size_t i = 0; i < s->n_jobs && (int64_t)i < free_places; i++)
        policy_plan_add(out, (struct policy_decision){ .job = (size_t)(job[i] - s->job),
                                 .verdict = POLICY_PLAN,
                                 .reason = "the smallest" });
    free(job);
}
