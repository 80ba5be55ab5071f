/* SPDX-License-Identifier: Apache-2.0 */
#include "model/policy.h"

#include <stdlib.h>

#include "base/mem.h"

void policy_plan_free(struct policy_plan *p)
{
    free(p->decision);
    *p = (struct policy_plan)POLICY_PLAN_INIT;
}

void policy_plan_add(struct policy_plan *p, struct policy_decision d)
{
    p->decision = mem_resize(p->decision, p->n + 1, sizeof *p->decision);
    p->decision[p->n++] = d;
}

void policy_simple(const struct policy_snapshot *s, struct policy_plan *out)
{
    int64_t free_places = s->max_provisioning - s->provisioning;
    for (size_t i = 0; i < s->n_jobs && free_places > 0; i++, free_places--)
        policy_plan_add(out,
            (struct policy_decision){
                .job = i, .verdict = POLICY_PLAN, .region = "", .reason = "first in the queue" });
}
