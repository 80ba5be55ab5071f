/* SPDX-License-Identifier: Apache-2.0 */
/* planned: asks for the job's machines. The provider is the truth: all machines of an attempt have one name, and the
 * provisioner begins by looking what there is of it, so this may be done again after a crash anywhere. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "plan/asked.h"
#include "plan/outcome.h"
#include "plan/step.h"

enum { TURNS_OF_OTHERS = 5 };

static const struct backoff REQUEUE = { .base_ms = 5000, .cap_ms = 60000 };

static enum step accepted(struct task *t, struct hand *h)
{
    struct land l = LAND_INIT(EV_PROVISIONED);
    const struct land_provision got = step_got(t);

    l.provision = &got;
    l.settles = 1U << INTENT_PROVISION;
    l.error_code = "";
    l.error = "";
    return step_land(t, h, &l, true, FAULT_PROVISION_LAND);
}

/* Later again, in its old place, or never. */
static enum step refused(
    struct task *t, struct hand *h, const struct provision_note *note, const struct err *why)
{
    const bool later = provision_error_retryable(note->error);
    const struct land_provision failed = { .status = "failed", .error = why->msg };
    struct land l = LAND_INIT(later ? EV_REQUEUE : EV_RESOURCE_FAIL);

    l.provision = &failed;
    l.settles = 1U << INTENT_PROVISION;
    l.machines = note->may_exist ? LAND_MACHINES_KEEP : LAND_MACHINES_NONE;
    l.delay_ms = step_backoff_ms(&REQUEUE, t->c.run.failures + 1, note->again_ms);
    l.error_code = provision_error_name(note->error);
    l.error = why->msg;
    l.call_failed = true;
    return step_land(t, h, &l, false, FAULT_PROVISION_LAND);
}

/* Never even tried: this process has no such provisioner. Where it is not the one that it has the pool for, another
 * planner may have it, and gets some turns to take the job up; then, or at once, it is queued again. */
static enum step cannot(struct task *t, struct hand *h, const struct err *why)
{
    const bool ours = strcmp(step_provider(t), step_pool(t)->provisioner->type) == 0;
    const struct retry r = { .before = FAULT_PROVISION_LAND };
    const struct land_provision failed = { .status = "failed", .error = why->msg };
    struct land l = LAND_INIT(EV_REQUEUE);

    log_warn(LOG_MSG("the provisioner cannot be used"), LOG_S("type", step_provider(t)),
        LOG_S("error", why->msg));
    if (!ours && t->c.run.failures < TURNS_OF_OTHERS)
        return step_failed(t, h, "provisioner", why, &r);
    l.provision = &failed;
    l.settles = 1U << INTENT_PROVISION;
    l.machines = t->c.intent.attempts > 0 ? LAND_MACHINES_KEEP : LAND_MACHINES_NONE;
    l.delay_ms = step_backoff_ms(&REQUEUE, t->c.run.failures + 1, 0);
    l.error_code = "provisioner";
    l.error = why->msg;
    l.call_failed = true;
    return step_land(t, h, &l, false, FAULT_PROVISION_LAND);
}

enum step step_provision(struct task *t, struct hand *h)
{
    struct err e = ERR_INIT;
    struct provision_note note = PROVISION_NOTE_INIT;
    struct provision_spec spec;
    struct provisioner *p = NULL;
    char name[PROVISION_NAME_SIZE];

    note.error = PROVISION_ERROR_REFUSED;
    if (step_machines_name(t, name, &e) < 0 || step_spec(t, &spec, &e) < 0)
        return refused(t, h, &note, &e);
    if (hand_provisioner(h, step_provider(t), &p, &e) < 0)
        return cannot(t, h, &e);
    cleanup_asked struct asked asked = ASKED_INIT;
    if (p->ops->wants_job && asked_get(h, t->c.run.id, &asked, &e) < 0)
        return step_hand_back(t, h, MS_PER_S);
    if (step_begin(t, h, FAULT_PROVISION_BEGUN) != 0)
        return STEP_END;
    const struct provision_request request = {
        .name = name, .spec = &spec, .job = p->ops->wants_job ? &asked.hook : NULL
    };
    provision_result_fini(&t->machines);
    t->machines = (struct provision_result)PROVISION_RESULT_INIT;
    int rc = provisioner_provision(p, &request, &t->machines, &note, &e);
    outcome_of_provider(rc, note.error, METRIC_ERROR_PROVISION);
    if (fault_at(FAULT_PROVISION_CALLED, &e) < 0) {
        rc = -1;
        note = (struct provision_note){ .error = PROVISION_ERROR_UNAVAILABLE, .may_exist = true };
    }
    if (rc == 0)
        return accepted(t, h);
    if (rc == 1)
        return note.again_ms == 0 ? STEP_ON : step_hand_back(t, h, note.again_ms);
    if (note.error == PROVISION_ERROR_STOPPED)
        return step_hand_back(t, h, 0);
    return refused(t, h, &note, &e);
}
