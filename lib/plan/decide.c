/* SPDX-License-Identifier: Apache-2.0 */
/* Which queued jobs go next: decided for a pool only by the holder of its lease, in one short transaction that holds the
 * lease's row. Any doubt about the lease means stepping down. Jobs contract section 5, "Decide". */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "plan/order.h"
#include "plan/planner_internal.h"

enum {
    CANDIDATES_MAX = 500, /* of one plan */
    PER_TENANT_MAX = 50,  /* of these, where they are taken by tenant */
    TENANTS_MAX = 250,    /* that one plan looks at */
    IDLE_LAPS = 2,        /* the first of them may have begun anywhere */
    ROUNDS_MAX = 20       /* plans in a row for one pool, before the others have their turn */
};

static void step_down(struct plan_pool *pool, const char *why)
{
    pool->leads = false;
    metric_add(METRIC_LEASES_LOST, 1);
    log_warn(LOG_MSG("steps down"), LOG_S("pool", pool->conf->name),
        LOG_I("epoch", pool->lease.epoch), LOG_S("why", why));
}

/* Renews; false when the pool is no longer ours. */
static bool renew(struct plan_pool *pool, struct db *db)
{
    struct err e = ERR_INIT;
    const int rc = lease_renew(db, &pool->lease, &e);

    if (rc != 0)
        step_down(pool, rc < 0 ? e.msg : "another holds the lease");
    return rc == 0;
}

/* Followers read first: touching the row would queue up behind the leader's plans. */
static void try_to_lead(struct planner *p, struct plan_pool *pool, struct db *db)
{
    struct err e = ERR_INIT;
    const struct lease_claimant who = { p->owner, p->name, p->conf->planner_lease_ms };
    int rc = lease_look(db, pool->id, p->owner, &e);

    if (rc == 0)
        rc = lease_take(db, pool->id, &who, &pool->lease, &e);
    if (rc < 0)
        log_debug(LOG_MSG("the lease cannot be had"), LOG_S("pool", pool->conf->name),
            LOG_S("error", e.msg));
    if (rc != 0)
        return;
    pool->leads = true;
    metric_add(METRIC_LEASES_WON, 1);
    log_info(LOG_MSG("leads"), LOG_S("pool", pool->conf->name), LOG_I("epoch", pool->lease.epoch));
    trigger_raise(&p->decide, DECIDE_PLAN);
}

static void count_plan(const struct plan_result *r)
{
    metric_add(METRIC_PLANS_PLANNED, r->planned);
    metric_add(METRIC_PLANS_DEFERRED, r->deferred);
    metric_add(METRIC_PLANS_PASSED_OVER, r->passed_over);
    metric_add(METRIC_PLANS_GONE, r->gone);
}

/* What the provider last told, or NULL while it was not asked yet; sees to it that it will be. */
static struct catalog_view *look_at_catalog(struct planner *p, struct plan_pool *pool)
{
    bool stale = false;
    struct catalog_view *view =
        catalog_look(pool->catalog, pool->conf->catalog_s * NS_PER_S, &stale);

    if (stale) {
        atomic_store(&pool->ask_catalog, true);
        act_ask_catalogs(p);
    }
    return view;
}

/* Nothing was planned for the tenants in the window, and there are places free: for the next ones, until all had a look. */
static bool looks_on(struct plan_pool *pool, const struct plan *plan,
    const struct policy_plan *decided, int64_t planned)
{
    const bool moves = plan->snapshot.window.part && decided->window_done;

    if (planned > 0)
        pool->idle_laps = 0;
    else if (moves && plan->window_next[0] == '\0')
        pool->idle_laps++;
    if (moves && pool->idle_laps < IDLE_LAPS)
        return plan->snapshot.provisioning + planned < plan->snapshot.max_provisioning;
    pool->idle_laps = 0;
    return false;
}

static int commit(struct planner *p, struct plan *plan, const struct orders *orders,
    struct plan_result *result, struct err *e)
{
    if (!lease_trusted(plan->lease, clock_mono_ns()))
        return err_set(e, ERR_CONFLICT, "the lease was not renewed in time");
    if (fault_at(FAULT_PLAN_COMMIT, e) < 0)
        return -1;
    const struct plan_orders all = {
        .order = orders->order,
        .n = orders->n,
        .round = orders->round,
        .window_done = orders->window_done,
        .window_left = orders->window_left,
    };
    return plan_commit(plan, p->name, &all, result, e) < 0 ? -1 : fault_at(FAULT_PLAN_COMMITTED, e);
}

/* One plan by what the provider told, which counts for a policy that wants it. 1: there may be more to plan at once. */
static int plan_by(struct planner *p, struct plan_pool *pool, struct db *db,
    const struct catalog_view *view, struct err *e)
{
    cleanup_plan struct plan plan = PLAN_INIT;
    cleanup_policy_plan struct policy_plan decided = POLICY_PLAN_INIT;
    cleanup_orders struct orders orders = ORDERS_INIT;
    struct plan_result result = { 0 };
    const int64_t limit = pool->conf->max_concurrent_provisioning;
    const struct plan_ask ask = {
        .max_provisioning = limit,
        .jobs = CANDIDATES_MAX,
        .with_requests = true,
        .per_tenant = !pool->policy->by_tenant ? 0
                      : limit < PER_TENANT_MAX ? limit
                                               : PER_TENANT_MAX,
        .tenants = TENANTS_MAX,
        .taken_since_us = view == NULL ? 0 : view->since_us,
        .provisioner = pool->provisioner->type,
    };

    const int rc = plan_begin(db, &pool->lease, &ask, &plan, e);
    if (rc != 0)
        return rc < 0 ? -1 : err_set(e, ERR_CONFLICT, "another holds the lease");
    plan.snapshot.quota = pool->quotas.quota;
    plan.snapshot.n_quotas = pool->quotas.n;
    plan.snapshot.catalog = view == NULL || !view->told ? NULL : &view->offers;
    plan.snapshot.ageing_us = pool->conf->ageing_s * US_PER_S;
    pool->policy->plan(&plan.snapshot, &decided);
    orders_make(pool, &plan.snapshot, &decided, &orders);
    if (commit(p, &plan, &orders, &result, e) < 0)
        return -1;
    count_plan(&result);
    if (result.planned > 0)
        trigger_raise(&p->act, ACT_CLAIM);
    return result.deferred + result.gone > 0 || (result.planned > 0 && plan.snapshot.more) ||
           looks_on(pool, &plan, &decided, result.planned);
}

/* As above. A plan is made without waiting for a provider that does not answer, but not before it was asked. */
static int plan_once(struct planner *p, struct plan_pool *pool, struct db *db, struct err *e)
{
    if (pool->catalog == NULL)
        return plan_by(p, pool, db, NULL, e);
    struct catalog_view *view = look_at_catalog(p, pool);
    const int rc = view == NULL ? 0 : plan_by(p, pool, db, view, e);
    catalog_done(view);
    return rc;
}

static void plan_pool(struct planner *p, struct plan_pool *pool, struct db *db)
{
    struct err e = ERR_INIT;
    int more = 1;

    for (int i = 0; more == 1 && i < ROUNDS_MAX && !planner_is_stopping(p); i++) {
        const int64_t began_ns = clock_mono_ns();
        if (!renew(pool, db))
            return;
        more = fault_at(FAULT_PLAN_BEGIN, &e) < 0 ? -1 : plan_once(p, pool, db, &e);
        metric_add(METRIC_TOOK_PLAN, (clock_mono_ns() - began_ns) / 1000);
        metric_add(METRIC_TIMES_PLAN, 1);
    }
    if (more == 1)
        trigger_raise(&p->decide, DECIDE_PLAN);
    if (more < 0) {
        metric_add(METRIC_ERROR_PLAN, 1);
        step_down(pool, e.msg);
    }
}

void decide_round(struct planner *p, struct db *db, bool plan)
{
    int64_t led = 0;

    for (size_t i = 0; i < p->pools && !planner_is_stopping(p); i++) {
        struct plan_pool *pool = &p->pool[i];
        const bool led_before = pool->leads;
        if (!pool->leads)
            try_to_lead(p, pool, db);
        else if (!plan)
            (void)renew(pool, db);
        if (pool->leads && (plan || !led_before))
            plan_pool(p, pool, db);
        led += pool->leads;
    }
    metric_set(METRIC_LEASES_HELD, led);
}

void decide_step_down(struct planner *p, struct db *db)
{
    for (size_t i = 0; i < p->pools; i++) {
        struct err e = ERR_INIT;
        if (p->pool[i].leads && lease_step_down(db, &p->pool[i].lease, &e) < 0)
            log_warn(LOG_MSG("a lease was not handed back"), LOG_S("error", e.msg));
        p->pool[i].leads = false;
    }
}

void *decide_main(void *planner)
{
    struct planner *p = planner;
    cleanup_db struct db *db = planner_db(p, "weighbridge-planner/decide");
    const int64_t interval_ns = p->conf->planner_interval_s * NS_PER_S;
    const int64_t renew_ms = p->conf->planner_lease_ms / 3;
    int64_t plan_ns = clock_mono_ns();
    int64_t renew_ns = plan_ns;

    while (!planner_is_stopping(p)) {
        const unsigned bits = trigger_wait(&p->decide, plan_ns < renew_ns ? plan_ns : renew_ns);
        const bool plan = (bits & DECIDE_PLAN) != 0 || clock_mono_ns() >= plan_ns;
        decide_round(p, db, plan);
        renew_ns = clock_deadline(renew_ms);
        if (plan)
            plan_ns = clock_mono_ns() + interval_ns;
    }
    decide_step_down(p, db);
    return NULL;
}
