/* SPDX-License-Identifier: Apache-2.0 */

/* A verb whose connection breaks at any of its statements: it says so, and nothing of it remains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store/load_job.h"
#include "tests/fake/libpq_fails.h"
#include "tests/store/load_fixture.h"

static const char KEY[] = "org/model@q4";
static const char ROWS[] = "SELECT (SELECT string_agg(j::text, ' ') FROM model_load_jobs j) ||"
                           " (SELECT string_agg(c::text, ' ') FROM load_job_claims c)";
static char token[TOKEN_HEX_SIZE];

static int claim(struct err *e)
{
    char fresh[TOKEN_HEX_SIZE];
    const struct load_claimant who = { .owner = "bob", .overlay_claim = "" };
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    return load_claim(fx.db, KEY, &who, &out, fresh, e);
}

static int update(struct err *e)
{
    struct load_update u = LOAD_UPDATE_INIT;
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    u.state = "staging";
    u.bytes_sent = 5;
    return load_update(fx.db, LOAD_OWNED(KEY, token), &u, &out, &changed, e);
}

static int report_failure(struct err *e)
{
    return load_fail(fx.db, LOAD_OWNED(KEY, token), "no room", e);
}

static int done(struct err *e)
{
    return load_done(fx.db, LOAD_OWNED(KEY, token), e);
}

static int own(void **state)
{
    fx_connect_prepared(state);
    fx_claim(KEY, "alice", token);
    return 0;
}

/* The verb on a connection that has been idle, its `first` statement failing. */
static int once(int (*verb)(struct err *e), int first, struct err *e)
{
    cleanup_free char *before = stores_value(&fx.stores, ROWS);
    libpq_fails(LIBPQ_SEND, first);
    int result = verb(e);
    if (result >= 0)
        return result;
    cleanup_free char *after = stores_value(&fx.stores, ROWS);
    assert_string_equal(before, after);
    fx_fails(result, e, ERR_UNAVAILABLE, KEY);
    return -1;
}

/* Lets the verb's statements fail one after the other, each in a run of its own on a new row. failing: how many of
 * them are not sent again, as a read and a BEGIN are. */
static void at_every_statement(
    void **state, int (*verb)(struct err *e), const char *age, int failing)
{
    int failed = 0;
    int result = -1;
    for (int first = 0; result < 0 || libpq_failed(); first++) {
        struct err e = ERR_INIT;
        fx_clear(state);
        own(state);
        fx_age(KEY, age);
        result = once(verb, first, &e);
        if (result < 0 && !libpq_failed())
            fail_msg("failed without a cause: %s", e.msg);
        failed += result < 0;
    }
    assert_int_equal(result, 0);
    assert_int_equal(failed, failing);
}

static void a_claim_of_an_orphan_leaves_it_until_all_is_done(void **state)
{
    /* insert, lock, remove, insert, take, commit, and the two reads in their transaction; not find and begin */
    at_every_statement(state, claim, "61 seconds", 8);
    fx_value("SELECT count(*) || min(owner_replica) FROM model_load_jobs", "1bob");
}

static void a_heartbeat_is_all_or_nothing(void **state)
{
    at_every_statement(state, update, "0 seconds", 1);
    fx_value("SELECT bytes_sent FROM model_load_jobs", "5");
}

static void a_failure_is_noted_or_not(void **state)
{
    at_every_statement(state, report_failure, "0 seconds", 1);
    fx_value("SELECT last_error FROM model_load_jobs", "no room");
}

static void an_end_is_an_end_or_none(void **state)
{
    at_every_statement(state, done, "0 seconds", 1);
    fx_value("SELECT count(*) FROM model_load_jobs", "0");
}

/* What reads why is sent again when the connection breaks: the caller learns the reason all the same. */
static void a_refusal_is_explained_after_a_break(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    libpq_fails(LIBPQ_SEND, 1);
    fx_fails(load_done(fx.db, LOAD_OWNED(KEY, "not the token"), &e), &e, ERR_CONFLICT, "alice");
    assert_true(libpq_failed());
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, own, fx_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_claim_of_an_orphan_leaves_it_until_all_is_done),
        TEST(a_heartbeat_is_all_or_nothing),
        TEST(a_failure_is_noted_or_not),
        TEST(an_end_is_an_end_or_none),
        TEST(a_refusal_is_explained_after_a_break),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
