/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ACT_H
#define WB_ACT_H

/* The loop that looks what is due, claims it and hands it to the crew; nothing outside is called here. Jobs contract
 * section 5, "Act" and "Loop". One thread. */
#include "plan/planner_internal.h"

struct act {
    struct planner *p;
    struct db *db;
    int64_t entered;    /* the enqueue sequence as last seen; -1: not yet */
    int64_t claim_max;  /* rows of one claim: few, unless there turn out to be many */
    bool running_first; /* pending and running jobs take turns at being claimed first */
    int64_t look_ns;    /* when each is due, monotonic */
    int64_t plan_ns;
    int64_t renew_ns;
    int64_t gauges_ns;
    int64_t chores_ns;
};

/* One look at what is due; raises the triggers and moves a->look_ns. *due: something is to be claimed now. */
int act_look(struct act *a, bool *due, struct err *e) WARN_UNUSED;

/* Claims what is due and hands it to the crew, while half of its queue is free. *claimed counts it. */
int act_claim(struct act *a, size_t *claimed, struct err *e) WARN_UNUSED;

/* From the crew, after something left its queue: wakes who stopped claiming for want of room. Any thread. */
void act_feed(struct planner *p);

/* chores.c: hands the chores to the crew. */
void act_chores(struct planner *p);

/* gauges.c: sizes of queues, for metrics. */
int act_gauges(struct act *a, struct err *e) WARN_UNUSED;

#endif
