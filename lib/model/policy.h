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
    int64_t attempts;       /* times it was planned before */
    int64_t failures;       /* times in a row that it could not be had, for back-off */
    int64_t passed_over_us; /* since when a policy passes it over; 0: none does */
    const char *region; /* that it asks for; "": any, or the snapshot was not asked for requests */
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

/* Where a tenant stands in the weighted round robin: policy_fair() tells of the numbers. */
struct policy_turn {
    const char *tenant;
    int64_t finish;
};

/* Jobs of one kind that were planned after the catalog was read: what they take is not gone from it yet. */
struct policy_taken {
    const char *gpu_type;
    int64_t gpus; /* of each replica */
    int64_t replicas;
};

/* Of more tenants than one plan looks at: whose jobs the snapshot has. */
struct policy_window {
    bool part;     /* there are other tenants */
    int64_t round; /* where the round robin stood when the window came to these */
    int64_t left;  /* jobs that it may still plan for these; < 0: it has just come */
};

struct policy_snapshot {
    int64_t now_us;
    int64_t max_provisioning; /* limit of jobs in planned or resource_preparing */
    int64_t provisioning;     /* of these there are now, expired ones not counted */
    const struct policy_job
        *job; /* in order: priority, then first come first served; where it was asked
                                     for the heads of all tenants' queues, that for each tenant */
    size_t n_jobs;
    bool more;                          /* there are due jobs behind these */
    const struct policy_tenant *tenant; /* by name, byte order */
    size_t n_tenants;
    const struct policy_quota *quota;
    size_t n_quotas;
    const struct policy_turn
        *turn; /* by tenant, byte order; who is not there has not been served lately */
    size_t n_turns;
    int64_t round; /* where the round robin stands */
    struct policy_window window;
    const struct provision_catalog *catalog; /* NULL: the provider does not tell */
    const struct policy_taken *taken;
    size_t n_taken;
    int64_t
        ageing_us; /* after which a job that is passed over keeps what it needs from others; > 0 */
};

enum policy_verdict {
    POLICY_PLAN,  /* queued -> planned */
    POLICY_DEFER, /* stays queued, with an error on the job and a delay: never skipped in silence */
    POLICY_PASS_OVER /* stays queued and due, with the reason on the job: its turn comes when room does */
};

struct policy_decision {
    size_t job; /* index into the snapshot's jobs */
    enum policy_verdict verdict;
    char region[PROVISION_TEXT_SIZE]; /* where to; "": the provisioner chooses */
    const char *reason;               /* static text, for the event's detail or the job's error */
    int64_t
        finish; /* PLAN by turns: where its tenant stands after it; 0: the policy knows no turns */
};

/* Decisions owned by whoever planned; at most one for each job of the snapshot. */
struct policy_plan {
    struct policy_decision *decision;
    size_t n;
    int64_t round; /* where the round robin stands after it; 0: as before */
    /* of a snapshot that has part of the tenants: each of these has had its turn, on to others; what is left otherwise */
    bool window_done;
    int64_t window_left;
};
#define POLICY_PLAN_INIT \
    { \
        .decision = NULL, .n = 0, .round = 0, .window_done = false, .window_left = -1 \
    }
void policy_plan_free(struct policy_plan *p);
#define cleanup_policy_plan __attribute__((cleanup(policy_plan_free)))
void policy_plan_add(struct policy_plan *p, struct policy_decision d);

/* A policy. None of them ever plans more than max_provisioning - provisioning jobs. */
typedef void policy_fn(const struct policy_snapshot *s, struct policy_plan *out);

/* Strict priority, then first come first served. */
void policy_simple(const struct policy_snapshot *s, struct policy_plan *out);

/* Weighted round robin over tenants, each within its quota of jobs and GPUs; priority and age count within a tenant.
 * Start-time fair queueing: a job of a tenant starts at the later of the round and its tenant's last finish, and
 * finishes POLICY_TURN / weight later; the earliest start goes next and is where the round stands then. So a
 * tenant that had nothing queued has saved up nothing. The head of a queue that its quota stops is passed over, and its
 * tenant with it; one that asks for more than its tenant may ever have is deferred, and those behind it go on.
 *
 * Of more tenants than one plan looks at, a window is served by the same rule until a whole turn is over for each of them
 * that can be served, that is weight jobs, and then the next ones in order of their names. Tenants that come in between
 * cannot keep it where it is: it plans twice a turn's jobs at most. So nobody waits for longer than all others' turns. */
enum { POLICY_TURN = 1 << 20 };
void policy_fair(const struct policy_snapshot *s, struct policy_plan *out);

/* Plans what fits into the catalog, all replicas of a job or none, in the region where they fit at the best price;
 * passes over what does not fit now and looks behind it. A job that has been passed over for ageing_us keeps what is
 * free of its kind from those behind it, until it fits, but only for ageing_us, and then again after as long: so
 * neither waits for ever. What no offer of the catalog can ever serve is deferred. Without a catalog as policy_simple(). */
void policy_capacity(const struct policy_snapshot *s, struct policy_plan *out);

#endif
