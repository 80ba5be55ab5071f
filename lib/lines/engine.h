/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_ENGINE_H
#define WB_LINES_ENGINE_H

/* The thread that sends lines and takes their answers, for all batches of a runner: round robin by line, so many in
 * flight for each batch and in all, each line tried again as line_verdict.h says. Batch contract, "Running" and
 * "Fairness". */
#include "base/conf.h"
#include "base/err.h"
#include "lines/flow.h"
#include "lines/upstream.h"

struct engine;

/* conf and upstream are borrowed. ERR_INVALID: the token cannot be sent; ERR_INTERNAL: no thread to be had. */
int engine_start(const struct conf *conf, const struct upstream *upstream, struct engine **out,
    struct err *e) WARN_UNUSED;

/* All flows must have been let go. NULL is fine. */
void engine_stop(struct engine *g);

/* Runs f until flow_view.let_go: all lines have their results, or it was stopped, or it broke. Any thread. */
void engine_add(struct engine *g, struct flow *f);

/* After flow_stop() and flow_trust(). Any thread. */
void engine_wake(struct engine *g);

#endif
