/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job_run.h"

void run_claims_free(struct run_claims *c)
{
    free(c->claim);
    db_rows_free(&c->rows);
}

const struct db_stmts JOB_RUN_STMTS = { NULL, 0 };

int run_look(struct db *db, struct run_pools pools, struct run_look *out, struct err *e)
{
    (void)db;
    (void)pools;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "run_look: not there yet");
}

int run_claim(struct db *db, struct run_pools pools, const char *owner, int64_t limit,
    struct run_claims *out, struct err *e)
{
    (void)db;
    (void)pools;
    (void)owner;
    (void)limit;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "run_claim: not there yet");
}

int run_renew(struct db *db, const struct run_held *held, size_t n, bool *lost, struct err *e)
{
    (void)db;
    (void)held;
    (void)n;
    (void)lost;
    return err_set(e, ERR_UNAVAILABLE, "run_renew: not there yet");
}

int run_hand_back(
    struct db *db, const struct run_held *held, size_t n, int64_t poll_ms, struct err *e)
{
    (void)db;
    (void)held;
    (void)n;
    (void)poll_ms;
    return err_set(e, ERR_UNAVAILABLE, "run_hand_back: not there yet");
}

int run_intent_begin(struct db *db, const struct run_held *held, int64_t intent_id, struct err *e)
{
    (void)db;
    (void)held;
    (void)intent_id;
    return err_set(e, ERR_UNAVAILABLE, "run_intent_begin: not there yet");
}

int run_expire_queued(
    struct db *db, struct run_pools pools, int64_t limit, int64_t *n, struct err *e)
{
    (void)db;
    (void)pools;
    (void)limit;
    (void)n;
    return err_set(e, ERR_UNAVAILABLE, "run_expire_queued: not there yet");
}
