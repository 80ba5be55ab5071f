/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs contract section 5, policy `fair`: weighted round robin over tenants, with quotas of jobs and GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "model/quota.h"

enum { JOBS_MAX = 64, TENANTS_MAX = 8 };

static const char TENANTS[] = "abcd";

/* A cluster in which every planned job ends at once, or stays. */
struct world {
    struct policy_job job[JOBS_MAX];
    size_t n;
    struct policy_tenant tenant[TENANTS_MAX];
    struct policy_turn turn[TENANTS_MAX];
    char name[TENANTS_MAX][2];
    size_t tenants;
    int64_t queued; /* ever */
    int64_t round;
    struct quotas quotas;
};

static void begin(struct world *w, const char *quotas)
{
    struct err e = ERR_INIT;
    *w = (struct world){ .quotas = QUOTAS_INIT, .tenants = sizeof TENANTS - 1 };
    for (size_t i = 0; i < w->tenants; i++) {
        w->name[i][0] = TENANTS[i];
        w->tenant[i].name = w->name[i];
        w->turn[i].tenant = w->name[i];
    }
    if (quotas_parse(quotas, &w->quotas, &e) < 0)
        fail_msg("%s", e.msg);
}

static struct policy_job *queue_one(struct world *w, char tenant)
{
    struct policy_job *j = &w->job[w->n];
    assert_true(w->n < JOBS_MAX);
    w->n++;
    *j = (struct policy_job){
        .tenant = w->name[tenant - 'a'], .enqueued_us = ++w->queued, .replicas = 1, .gpu_type = ""
    };
    return j;
}

static void queue(struct world *w, const char *tenants)
{
    for (; *tenants != '\0'; tenants++)
        (void)queue_one(w, *tenants);
}

static struct policy_plan plan(const struct world *w, int64_t most)
{
    const struct policy_snapshot s = { .now_us = 1,
        .max_provisioning = most,
        .job = w->job,
        .n_jobs = w->n,
        .tenant = w->tenant,
        .n_tenants = w->tenants,
        .quota = w->quotas.quota,
        .n_quotas = w->quotas.n,
        .turn = w->turn,
        .n_turns = w->tenants,
        .round = w->round,
        .ageing_us = 1 };
    struct policy_plan p = POLICY_PLAN_INIT;
    policy_fair(&s, &p);
    return p;
}

/* Takes the planned jobs out of the queue and remembers the turns; stay: they live on as their tenant's. */
static void carry_out(struct world *w, const struct policy_plan *p, bool stay)
{
    bool gone[JOBS_MAX] = { false };
    size_t left = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct policy_decision *d = &p->decision[i];
        if (d->verdict == POLICY_PASS_OVER)
            continue;
        const size_t t = (size_t)(w->job[d->job].tenant[0] - 'a');
        gone[d->job] = true;
        if (d->verdict == POLICY_PLAN) {
            w->turn[t].finish = d->finish;
            w->tenant[t].live += stay;
            w->tenant[t].gpus += stay ? w->job[d->job].replicas * w->job[d->job].gpus : 0;
        }
    }
    if (p->round != 0)
        w->round = p->round;
    for (size_t i = 0; i < w->n; i++) {
        if (!gone[i])
            w->job[left++] = w->job[i];
    }
    w->n = left;
}

/* The tenants in the order in which they are served, `at_once` in each plan. */
static void served(struct world *w, int plans, int64_t at_once, bool stay, char out[JOBS_MAX])
{
    size_t n = 0;
    for (int i = 0; i < plans; i++) {
        cleanup_policy_plan struct policy_plan p = plan(w, at_once);
        for (size_t k = 0; k < p.n; k++) {
            if (p.decision[k].verdict == POLICY_PLAN)
                out[n++] = w->job[p.decision[k].job].tenant[0];
        }
        carry_out(w, &p, stay);
    }
    out[n] = '\0';
}

static void serves(const char *quotas, const char *queued, int64_t at_once, const char *expected)
{
    struct world w;
    char got[JOBS_MAX];
    begin(&w, quotas);
    queue(&w, queued);
    served(&w, (int)strlen(queued), at_once, false, got);
    assert_string_equal(got, expected);
    quotas_free(&w.quotas);
}

static void tenants_take_turns_whoever_came_first(void **state)
{
    (void)state;
    serves("", "aaaab", 1, "abaaa");
    serves("", "aaabbbcc", 1, "abcabcab");
    serves("", "aaaa", 1, "aaaa");
}

/* The same whether one job is planned at a time or many. */
static void the_order_does_not_depend_on_how_many_go_at_once(void **state)
{
    (void)state;
    for (int64_t at_once = 1; at_once <= 8; at_once++)
        serves("", "aaabbbcc", at_once, "abcabcab");
}

static void weights_are_shares(void **state)
{
    (void)state;
    struct world w;
    char got[JOBS_MAX];
    size_t of_a = 0;
    begin(&w, "a weight=3, * weight=1");
    queue(&w, "bbbbbbbbbbbbbbbbbbbbaaaaaaaaaaaaaaaaaaaa");
    served(&w, 20, 1, false, got);
    for (const char *c = got; *c != '\0'; c++)
        of_a += *c == 'a';
    assert_int_equal(strlen(got), 20);
    assert_int_equal(of_a, 15);
    quotas_free(&w.quotas);
}

/* Who was away has saved up nothing, and owes nothing. */
static void a_tenant_that_comes_back_starts_where_the_round_stands(void **state)
{
    (void)state;
    struct world w;
    char got[JOBS_MAX];
    begin(&w, "");
    queue(&w, "aaaaaaaaaa");
    served(&w, 6, 1, false, got);
    queue(&w, "bbbb");
    served(&w, 8, 1, false, got);
    assert_string_equal(got, "babababa");
    quotas_free(&w.quotas);
}

static void priority_and_age_count_within_a_tenant_only(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "");
    queue(&w, "aab");
    w.job[1].priority = 9; /* the snapshot has them by priority: a's second comes first */
    const struct policy_job swap = w.job[0];
    w.job[0] = w.job[1];
    w.job[1] = swap;
    cleanup_policy_plan struct policy_plan p = plan(&w, 3);
    assert_int_equal(p.n, 3);
    assert_int_equal(w.job[p.decision[0].job].priority, 9);
    assert_string_equal(w.job[p.decision[1].job].tenant, "b");
    assert_string_equal(w.job[p.decision[2].job].tenant, "a");
    quotas_free(&w.quotas);
}

static void a_quota_of_jobs_passes_its_tenant_over(void **state)
{
    (void)state;
    struct world w;
    char got[JOBS_MAX];
    begin(&w, "a jobs=2");
    queue(&w, "aaaabb");
    served(&w, 1, 10, true, got);
    assert_string_equal(got, "abab");
    cleanup_policy_plan struct policy_plan p = plan(&w, 10);
    assert_int_equal(p.n, 1); /* only the head: it stands for those behind it */
    assert_int_equal(p.decision[0].verdict, POLICY_PASS_OVER);
    assert_int_equal(p.decision[0].job, 0);
    assert_non_null(strstr(p.decision[0].reason, "jobs"));
    w.tenant[0].live = 1; /* one ended */
    served(&w, 1, 10, true, got);
    assert_string_equal(got, "a");
    quotas_free(&w.quotas);
}

static void a_quota_of_gpus_counts_all_replicas(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "a gpus=16");
    for (int i = 0; i < 3; i++) {
        struct policy_job *j = queue_one(&w, 'a');
        j->replicas = 2;
        j->gpus = 4;
    }
    cleanup_policy_plan struct policy_plan p = plan(&w, 10);
    assert_int_equal(p.n, 3);
    assert_int_equal(p.decision[0].verdict, POLICY_PLAN);
    assert_int_equal(p.decision[1].verdict, POLICY_PLAN);
    assert_int_equal(p.decision[2].verdict, POLICY_PASS_OVER);
    assert_non_null(strstr(p.decision[2].reason, "GPU"));
    quotas_free(&w.quotas);
}

/* A job that needs no GPU is not stopped by them. */
static void no_gpus_need_no_quota(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "a gpus=0");
    queue(&w, "a");
    w.tenant[0].gpus = 8; /* from before the quota was lowered */
    cleanup_policy_plan struct policy_plan p = plan(&w, 1);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.decision[0].verdict, POLICY_PLAN);
    quotas_free(&w.quotas);
}

/* What can never be is told, and does not stand in the way. */
static void a_job_beyond_its_quota_is_deferred(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "a gpus=8, b jobs=0");
    queue_one(&w, 'a')->gpus = 9;
    queue(&w, "ab");
    cleanup_policy_plan struct policy_plan p = plan(&w, 10);
    assert_int_equal(p.n, 3);
    for (size_t i = 0; i < p.n; i++) {
        const bool fine = p.decision[i].job == 1;
        assert_int_equal(p.decision[i].verdict, fine ? POLICY_PLAN : POLICY_DEFER);
    }
    quotas_free(&w.quotas);
}

static void never_more_than_the_limit(void **state)
{
    (void)state;
    struct world w;
    begin(&w, "");
    queue(&w, "aabbccdd");
    for (int64_t most = 0; most <= 9; most++) {
        cleanup_policy_plan struct policy_plan p = plan(&w, most);
        assert_int_equal(p.n, most < 8 ? most : 8);
    }
    quotas_free(&w.quotas);
}

/* The same row of numbers each time. */
static unsigned any(unsigned *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 8;
}

/* A job is decided about once at most, whatever is queued. */
static void no_job_is_decided_about_twice(void **state)
{
    (void)state;
    unsigned random = 7;
    for (int round = 0; round < 300; round++) {
        struct world w;
        bool seen[JOBS_MAX] = { false };
        begin(&w, round % 2 ? "a jobs=1 weight=2, b gpus=2, * jobs=3" : "");
        for (size_t i = 0; i < 40; i++)
            queue_one(&w, TENANTS[any(&random) % 4])->gpus = any(&random) % 4;
        cleanup_policy_plan struct policy_plan p = plan(&w, any(&random) % 50);
        for (size_t i = 0; i < p.n; i++) {
            assert_false(seen[p.decision[i].job]);
            seen[p.decision[i].job] = true;
        }
        quotas_free(&w.quotas);
    }
}

/* --- [pool] tenants= --- */

static void quotas_are_read(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_quotas struct quotas q = QUOTAS_INIT;
    assert_int_equal(
        quotas_parse(" alice jobs=5  gpus=16 weight=3,team-b weight=1000 , * jobs=0", &q, &e), 0);
    assert_int_equal(q.n, 3);
    assert_string_equal(q.quota[0].tenant, "alice");
    assert_int_equal(q.quota[0].jobs, 5);
    assert_int_equal(q.quota[0].gpus, 16);
    assert_int_equal(q.quota[0].weight, 3);
    assert_string_equal(q.quota[1].tenant, "team-b");
    assert_true(q.quota[1].jobs == JOB_UNLIMITED && q.quota[1].gpus == JOB_UNLIMITED);
    assert_int_equal(q.quota[1].weight, 1000);
    assert_string_equal(q.quota[2].tenant, "");
    assert_int_equal(q.quota[2].jobs, 0);
}

static void bad_quotas_say_what_is_wrong(void **state)
{
    (void)state;
    static const char *const BAD[][2] = {
        { "a jobs", "jobs of a" },
        { "a jobs=", "jobs of a" },
        { "a jobs=-1", "jobs of a" },
        { "a weight=0", "weight of a" },
        { "* weight=1001", "weight of *" },
        { "a gpus=1000001", "gpus of a" },
        { "a gpus=1x", "gpus of a" },
        { "a cpus=1", "cpus" },
        { "a jobs=1,,b", "without a tenant" },
        { ",", "without a tenant" },
        { "a jobs=1, a gpus=2", "named twice" },
        { "*, *", "named twice" },
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct err e = ERR_INIT;
        cleanup_quotas struct quotas q = QUOTAS_INIT;
        assert_int_equal(quotas_parse(BAD[i][0], &q, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
        if (strstr(e.msg, BAD[i][1]) == NULL)
            fail_msg("'%s': %s", BAD[i][0], e.msg);
        assert_int_equal(q.n, 0);
    }
}

static void no_text_is_no_quota(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_quotas struct quotas q = QUOTAS_INIT;
    assert_int_equal(quotas_parse("  ", &q, &e), 0);
    assert_int_equal(q.n, 0);
}

/* --- more tenants than one plan looks at --- */

enum { CROWD = 4000, LOOKS_AT = 250, AT_ONCE = 8, NAME_SIZE = 8 };

/* Tenants "0000", "0001", ... each with so many jobs; one window after another of those that have any. */
struct crowd {
    char name[CROWD][NAME_SIZE];
    int64_t jobs[CROWD];
    int64_t priority[CROWD];
    int64_t finish[CROWD];
    int64_t live[CROWD];
    int64_t served[CROWD];
    int64_t round;
    struct policy_window window;
    size_t from;
    size_t of[LOOKS_AT]; /* who the window has, in order */
    size_t n;
};

static void come(struct crowd *c, int64_t jobs)
{
    *c = (struct crowd){ .window = { .left = -1 } };
    for (size_t i = 0; i < CROWD; i++) {
        (void)snprintf(c->name[i], NAME_SIZE, "%04zu", i);
        c->jobs[i] = jobs;
    }
}

/* Where the window after this one begins: 0 behind the last. */
static size_t look(struct crowd *c)
{
    size_t i = c->from;
    c->n = 0;
    for (; i < CROWD && c->n < LOOKS_AT; i++) {
        if (c->jobs[i] > 0)
            c->of[c->n++] = i;
    }
    while (i < CROWD && c->jobs[i] == 0)
        i++;
    c->window.part = c->from > 0 || i < CROWD;
    return i % CROWD;
}

/* One plan: the head of each tenant's queue, as the store reads them. Returns how many it planned. */
static size_t crowd_plan(struct crowd *c, const char *quotas)
{
    struct policy_job job[LOOKS_AT];
    struct policy_turn turn[LOOKS_AT];
    struct policy_tenant tenant[LOOKS_AT];
    cleanup_policy_plan struct policy_plan p = POLICY_PLAN_INIT;
    struct quotas q = QUOTAS_INIT;
    struct err e = ERR_INIT;
    size_t planned = 0;
    const size_t next = look(c);
    assert_int_equal(quotas_parse(quotas, &q, &e), 0);
    for (size_t i = 0; i < c->n; i++) {
        const size_t who = c->of[i];
        job[i] = (struct policy_job){ .tenant = c->name[who],
            .enqueued_us = (int64_t)who,
            .priority = c->priority[who],
            .replicas = 1,
            .gpu_type = "" };
        turn[i] = (struct policy_turn){ c->name[who], c->finish[who] };
        tenant[i] = (struct policy_tenant){ .name = c->name[who], .live = c->live[who] };
    }
    const struct policy_snapshot s = { .max_provisioning = AT_ONCE,
        .job = job,
        .n_jobs = c->n,
        .more = true,
        .tenant = tenant,
        .n_tenants = c->n,
        .quota = q.quota,
        .n_quotas = q.n,
        .turn = turn,
        .n_turns = c->n,
        .round = c->round,
        .window = c->window };
    policy_fair(&s, &p);
    for (size_t i = 0; i < p.n; i++) {
        const size_t who = c->of[p.decision[i].job];
        if (p.decision[i].verdict != POLICY_PLAN)
            continue;
        c->finish[who] = p.decision[i].finish;
        c->jobs[who]--;
        c->served[who]++;
        planned++;
    }
    c->round = p.round > c->round ? p.round : c->round;
    c->window.left = p.window_done ? -1 : p.window_left;
    if (p.window_done || !c->window.part) {
        c->window.round = c->round;
        c->from = next;
    }
    quotas_free(&q);
    return planned;
}

static struct crowd *crowd_new(int64_t jobs)
{
    struct crowd *c = mem_calloc(1, sizeof *c);
    come(c, jobs);
    return c;
}

/* Nobody waits for longer than all others' turns, although some have higher priorities and no end of jobs. */
static void of_thousands_each_gets_its_turn_in_a_bounded_number_of_plans(void **state)
{
    cleanup_free struct crowd *c = crowd_new(1000);
    (void)state;
    for (size_t i = 0; i < CROWD; i += 7)
        c->priority[i] = 1000;
    for (int lap = 1; lap <= 3; lap++) {
        for (size_t i = 0; i < CROWD / AT_ONCE + CROWD / LOOKS_AT; i++)
            assert_in_range(crowd_plan(c, ""), 1, AT_ONCE);
        for (size_t i = 0; i < CROWD; i++) {
            if (c->served[i] < lap)
                fail_msg("%s was served %d times in %d laps", c->name[i], (int)c->served[i], lap);
        }
    }
}

static void of_thousands_each_gets_its_weight(void **state)
{
    cleanup_free struct crowd *c = crowd_new(1000);
    (void)state;
    for (size_t i = 0; c->served[CROWD - 1] < 2; i++)
        assert_true(crowd_plan(c, "0100 weight=3, 2100 weight=5, * weight=1") > 0 && i < 2 * CROWD);
    assert_in_range(c->served[100], 5, 7);
    assert_in_range(c->served[2100], 9, 11);
    assert_in_range(c->served[2101], 1, 3);
}

/* Newcomers whose names lie in the window do not keep it there. */
static void who_comes_in_between_does_not_hold_the_others_up(void **state)
{
    cleanup_free struct crowd *c = crowd_new(1);
    size_t plans = 0;
    (void)state;
    for (size_t i = 0; i < LOOKS_AT / 2; i++)
        c->priority[i] = 1000;
    for (; c->served[CROWD - 1] == 0; plans++) {
        assert_true(plans < 3 * (CROWD / AT_ONCE + CROWD / LOOKS_AT));
        (void)crowd_plan(c, "");
        for (size_t i = 0; i < LOOKS_AT / 2;
             i++) { /* new ones, under the names of those that went */
            if (c->jobs[i] == 0) {
                c->jobs[i] = 1;
                c->finish[i] = 0;
            }
        }
    }
}

/* Thousands whose quota is used up hide nobody: window after window is passed over. */
static void those_that_have_their_share_are_passed_by(void **state)
{
    cleanup_free struct crowd *c = crowd_new(1);
    size_t plans = 0;
    (void)state;
    for (size_t i = 0; i < CROWD; i++)
        c->live[i] = 1;
    c->live[CROWD - 2] = 0;
    while (crowd_plan(c, "* jobs=1") == 0)
        assert_true(++plans <= CROWD / LOOKS_AT);
    assert_int_equal(c->served[CROWD - 2], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenants_take_turns_whoever_came_first),
        cmocka_unit_test(the_order_does_not_depend_on_how_many_go_at_once),
        cmocka_unit_test(weights_are_shares),
        cmocka_unit_test(a_tenant_that_comes_back_starts_where_the_round_stands),
        cmocka_unit_test(priority_and_age_count_within_a_tenant_only),
        cmocka_unit_test(a_quota_of_jobs_passes_its_tenant_over),
        cmocka_unit_test(a_quota_of_gpus_counts_all_replicas),
        cmocka_unit_test(no_gpus_need_no_quota),
        cmocka_unit_test(a_job_beyond_its_quota_is_deferred),
        cmocka_unit_test(never_more_than_the_limit),
        cmocka_unit_test(no_job_is_decided_about_twice),
        cmocka_unit_test(quotas_are_read),
        cmocka_unit_test(bad_quotas_say_what_is_wrong),
        cmocka_unit_test(no_text_is_no_quota),
        cmocka_unit_test(of_thousands_each_gets_its_turn_in_a_bounded_number_of_plans),
        cmocka_unit_test(of_thousands_each_gets_its_weight),
        cmocka_unit_test(who_comes_in_between_does_not_hold_the_others_up),
        cmocka_unit_test(those_that_have_their_share_are_passed_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
