/* SPDX-License-Identifier: Apache-2.0 */

/* Superseded results, and what is given back: jobs contract, section 5, "Act" and "Intents". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "store/intent.h"
#include "store/provision.h"
#include "base/str.h"
#include "tests/store/job_fixture.h"

static void lapse(void)
{
    fx_sql("UPDATE job_run SET lease_until = now() - interval '1 ms', next_poll_at = now()");
    fx_sql("UPDATE intent SET lease_until = now() - interval '1 ms' WHERE lease_until IS NOT NULL");
}

/* Planned, and claimed by A. */
static void claim_planned(char id[UUID_SIZE], struct run_claims *c)
{
    struct lease l;
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &l);
    assert_int_equal(job_plan(fx.db, &l, 1), 1);
    job_claim(fx.db, PLANNER_A, 1, c);
}

static void claim_releases(const char *owner, size_t n, struct releases *out)
{
    struct err e = ERR_INIT;
    const struct run_ask ask = job_ask(owner, 20);
    ok(release_claim(fx.db, &ask, out, &e));
    assert_int_equal(out->n, n);
}

static struct land provisioned(void)
{
    static const struct land_provision GOT = { .provider = "local", .status = "running" };
    struct land l = LAND_INIT(EV_PROVISIONED);
    l.provision = &GOT;
    return l;
}

/* A stale epoch is refused: the job is another's now, and so is the provision row. */
static void a_superseded_result_is_dropped(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    (void)state;
    claim_planned(id, &a);
    lapse();
    job_claim(fx.db, PLANNER_B, 1, &b);
    (void)job_land(fx.db, &a.claim[0], provisioned(), false, 1);
    assert_int_equal(job_state_now(id), JOB_PLANNED);
    fx_value("SELECT status FROM provision", "pending");
    fx_value("SELECT lease_owner FROM job_run", PLANNER_B);
    /* its machines have the name that B works under: they are found, and go with the job's */
    fx_value("SELECT count(*) FROM intent WHERE kind = 3", "0");
    (void)job_land(fx.db, &b.claim[0], provisioned(), false, 0);
    (void)job_land(
        fx.db, &b.claim[0], provisioned(), false, 1); /* nor twice: the version has changed */
    jobs_consistent();
}

/* The lease has run out, but nobody has taken over: the result counts. */
static void a_late_result_that_nobody_overtook_lands(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    (void)state;
    claim_planned(id, &a);
    lapse();
    assert_int_equal(
        job_land(fx.db, &a.claim[0], provisioned(), false, 0).state, JOB_RESOURCE_PREPARING);
}

/* Machines that were made too late, when their job had ended and all had been released: released once more. */
static void machines_made_too_late_are_released(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    cleanup_releases struct releases first = RELEASES_INIT;
    cleanup_releases struct releases second = RELEASES_INIT;
    (void)state;
    claim_planned(id, &a);
    lapse();
    job_claim(fx.db, PLANNER_B, 1, &b);
    (void)job_land(fx.db, &b.claim[0], (struct land)LAND_INIT(EV_RESOURCE_FAIL), false, 0);
    claim_releases(PLANNER_B, 1, &first);
    ok(release_done(fx.db, &first.release[0], &e));
    (void)job_land(fx.db, &a.claim[0], provisioned(), false, 1);
    claim_releases(PLANNER_A, 1, &second);
    assert_int_equal(second.release[0].id, first.release[0].id);
    assert_string_equal(second.release[0].provision_key, a.claim[0].run.provision_key);
}

/* ... also when somebody is releasing right now, and may have looked before they were there. */
static void a_release_under_way_is_done_once_more(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    cleanup_releases struct releases looking = RELEASES_INIT;
    cleanup_releases struct releases again = RELEASES_INIT;
    (void)state;
    claim_planned(id, &a);
    lapse();
    job_claim(fx.db, PLANNER_B, 1, &b);
    (void)job_land(fx.db, &b.claim[0], (struct land)LAND_INIT(EV_REQUEUE), false, 0);
    claim_releases(PLANNER_B, 1, &looking);
    (void)job_land(fx.db, &a.claim[0], provisioned(), false, 1);
    assert_int_equal(release_done(fx.db, &looking.release[0], &e), 1);
    claim_releases(PLANNER_A, 1, &again);
    ok(release_done(fx.db, &again.release[0], &e));
}

static void where_nothing_was_made_nothing_is_released(void **state)
{
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    struct land l = LAND_INIT(EV_REQUEUE);
    (void)state;
    claim_planned(id, &a);
    lapse();
    job_claim(fx.db, PLANNER_B, 1, &b);
    l.machines = LAND_MACHINES_NONE;
    (void)job_land(fx.db, &b.claim[0], l, false, 0);
    (void)job_land(fx.db, &a.claim[0], l, false, 1);
    fx_value("SELECT count(*) FROM intent WHERE kind = 3", "0");
}

/* A batch that was created too late: one that the job does not hold is cancelled on its own account; one that
 * is still being looked for is found. */
static void a_batch_made_too_late_is_cancelled(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_run_claims struct run_claims b = RUN_CLAIMS_INIT;
    cleanup_releases struct releases strays = RELEASES_INIT;
    struct land l = LAND_INIT(EV_BATCH_VALIDATING);
    (void)state;
    job_make("j", id);
    job_bring(id, JOB_SUBMITTING);
    job_all_due();
    job_claim(fx.db, PLANNER_A, 1, &a);
    lapse();
    job_claim(fx.db, PLANNER_B, 1, &b);
    l.batch_id = "b1";
    (void)job_land(fx.db, &a.claim[0], l, false, 1);
    fx_value("SELECT count(*) FROM intent WHERE kind = 4", "0"); /* B is looking */
    b.claim[0].run.version = job_land(fx.db, &b.claim[0], l, true, 0).version;
    (void)job_land(fx.db, &a.claim[0], l, false, 1);
    fx_value("SELECT count(*) FROM intent WHERE kind = 4", "0"); /* it is the job's */
    l.batch_id = "b2";
    (void)job_land(fx.db, &a.claim[0], l, false, 1);
    (void)job_land(fx.db, &a.claim[0], l, false, 1);
    (void)job_land(fx.db, &b.claim[0], (struct land)LAND_INIT(EV_BATCH_COMPLETED), false, 0);
    l.batch_id = "b3"; /* when the job has ended */
    (void)job_land(fx.db, &a.claim[0], l, false, 1);
    l.batch_id = "b1";
    (void)job_land(fx.db, &a.claim[0], l, false, 1);
    fx_value("SELECT string_agg(subject || state, ' ' ORDER BY id) FROM intent WHERE kind = 4",
        "b20 b30");
    claim_releases(PLANNER_A, 3, &strays); /* the machines' among them */
    size_t seen = 0;
    for (size_t i = 0; i < strays.n; i++) {
        const struct release *r = &strays.release[i];
        if (r->kind != INTENT_STRAY_BATCH)
            continue;
        assert_string_equal(r->batch_id, seen == 0 ? "b2" : "b3");
        assert_string_equal(r->job_id, id);
        assert_string_equal(r->provision_key, "");
        ok(release_done(fx.db, r, &e));
        seen++;
    }
    assert_int_equal(seen, 2);
    fx_value("SELECT status FROM provision", "releasing"); /* none of the batches' business */
}

/* A job ended, its machines to be given back. */
static void end_one(char id[UUID_SIZE])
{
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    job_make("j", id);
    job_bring(id, JOB_IN_PROGRESS);
    job_all_due();
    job_claim(fx.db, PLANNER_A, 1, &c);
    (void)job_land(fx.db, &c.claim[0], (struct land)LAND_INIT(EV_BATCH_COMPLETED), false, 0);
}

static void a_release_tells_what_to_give_back(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_releases struct releases r = RELEASES_INIT;
    cleanup_releases struct releases none = RELEASES_INIT;
    cleanup_provisions struct provisions p = PROVISIONS_INIT;
    (void)state;
    end_one(id);
    claim_releases(PLANNER_A, 1, &r);
    assert_int_equal(r.release[0].kind, INTENT_RELEASE);
    assert_string_equal(r.release[0].job_id, id);
    assert_int_equal(r.release[0].pool_id, default_pools().id[0]);
    assert_int_equal(r.release[0].attempt, 1);
    assert_int_equal(r.release[0].tries, 1);
    assert_string_equal(r.release[0].provider, "local");
    assert_string_equal(r.release[0].region, "here");
    assert_string_equal(r.release[0].details_json, "{\"n\": 1}");
    assert_true(r.release[0].created_us > 0);
    ok(provision_get(fx.db, r.release[0].provision_key, &p, &e));
    assert_string_equal(p.provision[0].status, "releasing");
    claim_releases(PLANNER_B, 0, &none); /* one at a time */
    ok(release_renew(fx.db, &r.release[0], RUN_LEASE_MS, &e));
    fx_value(
        "SELECT lease_until - now() BETWEEN interval '20 s' AND interval '30 s' FROM intent WHERE"
        " kind = 3",
        "t");
    ok(release_done(fx.db, &r.release[0], &e));
    provisions_free(&p);
    ok(provision_get(fx.db, r.release[0].provision_key, &p, &e));
    assert_string_equal(p.provision[0].status, "released");
    assert_int_equal(release_done(fx.db, &r.release[0], &e), 1);
    assert_int_equal(release_renew(fx.db, &r.release[0], RUN_LEASE_MS, &e), 1);
}

/* Retried for ever, with back-off, and visible until done. */
static void a_release_is_never_given_up(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_releases struct releases backlog = RELEASES_INIT;
    (void)state;
    end_one(id);
    for (int i = 1; i <= 5; i++) {
        cleanup_releases struct releases r = RELEASES_INIT;
        cleanup_releases struct releases none = RELEASES_INIT;
        claim_releases(PLANNER_A, 1, &r);
        assert_int_equal(r.release[0].tries, i);
        ok(release_retry(fx.db, &r.release[0], "provider is down", 3600 * 1000, &e));
        assert_int_equal(release_retry(fx.db, &r.release[0], "late", 0, &e), 1); /* not held */
        claim_releases(PLANNER_B, 0, &none);
        fx_sql("UPDATE intent SET next_at = now() WHERE kind = 3");
    }
    fx_value("SELECT status || error FROM provision", "release_failedprovider is down");
    ok(release_backlog(fx.db, 10, &backlog, &e));
    assert_int_equal(backlog.n, 1);
    assert_int_equal(backlog.release[0].tries, 5);
    assert_string_equal(backlog.release[0].error, "provider is down");
}

/* When the launch was announced tells until when machines of it may turn up; to look again then is no failure. */
static void a_release_knows_its_launch_and_may_go_on(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims a = RUN_CLAIMS_INIT;
    cleanup_releases struct releases r = RELEASES_INIT;
    (void)state;
    claim_planned(id, &a);
    struct run_held held = { .lease_epoch = a.claim[0].run.lease_epoch };
    (void)str_copy(held.id, sizeof held.id, id);
    ok(run_intent_begin(fx.db, &held, a.claim[0].intent.id, &e));
    fx_sql("UPDATE intent SET began_at = '2020-01-01 00:00:01Z' WHERE kind = 0");
    (void)job_land(fx.db, &a.claim[0], (struct land)LAND_INIT(EV_RESOURCE_FAIL), false, 0);
    claim_releases(PLANNER_A, 1, &r);
    assert_int_equal(r.release[0].launched_us, INT64_C(1577836801000000));
    ok(release_retry(fx.db, &r.release[0], "", 1000, &e));
    fx_value("SELECT status || error FROM provision", "releasing");
}

/* A releaser that died is replaced when its lease has run out; what it says later does not count. */
static void a_releasers_lease_runs_out(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_releases struct releases a = RELEASES_INIT;
    cleanup_releases struct releases b = RELEASES_INIT;
    (void)state;
    end_one(id);
    claim_releases(PLANNER_A, 1, &a);
    lapse();
    claim_releases(PLANNER_B, 1, &b);
    assert_int_equal(release_done(fx.db, &a.release[0], &e), 1);
    assert_int_equal(release_retry(fx.db, &a.release[0], "x", 0, &e), 1);
    ok(release_done(fx.db, &b.release[0], &e));
}

/* At a stop: what was not begun is another's at once, and counts as untried. */
static void a_release_may_be_handed_back_untried(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_releases struct releases a = RELEASES_INIT;
    cleanup_releases struct releases b = RELEASES_INIT;
    (void)state;
    end_one(id);
    claim_releases(PLANNER_A, 1, &a);
    ok(release_hand_back(fx.db, &a.release[0], &e));
    assert_int_equal(release_hand_back(fx.db, &a.release[0], &e), 1);
    claim_releases(PLANNER_B, 1, &b);
    assert_int_equal(b.release[0].tries, 1);
}

/* Machines seen outside: those of a live job are left alone, all others are released, as often as they are seen. */
static void machines_seen_outside_are_released_unless_wanted(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_releases struct releases first = RELEASES_INIT;
    cleanup_releases struct releases second = RELEASES_INIT;
    const int64_t pool = default_pools().id[0];
    (void)state;
    claim_planned(id, &c);
    const char *key = c.claim[0].run.provision_key;
    assert_int_equal(release_open(fx.db, key, "local", pool, &e), 1);
    fx_value("SELECT count(*) FROM intent WHERE kind = 3", "0");
    (void)job_land(fx.db, &c.claim[0], (struct land)LAND_INIT(EV_RESOURCE_FAIL), false, 0);
    assert_int_equal(release_open(fx.db, key, "local", pool, &e), 1); /* asked for already */
    claim_releases(PLANNER_A, 1, &first);
    ok(release_done(fx.db, &first.release[0], &e));
    ok(release_open(fx.db, key, "local", pool, &e)); /* and there they are again */
    claim_releases(PLANNER_A, 1, &second);
    assert_string_equal(second.release[0].provision_key, key);
    assert_int_equal(second.release[0].attempt, 1);
}

/* Seen at a provider that the row does not name: given back there, and after that by the row again. */
static void machines_are_released_where_they_were_seen(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_releases struct releases first = RELEASES_INIT;
    cleanup_releases struct releases second = RELEASES_INIT;
    (void)state;
    claim_planned(id, &c);
    (void)job_land(fx.db, &c.claim[0], (struct land)LAND_INIT(EV_RESOURCE_FAIL), false, 0);
    claim_releases(PLANNER_A, 1, &first);
    ok(release_done(fx.db, &first.release[0], &e));
    ok(release_open(fx.db, c.claim[0].run.provision_key, "lambdaCloud", default_pools().id[0], &e));
    claim_releases(PLANNER_A, 1, &second);
    assert_string_equal(second.release[0].provider, "lambdaCloud");
}

/* Our name, but no row: a database that was put back to an earlier state. */
static void machines_that_no_row_knows_are_released(void **state)
{
    struct err e = ERR_INIT;
    cleanup_releases struct releases r = RELEASES_INIT;
    (void)state;
    ok(release_open(
        fx.db, "01900000-0000-7000-8000-000000000001:4", "local", default_pools().id[0], &e));
    claim_releases(PLANNER_A, 1, &r);
    assert_string_equal(r.release[0].provision_key, "01900000-0000-7000-8000-000000000001:4");
    assert_int_equal(r.release[0].attempt, 4);
}

/* A batch seen outside: ended unless it is its job's, or may yet become it. */
static void a_batch_seen_outside_is_ended_unless_it_is_its_jobs(void **state)
{
    struct err e = ERR_INIT;
    char id[UUID_SIZE];
    cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
    cleanup_releases struct releases r = RELEASES_INIT;
    struct land begun = LAND_INIT(EV_BATCH_IN_PROGRESS);
    (void)state;
    job_make("j", id);
    job_bring(id, JOB_SUBMITTING);
    assert_int_equal(stray_batch_open(fx.db, id, "batch-1", &e), 1); /* being looked for */
    job_all_due();
    job_claim(fx.db, PLANNER_A, 1, &c);
    begun.batch_id = "batch-1";
    (void)job_land(fx.db, &c.claim[0], begun, false, 0);
    assert_int_equal(stray_batch_open(fx.db, id, "batch-1", &e), 1);
    ok(stray_batch_open(fx.db, id, "batch-2", &e));
    assert_int_equal(stray_batch_open(fx.db, id, "batch-2", &e), 1); /* asked for already */
    assert_int_equal(
        stray_batch_open(fx.db, "01900000-0000-7000-8000-000000000001", "batch-3", &e), 1);
    claim_releases(PLANNER_A, 1, &r);
    assert_int_equal(r.release[0].kind, INTENT_STRAY_BATCH);
    assert_string_equal(r.release[0].batch_id, "batch-2");
    ok(release_done(fx.db, &r.release[0], &e));
    ok(stray_batch_open(fx.db, id, "batch-2", &e)); /* seen alive after that */
}

static void provisions_are_listed_newest_first(void **state)
{
    struct err e = ERR_INIT;
    cleanup_provisions struct provisions all = PROVISIONS_INIT;
    cleanup_provisions struct provisions page = PROVISIONS_INIT;
    cleanup_provisions struct provisions rest = PROVISIONS_INIT;
    (void)state;
    fx_sql(
        "INSERT INTO provision (key, job_id, pool_id, spec, status, created_at) SELECT 'k' || i,"
        " gen_random_uuid(), p.id, '{}', CASE i % 2 WHEN 0 THEN 'running' ELSE 'released' END,"
        " timestamptz '2026-01-01Z' + i / 2 * interval '1 s' FROM pool p, generate_series(0, 6) i");
    ok(provision_list(fx.db, NULL, NULL, 100, &all, &e));
    assert_int_equal(all.n, 7);
    assert_false(all.more);
    for (size_t i = 0; i < all.n; i++)
        assert_int_equal(all.provision[i].key[1], '6' - (int)i);
    assert_string_equal(all.provision[0].pool, "default");
    ok(provision_list(fx.db, NULL, "running", 3, &page, &e));
    assert_int_equal(page.n, 3);
    assert_true(page.more);
    ok(provision_list(fx.db, page.provision[2].key, "running", 3, &rest, &e));
    assert_int_equal(rest.n, 1);
    assert_string_equal(rest.provision[0].key, "k0");
    fx_fails(provision_list(fx.db, "none", NULL, 3, &rest, &e), &e, ERR_INVALID, "after");
    fx_fails(provision_get(fx.db, "none", &rest, &e), &e, ERR_NOT_FOUND, "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(a_superseded_result_is_dropped),
        FX_BOTH(a_late_result_that_nobody_overtook_lands),
        FX_BOTH(machines_made_too_late_are_released),
        FX_BOTH(a_release_under_way_is_done_once_more),
        FX_BOTH(where_nothing_was_made_nothing_is_released),
        FX_BOTH(a_batch_made_too_late_is_cancelled),
        FX_BOTH(a_release_tells_what_to_give_back),
        FX_BOTH(a_release_is_never_given_up),
        FX_BOTH(a_release_knows_its_launch_and_may_go_on),
        FX_BOTH(a_releasers_lease_runs_out),
        FX_BOTH(a_release_may_be_handed_back_untried),
        FX_BOTH(machines_seen_outside_are_released_unless_wanted),
        FX_BOTH(machines_are_released_where_they_were_seen),
        FX_BOTH(machines_that_no_row_knows_are_released),
        FX_BOTH(a_batch_seen_outside_is_ended_unless_it_is_its_jobs),
        FX_BOTH(provisions_are_listed_newest_first),
    };
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
