/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_CLERK_H
#define WB_LINES_CLERK_H

/* Sees a claimed batch through, from wherever it is: validates, has the lines run, makes results safe once a second,
 * notices a cancel or the deadline, puts the segments together, lands. docs/batch.md tells the order of events and what
 * a crash at each leaves behind. */
#include <stdatomic.h>
#include <stdbool.h>

#include "base/conf.h"
#include "base/err.h"
#include "db/db.h"
#include "kv/kv.h"
#include "lines/engine.h"
#include "lines/upstream.h"
#include "store/batch_lease.h"

struct clerk_tools { /* all borrowed; db and kv are this thread's */
    const struct conf *conf;
    const struct upstream *upstream;
    struct engine *engine;
    struct db *db;
    struct kv *kv;
    const atomic_bool *stopping; /* the runner ends: hand the batch back soon */
};

/* How it went. */
enum clerk_end {
    CLERK_ENDED, /* the batch has ended */
    CLERK_HANDED_BACK, /* another may go on with it: the runner stops, or something is out of order (*e) for now */
    CLERK_LOST /* another has it already */
};

/* lease is consumed in all but memory. */
enum clerk_end clerk_run(const struct clerk_tools *t, struct batch_lease *lease, struct err *e);

#endif
