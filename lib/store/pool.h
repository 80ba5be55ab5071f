/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_POOL_H
#define WB_STORE_POOL_H

/* Ids of pools. A pool is named in the configuration; planners register it when they start, and only then may
 * jobs name it ("default" always exists). Errors are those of db.h. */
#include <stdint.h>

#include "db/db.h"

extern const struct db_stmts POOL_STMTS;

/* Makes the pool known, or renews what it is made of. */
int pool_ensure(struct db *db, const char *name, const char *provisioner, const char *policy,
    int64_t *id, struct err *e) WARN_UNUSED;

/* ERR_NOT_FOUND when no planner has ever registered it. */
int pool_find(struct db *db, const char *name, int64_t *id, struct err *e) WARN_UNUSED;

/* Once this is answered, nothing more is planned for the pool until pool_resume(): it waits for a plan that is
 * being committed. Its queue stays, deadlines go on; what is planned already goes its way. Again: nothing changes.
 * by: who asked, shown to operators. ERR_NOT_FOUND as pool_find(). */
int pool_drain(struct db *db, const char *name, const char *by, struct err *e) WARN_UNUSED;
int pool_resume(struct db *db, const char *name, struct err *e) WARN_UNUSED;

#endif
