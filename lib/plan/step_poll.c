/* SPDX-License-Identifier: Apache-2.0 */
/* A batch runs: reads it, and now and then looks whether the machines still do. Transport errors, 429 and 5xx change
 * nothing. */
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "plan/outcome.h"
#include "plan/step.h"

enum { MISSING_MAX = 3, MACHINES_S = 30 };

static enum step missing(struct task *t, struct hand *h, const struct err *why)
{
    struct land l = LAND_INIT(EV_BATCH_LOST);

    if (t->c.run.lost + 1 < MISSING_MAX) {
        l.event = JOB_EVENT__COUNT;
        l.batch_missing = true;
    }
    l.poll_ms = t->planner->conf->planner_poll_s * MS_PER_S;
    l.error_code = "batch_lost";
    l.error = why->msg;
    return step_land(t, h, &l, false, FAULT_POLL_LAND);
}

/* It answered well, but not about the batch. */
static bool is_nonsense(const struct batch_note *note, const struct err *why)
{
    return note->outcome == BATCH_UNREACHABLE &&
           (note->status / 100 == 2 || why->code == ERR_TOO_LARGE);
}

/* The state stays. An error that is on the job goes with the next good answer, which lands where something has failed. */
static enum step unread(
    struct task *t, struct hand *h, const struct batch_note *note, const struct err *why)
{
    const int64_t poll_ms = t->planner->conf->planner_poll_s * MS_PER_S;
    struct land l = LAND_INIT(JOB_EVENT__COUNT);

    if (note->outcome == BATCH_NOT_FOUND)
        return missing(t, h, why);
    log_debug(LOG_MSG("a batch was not read"), LOG_S("error", why->msg));
    l.poll_ms = note->again_ms > poll_ms ? note->again_ms : poll_ms;
    if (!is_nonsense(note, why) && t->c.run.failures == 0 && t->c.run.lost == 0)
        return step_hand_back(t, h, l.poll_ms);
    l.call_failed = true;
    if (is_nonsense(note, why)) {
        metric_add(METRIC_BATCH_NONSENSE, 1);
        l.error_code = "batch_nonsense";
        l.error = why->msg;
    }
    return step_land(t, h, &l, false, FAULT_POLL_LAND);
}

/* True in about one poll of MACHINES_S, at other moments for other jobs. */
static bool machines_are_due(const struct task *t)
{
    const int64_t every = MACHINES_S / t->planner->conf->planner_poll_s;
    if (every <= 1)
        return true;
    const unsigned char own = (unsigned char)t->c.run.id[UUID_SIZE - 2];
    return (task_now_us(t) / US_PER_S / t->planner->conf->planner_poll_s + own) % every == 0;
}

/* STEP_ON: nothing is known to be wrong with them. */
static enum step look_at_machines(struct task *t, struct hand *h)
{
    static const char WHY[] = "the machines failed or are gone while the batch ran";
    struct provision_note note = PROVISION_NOTE_INIT;
    struct err e = ERR_INIT;

    if (!t->c.run.machines || !machines_are_due(t) || step_ask_machines(t, h, &note, &e) < 0)
        return STEP_ON;
    if (t->machines.status != PROVISION_FAILED && t->machines.status != PROVISION_RELEASED)
        return STEP_ON;
    return step_stop(t, h, EV_MACHINES_LOST, "machines_lost", WHY);
}

enum step step_poll(struct task *t, struct hand *h)
{
    struct batch_note note = BATCH_NOTE_INIT;
    struct err e = ERR_INIT;
    cleanup_batch struct batch b = BATCH_INIT;
    const struct batch_landing how = { .before = FAULT_POLL_LAND, .instead = JOB_EVENT__COUNT };
    enum step next = STEP_ON;

    if (step_read_batch(h, t->c.run.batch_id, &b, &note, &e) < 0)
        return unread(t, h, &note, &e);
    if (batch_status_ended(b.status))
        step_read_end(h, &b);
    else if ((next = look_at_machines(t, h)) != STEP_ON)
        return next;
    return step_land_batch(t, h, &b, &how);
}
