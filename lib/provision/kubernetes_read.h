/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBERNETES_READ_H
#define WB_KUBERNETES_READ_H

/* What objects of a cluster tell. They are foreign: whatever is of another type than the API has it is refused, and
 * texts are fit for logs and rows. Pure. Rule: jobs contract, section 5. */
#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/provision.h"
#include "provision/kubernetes_objects.h"

enum { KUBERNETES_TEXT_SIZE = 160 };

struct kubernetes_deployment_state {
    char name[PROVISION_NAME_SIZE]; /* "" for one whose name cannot be ours */
    char uid[PROVISION_TEXT_SIZE];
    bool ours;        /* it still has the label by which we manage it */
    bool ending;      /* it has been deleted, and waits for its pods */
    int64_t replicas; /* wanted */
    int64_t ready;    /* of the present version of it; 0 while the controller has not seen that */
    bool stalled;     /* ProgressDeadlineExceeded */
    bool over_quota;  /* pods are not even made, as the namespace's quota is used up */
    char text[KUBERNETES_TEXT_SIZE]; /* of over_quota */
};

/* ERR_INTERNAL names what makes no sense. */
int kubernetes_read_deployment(
    json_object *o, struct kubernetes_deployment_state *out, struct err *e) WARN_UNUSED;

/* What keeps pods from becoming ready, of all that were looked at. */
struct kubernetes_trouble {
    int unschedulable;               /* pods that no node has room for */
    bool hopeless;                   /* one of them will not serve, however long one waits */
    char text[KUBERNETES_TEXT_SIZE]; /* of the first; hopeless ones go before others */
};

/* ctx is the struct kubernetes_trouble; for kubernetes_list(). Pods that end are passed over. */
void kubernetes_read_pod(json_object *pod, void *ctx);

/* A plain whole number, as GPUs are counted; 0 for anything else. */
int kubernetes_count(json_object *quantities, const char *resource);

#endif
