/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_CHORE_H
#define WB_STORE_CHORE_H

/* Housekeeping that any one process may do, now and then. Jobs contract section 5, "Housekeeping". Errors are
 * those of db.h. */
#include <stdint.h>

#include "db/db.h"

extern const struct db_stmts CHORE_STMTS;

/* 0: it is the caller's turn, and nobody else's for every_s from now; 1: not due, or another's turn. */
int chore_claim(struct db *db, const char *name, int64_t every_s, const char *holder,
    struct err *e) WARN_UNUSED;

/* Makes the partitions of job_event for this month and two ahead. *made counts them. */
int chore_event_partitions(struct db *db, int64_t *made, struct err *e) WARN_UNUSED;

/* Removes up to limit jobs that ended over keep_days ago and have no open intent, with their provisions, file
 * references and closed intents; counters follow. *n counts them. */
int chore_retire_jobs(
    struct db *db, int64_t keep_days, int64_t limit, int64_t *n, struct err *e) WARN_UNUSED;

/* Drops partitions of job_event whose month ended over keep_days ago. *dropped counts them. */
int chore_drop_events(
    struct db *db, int64_t keep_days, int64_t *dropped, struct err *e) WARN_UNUSED;

#endif
