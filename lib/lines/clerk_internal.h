/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_CLERK_INTERNAL_H
#define WB_LINES_CLERK_INTERNAL_H

/* What the files of the clerk share. Every step returns 0: go on; 1: the batch is another's now, or has ended by
 * another's hand; -1 with *e. */
#include "lines/clerk.h"
#include "lines/flow.h"

struct clerk {
    const struct clerk_tools *t;
    struct batch_lease *lease;
    int folder;
    int input;                  /* -1: not opened yet */
    struct batch_segment *past; /* of the epochs before */
    size_t n_past;
    struct batch_segment now; /* of this one, as recorded last */
    struct flow_view seen;    /* the counts that were recorded last */
    int64_t renewed_ns;
    bool failed; /* batch_lease_fail() was called: it has ended */
};

/* Renews the lease when a third of it is over. */
int clerk_tick(void *clerk, struct err *e) WARN_UNUSED;

/* validating -> in_progress, or failed. */
int clerk_validate(struct clerk *c, struct err *e) WARN_UNUSED;

/* Runs the lines until there are no more, or the batch is cancelled or late, or the runner stops (*stopped). */
int clerk_run_lines(struct clerk *c, bool *stopped, struct err *e) WARN_UNUSED;

/* The batch ends as failed, for that reason. */
int clerk_fail(struct clerk *c, const char *code, const char *message, struct err *e) WARN_UNUSED;

#endif
