/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "plan/outcome.h"
#include "plan/task.h"
#include "store/ready.h"

/* Postgres' time before the provider is asked: what is planned later is not in its answer for sure. */
static int time_before(struct hand *h, int64_t *out, struct err *e)
{
    if (ready_postgres(h->db, e) < 0)
        return -1;
    *out = db_now_us();
    return 0;
}

static int ask(struct hand *h, struct plan_pool *pool, struct err *e)
{
    cleanup_provision_catalog struct provision_catalog offers = PROVISION_CATALOG_INIT;
    struct provision_note note = PROVISION_NOTE_INIT;
    struct provisioner *p = NULL;
    int64_t since_us = 0;

    if (time_before(h, &since_us, e) < 0 ||
        hand_provisioner(h, pool->provisioner->type, &p, e) < 0 ||
        fault_at(FAULT_CATALOG_CALL, e) < 0)
        return -1;
    const int rc = provisioner_catalog(p, &offers, &note, e);
    outcome_of_provider(rc, note.error, METRIC_ERROR_CATALOG);
    if (rc < 0 || fault_at(FAULT_CATALOG_CALLED, e) < 0)
        return -1;
    catalog_put(pool->catalog, &offers, rc == 0, since_us);
    return 0;
}

static void ask_all(struct task *t, struct hand *h)
{
    struct planner *p = t->planner;

    for (size_t i = 0; i < p->pools; i++) {
        struct plan_pool *pool = &p->pool[i];
        struct err e = ERR_INIT;
        if (!atomic_exchange(&pool->ask_catalog, false))
            continue;
        if (ask(h, pool, &e) < 0) {
            log_warn(LOG_MSG("the provider's catalog was not read"),
                LOG_S("pool", pool->conf->name), LOG_S("error", e.msg));
            catalog_failed(pool->catalog);
        }
        trigger_raise(&p->decide, DECIDE_PLAN);
    }
}

void act_ask_catalogs(struct planner *p)
{
    struct task *t = task_of_chore(p, ask_all);

    if (crew_submit(p->crew, t) != 0)
        task_free(t); /* the flags stay: the next plan asks again */
}
