/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DB_MAP_H
#define WB_DB_MAP_H

/* What an SQLSTATE means to a caller and to the connection: the only table of them. Pure. */
#include <stdbool.h>

#include "base/err.h"

struct db_verdict {
    enum err_code code;
    bool drop;          /* the connection is of no further use */
    bool outage;        /* the server is not there: for the breaker */
    bool retry;         /* the whole transaction may succeed when it runs again */
    bool missing_table; /* not migrated yet, or beside a LocalAI that has not made its tables */
};

/* state: five characters, or NULL when the server never said one (the connection broke). */
struct db_verdict db_map(const char *state);

#endif
