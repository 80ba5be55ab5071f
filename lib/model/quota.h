/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_QUOTA_H
#define WB_QUOTA_H

/* What tenants may have, as [pool] tenants= tells it. Jobs contract section 5, policy `fair`. Pure; any thread.
 *
 *     alice jobs=5 gpus=16 weight=3, batch-team weight=2, * jobs=1
 *
 * Entries are separated by commas, words by spaces. The first word is the tenant, * stands for all that have no entry.
 * jobs: at a time, 0 to 1000000; gpus: of all their replicas, 0 to 1000000; weight: 1 to 1000. What is not said is
 * unlimited, and 1. */
#include "base/err.h"
#include "model/policy.h"

struct quotas {
    struct policy_quota *quota; /* "" for the entry of * */
    size_t n;
    char *text; /* that the names point into */
};
#define QUOTAS_INIT \
    { \
        .quota = NULL, .n = 0, .text = NULL \
    }
void quotas_free(struct quotas *q);
#define cleanup_quotas __attribute__((cleanup(quotas_free)))

/* *out is the caller's. ERR_INVALID says which entry and what is wrong with it; *out is untouched. */
int quotas_parse(const char *text, struct quotas *out, struct err *e) WARN_UNUSED;

#endif
