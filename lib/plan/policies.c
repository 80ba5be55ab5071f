/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/policies.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

enum { ENTRIES_MAX = 64 };

static struct policy_entry entries[ENTRIES_MAX];
static size_t count;
static bool frozen;

static struct policy_entry *find(const char *provisioner, const char *policy)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(entries[i].provisioner, provisioner) == 0 &&
            strcmp(entries[i].policy, policy) == 0)
            return &entries[i];
    }
    return NULL;
}

void policies_register(const struct policy_entry *entry)
{
    struct policy_entry *place = find(entry->provisioner, entry->policy);

    assert(!frozen);
    if (place == NULL) {
        assert(count < ENTRIES_MAX);
        place = &entries[count++];
    }
    *place = *entry;
}

void policies_register_builtin(void)
{
    static const char *const PROVISIONERS[] = { "local", "kubernetes", "aws", "lambdaCloud",
        "runpod" };
    static const struct policy_entry POLICIES[] = {
        { .policy = "simple", .plan = policy_simple },
        { .policy = "fair", .plan = policy_fair, .by_tenant = true },
        { .policy = "capacity", .plan = policy_capacity, .wants_catalog = true },
    };

    for (size_t i = 0; i < sizeof PROVISIONERS / sizeof PROVISIONERS[0]; i++) {
        for (size_t k = 0; k < sizeof POLICIES / sizeof POLICIES[0]; k++) {
            struct policy_entry entry = POLICIES[k];
            entry.provisioner = PROVISIONERS[i];
            policies_register(&entry);
        }
    }
}

void policies_freeze(void)
{
    frozen = true;
}

const struct policy_entry *policies_find(const char *provisioner, const char *policy)
{
    return find(provisioner, policy);
}
