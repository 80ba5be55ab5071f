/* SPDX-License-Identifier: Apache-2.0 */
#include "store/installation.h"

#include "base/str.h"
#include "db/db_row.h"

static const struct db_stmt STMTS[] = {
    { "installation_name", "SELECT name FROM installation", 0 },
};

const struct db_stmts INSTALLATION_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

int installation_name(struct db *db, char out[PROVISION_CLUSTER_MAX + 1], struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_one(db, &STMTS[0], DB_NO_ARGS, &rows, e) < 0)
        return -1;
    if (str_copy(out, PROVISION_CLUSTER_MAX + 1, db_text(&rows, 0, 0)) < 0)
        return err_set(e, ERR_INTERNAL, "the installation's name is too long");
    return 0;
}
