/* SPDX-License-Identifier: Apache-2.0 */
/* Takes back what is outside: for a job that its user cancelled, and for one that is to end otherwise (its deadline, its
 * machines) once its batch was cancelled: then the intent says what it becomes. A service out of reach keeps a cancelled
 * job cancelling; a job whose machines are lost or whose time is over waits ten minutes for it. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "json/jx.h"
#include "plan/outcome.h"
#include "plan/step.h"

enum {
    MISSING_MAX = 3,
    LOOK_AGAIN_MS = 1000,
    LOOK_FOR_MS = 5000,
    THEN_WAIT_S = 600,
    PAYLOAD_MAX = 65536
};

/* What a job becomes after its batch was cancelled, from the intent. */
struct then {
    enum job_event event; /* JOB_EVENT__COUNT: its user cancelled */
    const char *code;
    const char *message;
    json_object *payload;
};
static void then_fini(struct then *x)
{
    json_object_put(x->payload);
}
#define cleanup_then __attribute__((cleanup(then_fini)))

static void then_read(const struct task *t, struct then *out)
{
    static const enum job_event KNOWN[] = { EV_RUN_EXPIRE, EV_MACHINES_LOST };
    const char *text = t->c.intent.payload_json;
    const char *word = "";
    struct err ignored = ERR_INIT;

    *out = (struct then){ .event = JOB_EVENT__COUNT, .code = "", .message = "" };
    if (t->c.run.state == JOB_CANCELLING || t->c.intent.kind != INTENT_CANCEL_BATCH ||
        str_empty(text) || jx_parse(text, strlen(text), PAYLOAD_MAX, &out->payload, &ignored) < 0)
        return;
    (void)jx_get_str(out->payload, "then", &word);
    (void)jx_get_str(out->payload, "code", &out->code);
    (void)jx_get_str(out->payload, "message", &out->message);
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
        if (strcmp(word, job_event_name(KNOWN[i])) == 0)
            out->event = KNOWN[i];
    }
}

/* Nothing is left at the batch service, or never was. Machines of a launch that was never begun do not exist. */
static enum step cleaned_up(struct task *t, struct hand *h, const struct then *then)
{
    const bool user = then->event == JOB_EVENT__COUNT;
    struct land l = LAND_INIT(user ? EV_CLEANED_UP : then->event);

    l.settles = 1U << INTENT_PROVISION | 1U << INTENT_CREATE_BATCH | 1U << INTENT_CANCEL_BATCH;
    if (t->c.intent.id != 0 && t->c.intent.kind == INTENT_PROVISION && t->c.intent.attempts == 0)
        l.machines = LAND_MACHINES_NONE;
    if (!user) {
        l.error_code = then->code;
        l.error = then->message;
    }
    return step_land(t, h, &l, false, FAULT_CANCEL_LAND);
}

/* The creation of a batch was begun, and what came of it is not known. */
static enum step find(struct task *t, struct hand *h, const struct then *then)
{
    cleanup_found struct found f;
    struct land l = LAND_INIT(JOB_EVENT__COUNT);

    if (step_find(t, h, &f) < 0) {
        const struct retry r = { .again_ms = f.note.again_ms, .before = FAULT_CANCEL_LAND };
        return step_failed(t, h, batch_outcome_name(f.note.outcome), &f.e, &r);
    }
    if (f.oldest == NULL && f.wait_ms > 0)
        return step_hand_back(t, h, f.wait_ms < LOOK_FOR_MS ? f.wait_ms : LOOK_FOR_MS);
    if (f.oldest == NULL)
        return cleaned_up(t, h, then);
    l.batch_id = f.oldest->id;
    l.settles = 1U << INTENT_CREATE_BATCH;
    return step_land(t, h, &l, true, FAULT_CANCEL_LAND);
}

/* It has ended: as it says, which may be that it was done before the cancel took effect. */
static enum step ended(struct task *t, struct hand *h, struct batch *b, const struct then *then)
{
    struct batch_landing how = {
        .before = FAULT_CANCEL_LAND,
        .settles = 1U << INTENT_CANCEL_BATCH,
        .instead = JOB_EVENT__COUNT,
    };

    step_read_end(h, b);
    if (b->status == BATCH_CANCELLED && then->event != JOB_EVENT__COUNT) {
        how.instead = then->event;
        how.code = then->code;
        how.error = then->message;
    }
    return step_land_batch(t, h, b, &how);
}

/* Whoever waits for a service that does not end the batch, or does not answer, waits so long and no longer. */
static bool waited_enough(const struct task *t, const struct then *then)
{
    return then->event != JOB_EVENT__COUNT &&
           task_now_us(t) - t->c.intent.created_us > THEN_WAIT_S * US_PER_S;
}

static enum step failed(struct task *t, struct hand *h, const struct then *then,
    const struct batch_note *note, const struct err *why)
{
    struct retry r = { .again_ms = note->again_ms, .before = FAULT_CANCEL_LAND };

    if (note->outcome == BATCH_STOPPED)
        return step_hand_back(t, h, 0);
    r.batch_missing = note->outcome == BATCH_NOT_FOUND;
    if (waited_enough(t, then) || (r.batch_missing && t->c.run.lost + 1 >= MISSING_MAX))
        return cleaned_up(t, h, then);
    return step_failed(t, h, batch_outcome_name(note->outcome), why, &r);
}

static int tell_service(
    struct hand *h, const char *id, struct batch *b, struct batch_note *note, struct err *e)
{
    struct batch_client *c = NULL;

    if (hand_batch(h, &c, e) < 0) {
        note->outcome = BATCH_UNREACHABLE;
        return -1;
    }
    int rc = batch_client_cancel(c, id, b, note, e);
    outcome_of_batch(note->outcome, METRIC_ERROR_CANCEL);
    if (fault_at(FAULT_CANCEL_CALLED, e) < 0) {
        note->outcome = BATCH_UNSURE;
        rc = -1;
    }
    /* It cannot be cancelled any more: what it is now tells more than that. */
    if (rc < 0 && note->outcome == BATCH_CONFLICT)
        return step_read_batch(h, id, b, note, e);
    return rc;
}

static enum step still_there(
    struct task *t, struct hand *h, const struct batch *b, const struct then *then)
{
    log_debug(LOG_MSG("the batch is being cancelled"), LOG_S("status", b->status_word));
    return waited_enough(t, then) ? cleaned_up(t, h, then) : step_hand_back(t, h, LOOK_AGAIN_MS);
}

/* Told before, it may have ended meanwhile; otherwise it is told (again). */
static enum step cancel_batch(struct task *t, struct hand *h, const struct then *then)
{
    const bool has_intent = t->c.intent.id != 0 && t->c.intent.kind == INTENT_CANCEL_BATCH;
    const char *id = t->c.run.batch_id;
    struct batch_note note = BATCH_NOTE_INIT;
    struct err e = ERR_INIT;
    cleanup_batch struct batch b = BATCH_INIT;

    if (!has_intent || t->c.intent.attempts > 0) {
        if (step_read_batch(h, id, &b, &note, &e) < 0)
            return failed(t, h, then, &note, &e);
        if (batch_status_ended(b.status))
            return ended(t, h, &b, then);
        if (!has_intent || b.status == BATCH_CANCELLING)
            return still_there(t, h, &b, then);
        batch_fini(&b);
        b = (struct batch)BATCH_INIT;
    }
    if (step_begin(t, h, FAULT_CANCEL_BEGUN) != 0)
        return STEP_END;
    if (tell_service(h, id, &b, &note, &e) < 0)
        return failed(t, h, then, &note, &e);
    return batch_status_ended(b.status) ? ended(t, h, &b, then) : still_there(t, h, &b, then);
}

enum step step_cancel(struct task *t, struct hand *h)
{
    cleanup_then struct then then;

    then_read(t, &then);
    if (!str_empty(t->c.run.batch_id))
        return cancel_batch(t, h, &then);
    if (t->c.intent.id != 0 && t->c.intent.kind == INTENT_CREATE_BATCH && t->c.intent.attempts > 0)
        return find(t, h, &then);
    return cleaned_up(t, h, &then);
}

enum step step_stop(
    struct task *t, struct hand *h, enum job_event then, const char *code, const char *why)
{
    struct err e = ERR_INIT;
    int rc = fault_at(FAULT_STOP_LAND, &e);

    if (rc == 0)
        rc = land_stop(h->db, &t->c.run, then, code, why, &e);
    if (rc == 0)
        rc = fault_at(FAULT_STOP_LANDED, &e);

    log_warn(LOG_MSG("the batch is to be cancelled"), LOG_S("why", why),
        LOG_S("error", rc < 0 ? e.msg : ""));
    return step_hand_back(t, h, rc == 0 ? 0 : LOOK_AGAIN_MS); /* due at once, with its new intent */
}
