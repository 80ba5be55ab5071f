/* SPDX-License-Identifier: Apache-2.0 */
#include "store/planner_lease.h"

bool lease_trusted(const struct lease *l, int64_t now_ns)
{
    return now_ns < l->trusted_until_ns;
}

const struct db_stmts PLANNER_LEASE_STMTS = { NULL, 0 };

int lease_new_holder(struct db *db, char out[UUID_SIZE], struct err *e)
{
    (void)db;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "lease_new_holder: not there yet");
}

int lease_look(struct db *db, int64_t pool_id, const char *holder, struct err *e)
{
    (void)db;
    (void)pool_id;
    (void)holder;
    return err_set(e, ERR_UNAVAILABLE, "lease_look: not there yet");
}

int lease_take(struct db *db, int64_t pool_id, const char *holder, const char *name,
    struct lease *out, struct err *e)
{
    (void)db;
    (void)pool_id;
    (void)holder;
    (void)name;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "lease_take: not there yet");
}

int lease_renew(struct db *db, struct lease *l, struct err *e)
{
    (void)db;
    (void)l;
    return err_set(e, ERR_UNAVAILABLE, "lease_renew: not there yet");
}

int lease_step_down(struct db *db, const struct lease *l, struct err *e)
{
    (void)db;
    (void)l;
    return err_set(e, ERR_UNAVAILABLE, "lease_step_down: not there yet");
}
