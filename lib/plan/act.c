/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/act.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/thread.h"

/* Hints are published at most once in 100 ms: what comes right after one is found by a second look. */
enum { EXPIRE_MAX = 500, SOONEST_MS = 5, ECHO_MS = 110 };

/* The monotonic moment of a time of Postgres; 0: none. Never further away than the usual look. */
static void look_by(struct act *a, int64_t due_us, int64_t now_us)
{
    if (due_us == 0)
        return;
    int64_t left_ms = (due_us - now_us) / US_PER_MS + 1;
    if (left_ms < SOONEST_MS)
        left_ms = SOONEST_MS;
    const int64_t at_ns = clock_deadline(left_ms);
    if (at_ns < a->look_ns)
        a->look_ns = at_ns;
}

static void plan_if_needed(struct act *a, const struct run_look *look)
{
    bool plan = look->entered != a->entered;

    a->entered = look->entered;
    if (a->plan_ns != 0 && clock_mono_ns() >= a->plan_ns)
        plan = true;
    a->plan_ns = look->plan_due_us == 0
                     ? 0
                     : clock_mono_ns() + (look->plan_due_us - look->now_us) * (NS_PER_S / US_PER_S);
    look_by(a, look->plan_due_us, look->now_us);
    if (plan)
        trigger_raise(&a->p->decide, DECIDE_PLAN);
}

static int expire_queued(struct act *a, struct err *e)
{
    int64_t n = EXPIRE_MAX;

    while (n == EXPIRE_MAX) {
        if (run_expire_queued(a->db, a->p->ids, EXPIRE_MAX, &n, e) < 0)
            return -1;
        metric_add(METRIC_JOBS_EXPIRED, n);
    }
    trigger_raise(&a->p->decide, DECIDE_PLAN);
    return 0;
}

static bool is_due(int64_t due_us, int64_t now_us)
{
    return due_us != 0 && due_us <= now_us;
}

int act_look(struct act *a, bool *due, struct err *e)
{
    struct run_look look = { 0 };

    a->look_ns = clock_deadline(LOOK_MS);
    if (run_look(a->db, a->p->ids, &look, e) < 0)
        return -1;
    plan_if_needed(a, &look);
    if (is_due(look.overdue_us, look.now_us) && expire_queued(a, e) < 0)
        return -1;
    *due = is_due(look.claim_due_us, look.now_us) || is_due(look.release_due_us, look.now_us);
    if (!*due) {
        look_by(a, look.claim_due_us, look.now_us);
        look_by(a, look.release_due_us, look.now_us);
    }
    return 0;
}

static int turn(struct act *a, unsigned bits, struct err *e)
{
    const int64_t now_ns = clock_mono_ns();
    const struct conf *conf = a->p->conf;
    bool claim = (bits & ACT_CLAIM) != 0;
    size_t claimed = 0;

    if (now_ns >= a->renew_ns) {
        a->renew_ns = now_ns + conf->planner_claim_ms / 3 * NS_PER_MS;
        if (flight_renew(a->p->flight, a->db, conf->planner_claim_ms, e) < 0)
            return -1;
    }
    if (((bits & ACT_LOOK) != 0 || now_ns >= a->look_ns) && act_look(a, &claim, e) < 0)
        return -1;
    if ((bits & ACT_LOOK) != 0 && a->look_ns > now_ns + ECHO_MS * NS_PER_MS)
        a->look_ns = now_ns + ECHO_MS * NS_PER_MS;
    if (claim && act_claim(a, &claimed, e) < 0)
        return -1;
    if (now_ns >= a->gauges_ns) {
        a->gauges_ns = now_ns + GAUGES_MS * NS_PER_MS;
        if (act_gauges(a, e) < 0)
            return -1;
    }
    if (now_ns >= a->chores_ns) {
        const int64_t sweep_ms = conf->planner_sweep_s * MS_PER_S;
        a->chores_ns = now_ns + (sweep_ms < CHORES_MS ? sweep_ms : CHORES_MS) * NS_PER_MS;
        act_chores(a->p);
    }
    return 0;
}

static int64_t next_of(const struct act *a)
{
    int64_t next = a->look_ns < a->renew_ns ? a->look_ns : a->renew_ns;
    if (a->gauges_ns < next)
        next = a->gauges_ns;
    return a->chores_ns < next ? a->chores_ns : next;
}

/* Names and pools come from Postgres: without it there is nothing to do anyway. */
static void join(struct planner *p, struct db *db)
{
    bool told = false;

    while (!planner_is_stopping(p)) {
        struct err e = ERR_INIT;
        if (planner_join(p, db, &e) == 0)
            return;
        if (!told)
            log_warn(LOG_MSG("waits for postgres"), LOG_S("error", e.msg));
        told = true;
        (void)trigger_wait(&p->act, clock_deadline(LOOK_MS));
    }
}

static void start_others(struct planner *p)
{
    struct err e = ERR_INIT;

    if (thread_start(&p->decide_thread, decide_main, p, "decide", &e) < 0) {
        log_error(LOG_MSG("nobody decides"), LOG_S("error", e.msg));
        return;
    }
    p->decides = true;
    if (!str_empty(p->conf->redis_url)) {
        p->listens = thread_start(&p->listen_thread, listen_main, p, "listen", &e) == 0;
        if (!p->listens)
            log_error(LOG_MSG("nobody listens"), LOG_S("error", e.msg));
    }
}

void *act_main(void *planner)
{
    struct planner *p = planner;
    cleanup_db struct db *db = planner_db(p, "weighbridge-planner/act");
    struct act a = { .p = p, .db = db, .entered = -1 };

    join(p, db);
    if (!planner_is_stopping(p))
        start_others(p);
    while (!planner_is_stopping(p)) {
        struct err e = ERR_INIT;
        const unsigned bits = trigger_wait(&p->act, next_of(&a));
        if (turn(&a, bits, &e) < 0) {
            metric_add(METRIC_ERROR_ACT, 1);
            log_debug(LOG_MSG("postgres does not let us act"), LOG_S("error", e.msg));
        }
        metric_set(METRIC_CREW_RUNNING, (int64_t)crew_running(p->crew));
        metric_set(METRIC_CREW_WAITING, (int64_t)crew_waiting(p->crew));
    }
    return NULL;
}
