/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLIGHT_H
#define WB_FLIGHT_H

/* What this process has claimed and not yet given back: with the row leases the guard that no two tasks ever work on
 * one job, and the list of leases to renew. Jobs contract section 5, "Act". Any thread. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "store/intent.h"
#include "store/job_run.h"

/* One claim. Embedded in a task; fields before key are the task's to fill. */
struct flight_entry {
    bool is_release;
    struct run_held held;   /* of a job */
    struct release release; /* of a release intent; texts are not looked at */
    char key[UUID_SIZE + 2];
    _Atomic bool lost; /* a renewal found it taken by another */
};

struct flight;
struct flight *flight_new(void);
void flight_free(struct flight *f); /* empty */

/* True: added. False: the same job or release is in hand already. entry stays where it is until removed. */
bool flight_add(struct flight *f, struct flight_entry *entry);
void flight_remove(struct flight *f, struct flight_entry *entry);

size_t flight_count(struct flight *f);

/* Prolongs all leases for lease_ms, and marks those that are lost. Errors of db.h: the leases then run on as they
 * are. */
int flight_renew(struct flight *f, struct db *db, int64_t lease_ms, struct err *e) WARN_UNUSED;

#endif
