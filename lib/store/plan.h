/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_PLAN_H
#define WB_STORE_PLAN_H

/* A plan: one transaction on the connection that renews the lease, just after a renewal, under 2 s.
 * plan_begin() holds the pool's lease row FOR SHARE, so that nobody takes over until the end, and reads the
 * snapshot; the policy decides; plan_commit() writes. Jobs contract section 5, reference 5.2.
 *
 *     cleanup_plan struct plan p = PLAN_INIT;
 *     int lost = plan_begin(db, &lease, &ask, &p, e);      -- 1: no longer ours, step down
 *     policy(&p.snapshot, &decisions);
 *     ... build what each planned job needs: p.snapshot.job[i].request_json ...
 *     plan_commit(&p, "planner host/pid", orders, n, &result, e);
 */
#include "db/db.h"
#include "model/policy.h"
#include "store/planner_lease.h"

extern const struct db_stmts PLAN_STMTS;

struct plan_ask {
    int64_t max_provisioning;
    int64_t jobs;       /* most candidates to look at, up to 1000 */
    bool with_requests; /* fill request_json and region of the candidates */
    int64_t
        per_tenant; /* > 0: the first so many of each tenant, least served tenants first, and the turns */
    int64_t
        tenants; /* with per_tenant: most tenants to look at; the others' turn comes in other plans */
    int64_t taken_since_us; /* > 0: what was planned since, by Postgres' clock, is told as taken */
    const char
        *provisioner; /* of whoever plans, for the provision rows; NULL: as the pool's row has it */
};

struct plan {
    struct policy_snapshot snapshot; /* quotas and the catalog are the caller's to add */
    struct db *db;
    const struct lease *lease;
    const char *window_from; /* of window */
    const char *window_next; /* where the next one begins */
    bool drained;            /* the pool: it has no candidates */
    const char *provisioner;
    struct db_txn txn;
    struct policy_job *job;
    struct policy_tenant *tenant;
    struct policy_turn *turn;
    struct policy_taken *taken;
    struct db_rows jobs;
    struct db_rows tenants;
    struct db_rows turns;
    struct db_rows takens;
    struct db_rows fence;
    struct db_rows next;
    int64_t began_ns;
};
#define PLAN_INIT \
    { \
        .db = NULL, .lease = NULL, .txn = DB_TXN_INIT, .drained = false, .provisioner = NULL, \
        .job = NULL, .tenant = NULL, .turn = NULL, .taken = NULL, .jobs = DB_ROWS_INIT, \
        .tenants = DB_ROWS_INIT, .turns = DB_ROWS_INIT, .takens = DB_ROWS_INIT, \
        .fence = DB_ROWS_INIT, .next = DB_ROWS_INIT, .window_from = "", .window_next = "" \
    }
void plan_end(struct plan *p); /* rolls back what is not committed */
#define cleanup_plan __attribute__((cleanup(plan_end)))

/* 0; 1 when the lease is not ours (holder and epoch), or has expired. Candidates: queued, due, not past their
 * queue deadline; none in a drained pool. Locks: the lease's and the pool's row FOR SHARE; job rows only at the
 * commit. */
int plan_begin(struct db *db, const struct lease *l, const struct plan_ask *ask, struct plan *out,
    struct err *e) WARN_UNUSED;

/* A decision with what it takes to carry it out. */
struct plan_order {
    const struct policy_job *job; /* of the snapshot */
    enum policy_verdict verdict;
    const char *spec_json;   /* PLAN: what to provision, kept in the provision row */
    const char *detail_json; /* PLAN: for the event; NULL: none */
    const char *error_code;  /* DEFER, PASS_OVER: why, kept on the job */
    const char *error;
    int64_t delay_ms; /* DEFER */
    int64_t finish;   /* PLAN: where its tenant stands after it; 0: no turns */
};

/* All that is to be written. */
struct plan_orders {
    const struct plan_order *order;
    size_t n;
    int64_t round; /* where the round robin stands after it; 0: as before */
    bool window_done;
    int64_t window_left; /* as the policy has them */
};

struct plan_result {
    int64_t planned;
    int64_t deferred;
    int64_t passed_over; /* for the first time */
    int64_t gone;        /* cancelled or expired meanwhile: passed over */
};

/* Writes the orders and commits: planned jobs get attempt + 1, the provision key <job id>:<attempt>, a pending
 * provision row, the provision intent and an event with the lease's epoch; they are due for a claim at once. A job that
 * is passed over is written once, until it is planned.
 * More than max_provisioning jobs in planned or resource_preparing is refused as ERR_INTERNAL (a defect of the
 * policy). ERR_UNAVAILABLE and ERR_TIMEOUT of the commit itself leave it open whether it happened: step down. */
int plan_commit(struct plan *p, const char *actor, const struct plan_orders *orders,
    struct plan_result *out, struct err *e) WARN_UNUSED;

#endif
