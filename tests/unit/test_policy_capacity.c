/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs contract section 5, policy `capacity`: by the provisioner's catalog, gang-wise, with ageing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "model/policy.h"

enum { JOBS_MAX = 300, OFFERS_MAX = 8 };
#define AGEING (600 * US_PER_S)
#define NOW    (1000000 * US_PER_S)

struct world {
    struct policy_job job[JOBS_MAX];
    size_t n;
    struct provision_offer offer[OFFERS_MAX];
    struct provision_catalog catalog;
    struct policy_taken taken[2];
    size_t n_taken;
    int64_t most;
};

static struct world empty(void)
{
    return (struct world){ .most = JOBS_MAX };
}

static struct provision_offer *offer(
    struct world *w, const char *type, int gpus, int64_t free_now, const char *regions)
{
    struct provision_offer *o = &w->offer[w->catalog.n++];
    assert_true(w->catalog.n <= OFFERS_MAX);
    *o = (struct provision_offer){ .gpus = gpus, .free = free_now, .price_cents_per_hour = 100 };
    (void)str_copy(o->type, sizeof o->type, type);
    (void)str_copy(o->regions, sizeof o->regions, regions);
    return o;
}

static struct policy_job *job(struct world *w, const char *gpu_type, int64_t gpus, int64_t replicas)
{
    struct policy_job *j = &w->job[w->n++];
    assert_true(w->n <= JOBS_MAX);
    *j = (struct policy_job){
        .tenant = "a", .region = "", .gpu_type = gpu_type, .gpus = gpus, .replicas = replicas
    };
    return j;
}

static struct policy_plan plan(struct world *w)
{
    w->catalog.offer = w->offer;
    const struct policy_snapshot s = { .now_us = NOW,
        .max_provisioning = w->most,
        .job = w->job,
        .n_jobs = w->n,
        .catalog = &w->catalog,
        .taken = w->taken,
        .n_taken = w->n_taken,
        .ageing_us = AGEING };
    struct policy_plan p = POLICY_PLAN_INIT;
    policy_capacity(&s, &p);
    return p;
}

/* The verdicts in the order of the queue: P planned, D deferred, o passed over, - not decided. */
static void decides(struct world *w, const char *expected)
{
    cleanup_policy_plan struct policy_plan p = plan(w);
    char got[JOBS_MAX + 1] = "";
    memset(got, '-', w->n);
    for (size_t i = 0; i < p.n; i++) {
        assert_int_equal(got[p.decision[i].job], '-');
        got[p.decision[i].job] = "PDo"[p.decision[i].verdict];
    }
    assert_string_equal(got, expected);
}

static void goes_to(struct world *w, size_t at, const char *region)
{
    cleanup_policy_plan struct policy_plan p = plan(w);
    for (size_t i = 0; i < p.n; i++) {
        if (p.decision[i].job == at && p.decision[i].verdict == POLICY_PLAN) {
            assert_string_equal(p.decision[i].region, region);
            return;
        }
    }
    fail_msg("job %zu was not planned", at);
}

static void what_fits_is_planned_and_takes_its_room(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_1x_a100", 1, 2, "east");
    for (int i = 0; i < 4; i++)
        job(&w, "A100", 1, 1);
    decides(&w, "PPoo");
}

/* All replicas or none. */
static void a_gang_is_not_split(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_1x_a100", 1, 3, "east");
    job(&w, "A100", 1, 4);
    job(&w, "A100", 1, 3);
    decides(&w, "oP");
}

static void a_job_that_does_not_fit_lets_smaller_ones_pass(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_8x_h100", 8, 1, "east");
    offer(&w, "gpu_1x_a100", 1, 1, "east");
    job(&w, "H100", 8, 2);
    job(&w, "A100", 1, 1);
    job(&w, "H100", 8, 1);
    decides(&w, "oPP");
}

/* Once it has waited for the ageing, it keeps what is free of its kind, and only that, for as long. */
static void ageing_keeps_room_and_lets_go_again(void **state)
{
    (void)state;
    static const struct {
        int64_t waited;
        const char *verdicts;
    } AT[] = {
        { 0, "oPP" },
        { AGEING - 1, "oPP" },
        { AGEING, "oPo" },
        { 2 * AGEING - 1, "oPo" },
        { 2 * AGEING, "oPP" },
        { 3 * AGEING, "oPo" },
    };
    for (size_t i = 0; i < sizeof AT / sizeof AT[0]; i++) {
        struct world w = empty();
        offer(&w, "gpu_8x_h100", 8, 1, "east");
        offer(&w, "gpu_1x_a100", 1, 1, "east");
        job(&w, "H100", 8, 2)->passed_over_us = NOW - AT[i].waited;
        job(&w, "A100", 1, 1);
        job(&w, "H100", 8, 1);
        decides(&w, AT[i].verdicts);
    }
}

static void room_that_was_kept_is_the_aged_one_s(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_8x_h100", 8, 2, "east");
    job(&w, "H100", 8, 2)->passed_over_us = NOW - AGEING;
    job(&w, "H100", 8, 1);
    decides(&w, "Po");
}

/* Never skipped in silence: what no offer can serve is told. */
static void what_the_catalog_does_not_have_is_deferred(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_1x_a10", 1, 5, "east");
    job(&w, "A100", 1, 1);
    job(&w, "A10", 2, 1);
    job(&w, "A10", 1, 1);
    decides(&w, "DDP");
}

/* An offer with nothing free is there all the same. */
static void sold_out_is_not_unknown(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_1x_a100", 1, 0, "");
    job(&w, "A100", 1, 1);
    decides(&w, "o");
}

static void a_provider_that_tells_no_number_has_enough_where_it_names_a_region(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_1x_a100", 1, -1, "east west");
    offer(&w, "gpu_1x_h100", 1, -1, "");
    for (int i = 0; i < 9; i++)
        job(&w, "A100", 1, 100);
    job(&w, "H100", 1, 1);
    decides(&w, "PPPPPPPPPo");
}

static void the_cheapest_place_is_taken(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "a100-dear", 1, 5, "east");
    offer(&w, "NVIDIA A100-SXM4-40GB", 1, 1, "west")->price_cents_per_hour = 50;
    (void)str_copy(w.offer[0].gpu_type, sizeof w.offer[0].gpu_type, "A100");
    job(&w, "A100", 1, 1);
    job(&w, "A100", 1, 1);
    goes_to(&w, 0, "west");
    goes_to(&w, 1, "east");
}

static void the_region_that_a_job_asks_for_is_kept_to(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_1x_a100", 1, 5, "us-east-1 us-east west");
    job(&w, "A100", 1, 1)->region = "us-east";
    job(&w, "A100", 1, 1)->region = "us";
    job(&w, "A100", 1, 1);
    decides(&w, "PoP");
    goes_to(&w, 0, "us-east");
    goes_to(&w, 2, "us-east-1");
}

/* Machines that replicas share: a gang may be spread over a region, a replica not over machines. */
static void shared_machines_are_counted_by_gpu(void **state)
{
    (void)state;
    struct world w = empty();
    for (int i = 0; i < 3; i++) {
        struct provision_offer *o = offer(&w, "A100", i == 2 ? 8 : 7, 1, i == 2 ? "b" : "a");
        o->shared = true;
    }
    job(&w, "A100", 4, 3); /* 1 + 1 in a, 2 in b */
    job(&w, "A100", 4, 2);
    job(&w, "A100", 3, 2);
    job(&w, "A100", 8, 1);
    decides(&w, "oPPP");
    goes_to(&w, 1, "a");
    goes_to(&w, 3, "b");
}

/* Regions are words: one is not part of another. */
static void a_gang_is_spread_within_its_region_only(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "A100", 4, 1, "b")->shared = true;
    offer(&w, "A100", 4, 1, "a-b")->shared = true;
    offer(&w, "A100", 4, 1, "b-a")->shared = true;
    job(&w, "A100", 4, 2);
    job(&w, "A100", 4, 1);
    decides(&w, "oP");
}

/* A replica gets a machine with as many GPUs as it asks for, not one with more. */
static void machines_are_not_wasted(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_8x_a100", 8, 1, "east");
    job(&w, "A100", 1, 1);
    decides(&w, "D");
}

static void replicas_without_gpus_fit_on_shared_machines(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "A100", 0, 1, "a")->shared = true;
    job(&w, "", 0, 50);
    job(&w, "A100", 1, 1);
    decides(&w, "Po");
}

/* [local] slots: whatever is asked for, one for each replica. */
static void an_offer_for_anything_counts_replicas(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "slot", 0, 3, "local")->any = true;
    job(&w, "H100", 8, 2);
    job(&w, "", 0, 2);
    job(&w, "", 0, 1);
    decides(&w, "PoP");
}

/* What was planned since the catalog was read is not gone from it yet. */
static void what_was_planned_since_is_taken(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_1x_a100", 1, 3, "east");
    w.taken[w.n_taken++] = (struct policy_taken){ "A100", 1, 2 };
    w.taken[w.n_taken++] = (struct policy_taken){ "H100", 1, 9 }; /* not of this catalog */
    job(&w, "A100", 1, 2);
    job(&w, "A100", 1, 1);
    decides(&w, "oP");
}

static void never_more_than_the_limit(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_1x_a100", 1, -1, "east");
    for (int i = 0; i < 5; i++)
        job(&w, "A100", 1, 1);
    w.most = 2;
    decides(&w, "PP---");
    w.most = 0;
    decides(&w, "-----");
}

/* A provider that does not tell: as simple. */
static void without_a_catalog_it_is_first_come_first_served(void **state)
{
    (void)state;
    struct world w = empty();
    for (int i = 0; i < 3; i++)
        job(&w, "A100", 1, 1);
    const struct policy_snapshot s = {
        .now_us = NOW, .max_provisioning = 2, .job = w.job, .n_jobs = w.n, .ageing_us = AGEING
    };
    cleanup_policy_plan struct policy_plan p = POLICY_PLAN_INIT;
    policy_capacity(&s, &p);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.decision[1].job, 1);
}

/* A long queue of what does not fit: the one behind it is planned, and not each of them is written about. */
static void a_long_queue_does_not_hide_what_fits(void **state)
{
    (void)state;
    struct world w = empty();
    offer(&w, "gpu_8x_h100", 8, 1, "east");
    offer(&w, "gpu_1x_a100", 1, 1, "east");
    for (int i = 0; i < JOBS_MAX - 1; i++)
        job(&w, "H100", 8, 2);
    job(&w, "A100", 1, 1);
    cleanup_policy_plan struct policy_plan p = plan(&w);
    assert_int_equal(p.decision[p.n - 1].verdict, POLICY_PLAN);
    assert_int_equal(p.decision[p.n - 1].job, JOBS_MAX - 1);
    assert_in_range(p.n, 2, 250);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_planned_and_takes_its_room),
        cmocka_unit_test(a_gang_is_not_split),
        cmocka_unit_test(a_job_that_does_not_fit_lets_smaller_ones_pass),
        cmocka_unit_test(ageing_keeps_room_and_lets_go_again),
        cmocka_unit_test(room_that_was_kept_is_the_aged_one_s),
        cmocka_unit_test(what_the_catalog_does_not_have_is_deferred),
        cmocka_unit_test(sold_out_is_not_unknown),
        cmocka_unit_test(a_provider_that_tells_no_number_has_enough_where_it_names_a_region),
        cmocka_unit_test(the_cheapest_place_is_taken),
        cmocka_unit_test(the_region_that_a_job_asks_for_is_kept_to),
        cmocka_unit_test(shared_machines_are_counted_by_gpu),
        cmocka_unit_test(a_gang_is_spread_within_its_region_only),
        cmocka_unit_test(machines_are_not_wasted),
        cmocka_unit_test(replicas_without_gpus_fit_on_shared_machines),
        cmocka_unit_test(an_offer_for_anything_counts_replicas),
        cmocka_unit_test(what_was_planned_since_is_taken),
        cmocka_unit_test(never_more_than_the_limit),
        cmocka_unit_test(without_a_catalog_it_is_first_come_first_served),
        cmocka_unit_test(a_long_queue_does_not_hide_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
