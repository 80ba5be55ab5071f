/* SPDX-License-Identifier: Apache-2.0 */
#include "store/planner_view.h"

void planner_view_free(struct planner_view *v)
{
    free(v->pool);
    db_rows_free(&v->rows);
    db_rows_free(&v->intents);
}

const struct db_stmts PLANNER_VIEW_STMTS = { NULL, 0 };

int planner_view_get(struct db *db, struct planner_view *out, struct err *e)
{
    (void)db;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "planner_view_get: not there yet");
}
