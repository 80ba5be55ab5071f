/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORES_H
#define WB_STORES_H

/* A real Postgres and Redis for tests. They are named by WB_TEST_PGURL (a connection string of a role
 * that may create databases) and WB_TEST_REDIS (a [redis] url); a test that needs one that is not
 * named ends with exit code 77, which counts as skipped. Each test makes what it needs under names of
 * its own, so that several programs may run on the same servers at once. */
#include <stdatomic.h>
#include <stdbool.h>

#include "db/db.h"
#include "kv/kv.h"

/* The url of WB_TEST_PGURL or WB_TEST_REDIS; ends the program with 77 and a word when it is unset. */
const char *stores_pgurl(void);
const char *stores_redis(void);

/* A database of its own, encoded UTF8, dropped by stores_fini(). With migrated the migrations of sql/
 * are applied. WB_TEST_PGPOOL may name the same server behind a pooler in transaction mode: then what is
 * tested goes through that, never with named statements, and the tests' own SQL still goes to the server. */
struct stores {
    char url[1024];    /* connection string of the database */
    char pooled[1024]; /* the same through the pooler; "" without one */
    char name[64];
};
void stores_init(struct stores *s, bool migrated);
void stores_fini(struct stores *s);

/* Options for db_new(): no breaker, 5 s, which is a hang guard and not a measure; the pooler's url if there is one. */
struct db_options stores_options(
    const struct stores *s, bool prepared, const struct db_stmts *stmts, size_t n);

/* For a test about one session: what its connection says of it, or prepares in it. Skips the test behind a pooler,
 * where no session is anybody's. */
void stores_want_session(const struct stores *s);

/* Runs SQL text in the test's database outside of lib/db: how tests play another program, and put rows
 * where they want them. The test fails when the text fails. stores_value() hands out the first column
 * of the first row ("" when NULL or none), owned by the caller. */
void stores_sql(const struct stores *s, const char *sql);
char *stores_value(const struct stores *s, const char *sql) OWNED_BY(free);

/* Somebody's call on another thread waits for a lock that the test holds: true as soon as it has given up once and waits
 * again; false when *over is set before that, which the thread does when the call is over. */
bool stores_waits_again(const struct stores *s, const atomic_bool *over);

/* Where sql/ lies, also in a build out of tree. */
const char *stores_sql_folder(void);

/* A prefix that no other test program uses, for keys in Redis. */
const char *stores_prefix(void);

#endif
