/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/step.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "json/jx.h"
#include "plan/outcome.h"

enum { LAND_MS = 8000, LAND_PAUSE_MS = 100, JSON_MAX = 1 << 20, WHY_SIZE = 256 };

static const struct backoff FAILED = { .base_ms = 1000, .cap_ms = 60000 };

const struct plan_pool *step_pool(const struct task *t)
{
    const struct plan_pool *pool = planner_pool(t->planner, t->c.run.pool_id);
    assert(pool != NULL);
    return pool;
}

/* Postgres may be restarting: what was done outside is worth some patience, while the lease lasts. A commit whose
 * answer was lost shows as superseded when it is tried again. */
static int land_patiently(struct task *t, struct hand *h, const struct land *l, bool keep,
    struct landed *out, struct err *e)
{
    const int64_t deadline_ns = clock_deadline(LAND_MS);

    for (;;) {
        const int rc = land(h->db, &t->c.run, l, keep, out, e);
        const bool again =
            e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT || e->code == ERR_CONFLICT;
        if (rc >= 0 || !again || clock_mono_ns() > deadline_ns)
            return rc;
        metric_add(METRIC_LANDINGS_REPEATED, 1);
        (void)poll(NULL, 0, LAND_PAUSE_MS);
    }
}

/* The task's own copies of what the row now holds. */
static void take_texts(struct task *t, const struct land *l)
{
    if (l->batch_id != NULL) {
        mem_replace(&t->batch_id, l->batch_id);
        t->c.run.batch_id = t->batch_id;
    }
    if (l->batch_json != NULL) {
        mem_replace(&t->batch_json, l->batch_json);
        t->c.run.batch_json = t->batch_json;
    }
    if (l->provision != NULL && l->provision->details_json != NULL) {
        mem_replace(&t->details, l->provision->details_json);
        t->c.provision.details_json = t->details;
    }
    if (l->provision != NULL && l->provision->provider != NULL)
        t->c.provision.provider = l->provision->provider; /* the row's own, or a type's name */
}

static bool is_provisioning(enum job_state s)
{
    return s == JOB_PLANNED || s == JOB_RESOURCE_PREPARING;
}

static void count_end(enum job_state s)
{
    static const struct {
        enum job_state state;
        enum metric metric;
    } FAILURES[] = {
        { JOB_FAILED, METRIC_JOBS_FAILED },
        { JOB_EXPIRED, METRIC_JOBS_EXPIRED },
        { JOB_RESOURCE_FAILED, METRIC_JOBS_RESOURCE_FAILED },
        { JOB_SUBMIT_FAILED, METRIC_JOBS_SUBMIT_FAILED },
    };
    for (size_t i = 0; i < sizeof FAILURES / sizeof FAILURES[0]; i++) {
        if (FAILURES[i].state == s)
            metric_add(FAILURES[i].metric, 1);
    }
}

static void tell(struct task *t, struct hand *h, const struct land *l, const struct landed *now)
{
    const enum job_state before = t->c.run.state;

    if (now->state == before)
        return;
    log_info(LOG_MSG("job"), LOG_S("from", job_state_name(before)),
        LOG_S("to", job_state_name(now->state)),
        LOG_S("event", l->event == JOB_EVENT__COUNT ? "" : job_event_name(l->event)),
        /* A key of NULL ends the list. */
        LOG_S(str_empty(l->error) ? NULL : "error", l->error == NULL ? "" : l->error));
    count_end(now->state);
    /* A place in the pool is free, or machines are to be given back. */
    if (job_is_terminal(now->state) || is_provisioning(before) != is_provisioning(now->state))
        hand_wake(h, job_is_terminal(now->state) ? "done" : "ready");
}

/* The batch service told of a batch that is another job's: of a creation that is the end, as whatever it may have made
 * besides is found by the job's id and cancelled. */
static enum step refuse_batch(
    struct task *t, struct hand *h, const struct land *told, enum fault_point before)
{
    const bool submitting = t->c.run.state == JOB_SUBMITTING;
    struct land l = LAND_INIT(submitting ? EV_SUBMIT_FAIL : JOB_EVENT__COUNT);
    char why[WHY_SIZE];

    metric_add(METRIC_BATCH_NONSENSE, 1);
    log_warn(
        LOG_MSG("the batch service told of another job's batch"), LOG_S("batch", told->batch_id));
    (void)str_format(why, sizeof why,
        "the batch service answered with batch %.128s, which is that of another job",
        told->batch_id);
    l.error_code = "batch_nonsense";
    l.error = why;
    l.settles = submitting ? 1U << INTENT_CREATE_BATCH : 0;
    l.call_failed = !submitting;
    l.poll_ms = step_backoff_ms(&FAILED, t->c.run.failures + 1, 0);
    return step_land(t, h, &l, false, before);
}

enum step step_land(
    struct task *t, struct hand *h, struct land *l, bool keep, enum fault_point before)
{
    struct landed now = { .state = t->c.run.state };
    struct err e = ERR_INIT;

    l->actor = t->planner->name;
    if (l->error_code == NULL && !l->call_failed && !l->batch_missing)
        l->error_code = ""; /* what went wrong before has been overcome */
    int rc = fault_at(before, &e);
    if (rc == 0)
        rc = land_patiently(t, h, l, keep, &now, &e);
    if (rc == 0)
        rc = fault_at(before + 1, &e) < 0 ? -1 : 0;
    if (rc < 0) {
        metric_add(METRIC_ERROR_LAND, 1);
        log_warn(LOG_MSG("a result was not recorded"), LOG_S("error", e.msg));
        return STEP_END;
    }
    if (rc == 1) {
        metric_add(METRIC_ERROR_LATE, 1);
        log_warn(LOG_MSG("a result came late: the job is another's, or has ended"));
        return STEP_END;
    }
    if (rc == 2)
        return refuse_batch(t, h, l, before);
    tell(t, h, l, &now);
    t->c.run.failures = l->call_failed ? t->c.run.failures + 1 : 0;
    t->c.run.lost = l->batch_missing ? t->c.run.lost + 1 : 0;
    t->c.run.state = now.state;
    t->c.run.version = now.version;
    t->c.intent = (struct run_intent){ .id = now.intent_id,
        .kind = now.intent_kind,
        .created_us = task_now_us(t),
        .payload_json = "" };
    take_texts(t, l);
    return keep && !job_is_terminal(now.state) ? STEP_ON : STEP_END;
}

enum step step_hand_back(struct task *t, struct hand *h, int64_t delay_ms)
{
    struct err e = ERR_INIT;

    if (run_hand_back(h->db, &t->flight.held, 1, delay_ms, &e) < 0)
        log_warn(LOG_MSG("a job was not handed back"), LOG_S("error", e.msg));
    return STEP_END;
}

int64_t step_backoff_ms(const struct backoff *b, int64_t failures, int64_t again_ms)
{
    uint64_t random = 0;
    arc4random_buf(&random, sizeof random);
    const int64_t ms = backoff_ms(*b, failures, random);
    return ms > again_ms ? ms : again_ms;
}

enum step step_failed(
    struct task *t, struct hand *h, const char *code, const struct err *why, const struct retry *r)
{
    struct land l = LAND_INIT(JOB_EVENT__COUNT);

    l.poll_ms = step_backoff_ms(&FAILED, t->c.run.failures + 1, r->again_ms);
    l.error_code = code;
    l.error = why->msg;
    l.call_failed = true;
    l.undone = r->undone;
    l.batch_missing = r->batch_missing;
    return step_land(t, h, &l, false, r->before);
}

int step_begin(struct task *t, struct hand *h, enum fault_point begun)
{
    struct err e = ERR_INIT;
    int rc = run_intent_begin(h->db, &t->flight.held, t->c.intent.id, &e);

    if (rc == 0)
        rc = fault_at(begun, &e);
    if (rc < 0)
        log_warn(LOG_MSG("an intent was not begun"), LOG_S("error", e.msg));
    if (rc != 0)
        return 1;
    t->c.intent.attempts++;
    t->c.intent.began_us = task_now_us(t);
    return 0;
}

bool step_serves(const struct task *t, struct hand *h)
{
    struct provisioner *p = NULL;
    struct err ignored = ERR_INIT;

    return hand_provisioner(h, step_provider(t), &p, &ignored) == 0;
}

int step_machines_name(const struct task *t, char out[PROVISION_NAME_SIZE], struct err *e)
{
    return provision_name(t->planner->cluster, t->c.run.id, (int)t->c.run.attempts, out, e);
}

const char *step_provider(const struct task *t)
{
    return str_empty(t->c.provision.provider) ? step_pool(t)->provisioner->type
                                              : t->c.provision.provider;
}

static const struct provisioner_ops *ops_of(const struct task *t)
{
    const struct provisioner_ops *ops = provisioner_find(step_provider(t));
    return ops == NULL ? step_pool(t)->provisioner : ops;
}

struct provision_hooks step_hooks(const struct task *t)
{
    return provisioner_hooks(ops_of(t));
}

int64_t step_ready_us(const struct task *t)
{
    const int64_t own_s = step_pool(t)->conf->provision_timeout_s;
    return US_PER_S * (own_s > 0 ? own_s : ops_of(t)->ready_s);
}

int step_spec(const struct task *t, struct provision_spec *out, struct err *e)
{
    cleanup_json json_object *o = NULL;
    const char *text = t->c.provision.spec_json;

    if (jx_parse(text, strlen(text), JSON_MAX, &o, e) < 0)
        return err_wrap(e, "what to provision");
    return provision_spec_read(o, out, e);
}

struct land_provision step_got(const struct task *t)
{
    if (t->machines.details == NULL)
        return (struct land_provision){ .provider = NULL };
    return (struct land_provision){
        .provider = step_provider(t),
        .status = provision_status_name(t->machines.status),
        .region = t->machines.region,
        .details_json = t->machines.details,
        .starts_us = t->machines.start_us,
        .ends_us = t->machines.end_us,
        .error = "",
    };
}

bool step_same_json(const char *a, const char *b)
{
    struct err e = ERR_INIT;
    cleanup_json json_object *x = NULL;
    cleanup_json json_object *y = NULL;

    return jx_parse(a, strlen(a), JSON_MAX, &x, &e) == 0 &&
           jx_parse(b, strlen(b), JSON_MAX, &y, &e) == 0 && json_object_equal(x, y) == 1;
}

int step_ask_machines(struct task *t, struct hand *h, struct provision_note *note, struct err *e)
{
    char name[PROVISION_NAME_SIZE];
    struct provision_spec spec;
    struct provisioner *p = NULL;
    cleanup_provision_result struct provision_result r = PROVISION_RESULT_INIT;

    note->error = PROVISION_ERROR_UNAVAILABLE;
    if (step_machines_name(t, name, e) < 0 || step_spec(t, &spec, e) < 0 ||
        hand_provisioner(h, step_provider(t), &p, e) < 0 || fault_at(FAULT_WATCH_CALL, e) < 0)
        return -1;
    const struct provision_request request = { .name = name, .spec = &spec };
    int rc = provisioner_status(p, &request, t->c.provision.details_json, &r, note, e);
    outcome_of_provider(rc, note->error, METRIC_ERROR_WATCH);
    if (rc == 0 && fault_at(FAULT_WATCH_CALLED, e) < 0) {
        note->error = PROVISION_ERROR_UNAVAILABLE;
        rc = -1;
    }
    if (rc < 0)
        return -1;
    provision_result_fini(&t->machines);
    HAND_OVER(&t->machines, &r, ((struct provision_result)PROVISION_RESULT_INIT));
    return 0;
}
