/* SPDX-License-Identifier: Apache-2.0 */
/* Gives an attempt's machines back, or ends a batch that belongs to no job: tried for ever, and visible until it is
 * done. */
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "plan/outcome.h"
#include "plan/step.h"

static const struct backoff RETRY = { .base_ms = 2000, .cap_ms = 300000 };

/* Of another planner's provisioner: whoever has it gets a turn soon. */
static const struct backoff NOT_OURS = { .base_ms = 2000, .cap_ms = 10000 };

static const char *provider_of(const struct task *t)
{
    const struct plan_pool *pool = planner_pool(t->planner, t->flight.release.pool_id);
    return str_empty(t->flight.release.provider) && pool != NULL ? pool->provisioner->type
                                                                 : t->flight.release.provider;
}

/* 0 done, 1 go on later, -1. */
static int give_back(struct task *t, struct hand *h, struct provision_note *note, struct err *e)
{
    const struct release *r = &t->flight.release;
    struct provisioner *p = NULL;
    char name[PROVISION_NAME_SIZE];

    if (provision_name(t->planner->cluster, r->job_id, (int)r->attempt, name, e) < 0 ||
        hand_provisioner(h, provider_of(t), &p, e) < 0 || fault_at(FAULT_RELEASE_CALL, e) < 0)
        return -1;
    int rc = provisioner_release(p, name, note, e);
    outcome_of_provider(rc, note->error, METRIC_ERROR_RELEASE);
    return rc >= 0 && fault_at(FAULT_RELEASE_CALLED, e) < 0 ? -1 : rc;
}

/* A batch that is not its job's: told to end until it has, or is known no more. */
static int end_batch(struct task *t, struct hand *h, struct provision_note *note, struct err *e)
{
    const char *id = t->flight.release.batch_id;
    struct batch_client *c = NULL;
    struct batch_note said = BATCH_NOTE_INIT;
    cleanup_batch struct batch b = BATCH_INIT;

    if (hand_batch(h, &c, e) < 0 || fault_at(FAULT_RELEASE_CALL, e) < 0)
        return -1;
    int rc = batch_client_cancel(c, id, &b, &said, e);
    outcome_of_batch(said.outcome, METRIC_ERROR_RELEASE);
    note->again_ms = said.again_ms;
    if (said.outcome == BATCH_NOT_FOUND)
        return 0;
    if (said.outcome == BATCH_CONFLICT) /* it ends by itself */
        rc = 0;
    if (rc == 0)
        metric_add(METRIC_STRAY_BATCHES, 1);
    return rc == 0 && fault_at(FAULT_RELEASE_CALLED, e) < 0 ? -1 : rc;
}

/* How long until what was launched under the name has turned up, whether its launch was answered, lost, or its planner
 * killed: 0 when all there is has been given back now. */
static int64_t late_ms(const struct task *t)
{
    const struct release *r = &t->flight.release;
    const struct provisioner_ops *ops = provisioner_find(provider_of(t));

    if (r->kind != INTENT_RELEASE || r->launched_us == 0 || ops == NULL || !ops->late)
        return 0;
    const int64_t at_us = r->launched_us + t->planner->conf->planner_launch_wait_s * US_PER_S;
    const int64_t left_us = at_us - task_now_us(t);
    return left_us > 0 ? left_us / US_PER_MS + 1 : 0;
}

static int64_t retry_ms(const struct task *t, struct hand *h, const struct provision_note *note)
{
    const struct release *r = &t->flight.release;
    struct provisioner *p = NULL;
    struct err ignored = ERR_INIT;
    const bool not_ours =
        r->kind == INTENT_RELEASE && hand_provisioner(h, provider_of(t), &p, &ignored) < 0;

    return step_backoff_ms(not_ours ? &NOT_OURS : &RETRY, r->tries, note->again_ms);
}

void step_release(struct task *t, struct hand *h)
{
    const struct release *r = &t->flight.release;
    struct provision_note note = PROVISION_NOTE_INIT;
    struct err e = ERR_INIT;
    struct err why = ERR_INIT;
    const int64_t began_ns = clock_mono_ns();

    int rc =
        r->kind == INTENT_STRAY_BATCH ? end_batch(t, h, &note, &why) : give_back(t, h, &note, &why);
    metric_add(METRIC_TOOK_RELEASE, (clock_mono_ns() - began_ns) / (NS_PER_S / US_PER_S));
    metric_add(METRIC_TIMES_RELEASE, 1);
    if (fault_at(FAULT_RELEASE_LAND, &e) < 0)
        return;
    if (rc == 0 && (note.again_ms = late_ms(t)) > 0)
        rc = 1;
    if (rc == 0)
        rc = release_done(h->db, r, &e);
    else
        rc = release_retry(h->db, r, why.msg, rc == 1 ? note.again_ms : retry_ms(t, h, &note), &e);
    if (rc >= 0 && fault_at(FAULT_RELEASE_LANDED, &e) < 0)
        rc = -1;
    if (why.code != ERR_OK)
        log_warn(LOG_MSG("not given back yet"), LOG_S("machines", r->provision_key),
            LOG_S("batch", r->batch_id), LOG_I("tries", r->tries), LOG_S("error", why.msg));
    if (rc < 0)
        log_warn(LOG_MSG("a release was not recorded"), LOG_S("error", e.msg));
    else if (rc == 0 && why.code == ERR_OK)
        hand_wake(h, "released");
}
