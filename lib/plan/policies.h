/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_POLICIES_H
#define WB_POLICIES_H

/* Which policies there are, by provisioner and name. To add one: write a policy_fn in lib/model (or in a program
 * of your own) and register it under the provisioners that it is for, after policies_register_builtin(). Jobs
 * contract section 5, "Policies". Registered before threads start, then frozen; look-ups need no lock. */
#include <stdbool.h>

#include "model/policy.h"

struct policy_entry {
    const char *provisioner; /* static texts */
    const char *policy;
    policy_fn *plan;
    bool wants_catalog; /* the snapshot should have the provisioner's catalog */
    bool by_tenant; /* the snapshot should have the heads of all tenants' queues, and the turns */
};

/* The last one of a (provisioner, policy) wins. Aborts after policies_freeze(), or when there are too many. */
void policies_register(const struct policy_entry *entry);
void policies_register_builtin(void);
void policies_freeze(void);

/* NULL: there is none. */
const struct policy_entry *policies_find(const char *provisioner, const char *policy);

#endif
