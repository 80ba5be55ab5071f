/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/task.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "model/job_deadline.h"
#include "plan/act.h"
#include "plan/asked.h"
#include "plan/step.h"

struct claim_rows *claim_rows_new(void)
{
    struct claim_rows *r = mem_calloc(1, sizeof *r);
    atomic_init(&r->users, 1);
    r->claims = (struct run_claims)RUN_CLAIMS_INIT;
    r->releases = (struct releases)RELEASES_INIT;
    return r;
}

void claim_rows_put(struct claim_rows *r)
{
    if (r == NULL || atomic_fetch_sub(&r->users, 1) > 1)
        return;
    run_claims_free(&r->claims);
    releases_free(&r->releases);
    free(r);
}

static struct task *task_new(struct planner *p, struct claim_rows *rows)
{
    struct task *t = mem_calloc(1, sizeof *t);

    t->planner = p;
    t->rows = rows;
    t->machines = (struct provision_result)PROVISION_RESULT_INIT;
    if (rows != NULL)
        atomic_fetch_add(&rows->users, 1);
    return t;
}

struct task *task_of_job(struct planner *p, struct claim_rows *rows, const struct run_claim *c)
{
    struct task *t = task_new(p, rows);

    t->c = *c;
    t->flight.held.lease_epoch = c->run.lease_epoch;
    (void)str_copy(t->flight.held.id, sizeof t->flight.held.id, c->run.id);
    return t;
}

struct task *task_of_release(struct planner *p, struct claim_rows *rows, const struct release *r)
{
    struct task *t = task_new(p, rows);

    t->flight.is_release = true;
    t->flight.release = *r;
    return t;
}

struct task *task_of_chore(struct planner *p, chore_fn *chore)
{
    struct task *t = task_new(p, NULL);

    t->chore = chore;
    return t;
}

void task_free(struct task *t)
{
    claim_rows_put(t->rows);
    provision_result_fini(&t->machines);
    faults_free(t->faults);
    free(t->batch_id);
    free(t->batch_json);
    free(t->details);
    free(t);
}

int64_t task_now_us(const struct task *t)
{
    return t->rows->now_us + (clock_mono_ns() - t->rows->read_ns) / (NS_PER_S / US_PER_S);
}

/* A step and what counts how long it takes. */
struct kind {
    step_fn *run;
    enum metric took;
    enum metric times;
};
static const struct kind PROVISION = { step_provision, METRIC_TOOK_PROVISION,
    METRIC_TIMES_PROVISION };
static const struct kind WATCH = { step_watch_provision, METRIC_TOOK_WATCH, METRIC_TIMES_WATCH };
static const struct kind SUBMIT = { step_submit, METRIC_TOOK_SUBMIT, METRIC_TIMES_SUBMIT };
static const struct kind POLL = { step_poll, METRIC_TOOK_POLL, METRIC_TIMES_POLL };
static const struct kind CANCEL = { step_cancel, METRIC_TOOK_CANCEL, METRIC_TIMES_CANCEL };
static const struct kind EXPIRE = { step_expire, METRIC_TOOK_EXPIRE, METRIC_TIMES_EXPIRE };

static const struct kind *const STEP_OF_STATE[JOB_STATE__COUNT] = {
    [JOB_PLANNED] = &PROVISION,
    [JOB_RESOURCE_PREPARING] = &WATCH,
    [JOB_SUBMITTING] = &SUBMIT,
    [JOB_SCHEDULING] = &POLL,
    [JOB_VALIDATING] = &POLL,
    [JOB_IN_PROGRESS] = &POLL,
    [JOB_FINALIZING] = &POLL,
    [JOB_CANCELLING] = &CANCEL,
};

/* What is to be done for the job now. An intent to cancel its batch goes before all else. */
static const struct kind *choose(const struct task *t)
{
    const struct job_run *r = &t->c.run;
    const int64_t grace_s = t->planner->conf->planner_expiry_grace_s;

    if (r->state == JOB_CANCELLING ||
        (t->c.intent.id != 0 && t->c.intent.kind == INTENT_CANCEL_BATCH))
        return &CANCEL;
    if (job_overdue(r, task_now_us(t), grace_s) != JOB_EVENT__COUNT)
        return &EXPIRE;
    if (r->state == JOB_SUBMITTING && !str_empty(r->batch_id))
        return &POLL;
    return STEP_OF_STATE[r->state];
}

static enum step take_step(struct task *t, struct hand *h)
{
    const int64_t began_ns = clock_mono_ns();

    if (planner_is_stopping(t->planner) || atomic_load(&t->flight.lost))
        return step_hand_back(t, h, 0);
    const struct kind *kind = choose(t);
    const enum step next = kind->run(t, h);
    metric_add(kind->took, (clock_mono_ns() - began_ns) / (NS_PER_S / US_PER_S));
    metric_add(kind->times, 1);
    return next;
}

static void run_job(struct task *t, struct hand *h)
{
    struct err e = ERR_INIT;
    enum step next = STEP_ON;

    if (t->planner->conf->faults_allow)
        asked_faults(t, h);
    faults_set_job(t->faults);
    if (fault_at(FAULT_CLAIMED, &e) < 0)
        next = step_hand_back(t, h, 0);
    while (next == STEP_ON)
        next = take_step(t, h);
    faults_set_job(NULL);
}

void task_run(void *task, void *hand)
{
    struct task *t = task;
    struct hand *h = hand;

    act_feed(t->planner);
    if (t->chore != NULL) {
        t->chore(t, h);
    } else if (t->flight.is_release) {
        log_set_job(t->flight.release.job_id);
        step_release(t, h);
    } else {
        log_set_job(t->c.run.id);
        run_job(t, h);
    }
    log_set_job(NULL);
    if (t->chore == NULL)
        flight_remove(t->planner->flight, &t->flight);
    task_free(t);
}

void task_return(struct task *t, struct db *db)
{
    struct err e =
        ERR_INIT; /* what cannot be handed back comes back by itself, when its lease ends */

    if (t->chore == NULL && t->flight.is_release)
        (void)!release_hand_back(db, &t->flight.release, &e);
    else if (t->chore == NULL)
        (void)!run_hand_back(db, &t->flight.held, 1, 0, &e);
    if (t->chore == NULL)
        flight_remove(t->planner->flight, &t->flight);
    task_free(t);
}
