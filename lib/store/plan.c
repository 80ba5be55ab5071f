/* SPDX-License-Identifier: Apache-2.0 */
#include "store/plan.h"

void plan_end(struct plan *p)
{
    db_txn_end(&p->txn);
    free(p->job);
    free(p->tenant);
    db_rows_free(&p->jobs);
    db_rows_free(&p->tenants);
}

const struct db_stmts PLAN_STMTS = { NULL, 0 };

int plan_begin(struct db *db, const struct lease *l, const struct plan_ask *ask, struct plan *out,
    struct err *e)
{
    (void)db;
    (void)l;
    (void)ask;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "plan_begin: not there yet");
}

int plan_commit(struct plan *p, const struct plan_order *order, size_t n, struct plan_result *out,
    struct err *e)
{
    (void)p;
    (void)order;
    (void)n;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "plan_commit: not there yet");
}
