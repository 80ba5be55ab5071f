/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TABLE_SEEN_H
#define WB_TABLE_SEEN_H

/* Whether a table's absence means "nothing yet": beside a LocalAI that has not made its tables there are
 * no rows. But once this process has read the table, one that is missing was taken away, and what is not
 * known must not look like what is not there. */
#include <stdatomic.h>
#include <stdbool.h>

#include "db/db.h"

struct table_seen {
    const char *name;
    atomic_bool seen;
};

/* Hands rc on. rc: of a statement that reads the table; 0 and 1 are answers. Any thread. */
int table_saw(struct table_seen *t, int rc);

/* After a failure of db: is it that the table is not there yet? */
bool table_is_none_yet(struct table_seen *t, const struct db *db);

#endif
