/* SPDX-License-Identifier: Apache-2.0 */
/* A deadline has passed. A batch is cancelled first, so that it keeps what it has done so far. */
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "model/job_deadline.h"
#include "plan/step.h"

static enum step expire(struct task *t, struct hand *h, enum job_event event, const char *why)
{
    struct land l = LAND_INIT(event);

    l.settles = 1U << INTENT_PROVISION | 1U << INTENT_CREATE_BATCH;
    if (t->c.intent.id != 0 && t->c.intent.kind == INTENT_PROVISION && t->c.intent.attempts == 0)
        l.machines = LAND_MACHINES_NONE;
    l.error_code = job_event_name(event);
    l.error = why;
    return step_land(t, h, &l, false, FAULT_EXPIRE_LAND);
}

/* A creation was begun: if there is a batch it is the job's. A service that cannot be asked does not keep machines: what
 * it made all the same is found by a sweep. STEP_ON: none is known. */
static enum step find(struct task *t, struct hand *h)
{
    cleanup_found struct found f;
    struct land l = LAND_INIT(JOB_EVENT__COUNT);

    if (step_find(t, h, &f) < 0) {
        log_warn(LOG_MSG("expires without knowing of its batch"), LOG_S("error", f.e.msg));
        return f.note.outcome == BATCH_STOPPED ? step_hand_back(t, h, 0) : STEP_ON;
    }
    if (f.oldest == NULL)
        return STEP_ON;
    l.batch_id = f.oldest->id;
    l.settles = 1U << INTENT_CREATE_BATCH;
    return step_land(t, h, &l, false, FAULT_EXPIRE_LAND); /* due at once, with its batch */
}

enum step step_expire(struct task *t, struct hand *h)
{
    const struct job_run *r = &t->c.run;
    enum step next = STEP_ON;

    if (job_overdue(r, task_now_us(t), t->planner->conf->planner_expiry_grace_s) == EV_QUEUE_EXPIRE)
        return expire(t, h, EV_QUEUE_EXPIRE, "no machines were ready by the queue deadline");
    if (!str_empty(r->batch_id))
        return step_stop(t, h, EV_RUN_EXPIRE, "run_expire", "not done by its deadline");
    if (t->c.intent.id != 0 && t->c.intent.kind == INTENT_CREATE_BATCH && t->c.intent.attempts > 0)
        next = find(t, h);
    return next == STEP_ON ? expire(t, h, EV_RUN_EXPIRE, "no batch by its deadline") : next;
}
