/* SPDX-License-Identifier: Apache-2.0 */

/* Housekeeping, and what operators see: jobs contract, sections 3 and 5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "store/chore.h"
#include "store/pool.h"
#include "store/planner_view.h"
#include "tests/store/job_fixture.h"

static void a_chore_is_one_processes_at_a_time(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    ok(chore_claim(fx.db, "sweep", 60, "a", &e));
    assert_int_equal(chore_claim(fx.db, "sweep", 60, "b", &e), 1);
    ok(chore_claim(fx.db, "other", 60, "b", &e));
    fx_sql("UPDATE chore SET next_at = clock_timestamp()");
    ok(chore_claim(fx.db, "sweep", 60, "b", &e));
    /* Both are read off the clock, one a microsecond after the other. */
    fx_value("SELECT holder || (next_at - taken_at BETWEEN interval '59 s' AND interval '61 s')"
             " FROM chore WHERE name = 'sweep'",
        "btrue");
}

/* Made ahead by whoever comes; what came before its partition was made moves into it. */
static void partitions_are_made_ahead(void **state)
{
    struct err e = ERR_INIT;
    int64_t made = -1;
    char id[UUID_SIZE];
    (void)state;
    ok(chore_event_partitions(fx.db, &made, &e));
    assert_int_equal(made, 0); /* the migration made them */
    fx_value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'job_event'::regclass", "4");
    fx_sql("DO $$ BEGIN EXECUTE 'DROP TABLE job_event_' || to_char(now() AT TIME ZONE 'UTC',"
           " 'YYYY_MM'); END $$");
    job_make("j", id);
    fx_value(
        "SELECT count(*) FROM job_event_default", "1"); /* nothing fails for want of a partition */
    ok(chore_event_partitions(fx.db, &made, &e));
    assert_int_equal(made, 1);
    fx_value("SELECT count(*) FROM job_event_default", "0");
    job_history_is(id, "queued");
    job_make("k", id);
    fx_value("SELECT count(*) FROM job_event_default", "0");
}

static void old_events_go_by_the_month(void **state)
{
    struct err e = ERR_INIT;
    int64_t dropped = -1;
    (void)state;
    fx_sql(
        "CREATE TABLE job_event_2020_01 PARTITION OF job_event FOR VALUES FROM ('2020-01-01Z') TO"
        " ('2020-02-01Z')");
    fx_sql("INSERT INTO job_event (job_id, at, to_state, event, actor, epoch) VALUES"
           " (gen_random_uuid(), '2020-01-31 23:59Z', 0, 0, '', 0)");
    ok(chore_drop_events(fx.db, 100000, &dropped, &e));
    assert_int_equal(dropped, 0);
    ok(chore_drop_events(fx.db, 365, &dropped, &e));
    assert_int_equal(dropped, 1);
    fx_value("SELECT count(*) FROM job_event", "0");
    fx_value(
        "SELECT to_regclass('job_event_2020_01') IS NULL AND to_regclass('job_event_default') IS NOT"
        " NULL",
        "t");
}

/* Ended jobs go after their time with all that is theirs, but not before their machines have gone. */
static void ended_jobs_are_retired(void **state)
{
    struct err e = ERR_INIT;
    int64_t n = -1;
    enum job_state s = JOB_NONE;
    char id[3][UUID_SIZE];
    cleanup_jobs struct jobs out = JOBS_INIT;
    (void)state;
    for (int i = 0; i < 3; i++) {
        cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
        job_make("j", id[i]);
        job_bring(id[i], JOB_SUBMITTING);
        job_all_due();
        job_claim(fx.db, PLANNER_A, 1, &c);
        (void)job_land(fx.db, &c.claim[0], (struct land)LAND_INIT(EV_SUBMIT_FAIL), false, 0);
    }
    char live[UUID_SIZE];
    job_make("live", live);
    ok(chore_retire_jobs(fx.db, 1, 100, &n, &e));
    assert_int_equal(n, 0);
    fx_sql("UPDATE job SET finished_at = now() - interval '10 days' WHERE final_state IS NOT NULL");
    ok(chore_retire_jobs(fx.db, 1, 100, &n, &e));
    assert_int_equal(n, 0); /* machines are still to be released */
    fx_sql("UPDATE intent SET state = 1");
    ok(chore_retire_jobs(fx.db, 11, 100, &n, &e));
    assert_int_equal(n, 0);
    ok(chore_retire_jobs(fx.db, 9, 2, &n, &e));
    assert_int_equal(n, 2);
    ok(chore_retire_jobs(fx.db, 9, 2, &n, &e));
    assert_int_equal(n, 1);
    fx_fails(job_get(fx.db, id[0], &out, &e), &e, ERR_NOT_FOUND, id[0]);
    fx_value("SELECT (SELECT count(*) FROM provision) + (SELECT count(*) FROM intent)", "0");
    fx_value("SELECT count(*) FROM job_file_ref", "1");
    jobs_consistent();
    ok(job_cancel(fx.db, live, "a", &s, &e));
}

static void operators_see_who_plans_what(void **state)
{
    struct err e = ERR_INIT;
    int64_t other = 0;
    char id[UUID_SIZE];
    cleanup_planner_view struct planner_view v = PLANNER_VIEW_INIT;
    (void)state;
    ok(pool_ensure(fx.db, "gpu", "aws", "simple", &other, &e));
    job_make("j", id);
    job_bring(id, JOB_RESOURCE_PREPARING);
    fx_sql("UPDATE intent SET state = 0, kind = 3, created_at = '2026-01-01Z'");
    for (int i = 0; i < 2; i++)
        job_make("k", id);
    ok(pool_drain(fx.db, "gpu", "bob", &e));
    fx_sql("UPDATE pool SET drained_at = '2026-01-01Z' WHERE name = 'gpu'");
    ok(planner_view_get(fx.db, &v, &e));
    assert_int_equal(v.n, 2);
    assert_true(v.pool[0].drained_us == 0 && v.pool[0].drained_by[0] == '\0');
    assert_int_equal(v.pool[1].drained_us, INT64_C(1767225600) * US_PER_S);
    assert_string_equal(v.pool[1].drained_by, "bob");
    const struct pool_view *p = &v.pool[0];
    assert_string_equal(p->name, "default");
    assert_int_equal(p->id, default_pools().id[0]);
    assert_string_equal(p->holder, PLANNER_A);
    assert_string_equal(p->holder_name, "test");
    assert_int_equal(p->epoch, 1);
    assert_true(p->expires_us > v.now_us - 60 * US_PER_S);
    assert_true(p->planned_us > 0 && p->plan_took_us > 0);
    assert_int_equal(p->planned, 1);
    assert_int_equal(p->count[JOB_QUEUED], 2);
    assert_int_equal(p->count[JOB_PLANNED], 0);
    assert_int_equal(p->count[JOB_RESOURCE_PREPARING], 1);
    assert_string_equal(v.pool[1].name, "gpu");
    assert_string_equal(v.pool[1].provisioner, "aws");
    assert_string_equal(v.pool[1].policy, "simple");
    assert_string_equal(v.pool[1].holder, "");
    assert_int_equal(v.pool[1].epoch, 0);
    assert_int_equal(v.pool[1].count[JOB_QUEUED], 0);
    assert_int_equal(v.open[INTENT_RELEASE], 1);
    assert_int_equal(v.oldest_us[INTENT_RELEASE], INT64_C(1767225600) * US_PER_S);
    assert_int_equal(v.open[INTENT_PROVISION] + v.oldest_us[INTENT_PROVISION], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(a_chore_is_one_processes_at_a_time),
        FX_BOTH(partitions_are_made_ahead),
        FX_BOTH(old_events_go_by_the_month),
        FX_BOTH(ended_jobs_are_retired),
        FX_BOTH(operators_see_who_plans_what),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
