/* SPDX-License-Identifier: Apache-2.0 */

/* "Slow means no answer": a store that keeps answering is not slow, however much it has to say. Operations contract,
 * section 3. What comes here takes longer in all than the deadline, and each part of it far less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/store/store_fixture.h"

enum { TIMEOUT_MS = 4000, PATIENCE_MS = 600000, PARTS = 15 };
#define PART_S "0.3"

enum stmt { PARTS_OF_8K, ALONE };

static const struct db_stmt STMTS[] = {
    [PARTS_OF_8K] = { "t_parts",
        "SELECT n, repeat(n::text, 9000), pg_sleep(" PART_S ") FROM generate_series(1, 15) n", 0 },
    [ALONE] = { "t_alone", "SELECT 1", 0 },
};
static const struct db_stmts LIST = { STMTS, sizeof(STMTS) / sizeof(STMTS[0]) };

static int setup(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    return fx_begin(&LIST, 1, "SELECT 1");
}

static struct db *patient_db(void)
{
    struct db_options o = stores_options(&fx.stores, true, &LIST, 1);
    o.timeout_ms = TIMEOUT_MS;
    o.patience_ms = PATIENCE_MS;
    return db_new(&o);
}

static void rows_that_keep_coming_may_take_their_time(void **state)
{
    stores_want_session(&fx.stores); /* who does not set it has the role's statement_timeout */
    struct err e = ERR_INIT;
    (void)state;
    cleanup_db struct db *db = patient_db();
    cleanup_rows struct db_rows first = DB_ROWS_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    db_set_deadline(db, clock_deadline(TIMEOUT_MS));
    ok(db_start(db, &STMTS[ALONE], DB_NO_ARGS, &e));
    ok(db_start(db, &STMTS[PARTS_OF_8K], DB_NO_ARGS, &e));
    db_be_patient(db, clock_deadline(PATIENCE_MS));
    ok(db_finish(db, &first, &e));
    ok(db_finish(db, &rows, &e));
    assert_int_equal(db_rows_count(&rows), PARTS);
}

static void patience_ends(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    cleanup_db struct db *db = patient_db();
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    db_set_deadline(db, clock_deadline(TIMEOUT_MS));
    ok(db_start(db, &STMTS[ALONE], DB_NO_ARGS, &e));
    ok(db_finish(db, &rows, &e));
    db_set_deadline(db, clock_deadline(1));
    db_be_patient(db, clock_mono_ns());
    ok(db_start(db, &STMTS[PARTS_OF_8K], DB_NO_ARGS, &e));
    fx_fails(db_finish(db, &rows, &e), &e, ERR_TIMEOUT, "in time");
}

/* Each blocks, so that the answer to the one before has gone out. */
static int take_parts(struct kv *kv, struct err *e)
{
    for (int i = 0; i < PARTS; i++) {
        if (kv_append(kv, KV_ARGS(kv_text("BLPOP"), kv_text(stores_prefix()), kv_text(PART_S)), e) <
            0)
            return -1;
    }
    for (int i = 0; i < PARTS; i++) {
        cleanup_reply redisReply *r = NULL;
        if (kv_take(kv, &r, e) < 0)
            return -1;
        assert_int_equal(r->type, REDIS_REPLY_NIL);
    }
    return 0;
}

static void replies_that_keep_coming_may_take_their_time(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    cleanup_kv struct kv *kv = kv_new(&(struct kv_options){
        .url = stores_redis(), .name = "patience", .timeout_ms = TIMEOUT_MS });
    kv_be_patient(kv, clock_deadline(PATIENCE_MS));
    ok(take_parts(kv, &e));
    kv_be_patient(kv, 0);
    fx_fails(take_parts(kv, &e), &e, ERR_TIMEOUT, "no answer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_keep_coming_may_take_their_time),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(replies_that_keep_coming_may_take_their_time),
    };
    (void)stores_pgurl();
    (void)stores_redis();
    return cmocka_run_group_tests(tests, setup, fx_teardown);
}
