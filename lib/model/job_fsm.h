/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_FSM_H
#define WB_JOB_FSM_H

/* The state machine of jobs, jobs contract section 2: one table of transitions. The database holds the same
 * (sql/0005) and refuses anything else; docs/job-states.md is printed from it. Pure; any thread. */
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/cleanup.h"

enum job_state {
    JOB_NONE = -1, /* before the enqueue */
#define JOB_STATE(id, name, category, doc) JOB_##id,
#include "model/job_state.def"
#undef JOB_STATE
    JOB_STATE__COUNT, /* also: a word that names no state */
};

enum job_event {
#define JOB_EVENT(id, name, doc) EV_##id,
#include "model/job_event.def"
#undef JOB_EVENT
    JOB_EVENT__COUNT, /* also: a word that names no event, a status that asks for none */
};

enum job_category { JOB_PENDING, JOB_RUNNING, JOB_TERMINAL };

struct job_transition {
    enum job_state from; /* JOB_NONE: the enqueue */
    enum job_event event;
    enum job_state to;
    const char *why;
};

/* All transitions, in the order of states, then events. */
const struct job_transition *job_transitions(size_t *n);

/* Where event leads from a state: 0 with *to set; 1 when it leads nowhere, so that the state stays (a stale
 * answer of the batch service, a result that came in after a cancel). */
int job_next(enum job_state from, enum job_event event, enum job_state *to) WARN_UNUSED;

const char *job_state_name(enum job_state s); /* "" for JOB_NONE, "unknown" for what is no state */
enum job_state job_state_parse(const char *name);
const char *job_event_name(enum job_event event); /* "unknown" for what is no event */
enum job_category job_category(enum job_state s); /* s: a state */
bool job_is_terminal(enum job_state s);

/* docs/job-states.md: the diagram (Mermaid), the states, the events, the transitions with their reasons. */
void job_fsm_print(struct buf *out);

#endif
