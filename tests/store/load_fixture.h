/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LOAD_FIXTURE_H
#define WB_LOAD_FIXTURE_H

/* What the tests of load jobs and gallery operations share: a migrated database, a connection with or without named
 * statements, and a few words of checking. Included once by a test program, after cmocka.h. */
#include <stdbool.h>
#include <string.h>

#include "base/str.h"
#include "store/gallery.h"
#include "store/load_job.h"
#include "tests/store/stores.h"

struct load_fixture {
    struct stores stores;
    bool prepared;
    struct db *db;
};
extern struct load_fixture fx;

/* For cmocka: the database once for the program, the connection for each test. */
int fx_setup(void **state);
int fx_teardown(void **state);
int fx_connect_prepared(void **state);
int fx_connect_plain(void **state);
int fx_clear(void **state);

/* A test twice: with named statements, and without as behind a pooler. */
#define FX_BOTH(test) \
    cmocka_unit_test_setup_teardown(test, fx_connect_prepared, fx_clear), \
        cmocka_unit_test_setup_teardown(test, fx_connect_plain, fx_clear)

struct db *fx_new_db(void);

/* The call gave 0; the call failed with this code and these words. */
#define ok(call) fx_ok((call), &e, #call)
void fx_ok(int result, const struct err *e, const char *what);
/* Postgres takes every statement, with as many arguments as it says. */
void fx_prepares(const struct db_stmts *all);
void fx_fails(int result, const struct err *e, enum err_code code, const char *part);

void fx_claim(const char *key, const char *owner, char token[TOKEN_HEX_SIZE]);
void fx_sql(const char *sql);
void fx_value(const char *sql, const char *expected);

/* What the rules make of stored times is tried by shifting them: all stamps of the row, and the claim
 * with it, which is bound to the row's created_at. */
void fx_age(const char *key, const char *interval);

#endif
