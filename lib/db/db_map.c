/* SPDX-License-Identifier: Apache-2.0 */
#include "db/db_map.h"

#include <stddef.h>
#include <string.h>

struct row {
    const char *state; /* five characters, or two: the whole class */
    struct db_verdict verdict;
};

/* The first match counts: single states stand before their class. */
static const struct row ROWS[] = {
    { "23505", { .code = ERR_CONFLICT } },                /* unique_violation */
    { "23P01", { .code = ERR_CONFLICT } },                /* exclusion_violation */
    { "40001", { .code = ERR_CONFLICT, .retry = true } }, /* serialization_failure */
    { "40P01", { .code = ERR_CONFLICT, .retry = true } }, /* deadlock_detected */
    { "23514", { .code = ERR_INVALID } },                 /* check_violation */
    { "22001", { .code = ERR_INVALID } },                 /* string_data_right_truncation */
    { "22003", { .code = ERR_INVALID } },                 /* numeric_value_out_of_range */
    { "22021", { .code = ERR_INVALID } },                 /* character_not_in_repertoire */
    { "22P05", { .code = ERR_INVALID } },                 /* untranslatable_character */
    { "57014", { .code = ERR_TIMEOUT } },                 /* query_canceled: statement_timeout */
    { "55P03", { .code = ERR_TIMEOUT, .retry = true } },  /* lock_not_available: lock_timeout */
    { "42P01", { .code = ERR_UNAVAILABLE, .missing_table = true } }, /* undefined_table */
    /* The server is well, but this connection has lost what it had prepared (a pooler gave it another
     * session, or DISCARD ALL), or prepared against a table that has changed since. */
    { "26000", { .code = ERR_UNAVAILABLE, .drop = true } }, /* invalid_sql_statement_name */
    { "42P05", { .code = ERR_UNAVAILABLE, .drop = true } }, /* duplicate_prepared_statement */
    { "0A000", { .code = ERR_UNAVAILABLE, .drop = true } }, /* cached plan must not change type */
    /* A standby: the primary may be reached by connecting again. */
    { "25006", { .code = ERR_UNAVAILABLE, .drop = true } }, /* read_only_sql_transaction */
    { "25P03",
        { .code = ERR_UNAVAILABLE, .drop = true } }, /* idle_in_transaction_session_timeout */
    { "57P05", { .code = ERR_UNAVAILABLE, .drop = true } }, /* idle_session_timeout */
    { "53300",
        { .code = ERR_UNAVAILABLE, .drop = true, .outage = true } }, /* too_many_connections */
    { "53", { .code = ERR_UNAVAILABLE } }, /* insufficient_resources: disk full, out of memory */
    { "57P",
        { .code = ERR_UNAVAILABLE, .drop = true, .outage = true } },     /* shutdown, starting up */
    { "58", { .code = ERR_UNAVAILABLE } },                               /* system_error */
    { "08", { .code = ERR_UNAVAILABLE, .drop = true, .outage = true } }, /* connection_exception */
};

struct db_verdict db_map(const char *state)
{
    if (state == NULL)
        return (struct db_verdict){ .code = ERR_UNAVAILABLE, .drop = true, .outage = true };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (strncmp(state, ROWS[i].state, strlen(ROWS[i].state)) == 0)
            return ROWS[i].verdict;
    }
    return (struct db_verdict){ .code = ERR_INTERNAL };
}
