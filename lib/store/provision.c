/* SPDX-License-Identifier: Apache-2.0 */
#include "store/provision.h"

void provisions_free(struct provisions *p)
{
    free(p->provision);
    db_rows_free(&p->rows);
}

const struct db_stmts PROVISION_STMTS = { NULL, 0 };

int provision_get(struct db *db, const char *key, struct provisions *out, struct err *e)
{
    (void)db;
    (void)key;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "provision_get: not there yet");
}

int provision_list(struct db *db, const char *after, const char *status, int64_t limit,
    struct provisions *out, struct err *e)
{
    (void)db;
    (void)after;
    (void)status;
    (void)limit;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "provision_list: not there yet");
}
