/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HOUSEKEEPING_H
#define WB_HOUSEKEEPING_H

/* Removes what nobody needs any more from the tables of load jobs and gallery operations. Operations contract,
 * sections 2, 5 and 6. Any number may run at once, on any machines: each row is taken by one of them (rows
 * that another holds are passed over), in batches of a statement each, so that poolers in transaction mode
 * work and nobody is kept waiting. Nothing depends on it: what it removes counts as gone already. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "db/db.h"
#include "kv/kv.h"

struct housekeeping_options {
    bool read_only;    /* [operations] read_only: only side tables are touched */
    int64_t keep_days; /* how long ended operations stay in the history */
};

/* What was done. */
struct housekeeping {
    int64_t failed_loads;   /* failed over 15 s ago: deleted */
    int64_t orphaned_loads; /* not heard of for 60 s, and no live overlay of their claim: deleted */
    int64_t claims;         /* of loads that are gone: deleted */
    int64_t
        stale_operations; /* active, but not heard of for 30 minutes and without a live overlay: failed,
                               * with an error that says so; the true outcome may still correct it */
    int64_t history;      /* ended longer than keep_days ago: deleted */
    int64_t controls;     /* of operations that are gone, over a day old: deleted */
    bool redis_silent; /* Redis did not answer: orphans and stale operations were left alone */
};

/* kv NULL: there is no overlay ([redis] url is empty). Tables of an existing LocalAI that are missing hold
 * nothing. Errors are those of db.h, the text names the step; what was done before stays done. Takes as
 * long as it takes: a statement has the timeout of db. */
int housekeeping_run(struct db *db, struct kv *kv, const struct housekeeping_options *o,
    struct housekeeping *out, struct err *e) WARN_UNUSED;

extern const struct db_stmts HOUSEKEEPING_STMTS;

#endif
