/* SPDX-License-Identifier: Apache-2.0 */
/* Which shard is asked for where, and when it is given up: artifacts contract, section 4, with a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "model/fetch_plan.h"

#define S NS_PER_S
enum { BASE_MS = 1000, CAP_MS = 60000, SHARDS = 40 };
static const uint64_t LONGEST = 999; /* random % 1000: the longest first wait */

static bool has_all(const void *ctx, size_t source, size_t shard)
{
    (void)ctx;
    (void)source;
    (void)shard;
    return true;
}

static struct fetch_plan *plan(size_t shards, size_t sources)
{
    const struct fetch_plan_options o = {
        .shards = shards, .sources = sources, .backoff = { BASE_MS, CAP_MS }, .has = has_all
    };
    return fetch_plan_new(&o);
}

static struct fetch_next go(struct fetch_plan *p, int64_t now_ns)
{
    struct fetch_next n = { 0, 0, 0 };
    assert_int_equal(fetch_plan_next(p, now_ns, &n), FETCH_GO);
    return n;
}

static int64_t wait(struct fetch_plan *p, int64_t now_ns)
{
    struct fetch_next n = { 0, 0, 0 };
    assert_int_equal(fetch_plan_next(p, now_ns, &n), FETCH_WAIT);
    return n.until_ns;
}

static void ended(
    struct fetch_plan *p, struct fetch_next n, enum mishap_reason reason, int64_t now_ns)
{
    struct mishap m = MISHAP_INIT;
    if (reason != MISHAP_NONE)
        (void)mishap_set(&m, reason, "said so");
    fetch_plan_ended(p, &n, &m, now_ns, LONGEST);
}

static void lost(
    struct fetch_plan *p, int64_t now_ns, enum mishap_reason reason, enum mishap_class grade)
{
    struct fetch_next n = { 0, 0, 0 };
    assert_int_equal(fetch_plan_next(p, now_ns, &n), FETCH_LOST);
    assert_int_equal(fetch_plan_why(p)->reason, reason);
    assert_int_equal(fetch_plan_why(p)->grade, grade);
}

static void what_is_had_is_not_fetched_and_all_had_is_done(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(3, 1);
    struct fetch_next n = { 0, 0, 0 };
    (void)state;
    fetch_plan_have(p, 0);
    fetch_plan_have(p, 2);
    fetch_plan_have(p, 2);
    const struct fetch_next one = go(p, 0);
    assert_int_equal(one.shard, 1);
    assert_int_equal(wait(p, 0), INT64_MAX);
    ended(p, one, MISHAP_NONE, 1);
    assert_int_equal(fetch_plan_next(p, 1, &n), FETCH_DONE);
}

static void at_most_four_are_in_flight_from_a_source(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 2);
    size_t from[2] = { 0, 0 };
    (void)state;
    for (int i = 0; i < 2 * FETCH_PER_SOURCE; i++)
        from[go(p, 0).source]++;
    assert_int_equal(from[0], FETCH_PER_SOURCE);
    assert_int_equal(from[1], FETCH_PER_SOURCE);
    assert_int_equal(wait(p, 0), INT64_MAX);
}

static void a_shard_is_tried_four_times_with_longer_and_longer_waits(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(1, 1);
    int64_t now_ns = 5 * S;
    (void)state;
    for (int i = 1; i < FETCH_TRIES; i++) {
        ended(p, go(p, now_ns), MISHAP_SHORT_BODY, now_ns);
        const int64_t until_ns = wait(p, now_ns);
        assert_true(until_ns > now_ns &&
                    until_ns <= now_ns + (int64_t)BASE_MS * (1 << (i - 1)) * NS_PER_MS);
        assert_int_equal(wait(p, until_ns - 1), until_ns);
        now_ns = until_ns;
    }
    ended(p, go(p, now_ns), MISHAP_SHORT_BODY, now_ns);
    lost(p, now_ns, MISHAP_SHORT_BODY, MISHAP_RETRYABLE);
    assert_int_equal(fetch_plan_failures(p, MISHAP_SHORT_BODY), FETCH_TRIES);
}

static void another_source_is_asked_first_after_a_failure(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(1, 2);
    (void)state;
    const struct fetch_next first = go(p, 0);
    ended(p, first, MISHAP_RESET, 0);
    assert_int_equal(go(p, 2 * S).source, 1 - first.source);
}

static void a_wait_holds_no_slot(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 1);
    struct fetch_next n[FETCH_PER_SOURCE];
    (void)state;
    for (int i = 0; i < FETCH_PER_SOURCE; i++)
        n[i] = go(p, 0);
    ended(p, n[0], MISHAP_SHORT_BODY, 0);
    assert_int_equal(go(p, 0).shard, FETCH_PER_SOURCE);
}

/* What waits for another try comes before fresh shards, so that an outage ends. */
static void an_outage_ends_after_four_tries(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 1);
    struct fetch_next n = { 0, 0, 0 };
    int64_t now_ns = 0;
    int tries = 0;
    (void)state;
    for (;;) {
        const enum fetch_step step = fetch_plan_next(p, now_ns, &n);
        if (step == FETCH_LOST)
            break;
        if (step == FETCH_GO) {
            ended(p, n, MISHAP_CONNECT, now_ns);
            tries++;
        } else {
            now_ns = n.until_ns;
        }
        assert_true(tries <= FETCH_TRIES * FETCH_PER_SOURCE);
    }
    lost(p, now_ns, MISHAP_CONNECT, MISHAP_RETRYABLE);
}

static void a_source_that_is_down_is_left_alone_as_a_whole(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 1);
    (void)state;
    ended(p, go(p, 0), MISHAP_SERVER_ERROR, 0);
    assert_int_equal(wait(p, 0), BASE_MS * NS_PER_MS);
}

static void a_server_is_left_alone_for_as_long_as_it_asks(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 1);
    struct mishap m = MISHAP_INIT;
    (void)state;
    (void)mishap_set(&m, MISHAP_THROTTLED, "429");
    m.wait_ms = 87000;
    const struct fetch_next n = go(p, 0);
    fetch_plan_ended(p, &n, &m, 0, LONGEST);
    assert_int_equal(wait(p, 0), 87 * S);
    (void)go(p, 87 * S);
}

/* Reference section 3, row 30: 429 does not use up the tries, and is not endless either. */
static void throttling_has_an_allowance_of_its_own(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(2, 1);
    int64_t now_ns = 0;
    (void)state;
    for (int i = 0; i < FETCH_THROTTLES; i++) {
        ended(p, go(p, now_ns), MISHAP_THROTTLED, now_ns);
        now_ns = wait(p, now_ns);
    }
    ended(p, go(p, now_ns), MISHAP_NONE, now_ns); /* begins the count anew */
    for (int i = 0; i <= FETCH_THROTTLES; i++) {
        const struct fetch_next n = go(p, now_ns);
        ended(p, n, MISHAP_THROTTLED, now_ns);
        now_ns += 2 * CAP_MS * NS_PER_MS;
    }
    lost(p, now_ns, MISHAP_THROTTLED, MISHAP_RETRYABLE);
}

/* Reference section 3, row 6: not for ever from the same source. */
static void the_same_shard_bad_twice_ends_the_source(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(1, 1);
    (void)state;
    ended(p, go(p, 0), MISHAP_SHARD_MISMATCH, 0);
    assert_null(fetch_plan_source(p, 0));
    ended(p, go(p, 2 * S), MISHAP_SHARD_MISMATCH, 2 * S);
    assert_non_null(fetch_plan_source(p, 0));
    lost(p, 2 * S, MISHAP_SHARD_MISMATCH, MISHAP_SOURCE_FATAL);
}

/* Row 5: a seed that serves damage is left, and another source gives the rest. */
static void a_burst_of_bad_shards_ends_the_source(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 2);
    int bad = 0;
    (void)state;
    for (int64_t now_ns = 0; fetch_plan_source(p, 0) == NULL; now_ns += NS_PER_MS) {
        const struct fetch_next n = go(p, now_ns);
        bad += n.source == 0 ? 1 : 0;
        ended(p, n, n.source == 0 ? MISHAP_SHARD_MISMATCH : MISHAP_NONE, now_ns);
        assert_true(bad <= FETCH_BURST);
    }
    assert_int_equal(bad, FETCH_BURST);
    assert_null(fetch_plan_source(p, 1));
    assert_int_equal(go(p, S).source, 1);
}

static void sporadic_bad_shards_are_only_counted(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 1);
    int64_t now_ns = 0;
    struct fetch_next n = { 0, 0, 0 };
    (void)state;
    for (int i = 0; fetch_plan_next(p, now_ns, &n) != FETCH_DONE; i++) {
        ended(p, n, i % 8 == 0 ? MISHAP_SHARD_MISMATCH : MISHAP_NONE, now_ns);
        now_ns += 50 * S; /* two within a minute at most */
    }
    assert_null(fetch_plan_source(p, 0));
    assert_true(fetch_plan_failures(p, MISHAP_SHARD_MISMATCH) >= FETCH_BURST);
}

static void a_twentieth_of_twenty_is_a_burst(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 1);
    (void)state;
    for (int i = 0; i < 20; i++)
        ended(p, go(p, 0), MISHAP_NONE, 0);
    ended(p, go(p, 0), MISHAP_SHARD_MISMATCH, 0);
    assert_null(fetch_plan_source(p, 0));
    ended(p, go(p, 0), MISHAP_SHARD_MISMATCH, 0);
    assert_non_null(fetch_plan_source(p, 0));
}

static void a_fatal_source_is_left_at_once_and_costs_no_try(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(1, 2);
    (void)state;
    const struct fetch_next first = go(p, 0);
    ended(p, first, MISHAP_RANGE_IGNORED, 0);
    const struct fetch_next second = go(p, 0);
    assert_int_not_equal(second.source, first.source);
    ended(p, second, MISHAP_FORBIDDEN, 0);
    lost(p, 0, MISHAP_FORBIDDEN, MISHAP_SOURCE_FATAL);
}

static void missing_everywhere_is_fatal_for_the_task(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(1, 2);
    (void)state;
    ended(p, go(p, 0), MISHAP_NOT_FOUND, 0);
    ended(p, go(p, 0), MISHAP_NOT_FOUND, 0);
    lost(p, 0, MISHAP_ARTIFACT_MISSING, MISHAP_TASK_FATAL);
}

static void a_full_disk_ends_it_at_once(void **state)
{
    cleanup_fetch_plan struct fetch_plan *p = plan(SHARDS, 1);
    (void)state;
    const struct fetch_next one = go(p, 0);
    const struct fetch_next two = go(p, 0);
    ended(p, one, MISHAP_DISK_FULL, 0);
    lost(p, 0, MISHAP_DISK_FULL, MISHAP_TASK_FATAL);
    ended(p, two, MISHAP_RESET, 0); /* what comes after changes nothing */
    lost(p, 0, MISHAP_DISK_FULL, MISHAP_TASK_FATAL);
}

static bool has_own(const void *ctx, size_t source, size_t shard)
{
    (void)ctx;
    return source == shard;
}

static void only_who_has_a_shard_is_asked_for_it(void **state)
{
    const struct fetch_plan_options o = {
        .shards = 3, .sources = 2, .backoff = { BASE_MS, CAP_MS }, .has = has_own
    };
    cleanup_fetch_plan struct fetch_plan *p = fetch_plan_new(&o);
    (void)state;
    struct fetch_next n = go(p, 0);
    assert_int_equal(n.source, n.shard);
    n = go(p, 0);
    assert_int_equal(n.source, n.shard);
    lost(p, 0, MISHAP_ARTIFACT_MISSING, MISHAP_TASK_FATAL); /* nobody has the third */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_had_is_not_fetched_and_all_had_is_done),
        cmocka_unit_test(at_most_four_are_in_flight_from_a_source),
        cmocka_unit_test(a_shard_is_tried_four_times_with_longer_and_longer_waits),
        cmocka_unit_test(another_source_is_asked_first_after_a_failure),
        cmocka_unit_test(a_wait_holds_no_slot),
        cmocka_unit_test(an_outage_ends_after_four_tries),
        cmocka_unit_test(a_source_that_is_down_is_left_alone_as_a_whole),
        cmocka_unit_test(a_server_is_left_alone_for_as_long_as_it_asks),
        cmocka_unit_test(throttling_has_an_allowance_of_its_own),
        cmocka_unit_test(the_same_shard_bad_twice_ends_the_source),
        cmocka_unit_test(a_burst_of_bad_shards_ends_the_source),
        cmocka_unit_test(sporadic_bad_shards_are_only_counted),
        cmocka_unit_test(a_twentieth_of_twenty_is_a_burst),
        cmocka_unit_test(a_fatal_source_is_left_at_once_and_costs_no_try),
        cmocka_unit_test(missing_everywhere_is_fatal_for_the_task),
        cmocka_unit_test(a_full_disk_ends_it_at_once),
        cmocka_unit_test(only_who_has_a_shard_is_asked_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
