/* SPDX-License-Identifier: Apache-2.0 */
/* What any one process may do now and then: each chore asks Postgres whether it is its turn. Jobs contract section 5,
 * "Housekeeping". */
#include <string.h>

#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "plan/act.h"
#include "plan/sweep.h"
#include "plan/task.h"
#include "store/chore.h"
#include "store/gate.h"
#include "store/housekeeping.h"

enum { MINUTE_S = 60, HOUR_S = 3600, DAY_S = 86400, RETIRE_MAX = 1000 };

static bool planner_stops(void *ctx)
{
    struct planner *p = ctx;
    return planner_is_stopping(p);
}

/* True when it is this process' turn, and nobody else's for every_s. */
static bool is_mine(struct hand *h, const char *name, int64_t every_s)
{
    struct err e = ERR_INIT;
    const int rc = chore_claim(h->db, name, every_s, h->planner->name, &e);

    if (rc < 0)
        log_debug(LOG_MSG("a chore was not claimed"), LOG_S("chore", name), LOG_S("error", e.msg));
    return rc == 0;
}

static void told(const char *what, int rc, int64_t n, const struct err *e)
{
    if (rc < 0)
        log_warn(LOG_MSG("a chore failed"), LOG_S("chore", what), LOG_S("error", e->msg));
    else if (n > 0)
        log_info(LOG_MSG("chore done"), LOG_S("chore", what), LOG_I("rows", n));
}

static void make_partitions(struct task *t, struct hand *h)
{
    struct err e = ERR_INIT;
    int64_t made = 0;

    (void)t;
    if (!is_mine(h, "event_partitions", HOUR_S))
        return;
    const int rc = chore_event_partitions(h->db, &made, &e);
    told("event_partitions", rc, made, &e);
}

static void drop_events(struct task *t, struct hand *h)
{
    const int64_t keep_days = h->planner->conf->planner_event_keep_days;
    struct err e = ERR_INIT;
    int64_t dropped = 0;

    (void)t;
    if (keep_days == 0 || !is_mine(h, "drop_events", DAY_S))
        return;
    const int rc = chore_drop_events(h->db, keep_days, &dropped, &e);
    told("drop_events", rc, dropped, &e);
}

static void retire_jobs(struct task *t, struct hand *h)
{
    const int64_t keep_days = h->planner->conf->planner_keep_days;
    struct err e = ERR_INIT;
    int64_t all = 0;
    int64_t n = RETIRE_MAX;
    int rc = 0;

    if (keep_days == 0 || !is_mine(h, "retire_jobs", HOUR_S))
        return;
    while (rc == 0 && n == RETIRE_MAX && !planner_is_stopping(t->planner)) {
        rc = chore_retire_jobs(h->db, keep_days, RETIRE_MAX, &n, &e);
        all += rc == 0 ? n : 0;
    }
    told("retire_jobs", rc, all, &e);
}

/* What weighbridge-housekeeping does, for sites that have a planner and start no timer. */
static void keep_house(struct task *t, struct hand *h)
{
    const struct conf *conf = t->planner->conf;
    const struct housekeeping_options o = { .read_only = conf->operations_read_only,
        .keep_days = conf->operations_keep_days };
    struct housekeeping done = { 0 };
    struct err e = ERR_INIT;

    if (!is_mine(h, "housekeeping", MINUTE_S))
        return;
    const int rc =
        housekeeping_run(h->db, str_empty(conf->redis_url) ? NULL : h->kv, &o, &done, &e);
    told("housekeeping", rc,
        done.failed_loads + done.orphaned_loads + done.claims + done.stale_operations +
            done.history + done.controls,
        &e);
}

/* Where the store of artifacts is, and ours. Versions are claimed one by one: it may take any time. */
static void keep_store(struct task *t, struct hand *h)
{
    const struct conf *conf = t->planner->conf;
    struct gate_done done = { 0 };
    struct err e = ERR_INIT;
    struct gate g;

    gate_init(&g, conf->artifacts_root, conf->artifacts_drop_hours);
    g.stopping = planner_stops;
    g.ctx = t->planner;
    if (!gate_is_here(&g))
        return;
    int rc = gate_run(h->db, &g, &done, &e);
    if (rc == 0 && is_mine(h, "artifacts", HOUR_S))
        rc = gate_sweep(h->db, &g, &done, &e);
    told("artifacts", rc,
        done.published + done.rejected + done.back + done.dropped + done.parts + done.spooled, &e);
}

static void sweep_batches_in_turn(struct task *t, struct hand *h)
{
    const struct conf *conf = t->planner->conf;
    if (!str_empty(conf->batch_url) && is_mine(h, "sweep_batches", conf->planner_sweep_s))
        sweep_batches(h);
}

/* Each provider once, however many pools use it. */
static void sweep_machines_in_turn(struct task *t, struct hand *h)
{
    const struct planner *p = t->planner;

    for (size_t i = 0; i < p->pools; i++) {
        const char *type = p->pool[i].provisioner->type;
        char name[64];
        size_t first = 0;
        while (strcmp(p->pool[first].provisioner->type, type) != 0)
            first++;
        (void)str_format(name, sizeof name, "sweep_machines/%s", type);
        if (first == i && is_mine(h, name, p->conf->planner_sweep_s))
            sweep_machines(h, type, p->pool[i].id);
    }
}

void act_chores(struct planner *p)
{
    static chore_fn *const CHORES[] = { make_partitions, drop_events, retire_jobs, keep_house,
        keep_store, sweep_batches_in_turn, sweep_machines_in_turn };

    for (size_t i = 0; i < sizeof CHORES / sizeof CHORES[0]; i++) {
        struct task *t = task_of_chore(p, CHORES[i]);
        if (crew_submit(p->crew, t) != 0)
            task_free(t); /* there is another minute */
    }
}
