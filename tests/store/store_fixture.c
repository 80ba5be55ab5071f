/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/store/store_fixture.h"

#include <libpq-fe.h>

struct store_fixture fx;

struct db *fx_new_db(void)
{
    struct db_options o = stores_options(&fx.stores, fx.prepared, fx.stmts, fx.n_stmts);
    return db_new(&o);
}

int fx_begin(const struct db_stmts *stmts, size_t n, const char *clear)
{
    fx.stmts = stmts;
    fx.n_stmts = n;
    fx.clear = clear;
    stores_init(&fx.stores, true);
    return 0;
}

int fx_teardown(void **state)
{
    (void)state;
    stores_fini(&fx.stores);
    return 0;
}

int fx_connect_prepared(void **state)
{
    (void)state;
    fx.prepared = true;
    fx.db = fx_new_db();
    return 0;
}

int fx_connect_plain(void **state)
{
    (void)state;
    fx.prepared = false;
    fx.db = fx_new_db();
    return 0;
}

int fx_clear(void **state)
{
    (void)state;
    db_close(fx.db);
    fx.db = NULL;
    fx_sql(fx.clear);
    return 0;
}

void fx_ok(int result, const struct err *e, const char *what)
{
    if (result < 0)
        fail_msg("%s: %s: %s", what, err_name(e->code), e->msg);
    assert_int_equal(result, 0);
}

void fx_prepares(const struct db_stmts *all)
{
    PGconn *c = PQconnectdb(fx.stores.url);
    for (size_t i = 0; i < all->n; i++) {
        const struct db_stmt *s = &all->stmt[i];
        PGresult *made = PQprepare(c, s->name, s->sql, 0, NULL);
        if (PQresultStatus(made) != PGRES_COMMAND_OK)
            fail_msg("%s: %s", s->name, PQerrorMessage(c));
        PQclear(made);
        PGresult *described = PQdescribePrepared(c, s->name);
        assert_int_equal(PQresultStatus(described), PGRES_COMMAND_OK);
        assert_int_equal(PQnparams(described), s->args);
        PQclear(described);
    }
    PQfinish(c);
}

void fx_fails(int result, const struct err *e, enum err_code code, const char *part)
{
    assert_int_equal(result, -1);
    if (e->code != code || strstr(e->msg, part) == NULL)
        fail_msg("%s: %s, where %s with \"%s\" was due", err_name(e->code), e->msg, err_name(code),
            part);
}

void fx_sql(const char *sql)
{
    stores_sql(&fx.stores, sql);
}

void fx_value(const char *sql, const char *expected)
{
    cleanup_free char *value = stores_value(&fx.stores, sql);
    if (strcmp(value, expected) != 0)
        fail_msg("%s is '%s', not '%s'", sql, value, expected);
}
