/* SPDX-License-Identifier: Apache-2.0 */
#include "store/chore.h"

const struct db_stmts CHORE_STMTS = { NULL, 0 };

int chore_claim(struct db *db, const char *name, int64_t every_s, const char *holder, struct err *e)
{
    (void)db;
    (void)name;
    (void)every_s;
    (void)holder;
    return err_set(e, ERR_UNAVAILABLE, "chore_claim: not there yet");
}

int chore_event_partitions(struct db *db, int64_t *made, struct err *e)
{
    (void)db;
    (void)made;
    return err_set(e, ERR_UNAVAILABLE, "chore_event_partitions: not there yet");
}

int chore_retire_jobs(struct db *db, int64_t keep_days, int64_t limit, int64_t *n, struct err *e)
{
    (void)db;
    (void)keep_days;
    (void)limit;
    (void)n;
    return err_set(e, ERR_UNAVAILABLE, "chore_retire_jobs: not there yet");
}

int chore_drop_events(struct db *db, int64_t keep_days, int64_t *dropped, struct err *e)
{
    (void)db;
    (void)keep_days;
    (void)dropped;
    return err_set(e, ERR_UNAVAILABLE, "chore_drop_events: not there yet");
}
