/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_RUNNER_H
#define WB_LINES_RUNNER_H

/* A runner of the embedded batch service: claims batches as long as it has room, and gives each a thread of its own
 * that sees it through (lines/clerk.h); one thread more sends the lines of all (lines/engine.h). Any number of runners
 * share the work. */
#include "base/breaker.h"
#include "base/conf.h"
#include "base/err.h"

struct runner;

struct runner_options {
    const struct conf *conf; /* all borrowed for the runner's life */
    struct breaker *db_breaker;
    struct breaker *kv_breaker;
};

/* Is the configuration one that a runner can run with? ERR_INVALID. */
int runner_check(const struct conf *conf, struct err *e) WARN_UNUSED;

/* Starts the threads; the stores need not be up. Failures: ERR_INVALID as runner_check(), ERR_INTERNAL. */
int runner_start(const struct runner_options *o, struct runner **out, struct err *e) WARN_UNUSED;

/* Begins no more lines, waits at most 10 s for those that run, makes safe what there is, hands the batches back. NULL is
 * fine. */
void runner_stop(struct runner *r);

#endif
