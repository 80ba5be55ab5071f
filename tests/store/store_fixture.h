/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_FIXTURE_H
#define WB_STORE_FIXTURE_H

/* What the tests of stores share: a migrated database, a connection with or without named statements, and a
 * few words of checking. Included by a test program after cmocka.h, once. */
#include <stdbool.h>
#include <string.h>

#include "base/str.h"
#include "tests/store/stores.h"

struct store_fixture {
    struct stores stores;
    bool prepared;
    struct db *db;
    const struct db_stmts *stmts; /* of the stores that are tested */
    size_t n_stmts;
    const char *clear; /* SQL that empties their tables */
};
extern struct store_fixture fx;

/* For the group's set-up: makes the database. */
int fx_begin(const struct db_stmts *stmts, size_t n, const char *clear);

/* For cmocka: the connection for each test. */
int fx_teardown(void **state);
int fx_connect_prepared(void **state);
int fx_connect_plain(void **state);
int fx_clear(void **state);

/* A test twice: with named statements, and without as behind a pooler. */
#define FX_BOTH(test) \
    cmocka_unit_test_setup_teardown(test, fx_connect_prepared, fx_clear), \
        cmocka_unit_test_setup_teardown(test, fx_connect_plain, fx_clear)

/* A further connection, for another session or thread; closed by the caller. */
struct db *fx_new_db(void);

/* The call gave 0; the call failed with this code and these words. */
#define ok(call) fx_ok((call), &e, #call)
void fx_ok(int result, const struct err *e, const char *what);
void fx_fails(int result, const struct err *e, enum err_code code, const char *part);
/* Postgres takes every statement, with as many arguments as it says. */
void fx_prepares(const struct db_stmts *all);

void fx_sql(const char *sql);
void fx_value(const char *sql, const char *expected);

#endif
