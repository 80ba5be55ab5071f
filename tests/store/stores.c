/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/store/stores.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "db/migrate.h"

enum { SKIPPED = 77, MIGRATE_MS = 30000, LOOK_US = 10000 };

static const char *named(const char *variable)
{
    const char *value = getenv(variable);
    if (str_empty(value)) {
        printf("skipped: %s names no server\n", variable);
        exit(SKIPPED);
    }
    return value;
}

const char *stores_pgurl(void)
{
    return named("WB_TEST_PGURL");
}

const char *stores_redis(void)
{
    return named("WB_TEST_REDIS");
}

const char *stores_sql_folder(void)
{
    return TOP_SRCDIR "/sql";
}

const char *stores_prefix(void)
{
    static char prefix[48];
    (void)str_format(prefix, sizeof prefix, "t%ld-", (long)getpid());
    return prefix;
}

static PGresult *run(const char *url, const char *sql)
{
    PGconn *c = PQconnectdb(url);
    if (PQstatus(c) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(c));
    PQclear(PQexec(c, "SET client_min_messages = warning; SET timezone = 'UTC'"));
    PGresult *res = PQexec(c, sql);
    ExecStatusType status = PQresultStatus(res);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(c));
    PQfinish(c);
    return res;
}

static void add_keyword(struct buf *out, const char *keyword, const char *value)
{
    buf_printf(out, "%s='", keyword);
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '\'' || *c == '\\')
            buf_putc(out, '\\');
        buf_putc(out, *c);
    }
    buf_puts(out, "' ");
}

/* The url with another database, as keywords: tests add some of their own. */
static void url_of(const char *url, const char *name, char *out, size_t size)
{
    cleanup_buf struct buf text = BUF_INIT(4096);
    char *problem = NULL;
    PQconninfoOption *all = PQconninfoParse(url, &problem);
    if (all == NULL)
        fail_msg("%s", problem);
    for (const PQconninfoOption *o = all; o != NULL && o->keyword != NULL; o++)
        if (o->val != NULL && strcmp(o->keyword, "dbname") != 0)
            add_keyword(&text, o->keyword, o->val);
    PQconninfoFree(all);
    add_keyword(&text, "dbname", name);
    assert_int_equal(str_copy(out, size, text.data), 0);
}

void stores_init(struct stores *s, bool migrated)
{
    static int number;
    assert_int_equal(
        str_format(s->name, sizeof s->name, "wb_test_%ld_%d", (long)getpid(), ++number), 0);
    char sql[256];
    (void)str_format(sql, sizeof sql, "DROP DATABASE IF EXISTS %s WITH (FORCE)", s->name);
    PQclear(run(stores_pgurl(), sql));
    (void)str_format(sql, sizeof sql,
        "CREATE DATABASE %s ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0", s->name);
    PQclear(run(stores_pgurl(), sql));
    url_of(stores_pgurl(), s->name, s->url, sizeof s->url);
    const char *pool = getenv("WB_TEST_PGPOOL");
    s->pooled[0] = '\0';
    if (!str_empty(pool))
        url_of(pool, s->name, s->pooled, sizeof s->pooled);
    if (!migrated)
        return;
    struct migrate_options o = {
        .url = s->url, .folder = stores_sql_folder(), .timeout_ms = MIGRATE_MS
    };
    struct err e = ERR_INIT;
    int applied = 0;
    if (migrate_run(&o, &applied, &e) < 0)
        fail_msg("%s", e.msg);
}

void stores_fini(struct stores *s)
{
    char sql[256];
    (void)str_format(sql, sizeof sql, "DROP DATABASE IF EXISTS %s WITH (FORCE)", s->name);
    PQclear(run(stores_pgurl(), sql));
}

struct db_options stores_options(
    const struct stores *s, bool prepared, const struct db_stmts *stmts, size_t n)
{
    const bool pooled = s->pooled[0] != '\0';
    return (struct db_options){
        .url = pooled ? s->pooled : s->url,
        .name = "weighbridge-test",
        .prepared = prepared && !pooled,
        .timeout_ms = 5000,
        .stmts = stmts,
        .n_stmts = n,
    };
}

void stores_want_session(const struct stores *s)
{
    if (s->pooled[0] != '\0')
        skip();
}

void stores_sql(const struct stores *s, const char *sql)
{
    PQclear(run(s->url, sql));
}

char *stores_value(const struct stores *s, const char *sql)
{
    PGresult *res = run(s->url, sql);
    char *value = mem_strdup(PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
    PQclear(res);
    return value;
}

bool stores_waits_again(const struct stores *s, const atomic_bool *over)
{
    static const char WAITS[] = "SELECT xact_start FROM pg_stat_activity"
                                " WHERE datname = current_database() AND wait_event_type = 'Lock'";
    cleanup_free char *first = mem_strdup("");
    while (!atomic_load(over)) {
        cleanup_free char *now = stores_value(s, WAITS);
        if (first[0] == '\0') {
            free(first);
            first = STEAL(now);
        } else if (now[0] != '\0' && strcmp(first, now) != 0) {
            return true;
        }
        (void)usleep(LOOK_US); /* the pace of looking */
    }
    return false;
}
