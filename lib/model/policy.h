/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_POLICY_H
#define WB_POLICY_H

/* What a policy of planning sees and what it answers: a snapshot in, decisions out, nothing else. Jobs
 * contract section 5, "Policies". Pure; any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/job.h"
#include "model/provision.h"

/* A queued job that is due (not_before passed, queue deadline not, not cancelled). */
struct policy_job {
    char id[UUID_SIZE];
    int64_t version;
    const char *tenant;
    int64_t priority; /* higher first */
    int64_t enqueued_us;
    int64_t replicas;
    int64_t gpus; /* of each replica; 0: none asked for */
    const char *gpu_type;
    int64_t attempts;         /* times it was planned before */
    int64_t failures;         /* times in a row that it could not be had, for back-off */
    const char *request_json; /* as in struct job; "" unless the snapshot was asked for it */
};

/* What a tenant has in hand in this pool: every live job but the queued. */
struct policy_tenant {
    const char *name;
    int64_t provisioning; /* jobs in planned or resource_preparing, not past their queue deadline */
    int64_t live;         /* jobs in any state from planned to cancelling */
    int64_t gpus;         /* of these, replicas times gpus */
};

/* What a tenant may have. Unset limits are JOB_UNLIMITED. */
#define JOB_UNLIMITED INT64_MAX
struct policy_quota {
    const char *tenant; /* "" for all that have no row of their own */
    int64_t jobs;
    int64_t gpus;
    int64_t weight; /* of the round robin, >= 1 */
};

struct policy_snapshot {
    int64_t now_us;
    int64_t max_provisioning;     /* limit of jobs in planned or resource_preparing */
    int64_t provisioning;         /* of these there are now, expired ones not counted */
    const struct policy_job *job; /* in order: priority, then first come first served */
    size_t n_jobs;
    bool more;                          /* there are due jobs behind these */
    const struct policy_tenant *tenant; /* by name, byte order */
    size_t n_tenants;
    const struct policy_quota *quota;
    size_t n_quotas;
    const struct provision_catalog *catalog; /* NULL: the provider does not tell */
};

enum policy_verdict {
    POLICY_PLAN, /* queued -> planned */
    POLICY_DEFER /* stays queued, with an error on the job and a delay: never skipped in silence */
};

struct policy_decision {
    size_t job; /* index into the snapshot's jobs */
    enum policy_verdict verdict;
    const char *region; /* where to; "": the provisioner chooses */
    const char *reason; /* static text, for the event's detail or the job's error */
};

/* Decisions owned by whoever planned; at most one for each job of the snapshot. */
struct policy_plan {
    struct policy_decision *decision;
    size_t n;
};
#define POLICY_PLAN_INIT \
    { \
        .decision = NULL, .n = 0 \
    }
void policy_plan_free(struct policy_plan *p);
#define cleanup_policy_plan __attribute__((cleanup(policy_plan_free)))
void policy_plan_add(struct policy_plan *p, struct policy_decision d);

/* A policy. simple: at most max_provisioning at once, strict priority, then first come first served. */
typedef void policy_fn(const struct policy_snapshot *s, struct policy_plan *out);
void policy_simple(const struct policy_snapshot *s, struct policy_plan *out);

#endif
