/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "plan/act.h"
#include "plan/task.h"

enum {
    PENDING = 1U << JOB_PLANNED | 1U << JOB_RESOURCE_PREPARING | 1U << JOB_SUBMITTING,
    RUNNING = 1U << JOB_SCHEDULING | 1U << JOB_VALIDATING | 1U << JOB_IN_PROGRESS |
              1U << JOB_FINALIZING | 1U << JOB_CANCELLING,
};

/* To the crew, unless this process works on the same job already: its lease was lost and came back. */
static void hand_out(struct act *a, struct task *t)
{
    if (!flight_add(a->p->flight, &t->flight)) {
        metric_add(METRIC_CREW_DOUBLE, 1);
        task_free(t);
    } else if (crew_submit(a->p->crew, t) != 0) {
        metric_add(METRIC_CREW_REFUSED, 1);
        task_return(t, a->db);
    }
}

static struct run_ask ask_of(struct act *a, unsigned states)
{
    const int64_t room = (int64_t)crew_room(a->p->crew);
    return (struct run_ask){
        .pools = a->p->ids,
        .states = states,
        .owner = a->p->owner,
        .limit = room < a->claim_max ? room : a->claim_max,
        .lease_ms = a->p->conf->planner_claim_ms,
    };
}

/* One claim. 1: there may be more. */
static int claim_jobs(struct act *a, unsigned states, size_t *claimed, struct err *e)
{
    const struct run_ask ask = ask_of(a, states);
    struct claim_rows *rows = claim_rows_new();
    struct run_claims *got = &rows->claims;

    const int rc = ask.limit > 0 ? run_claim(a->db, &ask, got, e) : 0;
    rows->read_ns = clock_mono_ns();
    rows->now_us = got->now_us;
    for (size_t i = 0; i < got->n; i++)
        hand_out(a, task_of_job(a->p, rows, &got->claim[i]));
    const bool more = got->n > 0 && (int64_t)got->n == ask.limit;
    *claimed += got->n;
    claim_rows_put(rows);
    return rc < 0 ? -1 : more;
}

static int claim_releases(struct act *a, size_t *claimed, struct err *e)
{
    const struct run_ask ask = ask_of(a, 0);
    struct claim_rows *rows = claim_rows_new();
    struct releases *got = &rows->releases;

    const int rc = ask.limit > 0 ? release_claim(a->db, &ask, got, e) : 0;
    rows->read_ns = clock_mono_ns();
    rows->now_us = got->now_us;
    for (size_t i = 0; i < got->n; i++)
        hand_out(a, task_of_release(a->p, rows, &got->release[i]));
    const bool more = got->n > 0 && (int64_t)got->n == ask.limit;
    *claimed += got->n;
    claim_rows_put(rows);
    return rc < 0 ? -1 : more;
}

static bool has_room(struct planner *p)
{
    const size_t half = (size_t)p->conf->planner_queue / 2;
    return crew_room(p->crew) >= (half > 0 ? half : 1);
}

/* Each claim walks all live rows, however few it takes: not for a handful. */
static bool may_claim(struct planner *p)
{
    if (has_room(p))
        return true;
    atomic_store(&p->hungry, true);
    /* Who made room meanwhile may not have seen that. */
    if (has_room(p) && atomic_exchange(&p->hungry, false))
        return true;
    metric_add(METRIC_CREW_REFUSED, 1);
    return false;
}

void act_feed(struct planner *p)
{
    if (atomic_load(&p->hungry) && has_room(p) && atomic_exchange(&p->hungry, false))
        trigger_raise(&p->act, ACT_CLAIM);
}

int act_claim(struct act *a, size_t *claimed, struct err *e)
{
    bool more = true;

    *claimed = 0;
    a->claim_max = RUN_CLAIM_USUAL;
    while (more && !planner_is_stopping(a->p)) {
        if (!may_claim(a->p))
            return 0;
        a->running_first = !a->running_first;
        const int first = claim_jobs(a, a->running_first ? RUNNING : PENDING, claimed, e);
        const int second =
            first < 0 ? -1 : claim_jobs(a, a->running_first ? PENDING : RUNNING, claimed, e);
        const int third = second < 0 ? -1 : claim_releases(a, claimed, e);
        if (third < 0)
            return -1;
        more = first + second + third > 0;
        a->claim_max = RUN_CLAIM_MAX;
    }
    return 0;
}
