/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_INTERNAL_H
#define WB_PLANNER_INTERNAL_H

/* A planner's parts, for the files of this folder. What is not marked otherwise is written before the threads
 * that read it start. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "model/quota.h"
#include "plan/catalog.h"
#include "plan/crew.h"
#include "plan/flight.h"
#include "plan/planner.h"
#include "plan/policies.h"
#include "plan/trigger.h"
#include "provision/provisioner.h"
#include "store/job_run.h"
#include "store/planner_lease.h"

enum {
    STORE_MS =
        3000, /* deadline of a call to Postgres; also what ends a frozen leader's transaction */
    LOOK_MS = 1000,    /* the backstop for wake-ups that got lost */
    GAUGES_MS = 15000, /* sizes of queues, for metrics */
    CHORES_MS = 60000,
    STOP_MS = 8000,  /* what runs may take at a stop before outside calls are broken off */
    BREAK_MS = 1500, /* and after that */
    PLANNER_STMTS = 16
};

/* Bits of the triggers. */
enum {
    DECIDE_PLAN = 1 << 0, /* there may be something to plan */
    ACT_CLAIM = 1 << 0,   /* there may be something to claim */
    ACT_LOOK = 1 << 1
};

struct plan_pool {
    const struct conf_pool *conf;
    int64_t id; /* in Postgres */
    const struct policy_entry *policy;
    const struct provisioner_ops *provisioner;
    struct provision_hooks hooks;
    struct quotas quotas;
    struct catalog *catalog; /* NULL: its policy wants none */
    _Atomic bool ask_catalog;
    /* the decider's alone */
    struct lease lease;
    bool leads;
    int idle_laps; /* of the window of tenants, since the last job was planned */
};

struct planner {
    const struct conf *conf;
    struct breaker *db_breaker;
    struct breaker *kv_breaker;
    char name[96];         /* "host/pid", for people */
    char owner[UUID_SIZE]; /* of leases and claims */
    char cluster[PROVISION_CLUSTER_MAX + 1];
    struct db_stmts stmts[PLANNER_STMTS];
    size_t n_stmts;
    struct faults *faults;
    struct db *stop_db; /* while it stops: to hand back what was not begun */
    struct plan_pool *pool;
    size_t pools;
    int64_t *pool_id;
    struct run_pools ids;
    struct crew *crew;
    struct flight *flight;
    struct trigger decide;
    struct trigger act;
    int quit_fd; /* the listener ends */
    int stop_fd; /* outside calls end */
    _Atomic bool stopping;
    _Atomic bool hungry; /* more is due than there was room for */
    pthread_t act_thread;
    pthread_t decide_thread;
    pthread_t listen_thread;
    bool decides;
    bool listens;
};

static inline bool planner_is_stopping(const struct planner *p)
{
    return atomic_load(&p->stopping);
}

const struct plan_pool *planner_pool(const struct planner *p, int64_t id); /* NULL: none of ours */

/* A connection for a thread of that name. */
struct db *planner_db(const struct planner *p, const char *thread) OWNED_BY(db_close);

/* join.c: makes the pools known, gets the names that Postgres gives. Tried again until it succeeds. */
int planner_join(struct planner *p, struct db *db, struct err *e) WARN_UNUSED;

/* decide.c */
void *decide_main(void *planner);
/* One round over all pools: leases, and plans where plan is set. */
void decide_round(struct planner *p, struct db *db, bool plan);
void decide_step_down(struct planner *p, struct db *db);

/* act.c */
void *act_main(void *planner);

/* catalog_ask.c: has the crew ask the providers of all pools whose ask_catalog is set. */
void act_ask_catalogs(struct planner *p);

/* listen.c */
void *listen_main(void *planner);

#endif
