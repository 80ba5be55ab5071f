/* SPDX-License-Identifier: Apache-2.0 */
#include "model/job_fsm.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *name;
    enum job_category category;
    const char *doc;
} STATES[] = {
#define JOB_STATE(id, name, category, doc) { name, JOB_##category, doc },
#include "model/job_state.def"
#undef JOB_STATE
};

static const struct {
    const char *name;
    const char *doc;
} EVENTS[] = {
#define JOB_EVENT(id, name, doc) { name, doc },
#include "model/job_event.def"
#undef JOB_EVENT
};

/* clang-format off: two lines for each row */
static const struct job_transition TRANSITIONS[] = {
    { JOB_NONE, EV_ENQUEUE, JOB_QUEUED, "accepted: committed before the answer" },
    { JOB_QUEUED, EV_PLAN, JOB_PLANNED, "the policy chose it" },
    { JOB_QUEUED, EV_CANCEL, JOB_CANCELLED, "nothing was done for it yet" },
    { JOB_QUEUED, EV_QUEUE_EXPIRE, JOB_EXPIRED, "waited longer than the queue deadline" },
    { JOB_PLANNED, EV_PROVISIONED, JOB_RESOURCE_PREPARING, "the provisioner accepted" },
    { JOB_PLANNED, EV_REQUEUE, JOB_QUEUED, "no capacity, 429, 5xx or time-out" },
    { JOB_PLANNED, EV_RESOURCE_FAIL, JOB_RESOURCE_FAILED, "refused for good" },
    { JOB_PLANNED, EV_QUEUE_EXPIRE, JOB_EXPIRED, "waited longer than the queue deadline" },
    { JOB_PLANNED, EV_CANCEL, JOB_CANCELLING, "the user cancels" },
    { JOB_RESOURCE_PREPARING, EV_REQUEUE, JOB_QUEUED, "not ready in time: keeps its place" },
    { JOB_RESOURCE_PREPARING, EV_RESOURCE_FAIL, JOB_RESOURCE_FAILED,
        "the machines failed or are gone" },
    { JOB_RESOURCE_PREPARING, EV_SUBMIT, JOB_SUBMITTING, "machines ready, time window reached" },
    { JOB_RESOURCE_PREPARING, EV_SUBMIT_FAIL, JOB_SUBMIT_FAILED,
        "under a minute of the allocation left, or refused beforehand" },
    { JOB_RESOURCE_PREPARING, EV_QUEUE_EXPIRE, JOB_EXPIRED,
        "waited longer than the queue deadline" },
    { JOB_RESOURCE_PREPARING, EV_CANCEL, JOB_CANCELLING, "the user cancels" },
    { JOB_SUBMITTING, EV_SUBMIT_FAIL, JOB_SUBMIT_FAILED, "the batch service refused it" },
    { JOB_SUBMITTING, EV_BATCH_SCHEDULING, JOB_SCHEDULING, "the batch service says so" },
    { JOB_SUBMITTING, EV_BATCH_VALIDATING, JOB_VALIDATING, "the batch service says so" },
    { JOB_SUBMITTING, EV_BATCH_IN_PROGRESS, JOB_IN_PROGRESS, "the batch service says so" },
    { JOB_SUBMITTING, EV_BATCH_FINALIZING, JOB_FINALIZING, "the batch service says so" },
    { JOB_SUBMITTING, EV_BATCH_CANCELLING, JOB_CANCELLING, "cancelled at the batch service" },
    { JOB_SUBMITTING, EV_BATCH_COMPLETED, JOB_COMPLETED, "the batch service says so" },
    { JOB_SUBMITTING, EV_BATCH_FAILED, JOB_FAILED, "the batch service says so" },
    { JOB_SUBMITTING, EV_BATCH_EXPIRED, JOB_EXPIRED, "the batch service says so" },
    { JOB_SUBMITTING, EV_BATCH_CANCELLED, JOB_CANCELLED, "the batch service says so" },
    { JOB_SUBMITTING, EV_BATCH_LOST, JOB_FAILED, "404 three times: batch_lost" },
    { JOB_SUBMITTING, EV_MACHINES_LOST, JOB_RESOURCE_FAILED, "machines gone, batch cancelled" },
    { JOB_SUBMITTING, EV_RUN_EXPIRE, JOB_EXPIRED, "past expires_at and the grace" },
    { JOB_SUBMITTING, EV_CANCEL, JOB_CANCELLING, "the user cancels" },
    { JOB_SCHEDULING, EV_BATCH_VALIDATING, JOB_VALIDATING, "the batch service says so" },
    { JOB_SCHEDULING, EV_BATCH_IN_PROGRESS, JOB_IN_PROGRESS, "the batch service says so" },
    { JOB_SCHEDULING, EV_BATCH_FINALIZING, JOB_FINALIZING, "the batch service says so" },
    { JOB_SCHEDULING, EV_BATCH_CANCELLING, JOB_CANCELLING, "cancelled at the batch service" },
    { JOB_SCHEDULING, EV_BATCH_COMPLETED, JOB_COMPLETED, "the batch service says so" },
    { JOB_SCHEDULING, EV_BATCH_FAILED, JOB_FAILED, "the batch service says so" },
    { JOB_SCHEDULING, EV_BATCH_EXPIRED, JOB_EXPIRED, "the batch service says so" },
    { JOB_SCHEDULING, EV_BATCH_CANCELLED, JOB_CANCELLED, "the batch service says so" },
    { JOB_SCHEDULING, EV_BATCH_LOST, JOB_FAILED, "404 three times: batch_lost" },
    { JOB_SCHEDULING, EV_MACHINES_LOST, JOB_RESOURCE_FAILED, "machines gone, batch cancelled" },
    { JOB_SCHEDULING, EV_RUN_EXPIRE, JOB_EXPIRED, "past expires_at and the grace" },
    { JOB_SCHEDULING, EV_CANCEL, JOB_CANCELLING, "the user cancels" },
    { JOB_VALIDATING, EV_BATCH_IN_PROGRESS, JOB_IN_PROGRESS, "the batch service says so" },
    { JOB_VALIDATING, EV_BATCH_FINALIZING, JOB_FINALIZING, "the batch service says so" },
    { JOB_VALIDATING, EV_BATCH_CANCELLING, JOB_CANCELLING, "cancelled at the batch service" },
    { JOB_VALIDATING, EV_BATCH_COMPLETED, JOB_COMPLETED, "the batch service says so" },
    { JOB_VALIDATING, EV_BATCH_FAILED, JOB_FAILED, "the batch service says so" },
    { JOB_VALIDATING, EV_BATCH_EXPIRED, JOB_EXPIRED, "the batch service says so" },
    { JOB_VALIDATING, EV_BATCH_CANCELLED, JOB_CANCELLED, "the batch service says so" },
    { JOB_VALIDATING, EV_BATCH_LOST, JOB_FAILED, "404 three times: batch_lost" },
    { JOB_VALIDATING, EV_MACHINES_LOST, JOB_RESOURCE_FAILED, "machines gone, batch cancelled" },
    { JOB_VALIDATING, EV_RUN_EXPIRE, JOB_EXPIRED, "past expires_at and the grace" },
    { JOB_VALIDATING, EV_CANCEL, JOB_CANCELLING, "the user cancels" },
    { JOB_IN_PROGRESS, EV_BATCH_FINALIZING, JOB_FINALIZING, "the batch service says so" },
    { JOB_IN_PROGRESS, EV_BATCH_CANCELLING, JOB_CANCELLING, "cancelled at the batch service" },
    { JOB_IN_PROGRESS, EV_BATCH_COMPLETED, JOB_COMPLETED, "the batch service says so" },
    { JOB_IN_PROGRESS, EV_BATCH_FAILED, JOB_FAILED, "the batch service says so" },
    { JOB_IN_PROGRESS, EV_BATCH_EXPIRED, JOB_EXPIRED, "the batch service says so" },
    { JOB_IN_PROGRESS, EV_BATCH_CANCELLED, JOB_CANCELLED, "the batch service says so" },
    { JOB_IN_PROGRESS, EV_BATCH_LOST, JOB_FAILED, "404 three times: batch_lost" },
    { JOB_IN_PROGRESS, EV_MACHINES_LOST, JOB_RESOURCE_FAILED, "machines gone, batch cancelled" },
    { JOB_IN_PROGRESS, EV_RUN_EXPIRE, JOB_EXPIRED, "past expires_at and the grace" },
    { JOB_IN_PROGRESS, EV_CANCEL, JOB_CANCELLING, "the user cancels" },
    { JOB_FINALIZING, EV_BATCH_CANCELLING, JOB_CANCELLING, "cancelled at the batch service" },
    { JOB_FINALIZING, EV_BATCH_COMPLETED, JOB_COMPLETED, "the batch service says so" },
    { JOB_FINALIZING, EV_BATCH_FAILED, JOB_FAILED, "the batch service says so" },
    { JOB_FINALIZING, EV_BATCH_EXPIRED, JOB_EXPIRED, "the batch service says so" },
    { JOB_FINALIZING, EV_BATCH_CANCELLED, JOB_CANCELLED, "the batch service says so" },
    { JOB_FINALIZING, EV_BATCH_LOST, JOB_FAILED, "404 three times: batch_lost" },
    { JOB_FINALIZING, EV_MACHINES_LOST, JOB_RESOURCE_FAILED, "machines gone, batch cancelled" },
    { JOB_FINALIZING, EV_RUN_EXPIRE, JOB_EXPIRED, "past expires_at and the grace" },
    { JOB_FINALIZING, EV_CANCEL, JOB_CANCELLING, "the user cancels" },
    { JOB_CANCELLING, EV_BATCH_COMPLETED, JOB_COMPLETED,
        "it ended so before the cancel took effect" },
    { JOB_CANCELLING, EV_BATCH_FAILED, JOB_FAILED, "it ended so before the cancel took effect" },
    { JOB_CANCELLING, EV_BATCH_EXPIRED, JOB_EXPIRED, "it ended so before the cancel took effect" },
    { JOB_CANCELLING, EV_BATCH_CANCELLED, JOB_CANCELLED, "the batch service says so" },
    { JOB_CANCELLING, EV_CLEANED_UP, JOB_CANCELLED, "nothing of it is left" },
};
/* clang-format on */

enum { TRANSITIONS_COUNT = sizeof TRANSITIONS / sizeof TRANSITIONS[0] };

const struct job_transition *job_transitions(size_t *n)
{
    *n = TRANSITIONS_COUNT;
    return TRANSITIONS;
}

int job_next(enum job_state from, enum job_event event, enum job_state *to)
{
    for (size_t i = 0; i < TRANSITIONS_COUNT; i++) {
        if (TRANSITIONS[i].from == from && TRANSITIONS[i].event == event) {
            *to = TRANSITIONS[i].to;
            return 0;
        }
    }
    return 1;
}

const char *job_state_name(enum job_state s)
{
    if (s == JOB_NONE)
        return "";
    return s >= 0 && s < JOB_STATE__COUNT ? STATES[s].name : "unknown";
}

enum job_state job_state_parse(const char *name)
{
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        if (strcmp(name, STATES[s].name) == 0)
            return (enum job_state)s;
    }
    return JOB_STATE__COUNT;
}

const char *job_event_name(enum job_event event)
{
    return event < JOB_EVENT__COUNT ? EVENTS[event].name : "unknown";
}

enum job_category job_category(enum job_state s)
{
    assert(s >= 0 && s < JOB_STATE__COUNT);
    return STATES[s].category;
}

bool job_is_terminal(enum job_state s)
{
    return s >= 0 && s < JOB_STATE__COUNT && STATES[s].category == JOB_TERMINAL;
}

static void print_states(struct buf *out)
{
    static const char *const CATEGORY[] = { "pending", "running", "terminal" };
    buf_puts(out, "\n## States\n\n| state | category | meaning |\n|---|---|---|\n");
    for (int s = 0; s < JOB_STATE__COUNT; s++)
        buf_printf(
            out, "| %s | %s | %s |\n", STATES[s].name, CATEGORY[STATES[s].category], STATES[s].doc);
    buf_puts(out, "\n## Events\n\n| event | what happened |\n|---|---|\n");
    for (int e = 0; e < JOB_EVENT__COUNT; e++)
        buf_printf(out, "| %s | %s |\n", EVENTS[e].name, EVENTS[e].doc);
}

static const char *node(enum job_state s)
{
    return s == JOB_NONE ? "[*]" : job_state_name(s);
}

/* The arrows of one pair of states are one arrow in the diagram. */
static bool drawn_before(size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (TRANSITIONS[k].from == TRANSITIONS[i].from && TRANSITIONS[k].to == TRANSITIONS[i].to)
            return true;
    }
    return false;
}

static void print_arrow(struct buf *out, size_t i)
{
    const struct job_transition *t = &TRANSITIONS[i];
    buf_printf(out, "    %s --> %s: %s", node(t->from), node(t->to), job_event_name(t->event));
    for (size_t k = i + 1; k < TRANSITIONS_COUNT; k++) {
        if (TRANSITIONS[k].from == t->from && TRANSITIONS[k].to == t->to)
            buf_printf(out, ", %s", job_event_name(TRANSITIONS[k].event));
    }
    buf_putc(out, '\n');
}

void job_fsm_print(struct buf *out)
{
    buf_puts(out,
        "# States of a job\n\nPrinted from the tables of `lib/model/job_fsm.c`; the database holds "
        "the same in `job_transition` and\nrefuses anything else.\n\n```mermaid\nstateDiagram-v2\n");
    for (size_t i = 0; i < TRANSITIONS_COUNT; i++) {
        if (!drawn_before(i))
            print_arrow(out, i);
    }
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        if (job_is_terminal((enum job_state)s))
            buf_printf(out, "    %s --> [*]\n", STATES[s].name);
    }
    buf_puts(out, "```\n");
    print_states(out);
    buf_puts(out,
        "\n## Transitions\n\nAn event that is not listed for a state leaves it as it is.\n\n"
        "| from | event | to | why |\n|---|---|---|---|\n");
    for (size_t i = 0; i < TRANSITIONS_COUNT; i++) {
        const struct job_transition *t = &TRANSITIONS[i];
        buf_printf(out, "| %s | %s | %s | %s |\n",
            t->from == JOB_NONE ? "–" : job_state_name(t->from), job_event_name(t->event),
            job_state_name(t->to), t->why);
    }
}
