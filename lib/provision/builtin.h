/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROVISION_BUILTIN_H
#define WB_PROVISION_BUILTIN_H

/* The types that come with us, for provisioner_register_builtin().
 *
 * local        slots of this installation, rows of Postgres; ready at once
 * aws          instances of EC2, by its Query API
 * kubernetes   Deployments of a cluster, by its API
 * lambdaCloud  instances of Lambda Cloud, by its API
 * runpod       pods of RunPod, by its REST API */
#include "provision/provisioner.h"

extern const struct provisioner_ops PROVISIONER_LOCAL;
extern const struct provisioner_ops PROVISIONER_AWS;
extern const struct provisioner_ops PROVISIONER_KUBERNETES;
extern const struct provisioner_ops PROVISIONER_LAMBDA_CLOUD;
extern const struct provisioner_ops PROVISIONER_RUNPOD;

#endif
