/* SPDX-License-Identifier: Apache-2.0 */
/* resource_preparing: waits until the machines run and their time window has begun, then lets the batch be created. */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "json/jx.h"
#include "model/job_deadline.h"
#include "plan/asked.h"
#include "plan/step.h"

enum { TIMEOUTS_MAX = 3, WINDOW_LOOK_MS = 60000 };

static const struct backoff REQUEUE = { .base_ms = 1000, .cap_ms = 60000 };
static const struct backoff NO_ROOM = { .base_ms = 5000, .cap_ms = 60000 };

/* The machines were refused, have failed or are gone, or cannot serve the job. */
static enum step failed(struct task *t, struct hand *h, const char *code, const char *why)
{
    const struct land_provision got = step_got(t);
    struct land l = LAND_INIT(EV_RESOURCE_FAIL);

    l.provision = &got;
    l.error_code = code;
    l.error = why;
    return step_land(t, h, &l, false, FAULT_WATCH_LAND);
}

/* There is no room for them after all: given back, and tried again in the job's old place. */
static enum step no_room(
    struct task *t, struct hand *h, const struct provision_note *note, const struct err *why)
{
    struct land l = LAND_INIT(EV_REQUEUE);

    l.delay_ms = step_backoff_ms(&NO_ROOM, t->c.run.failures + 1, note->again_ms);
    l.error_code = provision_error_name(note->error);
    l.error = why->msg;
    l.call_failed = true;
    return step_land(t, h, &l, false, FAULT_WATCH_LAND);
}

/* Not ready in time: given back, and queued again, three times at most. */
static enum step timed_out(struct task *t, struct hand *h)
{
    const bool again = t->c.run.timeouts + 1 < TIMEOUTS_MAX;
    const struct land_provision got = step_got(t);
    struct land l = LAND_INIT(again ? EV_REQUEUE : EV_RESOURCE_FAIL);

    l.provision = &got;
    l.timed_out = true;
    l.delay_ms = step_backoff_ms(&REQUEUE, t->c.run.timeouts + 1, 0);
    l.error_code = "provision_timeout";
    l.error = "the machines did not become ready in time";
    return step_land(t, h, &l, false, FAULT_WATCH_LAND);
}

/* Of the time that the machines may take. */
static int64_t ready_left_ms(const struct task *t)
{
    const int64_t waited_us = task_now_us(t) - t->c.run.state_us;
    return (step_ready_us(t) - waited_us) / US_PER_MS + 1;
}

/* The provider could not be asked: transport errors, 429 and 5xx change nothing. Nor does it that this process has no
 * such provisioner: another may have, until the time to get ready is over. */
static enum step unasked(
    struct task *t, struct hand *h, const struct provision_note *note, const struct err *why)
{
    const struct retry r = { .again_ms = note->again_ms, .before = FAULT_WATCH_LAND };

    if (note->error == PROVISION_ERROR_STOPPED)
        return step_hand_back(t, h, 0);
    if (!step_serves(t, h) && ready_left_ms(t) <= 1)
        return timed_out(t, h);
    if (note->error == PROVISION_ERROR_NO_CAPACITY)
        return no_room(t, h, note, why);
    if (!provision_error_retryable(note->error))
        return failed(t, h, provision_error_name(note->error), why->msg);
    return step_failed(t, h, provision_error_name(note->error), why, &r);
}

/* Due again in delay_ms; what was told is written down if it is new. */
static enum step wait(struct task *t, struct hand *h, int64_t delay_ms)
{
    const struct land_provision got = step_got(t);
    struct land l = LAND_INIT(JOB_EVENT__COUNT);

    if (strcmp(got.status, t->c.provision.status) == 0 &&
        step_same_json(got.details_json, t->c.provision.details_json))
        return step_hand_back(t, h, delay_ms);
    l.provision = &got;
    l.poll_ms = delay_ms;
    return step_land(t, h, &l, false, FAULT_WATCH_LAND);
}

static enum step not_ready(struct task *t, struct hand *h, const struct provision_note *note)
{
    const int64_t left_ms = ready_left_ms(t);
    int64_t delay_ms = t->planner->conf->planner_poll_s * MS_PER_S;

    if (left_ms <= 1)
        return timed_out(t, h);
    if (delay_ms < note->again_ms)
        delay_ms = note->again_ms;
    return wait(t, h, delay_ms < left_ms ? delay_ms : left_ms);
}

static enum step no_service(struct task *t, struct hand *h)
{
    struct err why = ERR_INIT;
    const struct retry r = { .before = FAULT_WATCH_LAND };
    (void)err_set(&why, ERR_UNAVAILABLE,
        "the machines are ready, but no batch service is configured ([batch] url)");
    return step_failed(t, h, "no_batch_service", &why, &r);
}

static enum step may_submit(
    struct task *t, struct hand *h, const struct asked *a, const struct provision_window *w)
{
    const struct land_provision got = step_got(t);
    struct land l = LAND_INIT(EV_SUBMIT);

    l.provision = &got;
    l.expires_us = w->end_us;
    l.error_code = "";
    l.error = "";
    if (job_minutes_left(a->job->window_minutes, w->end_us, task_now_us(t)) < 1) {
        l.event = EV_SUBMIT_FAIL;
        l.error_code = "allocation_ends";
        l.error = "less than a minute of the allocation is left";
        return step_land(t, h, &l, false, FAULT_WATCH_LAND);
    }
    return step_land(t, h, &l, true, FAULT_WATCH_LAND);
}

static enum step ready(struct task *t, struct hand *h)
{
    const struct provision_hooks hooks = step_hooks(t);
    struct err e = ERR_INIT;
    cleanup_asked struct asked a = ASKED_INIT;
    cleanup_json json_object *runtime = NULL;
    struct provision_window w = { 0 };

    if (asked_get(h, t->c.run.id, &a, &e) < 0)
        return step_hand_back(t, h, MS_PER_S);
    const int rc = hooks.allocation_time_window(&a.hook, &t->machines, &w, &e);
    if (rc < 0 || hooks.build_runtime(&a.hook, &t->machines, &runtime, &e) < 0)
        return failed(t, h, "runtime", e.msg);
    const int64_t until_ms = (w.start_us - task_now_us(t)) / US_PER_MS;
    if (until_ms > 0)
        return wait(t, h, until_ms < WINDOW_LOOK_MS ? until_ms : WINDOW_LOOK_MS);
    if (str_empty(t->planner->conf->batch_url))
        return no_service(t, h);
    return may_submit(t, h, &a, &w);
}

enum step step_watch_provision(struct task *t, struct hand *h)
{
    struct err e = ERR_INIT;
    struct provision_note note = PROVISION_NOTE_INIT;

    if (t->machines.details == NULL && step_ask_machines(t, h, &note, &e) < 0)
        return unasked(t, h, &note, &e);
    switch (t->machines.status) {
    case PROVISION_RUNNING:
        return ready(t, h);
    case PROVISION_PENDING:
    case PROVISION_PROVISIONING:
        return not_ready(t, h, &note);
    case PROVISION_FAILED:
    case PROVISION_RELEASING:
    case PROVISION_RELEASED:
    case PROVISION_RELEASE_FAILED:
    case PROVISION_STATUS__COUNT:
        break;
    }
    return failed(t, h, "provision_failed", "the machines failed or are gone");
}
