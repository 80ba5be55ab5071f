/* SPDX-License-Identifier: Apache-2.0 */

/* Verbs of jobs and planners whose connection breaks at any of their statements: they say so, nothing of them
 * remains, and said again they do what they are for. Jobs contract, sections 3 ("a store failure is a 503, never
 * an empty 200") and 5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "store/chore.h"
#include "store/intent.h"
#include "store/pool.h"
#include "store/template.h"
#include "tests/fake/libpq_fails.h"
#include "tests/store/job_fixture.h"

/* All that the verbs may change, as one text; the caller's. */
static char *all_rows(void)
{
    static const char *const TABLES[] = { "job", "job_run", "job_file_ref", "job_event",
        "job_count", "intent", "provision", "planner_lease", "pool", "model", "model_template",
        "chore" };
    cleanup_buf struct buf sql = BUF_INIT(4096);
    for (size_t i = 0; i < sizeof TABLES / sizeof TABLES[0]; i++)
        buf_printf(&sql, "%s(SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM %s t)",
            i == 0 ? "SELECT concat_ws('|', " : ", ", TABLES[i]);
    buf_puts(&sql, ")");
    return stores_value(&fx.stores, sql.data);
}

/* What the scene has. */
static char id[UUID_SIZE];
static struct lease lease;
static struct run_claims claims;
static struct releases releases;

static struct run_claim *claimed(void)
{
    return &claims.claim[0];
}

static struct run_held held(void)
{
    struct run_held h = { .lease_epoch = claimed()->run.lease_epoch };
    (void)str_copy(h.id, sizeof h.id, claimed()->run.id);
    return h;
}

/* --- scenes --- */

static void nothing(void)
{
}

static void queued(void)
{
    job_make("j", id);
}

static void queued_too_long(void)
{
    job_make("j", id);
    fx_sql("UPDATE job_run SET queue_deadline = now() - interval '1 second'");
}

static void led(void)
{
    job_make("j", id);
    job_lead(fx.db, PLANNER_A, &lease);
}

static void planned(void)
{
    led();
    assert_int_equal(job_plan(fx.db, &lease, 1), 1);
}

static void planned_and_claimed(void)
{
    planned();
    job_claim(fx.db, PLANNER_A, 1, &claims);
}

static void running(void)
{
    job_make("j", id);
    job_bring(id, JOB_IN_PROGRESS);
    job_all_due();
}

static void running_and_claimed(void)
{
    running();
    job_claim(fx.db, PLANNER_A, 1, &claims);
}

static void taken_by_another(void)
{
    cleanup_run_claims struct run_claims theirs = RUN_CLAIMS_INIT;
    planned_and_claimed();
    fx_sql("UPDATE job_run SET lease_until = now() - interval '1 ms', next_poll_at = now()");
    job_claim(fx.db, PLANNER_B, 1, &theirs);
    fx_sql("UPDATE job_run SET provision_key = job_id || ':2'");
}

static void ended(void)
{
    running_and_claimed();
    (void)job_land(fx.db, claimed(), (struct land)LAND_INIT(EV_BATCH_COMPLETED), false, 0);
}

static void ended_and_claimed(void)
{
    struct err e = ERR_INIT;
    const struct run_ask ask = job_ask(PLANNER_A, 20);
    ended();
    ok(release_claim(fx.db, &ask, &releases, &e));
    assert_int_equal(releases.n, 1);
}

static void a_model(void)
{
    struct err e = ERR_INIT;
    cleanup_models struct models out = MODELS_INIT;
    const struct model_row m = { .id = "m", .name = "M", .serving_name = "m", .info_json = "{}" };
    ok(model_create(fx.db, &m, &out, &e));
}

static void another_pool(void)
{
    fx_sql("INSERT INTO pool (name, provisioner, policy) VALUES ('other', 'local', 'fair')");
}

/* --- verbs --- */

static int enqueue(struct err *e)
{
    struct job_new j = job_asked("new");
    enum job_fate fate = JOB_FATE_SAME;
    cleanup_jobs struct jobs out = JOBS_INIT;
    j.idem_key = "key";
    j.idem_hash = "hash";
    int result = job_enqueue(fx.db, &j, &out, &fate, e);
    assert_int_equal(out.n, result < 0 ? 0 : 1);
    return result;
}

static int cancel(struct err *e)
{
    enum job_state now = JOB_NONE;
    int result = job_cancel(fx.db, id, "alice", &now, e);
    assert_int_equal(now == JOB_NONE, result < 0);
    return result;
}

static int expire(struct err *e)
{
    int64_t n = -1;
    int result = run_expire_queued(fx.db, default_pools(), 10, &n, e);
    assert_int_equal(n, result < 0 ? -1 : 1);
    return result;
}

static int lead(struct err *e)
{
    const struct lease_claimant who = { PLANNER_A, "test", LEASE_TTL_MS };
    struct lease out = { .epoch = -1 };
    int result = lease_take(fx.db, default_pools().id[0], &who, &out, e);
    assert_int_equal(out.epoch == -1, result < 0);
    return result;
}

static int renew_lease(struct err *e)
{
    return lease_renew(fx.db, &lease, e);
}

static int step_down(struct err *e)
{
    return lease_step_down(fx.db, &lease, e);
}

static int plan_one(struct err *e)
{
    const struct plan_ask ask = { .max_provisioning = 1, .jobs = 10 };
    struct plan_result out = { .planned = -1 };
    cleanup_plan struct plan p = PLAN_INIT;
    if (plan_begin(fx.db, &lease, &ask, &p, e) < 0)
        return -1;
    const struct plan_order order = {
        .job = p.snapshot.job, .verdict = POLICY_PLAN, .spec_json = "{\"replicas\": 1}"
    };
    int result = plan_commit(&p, "test", &(struct plan_orders){ .order = &order, .n = 1 }, &out, e);
    assert_int_equal(out.planned, result < 0 ? -1 : 1);
    return result;
}

static int claim(struct err *e)
{
    const struct run_ask ask = job_ask(PLANNER_A, 10);
    cleanup_run_claims struct run_claims out = RUN_CLAIMS_INIT;
    int result = run_claim(fx.db, &ask, &out, e);
    assert_int_equal(out.n, result < 0 ? 0 : 1);
    return result;
}

static int renew_claim(struct err *e)
{
    const struct run_held h = held();
    bool lost = false;
    int result = run_renew(fx.db, &h, 1, RUN_LEASE_MS, &lost, e);
    assert_false(lost);
    return result;
}

static int hand_back(struct err *e)
{
    const struct run_held h = held();
    return run_hand_back(fx.db, &h, 1, 1000, e);
}

static int begin_intent(struct err *e)
{
    const struct run_held h = held();
    return run_intent_begin(fx.db, &h, claimed()->intent.id, e);
}

static int land_as(struct land l, struct err *e)
{
    struct landed out = { .state = JOB_NONE };
    int result = land(fx.db, &claimed()->run, &l, false, &out, e);
    assert_int_equal(out.state == JOB_NONE, result != 0);
    return result;
}

static int land_machines(struct err *e)
{
    static const struct land_provision GOT = { .provider = "local", .status = "running" };
    struct land l = LAND_INIT(EV_PROVISIONED);
    l.provision = &GOT;
    l.settles = 1U << INTENT_PROVISION;
    return land_as(l, e);
}

/* Too late: what it made is to be given back. */
static int land_late(struct err *e)
{
    int result = land_machines(e);
    return result == 1 ? 0 : -1;
}

static int land_undone(struct err *e)
{
    struct land l = LAND_INIT(EV_REQUEUE);
    l.undone = 1U << INTENT_PROVISION;
    l.error_code = "no_capacity";
    l.error = "none free";
    return land_as(l, e);
}

static int land_end(struct err *e)
{
    struct land l = LAND_INIT(EV_BATCH_COMPLETED);
    l.batch_json = "{\"output_file_id\": \"out\"}";
    return land_as(l, e);
}

static int stop(struct err *e)
{
    return land_stop(fx.db, &claimed()->run, EV_RUN_EXPIRE, "expired", "too late", e);
}

static int claim_release(struct err *e)
{
    const struct run_ask ask = job_ask(PLANNER_A, 20);
    cleanup_releases struct releases out = RELEASES_INIT;
    int result = release_claim(fx.db, &ask, &out, e);
    assert_int_equal(out.n, result < 0 ? 0 : 1);
    return result;
}

static int release_is_done(struct err *e)
{
    return release_done(fx.db, &releases.release[0], e);
}

static int release_again(struct err *e)
{
    return release_retry(fx.db, &releases.release[0], "refused", 1000, e);
}

static int release_back(struct err *e)
{
    return release_hand_back(fx.db, &releases.release[0], e);
}

static int release_longer(struct err *e)
{
    return release_renew(fx.db, &releases.release[0], RUN_LEASE_MS, e);
}

static int open_release(struct err *e)
{
    char key[UUID_SIZE + 2];
    (void)str_format(key, sizeof key, "%s:7", id);
    return release_open(fx.db, key, "local", default_pools().id[0], e);
}

static int open_stray(struct err *e)
{
    return stray_batch_open(fx.db, id, "batch-2", e);
}

static int make_pool(struct err *e)
{
    int64_t made = -1;
    int result = pool_ensure(fx.db, "other", "local", "simple", &made, e);
    assert_int_equal(made == -1, result < 0);
    return result;
}

static int make_template(struct err *e)
{
    const struct template_row t = {
        .model_id = "m", .name = "t", .version = "", .status = "", .spec_json = "{}"
    };
    cleanup_templates struct templates out = TEMPLATES_INIT;
    int result = template_create(fx.db, &t, &out, e);
    assert_int_equal(out.n, result < 0 ? 0 : 1);
    return result;
}

static int do_chore(struct err *e)
{
    return chore_claim(fx.db, "sweep", 60, PLANNER_A, e);
}

/* --- all of them --- */

static int own(void **state)
{
    return fx_connect_prepared(state);
}

static void forget(void)
{
    run_claims_free(&claims);
    releases_free(&releases);
    claims = (struct run_claims)RUN_CLAIMS_INIT;
    releases = (struct releases)RELEASES_INIT;
}

/* failing: how many of its statements are not sent again when they fail, as a BEGIN is, and a read that is not the
 * first thing on a connection. */
struct verb {
    const char *name;
    void (*scene)(void);
    int (*call)(struct err *e);
    int failing;
};

static int once(const struct verb *v, int first)
{
    struct err e = ERR_INIT;
    cleanup_free char *before = all_rows();
    libpq_fails(LIBPQ_SEND, first);
    int result = v->call(&e);
    if (result >= 0)
        return result;
    cleanup_free char *after = all_rows();
    if (strcmp(before, after) != 0)
        fail_msg("%s, statement %d: something remains", v->name, first);
    if (e.code != ERR_UNAVAILABLE)
        fail_msg("%s, statement %d: %s: %s", v->name, first, err_name(e.code), e.msg);
    return -1;
}

static void at_every_statement(void **state, const struct verb *v)
{
    int failed = 0;
    int result = -1;
    bool reached = true;
    for (int first = 0; result < 0 || reached; first++) {
        forget();
        fx_clear(state);
        own(state);
        v->scene();
        result = once(v, first);
        reached = libpq_failed();
        if (result < 0 && !reached)
            fail_msg("%s failed without a cause", v->name);
        failed += result < 0;
    }
    if (result != 0 || failed != v->failing)
        fail_msg("%s gave %d, after %d failures", v->name, result, failed);
    jobs_consistent();
    forget();
}

static void a_verb_is_done_or_not_at_all(void **state)
{
    static const struct verb VERBS[] = {
        { "enqueue", nothing, enqueue, 1 },
        { "cancel of a queued job", queued, cancel, 1 },
        { "cancel of a running job", running, cancel, 1 },
        { "expiry in the queue", queued_too_long, expire, 1 },
        { "taking a lease", queued, lead, 1 },
        { "renewing a lease", led, renew_lease, 1 },
        { "stepping down", led, step_down, 1 },
        { "plan", led, plan_one, 6 },
        { "claim", planned, claim, 1 },
        { "renewing a claim", planned_and_claimed, renew_claim, 1 },
        { "handing back", planned_and_claimed, hand_back, 1 },
        { "beginning an intent", planned_and_claimed, begin_intent, 1 },
        { "machines", planned_and_claimed, land_machines, 5 },
        { "machines that come late", taken_by_another, land_late, 3 },
        { "no machines", planned_and_claimed, land_undone, 4 },
        { "end", running_and_claimed, land_end, 3 },
        { "stop", running_and_claimed, stop, 3 },
        { "claim of a release", ended, claim_release, 1 },
        { "release that is done", ended_and_claimed, release_is_done, 1 },
        { "release that is tried again", ended_and_claimed, release_again, 1 },
        { "release handed back", ended_and_claimed, release_back, 1 },
        { "release held longer", ended_and_claimed, release_longer, 1 },
        { "release of strays", ended, open_release, 1 },
        { "stray batch", ended, open_stray, 1 },
        { "pool", nothing, make_pool, 2 },
        { "pool of another policy", another_pool, make_pool, 2 },
        { "template", a_model, make_template, 1 },
        { "chore", nothing, do_chore, 1 },
    };
    for (size_t i = 0; i < sizeof VERBS / sizeof VERBS[0]; i++)
        at_every_statement(state, &VERBS[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_verb_is_done_or_not_at_all, own, fx_clear),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, jobs_setup, fx_teardown);
}
