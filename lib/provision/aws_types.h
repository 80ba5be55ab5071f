/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AWS_TYPES_H
#define WB_AWS_TYPES_H

/* Which instance types there are with GPUs, and which of them a job takes: those of [aws] instance_types in that order,
 * else the smallest first. EC2 tells neither prices nor what it has to give. Rule: jobs contract, section 5. */
#include "provision/aws_api.h"

/* For struct fleet_ops: the best in choice->type, up to seven more in others. The number of GPUs is exact. */
int aws_choose(struct fleet *f, const struct provision_request *r, struct fleet_choice *out,
    struct provision_note *note, struct err *e);

/* For struct provisioner_ops. */
int aws_catalog(struct provisioner *p, struct provision_catalog *out, struct provision_note *note,
    struct err *e);

#endif
