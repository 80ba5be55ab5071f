/* SPDX-License-Identifier: Apache-2.0 */

/* Claims of live jobs: jobs contract, section 5, "Act". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/pool.h"
#include "tests/store/job_fixture.h"

enum { RACERS = 4, RACED = 120 };

static int64_t number(const char *text)
{
    int64_t n = -1;
    assert_int_equal(str_to_i64(text, 0, INT64_MAX, &n), 0);
    return n;
}

/* n jobs of the default pool in resource_preparing, due for a poll. */
static void many(int n)
{
    cleanup_buf struct buf sql = BUF_INIT(2000);
    buf_printf(&sql,
        "INSERT INTO job (pool_id, endpoint, input_file, completion_window, window_minutes, request)"
        " SELECT p.id, 'many', 'f', '1h', 60, '{}' FROM pool p, generate_series(1, %d);"
        "INSERT INTO job_run (job_id, pool_id, tenant, enqueued_at, queue_deadline) SELECT id, pool_id,"
        " 'many', created_at, created_at + interval '1 day' FROM job WHERE endpoint = 'many';"
        "UPDATE job_run SET state = 1, event = 1, attempts = 1, provision_key = job_id || ':1'"
        " WHERE tenant = 'many';"
        "UPDATE job_run SET state = 2, event = 2, next_poll_at = now() - interval '1 second'"
        " WHERE tenant = 'many'",
        n);
    fx_sql(sql.data);
}

static struct run_held held_of(const struct run_claim *c)
{
    struct run_held h = { .lease_epoch = c->run.lease_epoch };
    (void)str_copy(h.id, sizeof h.id, c->run.id);
    return h;
}

static void a_claim_shows_the_job_whole(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    enum job_state s = JOB_NONE;
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    job_make("j", id);
    job_bring(id, JOB_IN_PROGRESS);
    fx_sql("UPDATE job_run SET timeouts = 1, lost = 2, failures = 3, batch = '{\"status\": \"x\"}',"
           " expires_at = '2030-01-01Z'");
    fx_sql("UPDATE provision SET starts_at = '2029-01-01Z', ends_at = '2030-01-01Z'");
    ok(job_cancel(fx.db, id, "alice", &s, &e));
    job_claim(fx.db, PLANNER_B, 1, &c);
    const struct job_run *r = &c.claim[0].run;
    assert_string_equal(r->id, id);
    assert_int_equal(r->pool_id, default_pools().id[0]);
    assert_int_equal(r->state, JOB_CANCELLING);
    assert_true(r->version > 0);
    assert_true(r->lease_epoch > 0);
    assert_in_range(c.now_us - r->enqueued_us, 0, 600 * US_PER_S);
    assert_int_equal(r->queue_deadline_us - r->enqueued_us, 86400 * US_PER_S);
    assert_int_equal(r->expires_us, INT64_C(1893456000) * US_PER_S);
    assert_true(r->cancel_requested_us > 0);
    assert_true(r->state_us >= r->cancel_requested_us);
    assert_int_equal(r->attempts, 1);
    assert_int_equal(r->timeouts, 1);
    assert_int_equal(r->lost, 2);
    assert_int_equal(r->failures, 3);
    assert_true(r->machines);
    assert_true(str_starts(r->provision_key, id));
    assert_string_equal(r->batch_id, "batch-1");
    assert_string_equal(r->batch_json, "{\"status\": \"x\"}");
    const struct run_provision *p = &c.claim[0].provision;
    assert_true(job_uuid_valid(p->id));
    assert_string_equal(p->provider, "local");
    assert_string_equal(p->status, "running");
    assert_string_equal(p->region, "here");
    assert_string_equal(p->spec_json, "{\"replicas\": 1}");
    assert_string_equal(p->details_json, "{\"n\": 1}");
    assert_int_equal(p->starts_us, INT64_C(1861920000) * US_PER_S);
    assert_int_equal(p->ends_us, INT64_C(1893456000) * US_PER_S);
    assert_true(p->created_us > 0);
    const struct run_intent *i = &c.claim[0].intent;
    assert_true(i->id > 0);
    assert_int_equal(i->kind, INTENT_CANCEL_BATCH);
    assert_int_equal(i->attempts + i->began_us, 0);
    assert_true(i->created_us > 0);
    fx_value("SELECT lease_owner FROM job_run", PLANNER_B);
}

/* Leased for 30 s; nobody else gets it until then, and afterwards with another epoch. */
static void a_claimed_job_is_nobody_elses_until_the_lease_ends(void **state)
{
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims none = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    (void)state;
    many(1);
    job_claim(fx.db, PLANNER_A, 1, &a);
    fx_value(
        "SELECT lease_until - now() BETWEEN interval '20 s' AND interval '30 s' FROM job_run", "t");
    fx_sql("UPDATE job_run SET next_poll_at = '-infinity'"); /* however urgent */
    job_claim(fx.db, PLANNER_B, 0, &none);
    run_claims_free(&none);
    job_claim(fx.db, PLANNER_A, 0, &none);
    fx_sql("UPDATE job_run SET lease_until = now() - interval '1 ms'");
    job_claim(fx.db, PLANNER_B, 1, &b);
    assert_int_equal(b.claim[0].run.lease_epoch, a.claim[0].run.lease_epoch + 1);
    assert_int_equal(b.claim[0].run.version, a.claim[0].run.version);
}

static void only_what_is_due_in_my_pools_is_claimed(void **state)
{
    struct err e = ERR_INIT;
    int64_t other = 0;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    many(3);
    job_make("queued", id);
    ok(pool_ensure(fx.db, "other", "local", "simple", &other, &e));
    fx_sql("UPDATE job_run SET next_poll_at = now() + interval '1 hour' WHERE job_id ="
           " (SELECT min(job_id::text)::uuid FROM job_run WHERE state = 2)");
    fx_sql("UPDATE job_run SET pool_id = (SELECT id FROM pool WHERE name = 'other') WHERE job_id ="
           " (SELECT max(job_id::text)::uuid FROM job_run WHERE state = 2)");
    job_claim(fx.db, PLANNER_A, 1, &c);
}

/* The longest due first, no more than asked for. */
static void the_longest_due_goes_first(void **state)
{
    struct err e = ERR_INIT;
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    many(RUN_CLAIM_MAX + 2);
    fx_sql("UPDATE job_run SET next_poll_at = now() - interval '1 day' WHERE job_id ="
           " (SELECT max(job_id::text)::uuid FROM job_run)");
    cleanup_free char *oldest =
        stores_value(&fx.stores, "SELECT max(job_id::text)::uuid FROM job_run");
    const struct run_ask one = job_ask(PLANNER_A, 1);
    const struct run_ask many_more = job_ask(PLANNER_A, 1000);
    ok(run_claim(fx.db, &one, &c, &e));
    assert_int_equal(c.n, 1);
    assert_string_equal(c.claim[0].run.id, oldest);
    run_claims_free(&c);
    ok(run_claim(fx.db, &many_more, &c, &e));
    assert_int_equal(c.n, RUN_CLAIM_MAX);
}

/* So that pending and running jobs can take turns. */
static void only_jobs_in_the_states_asked_for_are_claimed(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct run_ask ask = job_ask(PLANNER_A, 10);
    cleanup_run_claims struct run_claims none = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    job_make("j", id);
    job_bring(id, JOB_IN_PROGRESS);
    job_all_due();
    ask.states = ~(1U << JOB_IN_PROGRESS);
    ok(run_claim(fx.db, &ask, &none, &e));
    assert_int_equal(none.n, 0);
    ask.states = 1U << JOB_IN_PROGRESS | 1U << JOB_PLANNED;
    ok(run_claim(fx.db, &ask, &c, &e));
    assert_int_equal(c.n, 1);
}

/* [planner] claim_ms. */
static void a_claim_lasts_as_long_as_it_is_asked_for(void **state)
{
    struct err e = ERR_INIT;
    struct run_ask ask = job_ask(PLANNER_A, 10);
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    many(1);
    ask.lease_ms = 900000;
    ok(run_claim(fx.db, &ask, &c, &e));
    fx_value("SELECT lease_until BETWEEN now() + interval '890 s' AND now() + interval '900 s'"
             " FROM job_run",
        "t");
    struct run_held held = { .lease_epoch = c.claim[0].run.lease_epoch };
    (void)str_copy(held.id, sizeof held.id, c.claim[0].run.id);
    ok(run_renew(fx.db, &held, 1, 1800000, NULL, &e));
    fx_value("SELECT lease_until BETWEEN now() + interval '1790 s' AND now() + interval '1800 s'"
             " FROM job_run",
        "t");
}

struct racer {
    pthread_barrier_t *start;
    struct db *db;
    struct run_pools pools;
    int claimed;
    bool failed;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    struct run_ask ask = {
        .pools = r->pools, .owner = PLANNER_A, .limit = 3, .lease_ms = RUN_LEASE_MS
    };
    pthread_barrier_wait(r->start);
    for (int i = 0; i < RACED; i++) {
        struct err e = ERR_INIT;
        cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
        r->failed = r->failed || run_claim(r->db, &ask, &c, &e) < 0;
        r->claimed += (int)c.n;
    }
    return NULL;
}

/* Never two tasks on one job: sessions that claim at once never get the same row. */
static void no_job_is_handed_to_two(void **state)
{
    pthread_barrier_t start;
    pthread_t thread[RACERS];
    struct racer racer[RACERS];
    int sum = 0;
    (void)state;
    many(RACED);
    assert_int_equal(pthread_barrier_init(&start, NULL, RACERS), 0);
    for (int i = 0; i < RACERS; i++) {
        racer[i] = (struct racer){ .start = &start, .db = fx_new_db(), .pools = default_pools() };
        assert_int_equal(pthread_create(&thread[i], NULL, race, &racer[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(thread[i], NULL);
        db_close(racer[i].db);
        assert_false(racer[i].failed);
        sum += racer[i].claimed;
    }
    pthread_barrier_destroy(&start);
    assert_int_equal(sum, RACED); /* each once: an epoch of 1 says so too */
    fx_value("SELECT count(*) FROM job_run WHERE lease_epoch <> 1", "0");
}

static void a_renewal_prolongs_what_is_still_held(void **state)
{
    struct err e = ERR_INIT;
    bool lost[2] = { true, false };
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    many(2);
    job_claim(fx.db, PLANNER_A, 2, &c);
    struct run_held held[] = { held_of(&c.claim[0]), held_of(&c.claim[1]) };
    fx_sql("UPDATE job_run SET lease_until = now() + interval '1 s'");
    held[1].lease_epoch++; /* as if another had claimed it since */
    ok(run_renew(fx.db, held, 2, RUN_LEASE_MS, lost, &e));
    assert_false(lost[0]);
    assert_true(lost[1]);
    fx_value("SELECT string_agg((lease_until > now() + interval '10 s')::text, ' ' ORDER BY"
             " lease_until DESC) FROM job_run",
        "true false");
    fx_value("SELECT bool_and(next_poll_at > now()) FROM job_run", "t");
}

static void what_is_handed_back_is_due_when_it_was_said(void **state)
{
    struct err e = ERR_INIT;
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims none = RUN_CLAIMS_INIT;
    (void)state;
    many(1);
    fx_sql("UPDATE job_run SET failures = 4");
    job_claim(fx.db, PLANNER_A, 1, &a);
    struct run_held held = held_of(&a.claim[0]);
    ok(run_hand_back(fx.db, &held, 1, 0, &e)); /* at shutdown */
    fx_value("SELECT concat_ws('|', lease_owner IS NULL, lease_until IS NULL, failures, version)"
             " FROM job_run",
        "t|t|4|0");
    job_claim(fx.db, PLANNER_B, 1, &b);
    ok(run_hand_back(fx.db, &held, 1, 0, &e)); /* of the old epoch: passed over */
    fx_value("SELECT lease_owner FROM job_run", PLANNER_B);
    held = held_of(&b.claim[0]);
    ok(run_hand_back(fx.db, &held, 1, 3600 * 1000, &e)); /* a poll that told nothing new */
    job_claim(fx.db, PLANNER_A, 0, &none);
    fx_value(
        "SELECT concat_ws('|', failures, next_poll_at > now() + interval '59 min') FROM job_run",
        "0|t");
}

/* Asked for while somebody holds the job, a cancel is not put off by handing it back or prolonging. */
static void a_cancel_is_due_at_once(void **state)
{
    struct err e = ERR_INIT;
    enum job_state s = JOB_NONE;
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    struct run_look look = { .now_us = 0 };
    (void)state;
    many(1);
    job_claim(fx.db, PLANNER_A, 1, &a);
    struct run_held held = held_of(&a.claim[0]);
    ok(job_cancel(fx.db, held.id, "alice", &s, &e));
    ok(run_renew(fx.db, &held, 1, RUN_LEASE_MS, NULL, &e));
    ok(run_hand_back(fx.db, &held, 1, 3600 * 1000, &e));
    ok(run_look(fx.db, default_pools(), &look, &e));
    assert_in_range(look.claim_due_us, 1, look.now_us); /* 0 would say that there is none */
    job_claim(fx.db, PLANNER_B, 1, &b);
    assert_int_equal(b.claim[0].run.state, JOB_CANCELLING);
}

/* Before the outside call: counted and stamped, by who holds the job only. */
static void an_attempt_is_on_record_before_it_is_made(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    struct lease l;
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    (void)state;
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &l);
    assert_int_equal(job_plan(fx.db, &l, 1), 1);
    job_claim(fx.db, PLANNER_A, 1, &a);
    struct run_held held = held_of(&a.claim[0]);
    assert_int_equal(a.claim[0].intent.kind, INTENT_PROVISION);
    assert_int_equal(a.claim[0].intent.attempts, 0);
    ok(run_intent_begin(fx.db, &held, a.claim[0].intent.id, &e));
    fx_sql("UPDATE job_run SET lease_until = now() - interval '1 ms', next_poll_at = now()");
    assert_int_equal(run_intent_begin(fx.db, &held, a.claim[0].intent.id, &e), 1);
    job_claim(fx.db, PLANNER_B, 1, &b);
    assert_int_equal(b.claim[0].intent.attempts, 1);
    assert_in_range(b.now_us - b.claim[0].intent.began_us, 0, 600 * US_PER_S);
    assert_int_equal(run_intent_begin(fx.db, &held, b.claim[0].intent.id, &e), 1);
    struct run_held now = held_of(&b.claim[0]);
    fx_sql("UPDATE intent SET state = 1");
    assert_int_equal(run_intent_begin(fx.db, &now, b.claim[0].intent.id, &e), 1); /* settled */
}

/* The 1 s backstop: what there is to do, without claiming it. */
static void a_look_tells_what_is_due(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    enum job_state s = JOB_NONE;
    struct run_look before;
    struct run_look l;
    (void)state;
    ok(run_look(fx.db, default_pools(), &before, &e));
    assert_int_equal(before.entered, 0);
    assert_int_equal(
        before.plan_due_us + before.claim_due_us + before.release_due_us + before.overdue_us, 0);
    job_make("j", id);
    ok(run_look(fx.db, default_pools(), &l, &e));
    assert_int_equal(l.entered, 1);
    assert_int_equal(l.plan_due_us, 0);
    assert_in_range(l.overdue_us - l.now_us, 86000 * US_PER_S, 86400 * US_PER_S);
    ok(job_cancel(fx.db, id, "a", &s, &e));
    ok(run_look(fx.db, default_pools(), &l, &e));
    assert_int_equal(l.entered, 1); /* it never goes back */

    job_make("j", id);
    fx_sql("UPDATE job_run SET not_before = '2035-01-01Z'");
    many(1);
    fx_sql("UPDATE job_run SET next_poll_at = '2001-01-01Z' WHERE state = 2");
    fx_sql(
        "INSERT INTO intent (job_id, pool_id, kind, subject, idem_key, next_at) SELECT job_id, pool_id,"
        " 3, 'k', 'k', '2002-01-01Z' FROM job_run WHERE state = 2");
    ok(run_look(fx.db, default_pools(), &l, &e));
    assert_int_equal(l.plan_due_us, INT64_C(2051222400) * US_PER_S);
    assert_int_equal(l.claim_due_us, INT64_C(978307200) * US_PER_S);
    assert_int_equal(l.release_due_us, INT64_C(1009843200) * US_PER_S);
    assert_true(l.entered >= 3);
    fx_sql("UPDATE job_run SET next_poll_at = '-infinity' WHERE state = 2"); /* always due */
    ok(run_look(fx.db, default_pools(), &l, &e));
    assert_true(l.claim_due_us == 0 || l.claim_due_us <= l.now_us);
    fx_value("SELECT count(*) FROM job_run WHERE lease_until IS NOT NULL", "0");
    fx_sql("UPDATE job_run SET lease_until = now() + interval '1 hour'");
    fx_sql("UPDATE intent SET lease_until = now() + interval '1 hour'");
    ok(run_look(fx.db, default_pools(), &l, &e));
    assert_int_equal(l.claim_due_us + l.release_due_us, 0); /* held */
    ok(run_look(fx.db, (struct run_pools){ .id = &(int64_t){ 32000 }, .n = 1 }, &l, &e));
    assert_int_equal(l.entered + l.plan_due_us + l.overdue_us, 0); /* other pools' */
}

/* An enqueue that commits late is not lost: the sequence grows with the commit, not before. */
static void the_enqueue_sequence_grows_with_the_commit(void **state)
{
    struct err e = ERR_INIT;
    struct run_look l;
    enum job_fate fate = JOB_FATE_SAME;
    struct job_new j = job_asked("j");
    cleanup_jobs struct jobs out = JOBS_INIT;
    cleanup_jobs struct jobs early = JOBS_INIT;
    cleanup_db struct db *slow = fx_new_db();
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    (void)state;
    ok(db_begin(slow, &t, &e));
    ok(job_enqueue(slow, &j, &early, &fate, &e));
    j.input_file = "another"; /* of one file that nobody named before it would wait */
    ok(job_enqueue(fx.db, &j, &out, &fate, &e)); /* begun later, committed earlier */
    ok(run_look(fx.db, default_pools(), &l, &e));
    assert_int_equal(l.entered, 1);
    ok(db_commit(&t, &e));
    ok(run_look(fx.db, default_pools(), &l, &e));
    assert_int_equal(l.entered, 2);
}

/* Past the queue deadline: expired, whoever would be next. */
static void a_queued_job_past_its_deadline_expires(void **state)
{
    struct err e = ERR_INIT;
    char id[3][UUID_SIZE];
    int64_t n = 0;
    cleanup_jobs struct jobs got = JOBS_INIT;
    (void)state;
    for (int i = 0; i < 3; i++)
        job_make("j", id[i]);
    fx_sql("UPDATE job_run SET queue_deadline = now() - interval '1 s', error = 'no capacity' WHERE"
           " job_id <> (SELECT max(job_id::text)::uuid FROM job_run)");
    ok(run_expire_queued(fx.db, default_pools(), 1, &n, &e));
    assert_int_equal(n, 1);
    ok(run_expire_queued(fx.db, default_pools(), 100, &n, &e));
    assert_int_equal(n, 1);
    ok(run_expire_queued(fx.db, default_pools(), 100, &n, &e));
    assert_int_equal(n, 0);
    job_now(id[0], &got);
    assert_int_equal(got.job[0].state, JOB_EXPIRED);
    assert_string_equal(got.job[0].error_code, "queue_deadline");
    assert_non_null(strstr(got.job[0].error, "no capacity"));
    job_history_is(id[0], "queued expired");
    assert_int_equal(job_state_now(id[2]), JOB_QUEUED);
    jobs_consistent();
}

/* Polls and renewals change no indexed column: HOT, so that the table does not grow. (A snapshot that somebody
 * holds meanwhile, autovacuum's analysis among others, costs some of both: hence not 100 %.) */
static void polls_and_renewals_are_hot(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    many(40);
    fx_sql("VACUUM job_run");
    fx_sql("SELECT pg_stat_reset_single_table_counters('job_run'::regclass)");
    for (int i = 0; i < 100; i++) {
        struct run_held held[40];
        cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
        job_claim(fx.db, PLANNER_A, 40, &c);
        for (size_t k = 0; k < c.n; k++)
            held[k] = held_of(&c.claim[k]);
        ok(run_renew(fx.db, held, c.n, RUN_LEASE_MS, NULL, &e));
        ok(run_hand_back(fx.db, held, c.n, 0, &e));
    }
    db_close(fx.db); /* a session tells its counts when it ends */
    fx.db = NULL;
    cleanup_free char *share = mem_strdup("");
    int64_t deadline = clock_deadline(60000);
    while (share[0] == '\0' && clock_left_ms(deadline) > 0) { /* they show a moment later */
        free(share);
        share = stores_value(&fx.stores,
            "SELECT n_tup_hot_upd * 100 / n_tup_upd FROM pg_stat_user_tables WHERE relname ="
            " 'job_run' AND n_tup_upd >= 12000");
    }
    cleanup_free char *size = stores_value(&fx.stores, "SELECT pg_relation_size('job_run')");
    print_message("HOT: %s %%, job_run: %s bytes\n", share, size);
    assert_true(number(share) >= 80);
    assert_true(number(size) < 1 << 20); /* without, 12,000 updates make 3 MB */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(a_claim_shows_the_job_whole),
        FX_BOTH(a_claimed_job_is_nobody_elses_until_the_lease_ends),
        FX_BOTH(only_what_is_due_in_my_pools_is_claimed),
        FX_BOTH(the_longest_due_goes_first),
        FX_BOTH(only_jobs_in_the_states_asked_for_are_claimed),
        FX_BOTH(a_claim_lasts_as_long_as_it_is_asked_for),
        FX_BOTH(no_job_is_handed_to_two),
        FX_BOTH(a_renewal_prolongs_what_is_still_held),
        FX_BOTH(what_is_handed_back_is_due_when_it_was_said),
        FX_BOTH(a_cancel_is_due_at_once),
        FX_BOTH(an_attempt_is_on_record_before_it_is_made),
        FX_BOTH(a_look_tells_what_is_due),
        FX_BOTH(the_enqueue_sequence_grows_with_the_commit),
        FX_BOTH(a_queued_job_past_its_deadline_expires),
        FX_BOTH(polls_and_renewals_are_hot),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
