/* SPDX-License-Identifier: Apache-2.0 */

/* What came of the work on a job: jobs contract, sections 2 and 5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "tests/store/job_fixture.h"

static const struct land_provision RUNNING = { .provider = "local",
    .status = "running",
    .region = "eu",
    .details_json = "{\"m\": [1]}",
    .starts_us = INT64_C(1861920000000000),
    .ends_us = INT64_C(1893456000000000) };

/* A queued job, planned and claimed by A. */
static void claim_planned(char id[UUID_SIZE], struct run_claims *c)
{
    struct lease l;
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &l);
    assert_int_equal(job_plan(fx.db, &l, 1), 1);
    job_claim(fx.db, PLANNER_A, 1, c);
}

/* A job brought to a state and claimed by A. */
static void claim_in(enum job_state s, char id[UUID_SIZE], struct run_claims *c)
{
    job_make("j", id);
    job_bring(id, s);
    job_all_due();
    job_claim(fx.db, PLANNER_A, 1, c);
    assert_int_equal(c->claim[0].run.state, s);
}

static void cancel(const char *id)
{
    struct err e = ERR_INIT;
    enum job_state s = JOB_NONE;
    ok(job_cancel(fx.db, id, "alice", &s, &e));
    assert_int_equal(s, JOB_CANCELLING);
}

/* planned -> resource_preparing -> submitting -> what the batch service reports -> completed. */
static void a_job_runs_its_course(void **state)
{
    static const char *const BATCH =
        "{\"status\": \"completed\", \"output_file_id\": \"out\", \"error_file_id\": \"err\"}";
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_jobs struct jobs got = JOBS_INIT;
    (void)state;
    job_make("j", id);
    job_bring(id, JOB_FINALIZING);
    job_all_due();
    job_claim(fx.db, PLANNER_B, 1, &c);
    struct land l = LAND_INIT(EV_BATCH_COMPLETED);
    l.actor = "planner b";
    l.detail_json = "{\"status\": \"completed\"}";
    l.batch_json = BATCH;
    struct landed done = job_land(fx.db, &c.claim[0], l, false, 0);
    assert_int_equal(done.state, JOB_COMPLETED);
    assert_true(done.moved && !done.cancel);
    job_history_is(id,
        "queued planned resource_preparing submitting scheduling validating in_progress"
        " finalizing completed");
    fx_value("SELECT concat_ws('|', actor, epoch > 0, detail) FROM job_event WHERE to_state = 9",
        "planner b|t|{\"status\": \"completed\"}");
    job_now(id, &got);
    const struct job *j = &got.job[0];
    assert_int_equal(j->state, JOB_COMPLETED);
    assert_string_equal(j->batch_id, "batch-1");
    assert_non_null(strstr(j->batch_json, "\"out\""));
    assert_int_equal(j->attempts, 1);
    assert_true(str_starts(j->provision_key, id));
    assert_int_equal(j->finished_us, j->stamp_us[JOB_COMPLETED]);
    for (int s = JOB_PLANNED; s <= JOB_FINALIZING; s++)
        assert_true(j->stamp_us[s] > j->stamp_us[s - 1]);
    /* the files of the result, the machines' release, the intents on record */
    fx_value("SELECT string_agg(file_id || role, ' ' ORDER BY role) FROM job_file_ref",
        "file-in0 out1 err2");
    fx_value("SELECT string_agg(concat_ws(':', kind, state), ' ' ORDER BY kind) FROM intent",
        "0:1 1:1 3:0");
    fx_value(
        "SELECT idem_key = 'release:' || subject AND subject = job_id || ':1' FROM intent WHERE"
        " kind = 3",
        "t");
    fx_value("SELECT count(*) FROM job_run", "0");
    jobs_consistent();
}

static void what_is_known_of_the_machines_is_kept(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    claim_planned(id, &c);
    struct land l = LAND_INIT(EV_PROVISIONED);
    l.provision = &RUNNING;
    l.expires_us = RUNNING.ends_us;
    l.settles = 1U << INTENT_PROVISION;
    l.detail_json = "{\"n\": 1}";
    l.poll_ms = 3600 * 1000;
    struct landed got = job_land(fx.db, &c.claim[0], l, false, 0);
    assert_int_equal(got.state, JOB_RESOURCE_PREPARING);
    assert_int_equal(got.version, c.claim[0].run.version + 1);
    fx_value("SELECT concat_ws('|', provider, status, region, details, starts_at, ends_at, error)"
             " FROM provision",
        "local|running|eu|{\"m\": [1]}|2029-01-01 00:00:00+00|2030-01-01 00:00:00+00|");
    fx_value(
        "SELECT concat_ws('|', machines, expires_at, lease_owner IS NULL, next_poll_at > now() +"
        " interval '50 min') FROM job_run",
        "t|2030-01-01 00:00:00+00|t|t");
    fx_value(
        "SELECT concat_ws('|', state, result, ended_at IS NOT NULL) FROM intent", "1|{\"n\": 1}|t");
}

/* A claim may go on: launches in chunks, a submit right after the machines are ready. */
static void a_claim_may_be_kept(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims none = RUN_CLAIMS_INIT;
    (void)state;
    claim_planned(id, &c);
    struct run_claim *mine = &c.claim[0];
    struct landed got = job_land(fx.db, mine, (struct land)LAND_INIT(EV_PROVISIONED), true, 0);
    job_all_due();
    job_claim(fx.db, PLANNER_B, 0, &none);
    mine->run.version = got.version;
    got = job_land(fx.db, mine, (struct land)LAND_INIT(EV_SUBMIT), true, 0);
    assert_int_equal(got.state, JOB_SUBMITTING);
    fx_value("SELECT concat_ws('|', state, subject = job_id || ':1', idem_key = 'create_batch:' ||"
             " subject) FROM intent WHERE kind = 1",
        "0|t|t");
    mine->run.version = got.version;
    struct land l = LAND_INIT(EV_BATCH_VALIDATING); /* scheduling is left out: forward is forward */
    l.batch_id = "b9";
    l.settles = 1U << INTENT_CREATE_BATCH;
    got = job_land(fx.db, mine, l, false, 0);
    assert_int_equal(got.state, JOB_VALIDATING);
    fx_value("SELECT batch_id || (lease_until IS NULL) FROM job_run", "b9true");
}

/* So that whoever keeps the claim goes on without another one. */
static void a_kept_claim_is_told_its_next_intent(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    struct land provisioned = LAND_INIT(EV_PROVISIONED);
    (void)state;
    claim_planned(id, &c);
    struct run_claim *mine = &c.claim[0];
    const struct run_held held = { .id = "", .lease_epoch = mine->run.lease_epoch };
    provisioned.settles = 1U << INTENT_PROVISION;
    struct landed got = job_land(fx.db, mine, provisioned, true, 0);
    assert_int_equal(got.intent_id, 0);
    mine->run.version = got.version;
    got = job_land(fx.db, mine, (struct land)LAND_INIT(EV_SUBMIT), true, 0);
    assert_int_equal(got.intent_kind, INTENT_CREATE_BATCH);
    struct run_held own = held;
    (void)str_copy(own.id, sizeof own.id, id);
    ok(run_intent_begin(fx.db, &own, got.intent_id, &e));
}

/* A call that certainly did nothing leaves no doubt behind; one before it that may have keeps its own. */
static void an_attempt_that_did_nothing_is_taken_back(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    struct land undone = LAND_INIT(JOB_EVENT__COUNT);
    (void)state;
    job_make("j", id);
    job_bring(id, JOB_SUBMITTING);
    job_all_due();
    job_claim(fx.db, PLANNER_A, 1, &c);
    struct run_claim *mine = &c.claim[0];
    struct run_held held = { .lease_epoch = mine->run.lease_epoch };
    (void)str_copy(held.id, sizeof held.id, id);
    undone.undone = 1U << INTENT_CREATE_BATCH;
    ok(run_intent_begin(fx.db, &held, mine->intent.id, &e));
    mine->run.version = job_land(fx.db, mine, undone, true, 0).version;
    fx_value("SELECT attempts || (began_at IS NULL)::text FROM intent WHERE kind = 1", "0true");
    ok(run_intent_begin(fx.db, &held, mine->intent.id, &e));
    ok(run_intent_begin(fx.db, &held, mine->intent.id, &e));
    (void)job_land(fx.db, mine, undone, true, 0);
    fx_value("SELECT attempts || (began_at IS NULL)::text FROM intent WHERE kind = 1", "1false");
}

/* No capacity: back to the queue, keeping its place, delayed; its machines are to be released. */
static void a_requeued_job_keeps_its_place(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_jobs struct jobs got = JOBS_INIT;
    (void)state;
    claim_planned(id, &c);
    struct land l = LAND_INIT(EV_REQUEUE);
    l.error_code = "no_capacity";
    l.error = "none left";
    l.delay_ms = 3600 * 1000;
    l.call_failed = true;
    l.settles = 1U << INTENT_PROVISION;
    struct landed done =
        job_land(fx.db, &c.claim[0], l, true, 0); /* kept or not: nobody holds a queued job */
    assert_int_equal(done.state, JOB_QUEUED);
    job_now(id, &got);
    assert_int_equal(got.job[0].state, JOB_QUEUED);
    assert_string_equal(got.job[0].error_code, "no_capacity");
    assert_string_equal(got.job[0].error, "none left");
    assert_in_range(got.job[0].not_before_us - got.now_us, 3500 * US_PER_S, 3600 * US_PER_S);
    fx_value("SELECT concat_ws('|', r.enqueued_at = j.created_at, machines, failures, timeouts,"
             " lease_owner IS NULL) FROM job_run r JOIN job j ON j.id = r.job_id",
        "t|f|1|0|t");
    fx_value(
        "SELECT string_agg(concat_ws(':', kind, state), ' ' ORDER BY kind) FROM intent", "0:1 3:0");
    jobs_consistent();

    job_all_due(); /* and once more, under another key */
    struct lease lease;
    job_lead(fx.db, PLANNER_A, &lease);
    assert_int_equal(job_plan(fx.db, &lease, 1), 1);
    fx_value(
        "SELECT concat_ws('|', attempts, provision_key = job_id || ':2', machines, not_before IS"
        " NULL) FROM job_run",
        "2|t|t|t");
}

static void nothing_is_released_where_nothing_was_made(void **state)
{
    static const enum job_event WAYS_OUT[] = { EV_REQUEUE, EV_RESOURCE_FAIL, EV_QUEUE_EXPIRE };
    (void)state;
    for (size_t i = 0; i < sizeof WAYS_OUT / sizeof WAYS_OUT[0]; i++) {
        char id[UUID_SIZE];
        cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
        claim_planned(id, &c);
        struct land l = LAND_INIT(WAYS_OUT[i]);
        l.machines = LAND_MACHINES_NONE;
        l.delay_ms = 3600 * 1000;
        (void)job_land(fx.db, &c.claim[0], l, false, 0);
        fx_value("SELECT count(*) FROM intent WHERE kind = 3", "0");
    }
    jobs_consistent();
}

/* Every end writes the release intent in its own transaction (jobs contract, section 2). */
static void every_end_releases(void **state)
{
    static const struct {
        enum job_state from;
        enum job_event event;
        enum job_state to;
    } ENDS[] = {
        { JOB_PLANNED, EV_RESOURCE_FAIL, JOB_RESOURCE_FAILED },
        { JOB_PLANNED, EV_QUEUE_EXPIRE, JOB_EXPIRED },
        { JOB_RESOURCE_PREPARING, EV_RESOURCE_FAIL, JOB_RESOURCE_FAILED },
        { JOB_RESOURCE_PREPARING, EV_SUBMIT_FAIL, JOB_SUBMIT_FAILED },
        { JOB_RESOURCE_PREPARING, EV_QUEUE_EXPIRE, JOB_EXPIRED },
        { JOB_SUBMITTING, EV_SUBMIT_FAIL, JOB_SUBMIT_FAILED },
        { JOB_SUBMITTING, EV_RUN_EXPIRE, JOB_EXPIRED },
        { JOB_SCHEDULING, EV_BATCH_CANCELLED, JOB_CANCELLED },
        { JOB_VALIDATING, EV_BATCH_FAILED, JOB_FAILED },
        { JOB_IN_PROGRESS, EV_MACHINES_LOST, JOB_RESOURCE_FAILED },
        { JOB_IN_PROGRESS, EV_BATCH_LOST, JOB_FAILED },
        { JOB_IN_PROGRESS, EV_RUN_EXPIRE, JOB_EXPIRED },
        { JOB_FINALIZING, EV_BATCH_EXPIRED, JOB_EXPIRED },
    };
    (void)state;
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++) {
        char id[UUID_SIZE];
        cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
        cleanup_jobs struct jobs got = JOBS_INIT;
        if (ENDS[i].from == JOB_PLANNED)
            claim_planned(id, &c);
        else
            claim_in(ENDS[i].from, id, &c);
        struct land l = LAND_INIT(ENDS[i].event);
        l.error_code = "why";
        l.error = "because";
        struct landed done = job_land(fx.db, &c.claim[0], l, true, 0);
        assert_int_equal(done.state, ENDS[i].to);
        job_now(id, &got);
        assert_int_equal(got.job[0].state, ENDS[i].to);
        assert_string_equal(got.job[0].error_code, "why");
        assert_string_equal(got.job[0].error, "because");
        fx_value("SELECT count(*) FROM job_run", "0");
        fx_value("SELECT count(*) FROM intent WHERE kind = 3 AND state = 0", "1");
        fx_value("SELECT count(*) FROM intent WHERE kind < 3 AND state = 0",
            "0"); /* none is left behind */
        jobs_consistent();
        fx_sql(fx.clear);
    }
}

/* A stale answer never moves a job back; counts that it brings are kept all the same. */
static void a_stale_status_does_not_move_a_job_back(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    claim_in(JOB_FINALIZING, id, &c);
    struct land l = LAND_INIT(EV_BATCH_IN_PROGRESS);
    l.batch_json = "{\"status\": \"in_progress\"}";
    struct landed got = job_land(fx.db, &c.claim[0], l, false, 0);
    assert_int_equal(got.state, JOB_FINALIZING);
    assert_false(got.moved);
    fx_value("SELECT count(*) FROM job_event WHERE to_state = 6", "1");
    fx_value("SELECT event FROM job_run", "10"); /* what led here is not forgotten */
}

/* Counts go to Postgres when the state changes, otherwise at most every 30 s. */
static void progress_is_written_now_and_then(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    claim_in(JOB_VALIDATING, id, &c);
    struct run_claim *mine = &c.claim[0];
    struct land l = LAND_INIT(EV_BATCH_IN_PROGRESS);
    l.batch_json = "1";
    mine->run.version = job_land(fx.db, mine, l, true, 0).version;
    fx_value("SELECT batch FROM job_run", "1");
    l.batch_json = "2"; /* at once after: left to the overlay */
    mine->run.version = job_land(fx.db, mine, l, true, 0).version;
    fx_value("SELECT batch FROM job_run", "1");
    fx_sql("UPDATE job_run SET batch_at = batch_at - interval '30 s'");
    mine->run.version = job_land(fx.db, mine, l, true, 0).version;
    fx_value("SELECT batch FROM job_run", "2");
    l.event = EV_BATCH_FINALIZING;
    l.batch_json = "3";
    mine->run.version = job_land(fx.db, mine, l, true, 0).version;
    fx_value("SELECT batch FROM job_run", "3");
    l.event = JOB_EVENT__COUNT; /* an unknown word of the batch service */
    l.batch_json = NULL;
    (void)job_land(fx.db, mine, l, false, 0);
    fx_value("SELECT batch FROM job_run", "3");
}

static void failures_in_a_row_are_counted(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    claim_in(JOB_IN_PROGRESS, id, &c);
    struct run_claim *mine = &c.claim[0];
    struct land l = LAND_INIT(JOB_EVENT__COUNT);
    l.call_failed = true;
    l.batch_missing = true;
    for (int i = 0; i < 3; i++)
        mine->run.version = job_land(fx.db, mine, l, true, 0).version;
    fx_value("SELECT failures || ' ' || lost FROM job_run", "3 3");
    l.batch_missing = false; /* another failure than a 404 */
    mine->run.version = job_land(fx.db, mine, l, true, 0).version;
    fx_value("SELECT failures || ' ' || lost FROM job_run", "4 0");
    (void)job_land(fx.db, mine, (struct land)LAND_INIT(JOB_EVENT__COUNT), false, 0);
    fx_value("SELECT failures FROM job_run", "0");
}

static void an_error_stays_until_it_is_cleared(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    claim_in(JOB_IN_PROGRESS, id, &c);
    struct run_claim *mine = &c.claim[0];
    struct land l = LAND_INIT(JOB_EVENT__COUNT);
    l.error_code = "down";
    l.error = "no answer";
    mine->run.version = job_land(fx.db, mine, l, true, 0).version;
    l.error_code = NULL;
    mine->run.version = job_land(fx.db, mine, l, true, 0).version;
    fx_value("SELECT error_code || ' ' || error FROM job_run", "down no answer");
    l.error_code = "";
    (void)job_land(fx.db, mine, l, false, 0);
    fx_value("SELECT error_code IS NULL AND error IS NULL FROM job_run", "t");
}

/* The third time-out of resource_preparing is the last: they are counted across attempts. */
static void time_outs_are_counted(void **state)
{
    char id[UUID_SIZE];
    (void)state;
    job_make("j", id);
    for (int i = 0; i < 2; i++) {
        cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
        job_bring(id, JOB_RESOURCE_PREPARING);
        job_all_due();
        job_claim(fx.db, PLANNER_A, 1, &c);
        assert_int_equal(c.claim[0].run.timeouts, i);
        struct land l = LAND_INIT(EV_REQUEUE);
        l.timed_out = true;
        assert_int_equal(job_land(fx.db, &c.claim[0], l, false, 0).state, JOB_QUEUED);
    }
    fx_value("SELECT timeouts || ' ' || attempts FROM job_run", "2 2");
    fx_value("SELECT count(*) FROM intent WHERE kind = 3 AND state = 0", "2");
}

/* The result of a provision that lands after a cancel: nothing of it is lost, the job stays cancelling, and
 * the machines are released with its end. */
static void a_result_in_flight_lands_after_a_cancel(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims again = RUN_CLAIMS_INIT;
    (void)state;
    claim_planned(id, &c);
    cancel(id);
    struct land l = LAND_INIT(EV_PROVISIONED);
    l.provision = &RUNNING;
    l.settles = 1U << INTENT_PROVISION;
    l.poll_ms = 3600 * 1000;
    struct landed got = job_land(fx.db, &c.claim[0], l, false, 0);
    assert_int_equal(got.state, JOB_CANCELLING);
    assert_true(got.cancel && !got.moved);
    fx_value("SELECT status FROM provision", "running");
    job_claim(fx.db, PLANNER_B, 1, &again); /* at once, whatever poll_ms said */
    assert_int_equal(again.claim[0].intent.id, 0);
    assert_true(again.claim[0].run.machines);
    got = job_land(fx.db, &again.claim[0], (struct land)LAND_INIT(EV_CLEANED_UP), false, 0);
    assert_int_equal(got.state, JOB_CANCELLED);
    job_history_is(id, "queued planned cancelling cancelled");
    fx_value("SELECT count(*) FROM intent WHERE kind = 3 AND state = 0", "1");
    jobs_consistent();
}

/* The batch that was being created: its id is not lost either, and it is to be cancelled. */
static void a_batch_created_during_a_cancel_is_cancelled(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims again = RUN_CLAIMS_INIT;
    cleanup_jobs struct jobs got = JOBS_INIT;
    (void)state;
    claim_in(JOB_SUBMITTING, id, &c);
    cancel(id);
    struct land l = LAND_INIT(EV_BATCH_VALIDATING);
    l.batch_id = "late";
    l.batch_json = "{\"status\": \"validating\"}";
    l.settles = 1U << INTENT_CREATE_BATCH;
    struct landed done = job_land(fx.db, &c.claim[0], l, false, 0);
    assert_int_equal(done.state, JOB_CANCELLING);
    job_now(id, &got);
    assert_string_equal(got.job[0].batch_id, "late");
    assert_non_null(strstr(got.job[0].batch_json, "validating"));
    job_claim(fx.db, PLANNER_B, 1, &again);
    assert_int_equal(again.claim[0].intent.kind, INTENT_CANCEL_BATCH);
    fx_value("SELECT subject FROM intent WHERE kind = 2", "late");
    struct land cleaned = LAND_INIT(EV_BATCH_COMPLETED); /* it may have completed first */
    cleaned.settles = 1U << INTENT_CANCEL_BATCH;
    assert_int_equal(job_land(fx.db, &again.claim[0], cleaned, false, 0).state, JOB_COMPLETED);
    fx_value("SELECT state FROM intent WHERE kind = 2", "1");
}

/* A submit that lands after a cancel writes no create intent. */
static void nothing_is_submitted_after_a_cancel(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    claim_in(JOB_RESOURCE_PREPARING, id, &c);
    cancel(id);
    assert_int_equal(
        job_land(fx.db, &c.claim[0], (struct land)LAND_INIT(EV_SUBMIT), false, 0).state,
        JOB_CANCELLING);
    fx_value("SELECT count(*) FROM intent WHERE kind = 1", "0");
}

/* Cancelled at the batch service: the job is cancelling, but nobody is to cancel the batch again. */
static void a_batch_cancelled_elsewhere_is_only_watched(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    (void)state;
    claim_in(JOB_IN_PROGRESS, id, &c);
    struct landed got =
        job_land(fx.db, &c.claim[0], (struct land)LAND_INIT(EV_BATCH_CANCELLING), false, 0);
    assert_int_equal(got.state, JOB_CANCELLING);
    assert_false(got.cancel);
    fx_value("SELECT count(*) FROM intent WHERE kind = 2", "0");
}

/* To end a job whose batch must be stopped first: what is to come of it is on record before the call. */
static void a_batch_is_stopped_for_a_reason_that_is_kept(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims again = RUN_CLAIMS_INIT;
    (void)state;
    claim_in(JOB_IN_PROGRESS, id, &c);
    const struct job_run *r = &c.claim[0].run;
    ok(land_stop(fx.db, r, EV_RUN_EXPIRE, "expired", "past expires_at", &e));
    ok(land_stop(
        fx.db, r, EV_MACHINES_LOST, "lost", "said later", &e)); /* the first reason counts */
    fx_sql("UPDATE job_run SET lease_until = now() - interval '1 ms', next_poll_at = now()");
    job_claim(fx.db, PLANNER_B, 1, &again); /* as after a crash */
    assert_int_equal(again.claim[0].intent.kind, INTENT_CANCEL_BATCH);
    assert_non_null(strstr(again.claim[0].intent.payload_json, "\"then\": \"run_expire\""));
    assert_non_null(strstr(again.claim[0].intent.payload_json, "past expires_at"));
    assert_int_equal(land_stop(fx.db, r, EV_RUN_EXPIRE, "c", "m", &e), 1); /* superseded */
    struct land l = LAND_INIT(EV_RUN_EXPIRE);
    l.settles = 1U << INTENT_CANCEL_BATCH;
    assert_int_equal(job_land(fx.db, &again.claim[0], l, false, 0).state, JOB_EXPIRED);
    job_history_is(id,
        "queued planned resource_preparing submitting scheduling validating in_progress"
        " expired");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(a_job_runs_its_course),
        FX_BOTH(what_is_known_of_the_machines_is_kept),
        FX_BOTH(a_claim_may_be_kept),
        FX_BOTH(a_kept_claim_is_told_its_next_intent),
        FX_BOTH(an_attempt_that_did_nothing_is_taken_back),
        FX_BOTH(a_requeued_job_keeps_its_place),
        FX_BOTH(nothing_is_released_where_nothing_was_made),
        FX_BOTH(every_end_releases),
        FX_BOTH(a_stale_status_does_not_move_a_job_back),
        FX_BOTH(progress_is_written_now_and_then),
        FX_BOTH(failures_in_a_row_are_counted),
        FX_BOTH(an_error_stays_until_it_is_cleared),
        FX_BOTH(time_outs_are_counted),
        FX_BOTH(a_result_in_flight_lands_after_a_cancel),
        FX_BOTH(a_batch_created_during_a_cancel_is_cancelled),
        FX_BOTH(nothing_is_submitted_after_a_cancel),
        FX_BOTH(a_batch_cancelled_elsewhere_is_only_watched),
        FX_BOTH(a_batch_is_stopped_for_a_reason_that_is_kept),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
