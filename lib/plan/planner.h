/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_H
#define WB_PLANNER_H

/* The planner of batch jobs: any number of processes against one Postgres, each of which decides for the pools
 * whose lease it holds and acts for all. docs/planner.md tells how; jobs contract section 5 says what.
 *
 * Threads: `decide` keeps leases and plans, `act` looks what is due, claims and hands out, the crew's threads talk
 * to the outside, `listen` hears wake-ups through Redis. No state is kept but in Postgres. */
#include "base/breaker.h"
#include "base/conf.h"
#include "base/err.h"

struct planner;

struct planner_options {
    const struct conf *conf; /* all borrowed for the planner's life */
    struct breaker *db_breaker;
    struct breaker *kv_breaker;
};

/* Is the configuration one that a planner can run with? ERR_INVALID: unknown provisioner or policy, a fault that
 * makes no sense. Before threads; also registers what is built in, once. */
int planner_check(const struct conf *conf, struct err *e) WARN_UNUSED;

/* Starts the threads. Stores need not be up: it joins when they are. ERR_INVALID as planner_check(),
 * ERR_INTERNAL without threads. */
int planner_start(const struct planner_options *o, struct planner **out, struct err *e) WARN_UNUSED;

/* Stops taking work, finishes what is being done within 10 s, hands back what was not begun and all leases.
 * Ends the process when something outside takes longer: its lease will expire. NULL is fine. */
void planner_stop(struct planner *p);

/* One cycle on the calling thread, for tests and cron: takes the leases that are free, plans, does what is due, and
 * returns when that is done. Errors of the stores. */
int planner_once(const struct planner_options *o, struct err *e) WARN_UNUSED;

#endif
