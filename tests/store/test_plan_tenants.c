/* SPDX-License-Identifier: Apache-2.0 */

/* What plans read and write for the policies fair and capacity: jobs contract, section 5, "Policies". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "tests/store/job_fixture.h"

static const struct plan_ask BY_TENANT = { .max_provisioning = 50, .jobs = 100, .per_tenant = 2 };
static const struct policy_quota NO_QUOTA = { "", JOB_UNLIMITED, JOB_UNLIMITED, 1 };

static void queue(const char *tenant, int64_t priority)
{
    char id[UUID_SIZE];
    struct job_new j = job_asked(tenant);
    j.tenant = tenant;
    j.priority = priority;
    job_accept(&j, id);
}

/* One plan by the policy fair: the tenants that were served, in order. */
static void serve(struct lease *l, const struct plan_ask *ask, char out[64])
{
    struct err e = ERR_INIT;
    struct plan_order order[64];
    struct plan_result result = { .planned = 0 };
    cleanup_plan struct plan p = PLAN_INIT;
    cleanup_policy_plan struct policy_plan decided = POLICY_PLAN_INIT;

    ok(plan_begin(fx.db, l, ask, &p, &e));
    p.snapshot.quota = &NO_QUOTA;
    p.snapshot.n_quotas = 1;
    policy_fair(&p.snapshot, &decided);
    for (size_t i = 0; i < decided.n; i++) {
        const struct policy_decision *d = &decided.decision[i];
        order[i] = (struct plan_order){ .job = &p.snapshot.job[d->job],
            .verdict = d->verdict,
            .spec_json = "{\"replicas\": 1}",
            .finish = d->finish };
        out[i] = order[i].job->tenant[0];
    }
    out[decided.n] = '\0';
    ok(plan_commit(&p, "test",
        &(struct plan_orders){
            order, decided.n, decided.round, decided.window_done, decided.window_left },
        &result, &e));
    assert_int_equal(result.planned, decided.n);
}

/* A tenant with a long queue hides none of the others, whoever came first. */
static void the_heads_of_all_queues_are_seen(void **state)
{
    struct err e = ERR_INIT;
    struct lease l;
    cleanup_plan struct plan p = PLAN_INIT;
    struct plan_ask ask = BY_TENANT;
    (void)state;
    for (int i = 0; i < 9; i++)
        queue("a", i == 8);
    queue("c", 0);
    queue("b", 0);
    fx_sql("UPDATE job_run SET not_before = now() + interval '1 hour' WHERE tenant = 'c'");
    queue("c", 0);
    job_lead(fx.db, PLANNER_A, &l);
    ask.jobs = 4;
    ok(plan_begin(fx.db, &l, &ask, &p, &e));
    assert_int_equal(p.snapshot.n_jobs, 4);
    assert_true(p.snapshot.more);
    assert_string_equal(p.snapshot.job[0].tenant, "a");
    assert_int_equal(p.snapshot.job[0].priority, 1);
    assert_string_equal(p.snapshot.job[1].tenant, "b");
    assert_string_equal(p.snapshot.job[2].tenant, "c");
    assert_string_equal(p.snapshot.job[3].tenant, "a");
    assert_int_equal(p.snapshot.job[3].priority, 0);
}

/* The round goes on from plan to plan, and from planner to planner. */
static void turns_outlive_their_plan(void **state)
{
    struct lease l;
    const struct plan_ask one = { .max_provisioning = 1, .jobs = 100, .per_tenant = 2 };
    char got[64] = "";
    char all[64] = "";
    (void)state;
    for (int i = 0; i < 4; i++)
        queue("a", 0);
    queue("b", 0);
    queue("c", 0);
    job_lead(fx.db, PLANNER_A, &l);
    for (int i = 0; i < 6; i++) {
        serve(&l, &one, got);
        assert_int_equal(strlen(got), 1);
        all[i] = got[0];
        fx_sql("UPDATE job_run SET queue_deadline = now() WHERE state = 1"); /* counts no more */
        if (i == 2) {
            fx_sql("UPDATE planner_lease SET expires_at = clock_timestamp() - interval '1 ms'");
            job_lead(fx.db, PLANNER_B, &l);
        }
    }
    assert_string_equal(all, "abcaaa");
}

/* More tenants than one plan looks at: the window goes on from plan to plan and from planner to planner, past those that
 * have nothing due, and begins again behind the last. */
static void a_window_of_tenants_goes_round(void **state)
{
    struct lease l;
    const struct plan_ask three = {
        .max_provisioning = 2, .jobs = 100, .per_tenant = 2, .tenants = 3
    };
    char got[64] = "";
    char all[64] = "";
    (void)state;
    for (const char *name = "abcdefgh"; *name != '\0'; name++) {
        const char tenant[] = { *name, '\0' };
        queue(tenant, 0);
        queue(tenant, *name == 'a' || *name == 'e' ? 9 : 0);
    }
    fx_sql("UPDATE job_run SET not_before = now() + interval '1 hour' WHERE tenant = 'b'");
    job_lead(fx.db, PLANNER_A, &l);
    for (int i = 0; i < 40 && strlen(all) < 14; i++) {
        serve(&l, &three, got);
        (void)str_copy(all + strlen(all), sizeof all - strlen(all), got);
        fx_sql("UPDATE job_run SET queue_deadline = now() WHERE state = 1"); /* counts no more */
        if (i == 3) {
            fx_sql("UPDATE planner_lease SET expires_at = clock_timestamp() - interval '1 ms'");
            job_lead(fx.db, PLANNER_B, &l);
        }
    }
    /* the place that was over in the second window went to d, which stands back for it in the second lap */
    assert_string_equal(all, "acedfdghacefhg");
    fx_value("SELECT count(*) FROM job_run WHERE state = 0", "2");
}

/* Nothing but the window's own is read. */
static void a_plan_looks_at_so_many_tenants_and_no_more(void **state)
{
    struct err e = ERR_INIT;
    struct lease l;
    struct plan_ask ask = { .max_provisioning = 9, .jobs = 100, .per_tenant = 2, .tenants = 2 };
    (void)state;
    queue("", 0);
    queue("b", 0);
    queue("c", 0);
    job_lead(fx.db, PLANNER_A, &l);
    for (int64_t n = 2; n <= 3; n++) {
        cleanup_plan struct plan p = PLAN_INIT;
        ask.tenants = n;
        ok(plan_begin(fx.db, &l, &ask, &p, &e));
        assert_int_equal(p.snapshot.n_jobs, n);
        assert_int_equal(p.snapshot.window.part, n == 2);
        assert_int_equal(p.snapshot.window.left, -1);
        assert_string_equal(p.window_next, n == 2 ? "c" : "");
    }
}

/* Whoever has no more than the round itself need not be remembered. */
static void turns_of_the_past_are_forgotten(void **state)
{
    struct lease l;
    char got[64] = "";
    (void)state;
    queue("a", 0);
    queue("b", 0);
    job_lead(fx.db, PLANNER_A, &l);
    serve(&l, &BY_TENANT, got);
    assert_string_equal(got, "ab");
    fx_value("SELECT string_agg(tenant, ' ' ORDER BY tenant) FROM policy_turn", "a b");
    for (int i = 0; i < 3; i++)
        queue("b", 0);
    serve(&l, &BY_TENANT, got);
    serve(&l, &BY_TENANT, got);
    fx_value("SELECT string_agg(tenant, ' ' ORDER BY tenant) FROM policy_turn", "b");
    fx_value("SELECT round > 0 FROM planner_lease", "t");
}

static void pass_over(struct lease *l, const char *why, int64_t passed_over)
{
    struct err e = ERR_INIT;
    struct plan_result result = { .planned = 0 };
    cleanup_plan struct plan p = PLAN_INIT;
    const struct plan_ask ask = { .max_provisioning = 1, .jobs = 10 };

    ok(plan_begin(fx.db, l, &ask, &p, &e));
    const struct plan_order order = {
        .job = &p.snapshot.job[0], .verdict = POLICY_PASS_OVER, .error_code = "waits", .error = why
    };
    ok(plan_commit(&p, "test", &(struct plan_orders){ .order = &order, .n = 1 }, &result, &e));
    assert_int_equal(result.passed_over, passed_over);
}

/* Not skipped in silence, still due, and the first time is what counts. */
static void a_job_that_is_passed_over_says_why_and_stays_due(void **state)
{
    struct err e = ERR_INIT;
    struct lease l;
    char id[UUID_SIZE];
    cleanup_jobs struct jobs got = JOBS_INIT;
    cleanup_plan struct plan p = PLAN_INIT;
    const struct plan_ask ask = { .max_provisioning = 1, .jobs = 10 };
    (void)state;
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &l);
    pass_over(&l, "no room", 1);
    job_now(id, &got);
    assert_int_equal(got.job[0].state, JOB_QUEUED);
    assert_string_equal(got.job[0].error_code, "waits");
    assert_string_equal(got.job[0].error, "no room");
    assert_int_equal(got.job[0].not_before_us, 0);
    fx_sql("UPDATE job_run SET passed_over_at = '2020-01-01 00:00:00Z'");
    pass_over(&l, "no room", 0);
    ok(plan_begin(fx.db, &l, &ask, &p, &e));
    assert_int_equal(p.snapshot.n_jobs, 1);
    assert_true(p.snapshot.job[0].passed_over_us == 1577836800 * US_PER_S);
    plan_end(&p);
    assert_int_equal(job_plan(fx.db, &l, 1), 1);
    fx_value(
        "SELECT concat_ws('|', state, passed_over_at IS NULL, error_code IS NULL, error IS NULL)"
        " FROM job_run",
        "1|t|t|t");
}

/* What was planned after a moment: the catalog that was read before does not know of it. */
static void what_was_planned_since_is_told(void **state)
{
    struct err e = ERR_INIT;
    struct lease l;
    char id[UUID_SIZE];
    struct job_new j = job_asked("j");
    struct plan_ask ask = { .max_provisioning = 9, .jobs = 10, .taken_since_us = 1 };
    (void)state;
    j.gpus = 4;
    j.gpu_type = "A100";
    j.replicas = 3;
    job_accept(&j, id);
    job_accept(&j, id);
    job_make("plain", id);
    job_lead(fx.db, PLANNER_A, &l);
    assert_int_equal(job_plan(fx.db, &l, 2), 2);
    {
        cleanup_plan struct plan p = PLAN_INIT;
        ok(plan_begin(fx.db, &l, &ask, &p, &e));
        assert_int_equal(p.snapshot.n_taken, 1);
        assert_string_equal(p.snapshot.taken[0].gpu_type, "A100");
        assert_int_equal(p.snapshot.taken[0].gpus, 4);
        assert_int_equal(p.snapshot.taken[0].replicas, 6);
    }
    fx_sql("UPDATE job_run SET stamps[2] = 5");
    ask.taken_since_us = 6;
    cleanup_plan struct plan p = PLAN_INIT;
    ok(plan_begin(fx.db, &l, &ask, &p, &e));
    assert_int_equal(p.snapshot.n_taken, 0);
}

/* The region of a request, for a policy that places. */
static void the_region_that_was_asked_for_is_told(void **state)
{
    struct err e = ERR_INIT;
    struct lease l;
    char id[UUID_SIZE];
    struct job_new j = job_asked("j");
    const struct plan_ask ask = { .max_provisioning = 9, .jobs = 10, .with_requests = true };
    cleanup_plan struct plan p = PLAN_INIT;
    (void)state;
    j.request_json = "{\"provider_config\": {\"region\": \"west\"}}";
    job_accept(&j, id);
    job_make("k", id);
    job_lead(fx.db, PLANNER_A, &l);
    ok(plan_begin(fx.db, &l, &ask, &p, &e));
    assert_string_equal(p.snapshot.job[0].region, "west");
    assert_string_equal(p.snapshot.job[1].region, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(the_heads_of_all_queues_are_seen),
        FX_BOTH(turns_outlive_their_plan),
        FX_BOTH(a_window_of_tenants_goes_round),
        FX_BOTH(a_plan_looks_at_so_many_tenants_and_no_more),
        FX_BOTH(turns_of_the_past_are_forgotten),
        FX_BOTH(a_job_that_is_passed_over_says_why_and_stays_due),
        FX_BOTH(what_was_planned_since_is_told),
        FX_BOTH(the_region_that_was_asked_for_is_told),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
