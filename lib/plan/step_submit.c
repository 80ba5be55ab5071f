/* SPDX-License-Identifier: Apache-2.0 */
/* submitting: creates the batch. It may have been created before, by a process that crashed or whose answer was lost, so
 * a repeat looks for it first, and waits a minute until one that is not there may be created again. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/metrics.h"
#include "model/job_deadline.h"
#include "plan/asked.h"
#include "plan/outcome.h"
#include "plan/step.h"
#include "store/intent.h"

/* All that is left to ask for, built from the job and its machines. */
struct body {
    struct asked asked;
    struct batch_create create;
    json_object *runtime;
    json_object *allocation;
    char window[BATCH_WINDOW_SIZE];
};
static void body_fini(struct body *b)
{
    json_object_put(b->allocation);
    json_object_put(b->runtime);
    asked_fini(&b->asked);
}
#define cleanup_body __attribute__((cleanup(body_fini)))

static enum step again(
    struct task *t, struct hand *h, const struct batch_note *note, const struct err *why)
{
    const bool undone = note->outcome == BATCH_DENIED || note->outcome == BATCH_BUSY ||
                        note->outcome == BATCH_UNREACHABLE;
    const struct retry r = {
        .again_ms = note->again_ms,
        .undone = undone ? 1U << INTENT_CREATE_BATCH : 0,
        .before = FAULT_SUBMIT_LAND,
    };
    if (note->outcome == BATCH_STOPPED)
        return step_hand_back(t, h, 0);
    return step_failed(t, h, batch_outcome_name(note->outcome), why, &r);
}

static enum step fail(struct task *t, struct hand *h, const char *code, const char *why)
{
    struct land l = LAND_INIT(EV_SUBMIT_FAIL);

    l.error_code = code;
    l.error = why;
    l.settles = 1U << INTENT_CREATE_BATCH;
    return step_land(t, h, &l, false, FAULT_SUBMIT_LAND);
}

static enum step created(struct task *t, struct hand *h, const struct batch *b)
{
    const struct batch_landing how = {
        .before = FAULT_SUBMIT_LAND,
        .settles = 1U << INTENT_CREATE_BATCH,
        .instead = JOB_EVENT__COUNT,
    };
    return step_land_batch(t, h, b, &how);
}

/* Cancels what a service that does not look at job ids made besides: asked for once the job has its own. */
static void end_others(struct task *t, struct hand *h, const struct found *f)
{
    for (size_t i = 0; i < f->search.n; i++) {
        const struct batch *b = &f->search.batch[i];
        struct err e = ERR_INIT;
        if (b != f->oldest && !batch_status_ended(b->status) &&
            stray_batch_open(h->db, t->c.run.id, b->id, &e) < 0)
            log_warn(LOG_MSG("a duplicate batch is left to the next sweep"), LOG_S("batch", b->id),
                LOG_S("error", e.msg));
    }
    if (f->search.n > 1)
        trigger_raise(&t->planner->act, ACT_LOOK);
}

/* A creation was begun before: the oldest that there is is the job's. STEP_ON: there is none, and it may be created. */
static enum step reconcile(struct task *t, struct hand *h)
{
    cleanup_found struct found f;

    if (step_find(t, h, &f) < 0)
        return again(t, h, &f.note, &f.e);
    if (f.oldest == NULL)
        return f.wait_ms > 0 ? step_hand_back(t, h, f.wait_ms) : STEP_ON;
    log_info(LOG_MSG("the batch was there already"), LOG_S("batch", f.oldest->id),
        LOG_I("found", f.search.n));
    const enum step next = created(t, h, f.oldest);
    end_others(t, h, &f);
    return next;
}

static int build(struct task *t, struct hand *h, struct body *b, struct err *e)
{
    const struct provision_hooks hooks = step_hooks(t);
    struct provision_window w = { 0 };
    struct provision_spec spec;

    if (asked_get(h, t->c.run.id, &b->asked, e) < 0)
        return -1;
    asked_batch(&b->asked, &b->create);
    if (step_spec(t, &spec, e) < 0 ||
        hooks.allocation_time_window(&b->asked.hook, &t->machines, &w, e) < 0 ||
        hooks.build_runtime(&b->asked.hook, &t->machines, &b->runtime, e) < 0 ||
        hooks.build_resource_allocation(
            &b->asked.hook, &spec, t->c.provision.id, &b->allocation, e) < 0)
        return -1;
    const int64_t minutes =
        job_minutes_left(b->asked.job->window_minutes, w.end_us, task_now_us(t));
    if (minutes < 1)
        return err_set(e, ERR_CONFLICT, "less than a minute of the allocation is left");
    batch_window_text(minutes, b->window);
    b->create.runtime = b->runtime;
    b->create.resource_allocation = b->allocation;
    b->create.completion_window = b->window;
    return 0;
}

static enum step create(struct task *t, struct hand *h, const struct body *body)
{
    struct batch_client *c = NULL;
    struct batch_note note = BATCH_NOTE_INIT;
    struct err e = ERR_INIT;
    cleanup_batch struct batch b = BATCH_INIT;

    if (hand_batch(h, &c, &e) < 0) {
        note.outcome = BATCH_UNREACHABLE;
        return again(t, h, &note, &e);
    }
    if (step_begin(t, h, FAULT_SUBMIT_BEGUN) != 0)
        return STEP_END;
    int rc = batch_client_create(c, &body->create, &b, &note, &e);
    outcome_of_batch(note.outcome, METRIC_ERROR_SUBMIT);
    if (fault_at(FAULT_SUBMIT_CALLED, &e) < 0) {
        note.outcome = BATCH_UNSURE;
        rc = -1;
    }
    if (rc == 0)
        return created(t, h, &b);
    if (note.outcome == BATCH_REFUSED)
        return fail(t, h, "batch_refused", e.msg);
    return again(t, h, &note, &e);
}

/* Gone before there was a batch to cancel. */
static enum step lost(struct task *t, struct hand *h)
{
    const struct land_provision got = step_got(t);
    struct land l = LAND_INIT(EV_MACHINES_LOST);

    l.provision = &got;
    l.settles = 1U << INTENT_CREATE_BATCH;
    l.error_code = "machines_lost";
    l.error = "the machines failed or are gone";
    return step_land(t, h, &l, false, FAULT_SUBMIT_LAND);
}

static bool machines_run(struct task *t, struct hand *h, enum step *otherwise)
{
    struct provision_note note = PROVISION_NOTE_INIT;
    struct err e = ERR_INIT;

    if (t->machines.details == NULL && step_ask_machines(t, h, &note, &e) < 0) {
        const struct retry r = { .again_ms = note.again_ms, .before = FAULT_SUBMIT_LAND };
        *otherwise = step_failed(t, h, provision_error_name(note.error), &e, &r);
        return false;
    }
    if (t->machines.status == PROVISION_RUNNING)
        return true;
    if (t->machines.status == PROVISION_PENDING || t->machines.status == PROVISION_PROVISIONING)
        *otherwise = step_hand_back(t, h, t->planner->conf->planner_poll_s * MS_PER_S);
    else
        *otherwise = lost(t, h);
    return false;
}

enum step step_submit(struct task *t, struct hand *h)
{
    cleanup_body struct body body = { .asked = ASKED_INIT };
    struct err e = ERR_INIT;
    enum step next = STEP_ON;

    if (t->c.intent.attempts > 0 && (next = reconcile(t, h)) != STEP_ON)
        return next;
    if (!machines_run(t, h, &next))
        return next;
    if (build(t, h, &body, &e) < 0) {
        if (e.code == ERR_CONFLICT)
            return fail(t, h, "allocation_ends", e.msg);
        if (e.code == ERR_INVALID)
            return fail(t, h, "runtime", e.msg);
        return step_hand_back(t, h, MS_PER_S);
    }
    return create(t, h, &body);
}
