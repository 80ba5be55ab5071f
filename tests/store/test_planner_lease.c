/* SPDX-License-Identifier: Apache-2.0 */

/* Who decides for a pool: jobs contract, section 5, "Decide". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "store/pool.h"
#include "tests/store/job_fixture.h"

static int64_t pool(void)
{
    return default_pools().id[0];
}

static int take(const char *holder, struct lease *out)
{
    struct err e = ERR_INIT;
    int result = lease_take(
        fx.db, pool(), &(struct lease_claimant){ holder, "host/1", LEASE_TTL_MS }, out, &e);
    if (result < 0)
        fail_msg("%s", e.msg);
    return result;
}

static void expire(void)
{
    fx_sql("UPDATE planner_lease SET expires_at = clock_timestamp() - interval '1 ms'");
}

static void one_of_two_leads(void **state)
{
    struct err e = ERR_INIT;
    struct lease a;
    struct lease b;
    (void)state;
    assert_int_equal(lease_look(fx.db, pool(), PLANNER_A, &e), 0); /* nobody does */
    assert_int_equal(take(PLANNER_A, &a), 0);
    assert_int_equal(a.epoch, 1);
    assert_int_equal(a.pool_id, pool());
    assert_int_equal(lease_look(fx.db, pool(), PLANNER_B, &e), 1);
    assert_int_equal(
        lease_look(fx.db, pool(), PLANNER_A, &e), 0); /* itself does not stand against it */
    assert_int_equal(take(PLANNER_B, &b), 1);
    fx_value("SELECT concat_ws('|', holder, holder_name, epoch) FROM planner_lease",
        "aaaaaaaa-0000-4000-8000-000000000000|host/1|1");
}

/* The epoch grows at every change of holder, and when ours had expired; never at a renewal. */
static void the_epoch_fences(void **state)
{
    struct err e = ERR_INIT;
    struct lease a;
    struct lease b;
    (void)state;
    assert_int_equal(take(PLANNER_A, &a), 0);
    assert_int_equal(take(PLANNER_A, &a), 0);
    assert_int_equal(a.epoch, 1);
    ok(lease_renew(fx.db, &a, &e));
    expire();
    assert_int_equal(take(PLANNER_A, &a), 0);
    assert_int_equal(a.epoch, 2);
    expire();
    assert_int_equal(lease_renew(fx.db, &a, &e), 1); /* too late, though nobody else has it */
    assert_int_equal(lease_look(fx.db, pool(), PLANNER_B, &e), 0);
    assert_int_equal(take(PLANNER_B, &b), 0);
    assert_int_equal(b.epoch, 3);
    assert_int_equal(take(PLANNER_A, &a), 1);
    assert_int_equal(lease_renew(fx.db, &a, &e), 1);
    ok(lease_step_down(fx.db, &a, &e)); /* of the old epoch: does nothing */
    assert_int_equal(lease_look(fx.db, pool(), PLANNER_A, &e), 1);
}

static void who_steps_down_is_followed_at_once(void **state)
{
    struct err e = ERR_INIT;
    struct lease a;
    struct lease b;
    (void)state;
    assert_int_equal(take(PLANNER_A, &a), 0);
    ok(lease_step_down(fx.db, &a, &e));
    assert_int_equal(lease_look(fx.db, pool(), PLANNER_B, &e), 0);
    assert_int_equal(take(PLANNER_B, &b), 0);
    assert_int_equal(b.epoch, 2);
}

static void a_renewal_prolongs_by_the_ttl(void **state)
{
    struct err e = ERR_INIT;
    struct lease a;
    (void)state;
    assert_int_equal(take(PLANNER_A, &a), 0);
    fx_sql("UPDATE planner_lease SET expires_at = clock_timestamp() + interval '3 seconds'");
    int64_t before = clock_mono_ns();
    ok(lease_renew(fx.db, &a, &e));
    int64_t after = clock_mono_ns();
    fx_value("SELECT expires_at - clock_timestamp() BETWEEN interval '5 seconds' AND"
             " interval '15 seconds' FROM planner_lease",
        "t");
    /* trust is measured from when the renewal was sent */
    assert_in_range(a.trusted_until_ns - 13000 * NS_PER_MS, before, after);
    assert_true(lease_trusted(&a, a.trusted_until_ns - 1));
    assert_false(lease_trusted(&a, a.trusted_until_ns));
}

/* [planner] lease_ms. */
static void a_lease_lasts_as_long_as_it_is_asked_for(void **state)
{
    struct err e = ERR_INIT;
    struct lease a;
    (void)state;
    const int64_t before = clock_mono_ns();
    ok(lease_take(fx.db, pool(), &(struct lease_claimant){ PLANNER_A, "", 60000 }, &a, &e));
    assert_in_range(a.trusted_until_ns - 52000 * NS_PER_MS, before, clock_mono_ns());
    fx_value("SELECT expires_at - clock_timestamp() BETWEEN interval '50 s' AND interval '60 s'"
             " FROM planner_lease",
        "t");
    fx_sql("UPDATE planner_lease SET expires_at = clock_timestamp() + interval '5 s'");
    ok(lease_renew(fx.db, &a, &e));
    fx_value("SELECT expires_at - clock_timestamp() BETWEEN interval '50 s' AND interval '60 s'"
             " FROM planner_lease",
        "t");
}

/* Followers SELECT first: a look waits for no lock, so that they do not queue up behind a plan. */
static void a_look_does_not_wait_for_a_plan(void **state)
{
    struct err e = ERR_INIT;
    struct lease a;
    cleanup_plan struct plan p = PLAN_INIT;
    cleanup_db struct db *other = fx_new_db();
    struct plan_ask ask = { .max_provisioning = 1, .jobs = 10 };
    (void)state;
    assert_int_equal(take(PLANNER_A, &a), 0);
    ok(plan_begin(fx.db, &a, &ask, &p, &e));
    assert_int_equal(lease_look(other, a.pool_id, PLANNER_B, &e), 1);
}

static void leases_of_pools_are_apart(void **state)
{
    struct err e = ERR_INIT;
    int64_t second = 0;
    int64_t again = 0;
    struct lease a;
    struct lease b;
    (void)state;
    ok(pool_ensure(fx.db, "gpu", "aws", "simple", &second, &e));
    assert_int_equal(take(PLANNER_A, &a), 0);
    ok(lease_take(fx.db, second, &(struct lease_claimant){ PLANNER_B, "", LEASE_TTL_MS }, &b, &e));
    assert_int_equal(b.pool_id, second);
    ok(pool_ensure(fx.db, "gpu", "local", "simple", &again, &e));
    assert_int_equal(again, second);
    fx_value("SELECT provisioner || policy FROM pool WHERE name = 'gpu'", "localsimple");
    ok(pool_find(fx.db, "gpu", &again, &e));
    assert_int_equal(again, second);
    fx_fails(pool_find(fx.db, "none", &again, &e), &e, ERR_NOT_FOUND, "none");
}

/* A pool is registered at every start of every planner; its number is a smallint. */
static void registering_a_pool_uses_up_no_numbers(void **state)
{
    struct err e = ERR_INIT;
    int64_t id = 0;
    int64_t next = 0;
    (void)state;
    ok(pool_ensure(fx.db, "one", "local", "simple", &id, &e));
    for (int i = 0; i < 5; i++)
        ok(pool_ensure(fx.db, "one", i % 2 ? "aws" : "local", "simple", &next, &e));
    ok(pool_ensure(fx.db, "two", "local", "simple", &next, &e));
    assert_int_equal(next, id + 1);
}

static void holders_are_uuids(void **state)
{
    struct err e = ERR_INIT;
    char a[UUID_SIZE];
    char b[UUID_SIZE];
    (void)state;
    ok(lease_new_holder(fx.db, a, &e));
    ok(lease_new_holder(fx.db, b, &e));
    assert_true(job_uuid_valid(a));
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(one_of_two_leads),
        FX_BOTH(the_epoch_fences),
        FX_BOTH(who_steps_down_is_followed_at_once),
        FX_BOTH(a_renewal_prolongs_by_the_ttl),
        FX_BOTH(a_lease_lasts_as_long_as_it_is_asked_for),
        FX_BOTH(a_look_does_not_wait_for_a_plan),
        FX_BOTH(leases_of_pools_are_apart),
        FX_BOTH(registering_a_pool_uses_up_no_numbers),
        FX_BOTH(holders_are_uuids),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
