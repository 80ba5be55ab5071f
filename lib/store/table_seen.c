/* SPDX-License-Identifier: Apache-2.0 */
#include "store/table_seen.h"

int table_saw(struct table_seen *t, int rc)
{
    if (rc >= 0)
        atomic_store_explicit(&t->seen, true, memory_order_relaxed);
    return rc;
}

bool table_is_none_yet(struct table_seen *t, const struct db *db)
{
    return !atomic_load_explicit(&t->seen, memory_order_relaxed) && db_missing_table(db, t->name);
}
