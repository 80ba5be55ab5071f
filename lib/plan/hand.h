/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HAND_H
#define WB_HAND_H

/* What a thread that talks to the outside owns: its connections. One thread each. */
#include "batch/batch_client.h"
#include "db/db.h"
#include "kv/kv.h"
#include "plan/planner_internal.h"
#include "provision/provisioner.h"

enum { HAND_TYPES_MAX = 16 };

struct hand {
    struct planner *planner;
    char name[64]; /* application_name */
    struct db *db;
    struct kv *kv;
    struct batch_client *batch;                      /* hand_batch() */
    struct provisioner *provisioner[HAND_TYPES_MAX]; /* hand_provisioner() */
    size_t provisioners;
};

/* For the crew: open, close. */
void *hand_open(size_t number, void *planner);
void hand_close(void *hand);

/* The client of the batch service, made when first used. ERR_INVALID: [batch] url is empty or no URL. */
int hand_batch(struct hand *h, struct batch_client **out, struct err *e) WARN_UNUSED;

/* The provisioner of a type, made when first used. Errors are those of provisioner_open(). */
int hand_provisioner(
    struct hand *h, const char *type, struct provisioner **out, struct err *e) WARN_UNUSED;

/* Wakes planners, this one and others: after a commit that leaves them something to do. reason: "ready", "done". */
void hand_wake(struct hand *h, const char *reason);

#endif
