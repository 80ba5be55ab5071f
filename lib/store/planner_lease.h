/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_LEASE_H
#define WB_PLANNER_LEASE_H

/* Who decides for a pool: a row with a holder, a fencing epoch and an expiry by Postgres' clock. Jobs contract
 * section 5, "Decide". Errors are those of db.h. Any failure of a renewal means: step down. */
#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"
#include "model/job.h"

extern const struct db_stmts PLANNER_LEASE_STMTS;

enum {
    LEASE_TTL_MS = 15000
}; /* what [planner] lease_ms is unless set; renewed three times as often */

struct lease {
    int64_t pool_id;
    char holder[UUID_SIZE]; /* one for each start of a process: lease_new_holder() */
    int64_t epoch;
    int64_t ttl_ms;
    int64_t trusted_until_ns; /* monotonic: when the renewal was sent + 13/15 of the TTL */
};

/* Who would lead, and for how long after each renewal. */
struct lease_claimant {
    const char *holder;
    const char *name; /* host and process, for people */
    int64_t ttl_ms;
};

/* A fresh uuid from Postgres. */
int lease_new_holder(struct db *db, char out[UUID_SIZE], struct err *e) WARN_UNUSED;

/* Reads only: 1 when somebody else holds the pool's lease and it has not expired, 0 when it is worth trying
 * lease_take(). Locks nothing. */
int lease_look(struct db *db, int64_t pool_id, const char *holder, struct err *e) WARN_UNUSED;

/* Takes the lease if it is free or expired, renews it if it is ours: 0 with *out, its epoch +1 unless ours had
 * not expired; 1 when somebody else holds it. Locks the pool's lease row,
 * and so waits for a plan that is being committed (up to the connection's lock timeout: ERR_TIMEOUT or
 * ERR_UNAVAILABLE). */
int lease_take(struct db *db, int64_t pool_id, const struct lease_claimant *who, struct lease *out,
    struct err *e) WARN_UNUSED;

/* Renews, and only renews: 0, or 1 when holder and epoch are no longer the row's or it has expired. */
int lease_renew(struct db *db, struct lease *l, struct err *e) WARN_UNUSED;

/* Lets go at once, so that another need not wait for the expiry. Nothing happens when it is ours no more. */
int lease_step_down(struct db *db, const struct lease *l, struct err *e) WARN_UNUSED;

/* Is the local trust still good? Pure. */
bool lease_trusted(const struct lease *l, int64_t now_ns);

#endif
