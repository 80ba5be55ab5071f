/* SPDX-License-Identifier: Apache-2.0 */
#include "store/intent.h"

void releases_free(struct releases *r)
{
    free(r->release);
    db_rows_free(&r->rows);
}

const struct db_stmts INTENT_STMTS = { NULL, 0 };

int release_claim(struct db *db, struct run_pools pools, const char *owner, int64_t limit,
    struct releases *out, struct err *e)
{
    (void)db;
    (void)pools;
    (void)owner;
    (void)limit;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "release_claim: not there yet");
}

int release_done(struct db *db, const struct release *r, struct err *e)
{
    (void)db;
    (void)r;
    return err_set(e, ERR_UNAVAILABLE, "release_done: not there yet");
}

int release_retry(
    struct db *db, const struct release *r, const char *error, int64_t delay_ms, struct err *e)
{
    (void)db;
    (void)r;
    (void)error;
    (void)delay_ms;
    return err_set(e, ERR_UNAVAILABLE, "release_retry: not there yet");
}

int release_renew(struct db *db, const struct release *const *r, size_t n, struct err *e)
{
    (void)db;
    (void)r;
    (void)n;
    return err_set(e, ERR_UNAVAILABLE, "release_renew: not there yet");
}

int release_backlog(struct db *db, int64_t limit, struct releases *out, struct err *e)
{
    (void)db;
    (void)limit;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "release_backlog: not there yet");
}
