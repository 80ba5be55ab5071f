/* SPDX-License-Identifier: Apache-2.0 */

/* Plans: jobs contract, section 5, "Decide" and "Policies". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "store/pool.h"
#include "tests/store/job_fixture.h"

static const struct plan_ask ASK = { .max_provisioning = 3, .jobs = 100 };

static struct plan_order planned(const struct policy_job *j)
{
    return (
        struct plan_order){ .job = j, .verdict = POLICY_PLAN, .spec_json = "{\"replicas\": 2}" };
}

/* Other planners, or the pool's row, may name another provisioner: that of whoever plans is to get the machines. */
static void the_provider_is_that_of_whoever_plans(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    struct plan_ask ask = ASK;
    struct plan_result result = { .planned = 0 };
    cleanup_plan struct plan p = PLAN_INIT;
    (void)state;
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &l);
    ask.provisioner = "lambdaCloud";
    ok(plan_begin(fx.db, &l, &ask, &p, &e));
    struct plan_order order = planned(&p.snapshot.job[0]);
    ok(plan_commit(&p, "planner x", &(struct plan_orders){ .order = &order, .n = 1 }, &result, &e));
    fx_value("SELECT provider FROM provision", "lambdaCloud");
}

/* Planned is durable, with its spec and its provision intent, in one transaction. */
static void a_planned_job_has_its_spec_and_its_intent(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    struct plan_result result = { .planned = 0 };
    cleanup_plan struct plan p = PLAN_INIT;
    cleanup_jobs struct jobs got = JOBS_INIT;
    (void)state;
    job_make("j", id);
    fx_sql("UPDATE job_run SET failures = 2, error_code = 'no_capacity', error = 'none'");
    job_lead(fx.db, PLANNER_A, &l);
    ok(plan_begin(fx.db, &l, &ASK, &p, &e));
    struct plan_order order = planned(&p.snapshot.job[0]);
    order.detail_json = "{\"why\": \"first\"}";
    ok(plan_commit(&p, "planner x", &(struct plan_orders){ .order = &order, .n = 1 }, &result, &e));
    assert_int_equal(result.planned, 1);
    job_now(id, &got);
    assert_int_equal(got.job[0].state, JOB_PLANNED);
    assert_int_equal(got.job[0].attempts, 1);
    assert_true(got.job[0].stamp_us[JOB_PLANNED] >= got.job[0].stamp_us[JOB_QUEUED]);
    fx_value(
        "SELECT concat_ws('|', provision_key = job_id || ':1', machines, next_poll_at <= now(),"
        " version, failures) FROM job_run",
        "t|t|t|1|2");
    fx_value("SELECT concat_ws('|', kind, state, attempts, subject = job_id || ':1', idem_key ="
             " 'provision:' || subject, began_at IS NULL) FROM intent",
        "0|0|0|t|t|t");
    fx_value("SELECT concat_ws('|', key = job_id || ':1', status, spec) FROM provision",
        "t|pending|{\"replicas\": 2}");
    fx_value("SELECT concat_ws('|', event, actor, epoch, detail) FROM job_event WHERE to_state = 1",
        "1|planner x|1|{\"why\": \"first\"}");
    fx_value("SELECT concat_ws('|', planned, planned_at <= clock_timestamp(), plan_us > 0)"
             " FROM planner_lease",
        "1|t|t");
    jobs_consistent();
}

static void what_is_not_committed_never_was(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    (void)state;
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &l);
    {
        cleanup_plan struct plan p = PLAN_INIT;
        ok(plan_begin(fx.db, &l, &ASK, &p, &e));
        assert_int_equal(p.snapshot.n_jobs, 1);
    }
    assert_int_equal(job_state_now(id), JOB_QUEUED);
    assert_int_equal(job_plan(fx.db, &l, 1), 1);
}

/* A drained pool has no candidates, whoever asks how often; its queue stays as it was. */
static void nothing_is_planned_for_a_drained_pool(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    (void)state;
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &l);
    ok(pool_drain(fx.db, "default", "alice", &e));
    fx_sql("UPDATE pool SET drained_at = '2026-01-01Z' WHERE name = 'default'");
    ok(pool_drain(fx.db, "default", "bob", &e));
    fx_value("SELECT drained_by || (drained_at = '2026-01-01Z') FROM pool WHERE name = 'default'",
        "alicetrue");
    assert_int_equal(job_plan(fx.db, &l, 3), 0);
    assert_int_equal(job_state_now(id), JOB_QUEUED);
    ok(pool_resume(fx.db, "default", &e));
    fx_value("SELECT drained_by || (drained_at IS NULL) FROM pool WHERE name = 'default'", "true");
    assert_int_equal(job_plan(fx.db, &l, 3), 1);
    fx_fails(pool_drain(fx.db, "nowhere", "a", &e), &e, ERR_NOT_FOUND, "nowhere");
    fx_fails(pool_resume(fx.db, "nowhere", &e), &e, ERR_NOT_FOUND, "nowhere");
}

/* So that nothing is planned any more once a drain was answered. Jobs are accepted meanwhile: their rows refer to
 * the pool's. */
static void a_drain_waits_for_a_plan_and_accepting_jobs_does_not(void **state)
{
    static const char *const FREE_FOR_A_DRAIN =
        "SELECT count(*) FROM (SELECT FROM pool WHERE name = 'default' FOR NO KEY UPDATE SKIP"
        " LOCKED) x";
    struct err e = ERR_INIT;
    struct lease l;
    (void)state;
    job_lead(fx.db, PLANNER_A, &l);
    {
        cleanup_plan struct plan p = PLAN_INIT;
        ok(plan_begin(fx.db, &l, &ASK, &p, &e));
        fx_value(FREE_FOR_A_DRAIN, "0");
        fx_value("SELECT count(*) FROM (SELECT FROM pool WHERE name = 'default' FOR KEY SHARE SKIP"
                 " LOCKED) x",
            "1");
    }
    fx_value(FREE_FOR_A_DRAIN, "1");
}

/* The order of the queue, and who is not in it: delayed, past the deadline. */
static void the_snapshot_is_the_queue_in_order(void **state)
{
    struct err e = ERR_INIT;
    char id[6][UUID_SIZE];
    static const int ORDER[] = { 3, 0, 2, 5 };
    struct lease l;
    cleanup_plan struct plan p = PLAN_INIT;
    struct plan_ask ask = { .max_provisioning = 7, .jobs = 10, .with_requests = true };
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct job_new j = job_asked("j");
        j.priority = i == 3 ? 1 : 0;
        j.tenant = i == 2 ? "t2" : NULL;
        j.replicas = 2;
        j.gpus = 4;
        j.gpu_type = "A100";
        j.request_json = "{\"replicas\": 2}";
        job_accept(&j, id[i]);
    }
    cleanup_buf struct buf sql = BUF_INIT(1000);
    buf_printf(&sql,
        "UPDATE job_run SET not_before = now() + interval '1 hour' WHERE job_id = '%s';"
        "UPDATE job_run SET queue_deadline = now() WHERE job_id = '%s'",
        id[1], id[4]);
    fx_sql(sql.data);
    job_lead(fx.db, PLANNER_A, &l);
    ok(plan_begin(fx.db, &l, &ask, &p, &e));
    assert_int_equal(p.snapshot.n_jobs, 4);
    assert_false(p.snapshot.more);
    assert_int_equal(p.snapshot.max_provisioning, 7);
    assert_true(p.snapshot.now_us > 0);
    for (int i = 0; i < 4; i++)
        assert_string_equal(p.snapshot.job[i].id, id[ORDER[i]]);
    const struct policy_job *j = &p.snapshot.job[2];
    assert_string_equal(j->tenant, "t2");
    assert_string_equal(p.snapshot.job[0].tenant, "alice");
    assert_int_equal(p.snapshot.job[0].priority, 1);
    assert_int_equal(j->replicas, 2);
    assert_int_equal(j->gpus, 4);
    assert_string_equal(j->gpu_type, "A100");
    assert_string_equal(j->request_json, "{\"replicas\": 2}");
    assert_int_equal(j->attempts, 0);
    assert_true(j->enqueued_us > 0);
}

static void the_snapshot_ends_where_it_was_asked_to(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    struct plan_ask ask = { .max_provisioning = 1, .jobs = 2 };
    (void)state;
    job_lead(fx.db, PLANNER_A, &l);
    for (size_t i = 0; i < 4; i++) {
        cleanup_plan struct plan p = PLAN_INIT;
        ok(plan_begin(fx.db, &l, &ask, &p, &e));
        assert_int_equal(p.snapshot.n_jobs, i < 2 ? i : 2);
        assert_int_equal(p.snapshot.more, i > 2);
        plan_end(&p);
        job_make("j", id);
    }
}

/* What is under way, by tenant; jobs past their deadline do not count as provisioning. */
static void the_snapshot_counts_what_is_under_way(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    cleanup_plan struct plan p = PLAN_INIT;
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct job_new j = job_asked("j");
        j.tenant = i < 3 ? "b" : "a";
        j.replicas = 2;
        j.gpus = 3;
        job_accept(&j, id);
    }
    job_lead(fx.db, PLANNER_A, &l);
    assert_int_equal(job_plan(fx.db, &l, 4), 4); /* three of b, one of a */
    fx_sql(
        "UPDATE job_run SET queue_deadline = now() WHERE job_id = (SELECT min(job_id::text)::uuid"
        " FROM job_run)");
    fx_sql("UPDATE job_run SET state = 2, event = 2 WHERE tenant = 'a' AND state = 1");
    ok(plan_begin(fx.db, &l, &ASK, &p, &e));
    assert_int_equal(p.snapshot.provisioning, 3);
    assert_int_equal(p.snapshot.n_tenants, 2);
    assert_string_equal(p.snapshot.tenant[0].name, "a");
    assert_int_equal(p.snapshot.tenant[0].provisioning, 1);
    assert_int_equal(p.snapshot.tenant[0].live, 1);
    assert_int_equal(p.snapshot.tenant[0].gpus, 6);
    assert_string_equal(p.snapshot.tenant[1].name, "b");
    assert_int_equal(p.snapshot.tenant[1].provisioning, 2);
    assert_int_equal(p.snapshot.tenant[1].live, 3);
    assert_int_equal(p.snapshot.tenant[1].gpus, 18);
    assert_int_equal(p.snapshot.n_jobs, 1);
}

/* A job whose schedule fails is not skipped in silence: error on the job, back-off. */
static void a_deferred_job_says_why_and_waits(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    struct plan_result result = { .planned = 0 };
    cleanup_jobs struct jobs got = JOBS_INIT;
    (void)state;
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &l);
    {
        cleanup_plan struct plan p = PLAN_INIT;
        ok(plan_begin(fx.db, &l, &ASK, &p, &e));
        struct plan_order order = { .job = &p.snapshot.job[0],
            .verdict = POLICY_DEFER,
            .error_code = "schedule",
            .error = "no such accelerator",
            .delay_ms = 3600 * 1000 };
        ok(plan_commit(&p, "test", &(struct plan_orders){ .order = &order, .n = 1 }, &result, &e));
    }
    assert_int_equal(result.deferred, 1);
    job_now(id, &got);
    assert_int_equal(got.job[0].state, JOB_QUEUED);
    assert_string_equal(got.job[0].error_code, "schedule");
    assert_string_equal(got.job[0].error, "no such accelerator");
    assert_in_range(got.job[0].not_before_us - got.now_us, 3500 * US_PER_S, 3600 * US_PER_S);
    assert_int_equal(job_plan(fx.db, &l, 1), 0); /* not yet */
    job_all_due();
    cleanup_plan struct plan p = PLAN_INIT;
    ok(plan_begin(fx.db, &l, &ASK, &p, &e));
    assert_int_equal(p.snapshot.job[0].failures, 1);
}

/* Cancelled between the snapshot and the commit: passed over, the others are planned. */
static void a_job_that_changed_meanwhile_is_passed_over(void **state)
{
    struct err e = ERR_INIT;
    enum job_state s = JOB_NONE;
    char id[2][UUID_SIZE];
    struct lease l;
    struct plan_result result = { .planned = 0 };
    cleanup_plan struct plan p = PLAN_INIT;
    cleanup_db struct db *user = fx_new_db();
    (void)state;
    job_make("j", id[0]);
    job_make("k", id[1]);
    job_lead(fx.db, PLANNER_A, &l);
    ok(plan_begin(fx.db, &l, &ASK, &p, &e));
    ok(job_cancel(user, id[0], "alice", &s, &e));
    assert_int_equal(s, JOB_CANCELLED);
    struct plan_order order[] = { planned(&p.snapshot.job[0]), planned(&p.snapshot.job[1]) };
    ok(plan_commit(&p, "test", &(struct plan_orders){ .order = order, .n = 2 }, &result, &e));
    assert_int_equal(result.planned, 1);
    assert_int_equal(result.gone, 1);
    assert_int_equal(job_state_now(id[0]), JOB_CANCELLED);
    assert_int_equal(job_state_now(id[1]), JOB_PLANNED);
    jobs_consistent();
}

static void a_policy_that_takes_too_many_is_stopped(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    struct plan_result result = { .planned = 0 };
    struct plan_ask ask = { .max_provisioning = 1, .jobs = 10 };
    (void)state;
    job_make("j", id);
    job_make("k", id);
    job_lead(fx.db, PLANNER_A, &l);
    {
        cleanup_plan struct plan p = PLAN_INIT;
        ok(plan_begin(fx.db, &l, &ask, &p, &e));
        struct plan_order order[] = { planned(&p.snapshot.job[0]), planned(&p.snapshot.job[1]) };
        fx_fails(
            plan_commit(&p, "test", &(struct plan_orders){ .order = order, .n = 2 }, &result, &e),
            &e, ERR_INTERNAL, "policy");
    }
    fx_value("SELECT count(*) FROM job_run WHERE state = 0", "2");
}

static void nobody_plans_without_the_lease(void **state)
{
    struct err e = ERR_INIT;
    struct lease a;
    struct lease b;
    cleanup_plan struct plan p = PLAN_INIT;
    (void)state;
    job_lead(fx.db, PLANNER_A, &a);
    fx_sql("UPDATE planner_lease SET expires_at = clock_timestamp() - interval '1 ms'");
    assert_int_equal(plan_begin(fx.db, &a, &ASK, &p, &e), 1); /* expired */
    job_lead(fx.db, PLANNER_B, &b);
    assert_int_equal(plan_begin(fx.db, &a, &ASK, &p, &e), 1); /* another's */
    b.epoch--;
    assert_int_equal(plan_begin(fx.db, &b, &ASK, &p, &e), 1); /* of an old epoch */
    b.epoch++;
    ok(plan_begin(fx.db, &b, &ASK, &p, &e));
}

struct taker {
    struct db *db;
    int result;
    struct lease lease;
};

static void *take_over(void *arg)
{
    struct taker *t = arg;
    struct err e = ERR_INIT;
    t->result = lease_take(t->db, t->lease.pool_id,
        &(struct lease_claimant){ PLANNER_B, "b", LEASE_TTL_MS }, &t->lease, &e);
    return NULL;
}

/* Waits until so many sessions wait for a lock. */
static void wait_for_a_lock(void)
{
    int64_t deadline = clock_deadline(20000);
    for (;;) {
        cleanup_free char *n = stores_value(&fx.stores,
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()");
        if (strcmp(n, "1") == 0)
            return;
        assert_true(clock_left_ms(deadline) > 0);
    }
}

/* A take-over waits for the plan that is being made, and what follows sees it: no two plans overlap. */
static void a_take_over_waits_for_the_plan(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease a;
    struct plan_result result = { .planned = 0 };
    struct plan_ask ask = { .max_provisioning = 1, .jobs = 10 };
    pthread_t thread;
    cleanup_plan struct plan p = PLAN_INIT;
    (void)state;
    job_make("j", id);
    job_make("k", id);
    job_lead(fx.db, PLANNER_A, &a);
    ok(plan_begin(fx.db, &a, &ask, &p, &e));
    struct taker t = { .db = fx_new_db(), .result = -1, .lease = a };
    assert_int_equal(pthread_create(&thread, NULL, take_over, &t), 0);
    wait_for_a_lock();
    struct plan_order order = planned(&p.snapshot.job[0]);
    ok(plan_commit(&p, "test", &(struct plan_orders){ .order = &order, .n = 1 }, &result, &e));
    pthread_join(thread, NULL);
    assert_int_equal(t.result, 1); /* it had not run out */
    fx_sql("UPDATE planner_lease SET expires_at = clock_timestamp() - interval '1 ms'");
    (void)take_over(&t);
    assert_int_equal(t.result, 0);
    assert_int_equal(t.lease.epoch, 2);
    assert_int_equal(job_plan(t.db, &t.lease, 1), 0); /* the limit is reached */
    db_close(t.db);
    fx_value("SELECT count(*) FROM job_run WHERE state = 1", "1");
}

/* The leader's own renewal does not wait: it is on the plan's connection. */
static void the_leader_renews_within_its_plan(void **state)
{
    struct err e = ERR_INIT;
    struct lease a;
    cleanup_plan struct plan p = PLAN_INIT;
    (void)state;
    job_lead(fx.db, PLANNER_A, &a);
    ok(plan_begin(fx.db, &a, &ASK, &p, &e));
    ok(lease_renew(fx.db, &a, &e));
    ok(plan_commit(&p, "test", &(struct plan_orders){ .order = NULL, .n = 0 },
        &(struct plan_result){ 0 }, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(a_planned_job_has_its_spec_and_its_intent),
        FX_BOTH(the_provider_is_that_of_whoever_plans),
        FX_BOTH(what_is_not_committed_never_was),
        FX_BOTH(nothing_is_planned_for_a_drained_pool),
        FX_BOTH(a_drain_waits_for_a_plan_and_accepting_jobs_does_not),
        FX_BOTH(the_snapshot_is_the_queue_in_order),
        FX_BOTH(the_snapshot_ends_where_it_was_asked_to),
        FX_BOTH(the_snapshot_counts_what_is_under_way),
        FX_BOTH(a_deferred_job_says_why_and_waits),
        FX_BOTH(a_job_that_changed_meanwhile_is_passed_over),
        FX_BOTH(a_policy_that_takes_too_many_is_stopped),
        FX_BOTH(nobody_plans_without_the_lease),
        FX_BOTH(a_take_over_waits_for_the_plan),
        FX_BOTH(the_leader_renews_within_its_plan),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
