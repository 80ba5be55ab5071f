/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "store/chore.h"
#include "store/intent.h"
#include "store/job_land.h"
#include "store/job_run.h"
#include "store/plan.h"
#include "store/planner_lease.h"
#include "store/planner_view.h"
#include "store/pool.h"
#include "store/provision.h"
#include "store/template.h"
#include "tests/store/job_fixture.h"

int jobs_setup(void **state)
{
    static struct db_stmts stmts[13];
    (void)state;
    stmts[0] = JOB_STMTS;
    stmts[1] = JOB_LIST_STMTS;
    stmts[2] = JOB_RUN_STMTS;
    stmts[3] = JOB_LAND_STMTS;
    stmts[4] = PLAN_STMTS;
    stmts[5] = PLANNER_LEASE_STMTS;
    stmts[6] = PLANNER_VIEW_STMTS;
    stmts[7] = POOL_STMTS;
    stmts[8] = PROVISION_STMTS;
    stmts[9] = INTENT_STMTS;
    stmts[10] = TEMPLATE_STMTS;
    stmts[11] = CHORE_STMTS;
    stmts[12] = MODEL_STMTS;
    return fx_begin(stmts, sizeof stmts / sizeof stmts[0],
        "TRUNCATE job, job_run, job_file_ref, job_event, job_count, intent, planner_lease, policy_turn,"
        " provision, model, model_template, chore; DELETE FROM pool WHERE name <> 'default';"
        " UPDATE pool SET drained_at = NULL, drained_by = ''");
}

struct job_new job_asked(const char *name)
{
    return (struct job_new){
        .created_by = "alice",
        .name = name,
        .endpoint = "/v1/chat/completions",
        .model = "m",
        .input_file = "file-in",
        .completion_window = "24h",
        .window_minutes = 1440,
        .queue_deadline_s = 86400,
        .replicas = 1,
        .request_json = "{}",
    };
}

void job_accept(const struct job_new *j, char id[UUID_SIZE])
{
    struct err e = ERR_INIT;
    enum job_fate fate = JOB_FATE_SAME;
    cleanup_jobs struct jobs out = JOBS_INIT;
    ok(job_enqueue(fx.db, j, &out, &fate, &e));
    assert_int_equal(fate, JOB_FATE_NEW);
    assert_int_equal(out.n, 1);
    (void)str_copy(id, UUID_SIZE, out.job[0].id);
}

void job_make(const char *name, char id[UUID_SIZE])
{
    struct job_new j = job_asked(name);
    job_accept(&j, id);
}

void job_now(const char *id, struct jobs *out)
{
    struct err e = ERR_INIT;
    ok(job_get(fx.db, id, out, &e));
    assert_int_equal(out->n, 1);
}

enum job_state job_state_now(const char *id)
{
    cleanup_jobs struct jobs out = JOBS_INIT;
    job_now(id, &out);
    return out.job[0].state;
}

void job_history_is(const char *id, const char *expected)
{
    struct err e = ERR_INIT;
    cleanup_buf struct buf names = BUF_INIT(4096);
    cleanup_job_history struct job_history h = JOB_HISTORY_INIT;
    ok(job_events(fx.db, id, &h, &e));
    for (size_t i = 0; i < h.n; i++) {
        assert_int_equal(h.happening[i].from, i == 0 ? JOB_NONE : h.happening[i - 1].to);
        assert_true(i == 0 || h.happening[i].at_us > h.happening[i - 1].at_us);
        buf_printf(&names, "%s%s", i == 0 ? "" : " ", job_state_name(h.happening[i].to));
    }
    assert_string_equal(names.data == NULL ? "" : names.data, expected);
}

void jobs_consistent(void)
{
    fx_value(
        "SELECT count(*) FROM"
        " (SELECT pool_id, state, sum(n) AS n FROM job_count GROUP BY 1, 2) c FULL JOIN"
        " (SELECT j.pool_id, coalesce(r.state, j.final_state) AS state, count(*) AS n FROM job j"
        "  LEFT JOIN job_run r ON r.job_id = j.id GROUP BY 1, 2) t"
        " ON c.pool_id = t.pool_id AND c.state = t.state"
        " WHERE coalesce(c.n, 0) <> coalesce(t.n, 0)",
        "0");
    fx_value("SELECT count(*) FROM job j LEFT JOIN job_run r ON r.job_id = j.id"
             " WHERE (j.final_state IS NULL) = (r.job_id IS NULL)",
        "0");
    fx_value("SELECT count(*) FROM job j LEFT JOIN job_run r ON r.job_id = j.id"
             " WHERE coalesce(r.state, j.final_state) <> (SELECT e.to_state FROM job_event e"
             "  WHERE e.job_id = j.id ORDER BY at DESC, seq DESC LIMIT 1)",
        "0");
}

const char *const PLANNER_A = "aaaaaaaa-0000-4000-8000-000000000000";
const char *const PLANNER_B = "bbbbbbbb-0000-4000-8000-000000000000";

struct run_pools default_pools(void)
{
    static int64_t id;
    struct err e = ERR_INIT;
    ok(pool_find(fx.db, "default", &id, &e));
    return (struct run_pools){ .id = &id, .n = 1 };
}

void job_lead(struct db *db, const char *holder, struct lease *out)
{
    struct err e = ERR_INIT;
    ok(lease_take(db, default_pools().id[0],
        &(struct lease_claimant){ holder, "test", LEASE_TTL_MS }, out, &e));
}

int64_t job_plan(struct db *db, const struct lease *l, int64_t max_provisioning)
{
    struct err e = ERR_INIT;
    struct plan_ask ask = { .max_provisioning = max_provisioning, .jobs = 100 };
    struct plan_order order[100];
    struct plan_result result = { .planned = -1 };
    cleanup_plan struct plan p = PLAN_INIT;
    cleanup_policy_plan struct policy_plan decided = POLICY_PLAN_INIT;
    ok(plan_begin(db, l, &ask, &p, &e));
    policy_simple(&p.snapshot, &decided);
    for (size_t i = 0; i < decided.n; i++)
        order[i] = (struct plan_order){ .job = &p.snapshot.job[decided.decision[i].job],
            .verdict = POLICY_PLAN,
            .spec_json = "{\"replicas\": 1}" };
    ok(plan_commit(
        &p, "test", &(struct plan_orders){ .order = order, .n = decided.n }, &result, &e));
    assert_int_equal(result.gone, 0);
    return result.planned;
}

struct run_ask job_ask(const char *owner, int64_t limit)
{
    return (struct run_ask){
        .pools = default_pools(), .owner = owner, .limit = limit, .lease_ms = RUN_LEASE_MS
    };
}

void job_claim(struct db *db, const char *owner, size_t n, struct run_claims *out)
{
    struct err e = ERR_INIT;
    const struct run_ask ask = job_ask(owner, RUN_CLAIM_MAX);
    ok(run_claim(db, &ask, out, &e));
    assert_int_equal(out->n, n);
}

struct landed job_land(struct db *db, const struct run_claim *c, struct land l, bool keep, int want)
{
    struct err e = ERR_INIT;
    struct landed got = { .state = JOB_NONE };
    int result = land(db, &c->run, &l, keep, &got, &e);
    if (result != want)
        fail_msg("landing gave %d, not %d: %s", result, want, e.msg);
    return got;
}

void job_all_due(void)
{
    fx_sql("UPDATE job_run SET next_poll_at = now() - interval '1 second', not_before = NULL");
}

/* What leads to the next state. */
static struct land step_to(enum job_state to)
{
    static const struct land_provision GOT = {
        .provider = "local", .status = "running", .region = "here", .details_json = "{\"n\": 1}"
    };
    switch ((int)to) {
    case JOB_RESOURCE_PREPARING:
        return (struct land){ .event = EV_PROVISIONED,
            .actor = "test",
            .provision = &GOT,
            .settles = 1U << INTENT_PROVISION };
    case JOB_SUBMITTING:
        return (struct land){ .event = EV_SUBMIT, .actor = "test" };
    default: {
        static const enum job_event EVENTS[] = { [JOB_SCHEDULING] = EV_BATCH_SCHEDULING,
            [JOB_VALIDATING] = EV_BATCH_VALIDATING,
            [JOB_IN_PROGRESS] = EV_BATCH_IN_PROGRESS,
            [JOB_FINALIZING] = EV_BATCH_FINALIZING };
        return (struct land){ .event = EVENTS[to],
            .actor = "test",
            .batch_id = "batch-1",
            .settles = 1U << INTENT_CREATE_BATCH };
    }
    }
}

void job_bring(const char *id, enum job_state to)
{
    struct lease l;
    job_lead(fx.db, PLANNER_A, &l);
    assert_int_equal(job_plan(fx.db, &l, 1), 1);
    for (int s = JOB_RESOURCE_PREPARING; s <= (int)to; s++) {
        cleanup_run_claims struct run_claims c = RUN_CLAIMS_INIT;
        job_claim(fx.db, PLANNER_A, 1, &c);
        assert_string_equal(c.claim[0].run.id, id);
        struct landed got = job_land(fx.db, &c.claim[0], step_to((enum job_state)s), false, 0);
        assert_int_equal(got.state, s);
        assert_true(got.moved);
    }
}
