/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/planner.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "base/str.h"
#include "base/thread.h"
#include "plan/act.h"
#include "plan/task.h"
#include "store/artifact_gate.h"
#include "store/artifact_shard.h"
#include "store/chore.h"
#include "store/housekeeping.h"
#include "store/installation.h"
#include "store/job.h"
#include "store/local_slot.h"
#include "store/ready.h"
#include "store/plan.h"
#include "store/planner_view.h"
#include "store/pool.h"

const struct plan_pool *planner_pool(const struct planner *p, int64_t id)
{
    for (size_t i = 0; i < p->pools; i++) {
        if (p->pool[i].id == id)
            return &p->pool[i];
    }
    return NULL;
}

static void take_stmts(struct planner *p)
{
    const struct db_stmts all[] = { JOB_RUN_STMTS, JOB_LAND_STMTS, JOB_STMTS, INTENT_STMTS,
        PLAN_STMTS, PLANNER_LEASE_STMTS, PLANNER_VIEW_STMTS, POOL_STMTS, CHORE_STMTS,
        HOUSEKEEPING_STMTS, GATE_STMTS, SHARD_STMTS, INSTALLATION_STMTS, LOCAL_STMTS, READY_STMTS };

    static_assert(sizeof all <= sizeof p->stmts, "room for all");
    memcpy(p->stmts, all, sizeof all);
    p->n_stmts = sizeof all / sizeof all[0];
}

/* For this file: the analyzer takes what an OWNED_BY function hands out for leaked where it sees the
 * function's body. */
static struct db *new_db(const struct planner *p, const char *thread)
{
    return db_new(&(struct db_options){
        .url = p->conf->db_url,
        .name = thread,
        .prepared = p->conf->db_prepared,
        .timeout_ms = STORE_MS,
        .breaker = p->db_breaker,
        .stmts = p->stmts,
        .n_stmts = p->n_stmts,
    });
}

struct db *planner_db(const struct planner *p, const char *thread)
{
    return new_db(p, thread);
}

/* --- what the configuration names --- */

static void register_once(void)
{
    static bool done;

    if (done)
        return;
    done = true;
    provisioner_register_builtin();
    provisioner_freeze();
    policies_register_builtin();
    policies_freeze();
}

static int check_pool(const struct conf_pool *pool, struct err *e)
{
    cleanup_quotas struct quotas quotas = QUOTAS_INIT;

    if (provisioner_find(pool->provisioner) == NULL)
        return err_set(e, ERR_INVALID, "[pool %s] provisioner: there is no '%s'", pool->name,
            pool->provisioner);
    if (policies_find(pool->provisioner, pool->policy) == NULL)
        return err_set(e, ERR_INVALID, "[pool %s] policy: there is no '%s' for provisioner %s",
            pool->name, pool->policy, pool->provisioner);
    if (strcmp(pool->tenant, "created_by") != 0 &&
        (!str_starts(pool->tenant, "metadata.") || str_ends(pool->tenant, ".")))
        return err_set(e, ERR_INVALID, "[pool %s] tenant: created_by or metadata.KEY", pool->name);
    if (quotas_parse(pool->tenants, &quotas, e) < 0)
        return err_wrap(e, "[pool %s] tenants", pool->name);
    return 0;
}

/* Whether its options are all there; nothing is called. */
static int check_opens(const struct conf *conf, const struct conf_pool *pool, struct err *e)
{
    cleanup_db struct db *db = db_new(
        &(struct db_options){ .url = conf->db_url, .name = "check", .timeout_ms = STORE_MS });
    cleanup_provisioner struct provisioner *p = NULL;
    const struct provisioner_env env = {
        .conf = conf, .cluster = "check", .db = db, .stop_fd = -1
    };

    return provisioner_open(pool->provisioner, &env, &p, e) < 0
               ? err_wrap(e, "[pool %s] provisioner", pool->name)
               : 0;
}

static int check_cluster(const char *cluster, struct err *e)
{
    for (const char *c = cluster; *c != '\0'; c++) {
        if ((*c < 'a' || *c > 'z') && (*c < '0' || *c > '9'))
            return err_set(e, ERR_INVALID, "[planner] cluster: only a-z and 0-9");
    }
    return 0;
}

int planner_check(const struct conf *conf, struct err *e)
{
    cleanup_faults struct faults *faults = NULL;

    register_once();
    for (size_t i = 0; i < conf->pools; i++) {
        if (check_pool(&conf->pool[i], e) < 0 || check_opens(conf, &conf->pool[i], e) < 0)
            return -1;
    }
    if (conf->pools > RUN_POOLS_MAX)
        return err_set(e, ERR_INVALID, "more than %d [pool] sections", RUN_POOLS_MAX);
    if (!str_empty(conf->faults_set) && !conf->faults_allow)
        return err_set(e, ERR_INVALID, "[faults] set: needs allow = on");
    if (check_cluster(conf->planner_cluster, e) < 0)
        return -1;
    return faults_parse(conf->faults_set, &faults, e) < 0 ? err_wrap(e, "[faults] set") : 0;
}

static void take_pool(struct plan_pool *pool, const struct conf_pool *conf)
{
    struct err checked = ERR_INIT; /* by planner_check() */

    pool->conf = conf;
    (void)!quotas_parse(conf->tenants, &pool->quotas, &checked);
    pool->provisioner = provisioner_find(conf->provisioner);
    pool->policy = policies_find(conf->provisioner, conf->policy);
    pool->hooks = provisioner_hooks(pool->provisioner);
    if (pool->policy->wants_catalog)
        pool->catalog = catalog_new();
}

/* --- life --- */

static void free_planner(struct planner *p)
{
    if (p->quit_fd >= 0)
        close(p->quit_fd);
    if (p->stop_fd >= 0)
        close(p->stop_fd);
    trigger_fini(&p->act);
    trigger_fini(&p->decide);
    flight_free(p->flight);
    faults_set(NULL);
    faults_free(p->faults);
    for (size_t i = 0; i < p->pools; i++) {
        quotas_free(&p->pool[i].quotas);
        catalog_free(p->pool[i].catalog);
    }
    free(p->pool);
    free(p->pool_id);
    free(p);
}

static int64_t clock_shift_us(const struct conf *conf)
{
    return conf->faults_allow ? conf->faults_clock_shift_s * US_PER_S : 0;
}

static int make(const struct planner_options *o, struct planner **out, struct err *e)
{
    char host[64] = "";

    if (planner_check(o->conf, e) < 0)
        return -1;
    struct planner *p = mem_calloc(1, sizeof *p);
    p->conf = o->conf;
    p->db_breaker = o->db_breaker;
    p->kv_breaker = o->kv_breaker;
    (void)gethostname(host, sizeof host - 1);
    (void)str_format(p->name, sizeof p->name, "planner %s/%ld", host, (long)getpid());
    take_stmts(p);
    p->pools = o->conf->pools;
    p->pool = mem_calloc(p->pools, sizeof *p->pool);
    p->pool_id = mem_calloc(p->pools, sizeof *p->pool_id);
    for (size_t i = 0; i < p->pools; i++)
        take_pool(&p->pool[i], &o->conf->pool[i]);
    p->flight = flight_new();
    trigger_init(&p->decide);
    trigger_init(&p->act);
    clock_shift_wall(clock_shift_us(o->conf));
    p->stop_fd = -1;
    p->quit_fd = stop_event_fd(e);
    if (p->quit_fd >= 0)
        p->stop_fd = stop_event_fd(e);
    if (p->stop_fd < 0 || faults_parse(o->conf->faults_set, &p->faults, e) < 0) {
        free_planner(p);
        return -1;
    }
    faults_set(p->faults);
    *out = p;
    return 0;
}

static void drop(void *task, void *planner)
{
    struct planner *p = planner;
    task_return(task, p->stop_db);
}

static int hire(struct planner *p, struct err *e)
{
    const struct crew_options o = {
        .name = "crew",
        .threads = (size_t)p->conf->planner_workers,
        .queue = (size_t)p->conf->planner_queue,
        .ctx = p,
        .open = hand_open,
        .close = hand_close,
        .run = task_run,
        .drop = drop,
    };
    metric_set(METRIC_CREW_THREADS, p->conf->planner_workers);
    return crew_start(&o, &p->crew, e);
}

int planner_start(const struct planner_options *o, struct planner **out, struct err *e)
{
    struct planner *p = NULL;

    if (make(o, &p, e) < 0)
        return -1;
    if (hire(p, e) < 0) {
        free_planner(p);
        return -1;
    }
    if (thread_start(&p->act_thread, act_main, p, "act", e) < 0) {
        crew_free(p->crew);
        free_planner(p);
        return -1;
    }
    *out = p;
    return 0;
}

/* What runs may end by itself; then outside calls are broken off; then this process leaves without them. */
static void dismiss(struct planner *p)
{
    p->stop_db = new_db(p, "weighbridge-planner/stop");
    crew_stop(p->crew);
    if (!crew_wait(p->crew, clock_deadline(STOP_MS))) {
        stop_raise(p->stop_fd);
        if (!crew_wait(p->crew, clock_deadline(BREAK_MS))) {
            log_error(LOG_MSG("leaves while something outside has not answered"),
                LOG_I("jobs", flight_count(p->flight)));
            _exit(EXIT_FAILURE);
        }
    }
    crew_free(p->crew);
    db_close(p->stop_db);
}

void planner_stop(struct planner *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->stopping, true);
    trigger_raise(&p->act, ACT_LOOK);
    trigger_raise(&p->decide, DECIDE_PLAN);
    stop_raise(p->quit_fd);
    pthread_join(p->act_thread, NULL);
    if (p->decides)
        pthread_join(p->decide_thread, NULL);
    if (p->listens)
        pthread_join(p->listen_thread, NULL);
    dismiss(p);
    free_planner(p);
}

/* Claims and works until nothing more is due. */
static int act_until_idle(struct planner *p, struct db *db, struct err *e)
{
    struct act a = { .p = p, .db = db, .entered = -1 };
    size_t claimed = 1;

    while (claimed > 0) {
        if (act_claim(&a, &claimed, e) < 0)
            return -1;
        while (!crew_wait(p->crew, clock_deadline(MS_PER_S)) || crew_waiting(p->crew) > 0) {
            if (flight_renew(p->flight, db, p->conf->planner_claim_ms, e) < 0)
                return -1;
        }
    }
    return 0;
}

static int cycle(struct planner *p, struct db *db, struct err *e)
{
    int64_t expired = 0;

    if (planner_join(p, db, e) < 0 || run_expire_queued(db, p->ids, INT32_MAX, &expired, e) < 0)
        return -1;
    decide_round(p, db, true);
    const int rc = act_until_idle(p, db, e);
    decide_step_down(p, db);
    return rc;
}

int planner_once(const struct planner_options *o, struct err *e)
{
    struct planner *p = NULL;

    if (make(o, &p, e) < 0)
        return -1;
    if (hire(p, e) < 0) {
        free_planner(p);
        return -1;
    }
    cleanup_db struct db *db = planner_db(p, "weighbridge-planner/once");
    const int rc = cycle(p, db, e);
    atomic_store(&p->stopping, true);
    dismiss(p);
    free_planner(p);
    return rc;
}
