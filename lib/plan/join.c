/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/planner_internal.h"

#include "base/log.h"
#include "base/str.h"
#include "store/installation.h"
#include "store/pool.h"

static int get_cluster(struct planner *p, struct db *db, struct err *e)
{
    if (!str_empty(p->conf->planner_cluster)) {
        (void)str_copy(p->cluster, sizeof p->cluster, p->conf->planner_cluster);
        return 0;
    }
    return installation_name(db, p->cluster, e);
}

int planner_join(struct planner *p, struct db *db, struct err *e)
{
    for (size_t i = 0; i < p->pools; i++) {
        struct plan_pool *pool = &p->pool[i];
        if (pool_ensure(db, pool->conf->name, pool->conf->provisioner, pool->conf->policy,
                &pool->id, e) < 0)
            return -1;
        p->pool_id[i] = pool->id;
    }
    p->ids = (struct run_pools){ .id = p->pool_id, .n = p->pools };
    if (get_cluster(p, db, e) < 0 || lease_new_holder(db, p->owner, e) < 0)
        return -1;
    log_info(LOG_MSG("planner joined"), LOG_S("planner", p->name), LOG_S("owner", p->owner),
        LOG_S("cluster", p->cluster), LOG_I("pools", p->pools));
    return 0;
}
