/* SPDX-License-Identifier: Apache-2.0 */

/* Planners and users at once, in random order: jobs contract, section 6. Planners that freeze and wake up late,
 * results that land after a cancel, take-overs between plans. Whatever happens, each job ends once, the limit
 * holds at every moment of job_event, and whatever may have been made outside is to be released. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "db/db_row.h"
#include "tests/store/job_fixture.h"

enum { PLANNERS = 4, USERS = 2, LIMIT = 3, JOBS = 300, JOBS_LONG = 10000, PATIENCE_MS = 600000 };

struct world {
    struct run_pools pools;
    int jobs;
    atomic_int made;
    atomic_bool over;
    atomic_int failed; /* calls that gave an error that none may give */
};

struct actor {
    struct world *w;
    struct db *db;
    char holder[UUID_SIZE];
    int plans;
    int landed;
    int superseded;
    int cancelled;
};

static bool chance(int percent)
{
    return arc4random_uniform(100) < (unsigned)percent;
}

/* An error that a busy machine excuses is none here: nothing waits for anything for long. */
static void note(struct actor *a, int result, const struct err *e)
{
    if (result >= 0)
        return;
    print_message("%s: %s\n", err_name(e->code), e->msg);
    atomic_fetch_add(&a->w->failed, 1);
}

static void plan(struct actor *a, const struct lease *l)
{
    struct err e = ERR_INIT;
    struct plan_ask ask = { .max_provisioning = LIMIT, .jobs = 10 };
    struct plan_order order[10];
    struct plan_result result = { .planned = 0 };
    cleanup_plan struct plan p = PLAN_INIT;
    cleanup_policy_plan struct policy_plan decided = POLICY_PLAN_INIT;
    int lost = plan_begin(a->db, l, &ask, &p, &e);
    note(a, lost, &e);
    if (lost != 0)
        return;
    policy_simple(&p.snapshot, &decided);
    for (size_t i = 0; i < decided.n; i++)
        order[i] = (struct plan_order){ .job = &p.snapshot.job[decided.decision[i].job],
            .verdict = POLICY_PLAN,
            .spec_json = "{}" };
    note(a,
        plan_commit(
            &p, "planner", &(struct plan_orders){ .order = order, .n = decided.n }, &result, &e),
        &e);
    a->plans += result.planned > 0;
}

static void lead(struct actor *a)
{
    struct err e = ERR_INIT;
    struct lease l;
    if (lease_look(a->db, a->w->pools.id[0], a->holder, &e) != 0)
        return;
    int taken = lease_take(
        a->db, a->w->pools.id[0], &(struct lease_claimant){ a->holder, "", LEASE_TTL_MS }, &l, &e);
    note(a, taken, &e);
    if (taken != 0)
        return;
    plan(a, &l);
    if (chance(30)) /* and another leads */
        note(a, lease_step_down(a->db, &l, &e), &e);
}

/* Some event that may come of work on a job in this state, for good or ill. */
static struct land some_result(const struct run_claim *c)
{
    static const struct land_provision GOT = { .provider = "p", .status = "running" };
    static const enum job_event PLANNED[] = { EV_PROVISIONED, EV_PROVISIONED, EV_REQUEUE,
        EV_RESOURCE_FAIL };
    static const enum job_event PREPARING[] = { EV_SUBMIT, EV_SUBMIT, EV_SUBMIT, EV_REQUEUE,
        EV_SUBMIT_FAIL };
    static const enum job_event REPORTS[] = { EV_BATCH_VALIDATING, EV_BATCH_IN_PROGRESS,
        EV_BATCH_FINALIZING, EV_BATCH_COMPLETED, EV_BATCH_FAILED };
    unsigned r = arc4random_uniform(1U << 16);
    struct land l = LAND_INIT(REPORTS[r % 5]);
    l.actor = "planner";
    if (c->run.state == JOB_PLANNED) {
        l.event = PLANNED[r % 4];
        l.provision = &GOT;
        l.settles = 1U << INTENT_PROVISION;
    } else if (c->run.state == JOB_RESOURCE_PREPARING) {
        l.event = PREPARING[r % 5];
    } else if (c->run.state == JOB_SUBMITTING) {
        l.batch_id = c->run.id; /* no two jobs have one batch */
        l.settles = 1U << INTENT_CREATE_BATCH;
    } else if (c->run.state == JOB_CANCELLING) {
        l.event = chance(80) ? EV_CLEANED_UP : l.event;
    }
    return l;
}

/* As long as a frozen process sleeps: its lease runs out, and somebody else may take the job. */
static void freeze(struct actor *a, const struct run_claim *c)
{
    static const struct db_stmt LAPSE = { "t_lapse",
        "UPDATE job_run SET lease_until = now() - interval '1 ms', next_poll_at = now()"
        " WHERE job_id = $1::uuid AND lease_epoch = $2",
        2 };
    struct err e = ERR_INIT;
    note(a,
        db_exec(a->db, &LAPSE, DB_ARGS(DB_TEXT(c->run.id), DB_INT8(c->run.lease_epoch)), NULL, &e),
        &e);
}

static void work(struct actor *a)
{
    struct err e = ERR_INIT;
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    const struct run_ask ask = {
        .pools = a->w->pools, .owner = a->holder, .limit = 4, .lease_ms = RUN_LEASE_MS
    };
    note(a, run_claim(a->db, &ask, &c, &e), &e);
    bool frozen = chance(15);
    for (size_t i = 0; i < c.n && frozen; i++)
        freeze(a, &c.claim[i]);
    if (frozen)
        lead(a); /* time passes */
    for (size_t i = 0; i < c.n; i++) {
        struct landed got;
        struct land l = some_result(&c.claim[i]);
        int result = land(a->db, &c.claim[i].run, &l, false, &got, &e);
        note(a, result, &e);
        a->landed += result == 0;
        a->superseded += result == 1;
    }
}

static void *planner(void *arg)
{
    struct actor *a = arg;
    while (!atomic_load(&a->w->over)) {
        lead(a);
        work(a);
    }
    return NULL;
}

static void *user(void *arg)
{
    struct actor *a = arg;
    struct job_new j = job_asked("j");
    while (!atomic_load(&a->w->over) && atomic_fetch_add(&a->w->made, 1) < a->w->jobs) {
        struct err e = ERR_INIT;
        char id[UUID_SIZE];
        enum job_fate fate;
        enum job_state s;
        cleanup_jobs struct jobs out = JOBS_INIT;
        int made = job_enqueue(a->db, &j, &out, &fate, &e);
        note(a, made, &e);
        if (made != 0)
            continue;
        (void)str_copy(id, sizeof id, out.job[0].id);
        if (!chance(50))
            continue;
        static const struct db_stmt ANY = { "t_any",
            "SELECT job_id FROM job_run WHERE state IN (1, 2, 3, 4, 5, 6, 7) OR job_id = $1::uuid ORDER BY"
            " random() LIMIT 1",
            1 };
        cleanup_rows struct db_rows rows = DB_ROWS_INIT;
        if (db_opt(a->db, &ANY, DB_ARGS(DB_TEXT(id)), &rows, &e) == 0) {
            int cancelled = job_cancel(a->db, db_text(&rows, 0, 0), "user", &s, &e);
            note(a, cancelled, &e);
            a->cancelled += cancelled == 0;
        }
    }
    return NULL;
}

static void wait_for_the_end(struct world *w)
{
    int64_t deadline = clock_deadline(PATIENCE_MS);
    for (;;) {
        cleanup_free char *left = stores_value(&fx.stores,
            "SELECT count(*) FILTER (WHERE final_state IS NULL) || ' ' || count(*) FROM job");
        char want[32];
        (void)str_format(want, sizeof want, "0 %d", w->jobs);
        if (strcmp(left, want) == 0)
            return;
        assert_int_equal(atomic_load(&w->failed), 0);
        assert_true(clock_left_ms(deadline) > 0);
    }
}

static void check(void)
{
    jobs_consistent();
    /* one end each, and what happened is a chain */
    fx_value(
        "SELECT count(*) FROM (SELECT job_id FROM job_event GROUP BY job_id HAVING count(*) FILTER"
        " (WHERE to_state >= 9) <> 1) j",
        "0");
    fx_value(
        "SELECT count(*) FROM (SELECT from_state, lag(to_state) OVER (PARTITION BY job_id ORDER BY at,"
        " seq) AS before FROM job_event) e WHERE from_state IS DISTINCT FROM before",
        "0");
    /* never more than the limit in planned or resource_preparing */
    fx_value(
        "SELECT max(n) <= 3 FROM (SELECT sum((to_state IN (1, 2))::int - coalesce(from_state IN (1, 2),"
        " false)::int) OVER (ORDER BY at, seq) AS n FROM job_event) e",
        "t");
    /* each attempt's machines are to be released, by one intent */
    fx_value(
        "SELECT count(*) FROM provision p WHERE NOT EXISTS (SELECT FROM intent i WHERE i.kind = 3 AND"
        " i.subject = p.key)",
        "0");
    fx_value("SELECT count(*) FROM intent WHERE kind < 3 AND state = 0", "0");
    /* epochs of plans never fall */
    fx_value("SELECT count(*) FROM (SELECT epoch, lag(epoch) OVER (ORDER BY at, seq) AS before FROM"
             " job_event WHERE event = 1) e WHERE epoch < before",
        "0");
}

static void whatever_happens_each_job_ends_once(void **state)
{
    struct world w = { .pools = default_pools(),
        .jobs = getenv("WB_TEST_LONG") != NULL ? JOBS_LONG : JOBS };
    pthread_t thread[PLANNERS + USERS];
    struct actor actor[PLANNERS + USERS];
    int sums[4] = { 0 };
    (void)state;
    for (int i = 0; i < PLANNERS + USERS; i++) {
        actor[i] = (struct actor){ .w = &w, .db = fx_new_db() };
        (void)str_format(actor[i].holder, UUID_SIZE, "%08d-0000-4000-8000-000000000000", i);
        assert_int_equal(
            pthread_create(&thread[i], NULL, i < PLANNERS ? planner : user, &actor[i]), 0);
    }
    wait_for_the_end(&w);
    atomic_store(&w.over, true);
    for (int i = 0; i < PLANNERS + USERS; i++) {
        pthread_join(thread[i], NULL);
        db_close(actor[i].db);
        sums[0] += actor[i].plans;
        sums[1] += actor[i].landed;
        sums[2] += actor[i].superseded;
        sums[3] += actor[i].cancelled;
    }
    print_message("%d plans, %d results landed, %d superseded, %d cancels\n", sums[0], sums[1],
        sums[2], sums[3]);
    assert_int_equal(atomic_load(&w.failed), 0);
    assert_true(sums[2] > 0 && sums[3] > 0);
    check();
}

int main(void)
{
    const struct CMUnitTest tests[] = { FX_BOTH(whatever_happens_each_job_ends_once) };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
