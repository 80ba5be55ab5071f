/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBERNETES_NODES_H
#define WB_KUBERNETES_NODES_H

/* The nodes of a cluster: which GPUs they have, and what of them is free. Rule: jobs contract, section 5. */
#include "provision/kubernetes_api.h"

/* Values of the nodes' label that are what the job asks for: a JSON array, the caller's; NULL when any node
 * will do. 0, or -1; PROVISION_ERROR_NO_GPU_TYPE: no node has such a GPU. */
int kubernetes_gpu_types(struct kubernetes *k, const char *wanted, int64_t deadline_ns,
    json_object **out, struct provision_note *note, struct err *e) WARN_UNUSED;

/* One offer for each node that takes pods, shared, with the GPUs that no pod has asked for; and one for pods
 * that need no GPU. Types are values of the label; the region is the cluster. For struct provisioner_ops. */
int kubernetes_catalog(struct provisioner *p, struct provision_catalog *out,
    struct provision_note *note, struct err *e);

#endif
