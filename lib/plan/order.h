/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ORDER_H
#define WB_ORDER_H

/* What a policy decided, with what it takes to carry it out: the resources of each job by the hooks of its provisioner.
 * A job for which they cannot be told is not skipped in silence: it gets the error and a delay. Jobs contract section
 * 5, "Policies" and "Backend hooks". */
#include "plan/planner_internal.h"
#include "store/plan.h"

struct orders {
    struct plan_order *order;
    char **text; /* that orders borrow from: one for each */
    size_t n;
    int64_t round; /* these as the policy has them */
    bool window_done;
    int64_t window_left;
};
#define ORDERS_INIT \
    { \
        .order = NULL, .text = NULL, .n = 0, .round = 0 \
    }
void orders_free(struct orders *o);
#define cleanup_orders __attribute__((cleanup(orders_free)))

/* Never fails. out borrows from the snapshot and the decisions. */
void orders_make(const struct plan_pool *pool, const struct policy_snapshot *s,
    const struct policy_plan *decided, struct orders *out);

#endif
