/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXAMPLES_H
#define WB_EXAMPLES_H

/* What the documentation shows of policies and provisioners of one's own. */
#include "model/policy.h"
#include "provision/provisioner.h"

/* tests/examples/policy_smallest.c. Pure; any thread. */
void policy_smallest(const struct policy_snapshot *s, struct policy_plan *out);

/* tests/examples/provisioner_shelf.c: the type `shelf`. */
extern const struct provisioner_ops PROVISIONER_SHELF;

#endif
