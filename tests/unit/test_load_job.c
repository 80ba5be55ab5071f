/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/clock.h"
#include "model/load_job.h"

#define NOW INT64_C(1800000000000000)

/* Seconds before now. */
#define AGO(s) (NOW - (s)*US_PER_S)

static struct load_row row(enum load_state state)
{
    return (struct load_row){ .key = "m",
        .state = state,
        .owner = "",
        .node_id = "",
        .node_name = "",
        .last_error = "",
        .created_us = AGO(10),
        .updated_us = AGO(1) };
}

static void assert_near(double got, double want)
{
    if (fabs(got - want) > 1e-9)
        fail_msg("%.12f is not %.12f", got, want);
}

/* Names */

static void states_have_names_and_back(void **state)
{
    (void)state;
    static const char *const NAME[] = { "pending", "installing", "staging", "loading", "failed" };
    for (unsigned s = 0; s < LOAD_STATE__COUNT; s++) {
        assert_string_equal(load_state_name((enum load_state)s), NAME[s]);
        assert_int_equal(load_state_parse(NAME[s]), s);
    }
}

static void a_foreign_state_is_unknown(void **state)
{
    (void)state;
    assert_int_equal(load_state_parse("ready"), LOAD_STATE__COUNT);
    assert_int_equal(load_state_parse(""), LOAD_STATE__COUNT);
    assert_string_equal(load_state_name(LOAD_STATE__COUNT), "unknown");
}

/* Liveness: contract section 2 */

static void liveness_is_the_latest_stamp(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    r.created_us = AGO(30);
    r.updated_us = AGO(20);
    r.last_progress_us = AGO(10);
    assert_int_equal(load_liveness_us(&r, NOW), AGO(10));
    r.updated_us = AGO(5);
    assert_int_equal(load_liveness_us(&r, NOW), AGO(5));
    r.created_us = AGO(2);
    assert_int_equal(load_liveness_us(&r, NOW), AGO(2));
}

static void unset_stamps_do_not_count_for_liveness(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    r.last_progress_us = 0;
    r.updated_us = 0;
    assert_int_equal(load_liveness_us(&r, NOW), r.created_us);
    r.created_us = 0;
    assert_int_equal(load_liveness_us(&r, NOW), 0);
    r.created_us = INT64_C(-62135596800000000); /* 0001-01-01 */
    assert_int_equal(load_liveness_us(&r, NOW), 0);
}

static void a_stamp_in_the_future_counts_as_now(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    r.last_progress_us = NOW + 3600 * US_PER_S;
    assert_int_equal(load_liveness_us(&r, NOW), NOW);
    r.last_progress_us = INT64_MAX;
    assert_int_equal(load_liveness_us(&r, NOW), NOW);
}

static void stale_is_over_60_s(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    r.created_us = AGO(1000);
    r.updated_us = AGO(60);
    assert_false(load_is_stale(&r, NOW));
    r.updated_us--;
    assert_true(load_is_stale(&r, NOW));
    r.last_progress_us = AGO(1);
    assert_false(load_is_stale(&r, NOW));
}

static void a_row_without_any_stamp_is_stale(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    r.created_us = 0;
    r.updated_us = 0;
    assert_true(load_is_stale(&r, NOW));
}

static void heartbeat_age_is_measured_from_liveness(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_LOADING);
    r.updated_us = NOW - 2500000;
    assert_near(load_heartbeat_age_s(&r, NOW), 2.5);
    r.updated_us = NOW + 1;
    assert_near(load_heartbeat_age_s(&r, NOW), 0);
}

/* Failed rows and claims: contract section 5, liveness */

static void a_failed_row_is_gone_after_15_s(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_FAILED);
    r.created_us = AGO(100);
    r.updated_us = AGO(15);
    assert_false(load_failed_is_gone(&r, NOW));
    r.updated_us--;
    assert_true(load_failed_is_gone(&r, NOW));
}

static void only_a_failed_row_is_gone_by_age(void **state)
{
    (void)state;
    for (unsigned s = 0; s <= LOAD_STATE__COUNT; s++) {
        struct load_row r = row((enum load_state)s);
        r.created_us = AGO(100000);
        r.updated_us = AGO(100000);
        assert_int_equal(load_failed_is_gone(&r, NOW), s == LOAD_FAILED);
    }
}

static void an_orphan_may_be_replaced(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    assert_false(load_may_be_replaced(&r, false, NOW));
    r.created_us = AGO(100);
    r.updated_us = AGO(61);
    assert_true(load_may_be_replaced(&r, false, NOW));
}

static void a_live_overlay_of_its_claim_keeps_an_orphan(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    r.created_us = AGO(100);
    r.updated_us = AGO(61);
    assert_false(load_may_be_replaced(&r, true, NOW));
}

static void a_failed_row_may_be_replaced_only_when_gone(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_FAILED);
    r.updated_us = AGO(5);
    assert_false(load_may_be_replaced(&r, false, NOW));
    r.created_us = AGO(100);
    r.updated_us = AGO(16);
    assert_true(load_may_be_replaced(&r, false, NOW));
    /* Its copy is over: what is left of an overlay protects nobody. */
    assert_true(load_may_be_replaced(&r, true, NOW));
}

/* Progress: contract section 3 */

static void progress_of_one_file(void **state)
{
    (void)state;
    assert_near(load_progress(25, 100, 1, 1), 25);
    assert_near(load_progress(25, 100, 0, 0), 25);
    assert_near(load_progress(1, 3, 1, 1), 100.0 / 3.0);
}

static void progress_without_a_total_is_0(void **state)
{
    (void)state;
    assert_near(load_progress(25, 0, 1, 1), 0);
    assert_near(load_progress(25, -5, 1, 1), 0);
}

static void progress_over_several_files(void **state)
{
    (void)state;
    assert_near(load_progress(50, 100, 1, 4), 12.5);
    assert_near(load_progress(50, 100, 3, 4), 62.5);
    assert_near(load_progress(0, 0, 3, 4), 50);
    assert_near(load_progress(100, 100, 4, 4), 100);
}

static void progress_without_file_index_is_of_the_file(void **state)
{
    (void)state;
    assert_near(load_progress(50, 100, 0, 4), 50);
}

static void progress_is_clamped(void **state)
{
    (void)state;
    assert_near(load_progress(300, 100, 1, 1), 100);
    assert_near(load_progress(-5, 100, 1, 1), 0);
    assert_near(load_progress(0, 100, 9, 4), 100);
}

static void absurd_numbers_do_not_overflow(void **state)
{
    (void)state;
    static const int64_t N[] = { INT64_MIN, -1, 0, 1, 2, INT64_MAX };
    enum { COUNT = sizeof N / sizeof N[0] };
    for (size_t i = 0; i < COUNT * COUNT * COUNT * COUNT; i++) {
        double p = load_progress(N[i % COUNT], N[i / COUNT % COUNT], N[i / COUNT / COUNT % COUNT],
            N[i / COUNT / COUNT / COUNT]);
        assert_true(p >= 0 && p <= 100);
    }
}

/* Stall: contract section 5 */

static void stalled_after_5_minutes_without_a_byte(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    r.created_us = AGO(1000);
    r.bytes_moved_us = AGO(300);
    assert_false(load_is_stalled(&r, NOW));
    r.bytes_moved_us--;
    assert_true(load_is_stalled(&r, NOW)); /* though its heartbeat is fresh */
}

static void without_a_claim_the_update_tells_of_stalls(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_STAGING);
    r.created_us = AGO(1000);
    r.updated_us = AGO(301);
    r.last_progress_us = AGO(1);
    assert_true(load_is_stalled(&r, NOW));
    r.updated_us = AGO(299);
    assert_false(load_is_stalled(&r, NOW));
}

static void loading_moves_no_bytes_and_is_not_stalled(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_LOADING);
    r.created_us = AGO(5000);
    r.bytes_moved_us = AGO(4000);
    assert_false(load_is_stalled(&r, NOW));
}

static void stalled_after_24_hours_in_all(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_LOADING);
    r.created_us = AGO(86400);
    assert_false(load_is_stalled(&r, NOW));
    r.created_us--;
    assert_true(load_is_stalled(&r, NOW));
    r.state = LOAD_STAGING;
    r.bytes_moved_us = NOW;
    assert_true(load_is_stalled(&r, NOW));
}

static void a_failed_load_is_not_stalled(void **state)
{
    (void)state;
    struct load_row r = row(LOAD_FAILED);
    r.created_us = AGO(100000);
    assert_false(load_is_stalled(&r, NOW));
}

/* ETA: contract section 5 */

static struct load_row moving(void)
{
    struct load_row r = row(LOAD_STAGING);
    r.bytes_sent = 25;
    r.total_bytes = 100;
    r.started_us = AGO(10);
    return r;
}

static void eta_by_the_rate_since_the_start(void **state)
{
    (void)state;
    struct load_row r = moving();
    double s = 0;
    assert_true(load_eta_s(&r, NOW, &s));
    assert_near(s, 30);
}

static void eta_only_while_staging(void **state)
{
    (void)state;
    for (unsigned st = 0; st <= LOAD_STATE__COUNT; st++) {
        struct load_row r = moving();
        r.state = (enum load_state)st;
        double s = -1;
        assert_int_equal(load_eta_s(&r, NOW, &s), st == LOAD_STAGING);
        assert_int_equal(s >= 0, st == LOAD_STAGING); /* untouched otherwise */
    }
}

static void eta_only_between_first_and_last_byte(void **state)
{
    (void)state;
    static const int64_t SENT[] = { -1, 0, 100, 101 };
    for (size_t i = 0; i < sizeof SENT / sizeof SENT[0]; i++) {
        struct load_row r = moving();
        double s = 0;
        r.bytes_sent = SENT[i];
        assert_false(load_eta_s(&r, NOW, &s));
    }
}

static void eta_only_a_second_after_the_start(void **state)
{
    (void)state;
    struct load_row r = moving();
    double s = 0;
    r.started_us = 0;
    assert_false(load_eta_s(&r, NOW, &s));
    r.started_us = NOW + US_PER_S;
    assert_false(load_eta_s(&r, NOW, &s));
    r.started_us = AGO(1) + 1;
    assert_false(load_eta_s(&r, NOW, &s));
    r.started_us = AGO(1);
    assert_true(load_eta_s(&r, NOW, &s));
    assert_near(s, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_have_names_and_back),
        cmocka_unit_test(a_foreign_state_is_unknown),
        cmocka_unit_test(liveness_is_the_latest_stamp),
        cmocka_unit_test(unset_stamps_do_not_count_for_liveness),
        cmocka_unit_test(a_stamp_in_the_future_counts_as_now),
        cmocka_unit_test(stale_is_over_60_s),
        cmocka_unit_test(a_row_without_any_stamp_is_stale),
        cmocka_unit_test(heartbeat_age_is_measured_from_liveness),
        cmocka_unit_test(a_failed_row_is_gone_after_15_s),
        cmocka_unit_test(only_a_failed_row_is_gone_by_age),
        cmocka_unit_test(an_orphan_may_be_replaced),
        cmocka_unit_test(a_live_overlay_of_its_claim_keeps_an_orphan),
        cmocka_unit_test(a_failed_row_may_be_replaced_only_when_gone),
        cmocka_unit_test(progress_of_one_file),
        cmocka_unit_test(progress_without_a_total_is_0),
        cmocka_unit_test(progress_over_several_files),
        cmocka_unit_test(progress_without_file_index_is_of_the_file),
        cmocka_unit_test(progress_is_clamped),
        cmocka_unit_test(absurd_numbers_do_not_overflow),
        cmocka_unit_test(stalled_after_5_minutes_without_a_byte),
        cmocka_unit_test(without_a_claim_the_update_tells_of_stalls),
        cmocka_unit_test(loading_moves_no_bytes_and_is_not_stalled),
        cmocka_unit_test(stalled_after_24_hours_in_all),
        cmocka_unit_test(a_failed_load_is_not_stalled),
        cmocka_unit_test(eta_by_the_rate_since_the_start),
        cmocka_unit_test(eta_only_while_staging),
        cmocka_unit_test(eta_only_between_first_and_last_byte),
        cmocka_unit_test(eta_only_a_second_after_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
