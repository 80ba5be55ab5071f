/* SPDX-License-Identifier: Apache-2.0 */

/* Whose a batch is: jobs contract, section 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/intent.h"
#include "tests/store/job_fixture.h"

/* A job whose batch-1 is in progress, held by B, and one that is submitting, held by A. */
struct two_jobs {
    char first[UUID_SIZE];
    char second[UUID_SIZE];
    struct run_claims of_first;
    struct run_claims of_second;
};

static void two_jobs_free(struct two_jobs *t)
{
    run_claims_free(&t->of_first);
    run_claims_free(&t->of_second);
}
#define cleanup_two_jobs __attribute__((cleanup(two_jobs_free)))

static struct two_jobs claim_two(void)
{
    struct two_jobs t = { .of_first = RUN_CLAIMS_INIT, .of_second = RUN_CLAIMS_INIT };
    job_make("first", t.first);
    job_bring(t.first, JOB_IN_PROGRESS);
    job_claim(fx.db, PLANNER_B, 1, &t.of_first);
    job_make("second", t.second);
    job_bring(t.second, JOB_SUBMITTING);
    job_claim(fx.db, PLANNER_A, 1, &t.of_second);
    return t;
}

static struct land batch_told(const char *batch_id)
{
    return (struct land){ .event = EV_BATCH_SCHEDULING,
        .actor = "test",
        .batch_id = batch_id,
        .settles = 1U << INTENT_CREATE_BATCH };
}

/* Jobs contract, section 1: a job has at most one live batch, and no batch two jobs, not even one that has ended. */
static void a_batch_of_another_job_is_not_taken(void **state)
{
    cleanup_two_jobs struct two_jobs two = claim_two();
    struct err e = ERR_INIT;
    (void)state;
    (void)job_land(fx.db, &two.of_second.claim[0], batch_told("batch-1"), false, 2);
    assert_int_equal(job_state_now(two.second), JOB_SUBMITTING);
    fx_value("SELECT count(*) FROM intent WHERE kind = 1 AND state = 0", "1");
    (void)job_land(
        fx.db, &two.of_first.claim[0], (struct land)LAND_INIT(EV_BATCH_COMPLETED), false, 0);
    (void)job_land(fx.db, &two.of_second.claim[0], batch_told("batch-1"), false, 2);
    assert_int_equal(land_batch_taken(fx.db, two.first, "batch-1", &e), 0);
    assert_int_equal(land_batch_taken(fx.db, two.second, "batch-1", &e), 1);
    assert_int_equal(
        job_land(fx.db, &two.of_second.claim[0], batch_told("batch-2"), false, 0).state,
        JOB_SCHEDULING); /* the claim went on */
}

/* Also when nobody looked. */
static void the_database_refuses_a_batch_of_two_jobs(void **state)
{
    static const struct db_stmt TAKE = { "t_take",
        "UPDATE job_run SET batch_id = $2 WHERE job_id = $1::uuid", 2 };
    cleanup_two_jobs struct two_jobs two = claim_two();
    struct err e = ERR_INIT;
    (void)state;
    const struct db_args args = DB_ARGS(DB_TEXT(two.second), DB_TEXT("batch-1"));
    fx_fails(db_exec(fx.db, &TAKE, args, NULL, &e), &e, ERR_CONFLICT, "run_batch");
    (void)job_land(
        fx.db, &two.of_first.claim[0], (struct land)LAND_INIT(EV_BATCH_COMPLETED), false, 0);
    fx_fails(db_exec(fx.db, &TAKE, args, NULL, &e), &e, ERR_CONFLICT, "another job");
}

/* What names another job's batch must not have that cancelled: a late answer, or a service that lists it as ours. */
static void nobody_ends_the_batch_of_another_job(void **state)
{
    cleanup_two_jobs struct two_jobs two = claim_two();
    struct err e = ERR_INIT;
    (void)state;
    fx_sql("UPDATE job_run SET version = version + 1, batch_id = 'batch-2' WHERE state = 3");
    (void)job_land(fx.db, &two.of_second.claim[0], batch_told("batch-1"), false, 1);
    assert_int_equal(stray_batch_open(fx.db, two.second, "batch-1", &e), 1);
    fx_value("SELECT count(*) FROM intent WHERE kind = 4", "0");
    (void)job_land(fx.db, &two.of_second.claim[0], batch_told("batch-3"), false, 1);
    fx_value("SELECT count(*) FROM intent WHERE kind = 4", "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(a_batch_of_another_job_is_not_taken),
        FX_BOTH(the_database_refuses_a_batch_of_two_jobs),
        FX_BOTH(nobody_ends_the_batch_of_another_job),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
