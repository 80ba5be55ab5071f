/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_PLANNER_VIEW_H
#define WB_STORE_PLANNER_VIEW_H

/* What operators see of planning: pools, who leads them, queue sizes, what is overdue to be released. From
 * counters and small tables: cheap at any number of jobs. Errors are those of db.h. */
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "model/job.h"

extern const struct db_stmts PLANNER_VIEW_STMTS;

struct pool_view {
    int64_t id;
    const char *name;
    const char *provisioner;
    const char *policy;
    const char *drained_by;  /* who asked for that; "" when it is not drained */
    const char *holder;      /* uuid; "" when nobody ever led it */
    const char *holder_name; /* host and process */
    int64_t epoch;
    int64_t expires_us; /* of the lease; in the past: nobody leads */
    int64_t drained_us; /* since when nothing is planned for it; 0: it is not drained */
    int64_t planned_us; /* last plan */
    int64_t plan_took_us;
    int64_t planned; /* jobs that the last plan planned */
    int64_t count[JOB_STATE__COUNT];
};
struct planner_view {
    struct pool_view *pool;
    size_t n;
    int64_t now_us;
    /* open intents by kind, and since when the oldest waits (0: none) */
    int64_t open[INTENT__COUNT];
    int64_t oldest_us[INTENT__COUNT];
    struct db_rows rows;
};
#define PLANNER_VIEW_INIT \
    { \
        .pool = NULL, .n = 0, .now_us = 0, .rows = DB_ROWS_INIT \
    }
void planner_view_free(struct planner_view *v);
#define cleanup_planner_view __attribute__((cleanup(planner_view_free)))

int planner_view_get(struct db *db, struct planner_view *out, struct err *e) WARN_UNUSED;

#endif
