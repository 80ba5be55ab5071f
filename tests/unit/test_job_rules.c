/* SPDX-License-Identifier: Apache-2.0 */

/* The small rules of jobs: ids, windows, deadlines, back-off, status words, versions, the simple policy. Jobs
 * contract, sections 2 to 5; reference 1.5, 1.6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "model/backoff.h"
#include "model/job.h"
#include "model/job_deadline.h"
#include "model/job_status.h"
#include "model/job_window.h"
#include "model/policy.h"
#include "model/version.h"

#define MINUTE_US (60 * US_PER_S)

static void ids_on_the_wire_are_job_and_a_uuid(void **state)
{
    static const char *const UUID = "01a22e84-0e8d-703f-951b-00d533085a37";
    static const char *const NONE[] = { "", "job_", "job_1", "01a22e84-0e8d-703f-951b-00d533085a37",
        "job_01a22e84-0e8d-703f-951b-00d533085a3", "job_01a22e84-0e8d-703f-951b-00d533085a377",
        "job_01A22E84-0e8d-703f-951b-00d533085a37", "job_01a22e840-e8d-703f-951b-00d533085a37",
        "job_01a22e84-0e8d-703f-951b-00d533085a3g", "JOB_01a22e84-0e8d-703f-951b-00d533085a37",
        "job_01a22e84-0e8d-703f-951b-00d533085a37 " };
    char wire[JOB_WIRE_ID_SIZE];
    char uuid[UUID_SIZE] = "untouched";
    (void)state;
    for (size_t i = 0; i < sizeof NONE / sizeof NONE[0]; i++) {
        assert_false(job_wire_id_parse(NONE[i], uuid));
        assert_string_equal(uuid, "untouched");
    }
    job_wire_id(UUID, wire);
    assert_string_equal(wire, "job_01a22e84-0e8d-703f-951b-00d533085a37");
    assert_true(job_wire_id_parse(wire, uuid));
    assert_string_equal(uuid, UUID);
    assert_true(job_uuid_valid(UUID));
    assert_false(job_uuid_valid(wire));
}

static void windows_are_days_hours_minutes(void **state)
{
    static const struct {
        const char *text;
        int64_t minutes;
    } GOOD[] = {
        { NULL, 1440 },
        { "", 1440 },
        { "24h", 1440 },
        { "1d2h", 1560 },
        { "90m", 90 },
        { "72min", 72 },
        { "1d2h3m", 1563 },
        { "1d3min", 1443 },
        { "0d1m", 1 },
        { "7d", 10080 },
        { "007m", 7 },
        { "366d", 527040 },
    };
    static const char *const BAD[] = { " ", "0h", "0d0h0m", "1h1d", "24", "1w", "-1h", "+1h",
        "1.5h", "h", "1d1d", "1m1h", "1m1m", "1 h", "24 h", " 24h", "24h ", "\t24h", "24h\n",
        "1h 1m", "1h,1m", "1H", "1minute", "1mi", "367d", "527041m", "99999999999999999999m",
        "1d99999999999999999999h",
        "1                                                                              h" };
    (void)state;
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        int64_t minutes = -1;
        if (job_window_parse(GOOD[i].text, &minutes) != 0 || minutes != GOOD[i].minutes)
            fail_msg("'%s' is %lld minutes", GOOD[i].text, (long long)minutes);
    }
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        int64_t minutes = -1;
        if (job_window_parse(BAD[i], &minutes) != -1 || minutes != -1)
            fail_msg("'%s' was taken for %lld minutes", BAD[i], (long long)minutes);
    }
}

/* Accepted + the longer of the completion window and queue_deadline_s. */
static void the_queue_deadline_is_the_longer_of_two(void **state)
{
    (void)state;
    assert_int_equal(job_queue_deadline_us(1000, 60, 60), 1000 + 3600 * US_PER_S);
    assert_int_equal(job_queue_deadline_us(1000, 1, 7200), 1000 + 7200 * US_PER_S);
}

static const int64_t DEADLINE = 1000 * US_PER_S;
enum { GRACE_S = 300 };

static enum job_event due(struct job_run r, int64_t now_us)
{
    return job_overdue(&r, now_us, GRACE_S);
}

/* Before the batch: the queue deadline, sharp. */
static void before_the_batch_the_queue_deadline_counts(void **state)
{
    (void)state;
    for (int s = JOB_QUEUED; s <= JOB_RESOURCE_PREPARING; s++) {
        struct job_run r = {
            .state = (enum job_state)s, .queue_deadline_us = DEADLINE, .expires_us = 1
        };
        assert_int_equal(due(r, DEADLINE - 1), JOB_EVENT__COUNT);
        assert_int_equal(due(r, DEADLINE), EV_QUEUE_EXPIRE);
        assert_false(job_in_grace(&r, DEADLINE + 1));
    }
}

/* With a batch: expires_at and 5 min of grace, in which the service may finish it itself. */
static void with_a_batch_expires_at_and_the_grace_count(void **state)
{
    (void)state;
    for (int s = JOB_SUBMITTING; s <= JOB_FINALIZING; s++) {
        struct job_run r = {
            .state = (enum job_state)s, .queue_deadline_us = 1, .expires_us = DEADLINE
        };
        assert_int_equal(due(r, DEADLINE + GRACE_S * US_PER_S - 1), JOB_EVENT__COUNT);
        assert_int_equal(due(r, DEADLINE + GRACE_S * US_PER_S), EV_RUN_EXPIRE);
        assert_false(job_in_grace(&r, DEADLINE - 1));
        assert_true(job_in_grace(&r, DEADLINE));
    }
}

/* A service that never answers a create must not keep machines for ever; a batch without an end may. */
static void submitting_without_an_expiry_falls_back_on_the_queue_deadline(void **state)
{
    struct job_run r = { .state = JOB_SUBMITTING, .queue_deadline_us = DEADLINE };
    (void)state;
    assert_int_equal(due(r, DEADLINE + GRACE_S * US_PER_S - 1), JOB_EVENT__COUNT);
    assert_int_equal(due(r, DEADLINE + GRACE_S * US_PER_S), EV_RUN_EXPIRE);
    r.state = JOB_IN_PROGRESS;
    assert_int_equal(due(r, INT64_MAX), JOB_EVENT__COUNT);
    assert_false(job_in_grace(&r, INT64_MAX));
}

/* An unreachable service keeps it cancelling. */
static void cancelling_and_the_ended_never_expire(void **state)
{
    (void)state;
    for (int s = JOB_CANCELLING; s < JOB_STATE__COUNT; s++) {
        struct job_run r = { .state = (enum job_state)s, .queue_deadline_us = 1, .expires_us = 1 };
        assert_int_equal(due(r, INT64_MAX), JOB_EVENT__COUNT);
    }
}

/* What an event of a deadline leads to is there. */
static void deadlines_lead_somewhere(void **state)
{
    (void)state;
    for (int s = JOB_QUEUED; s <= JOB_FINALIZING; s++) {
        enum job_state to = JOB_NONE;
        struct job_run r = { .state = (enum job_state)s, .queue_deadline_us = 1, .expires_us = 1 };
        assert_int_equal(job_next(r.state, due(r, INT64_MAX), &to), 0);
        assert_int_equal(to, JOB_EXPIRED);
    }
}

/* Cut to the whole minutes left; under one, the batch must not be created. */
static void the_window_is_cut_to_the_whole_minutes_left(void **state)
{
    const int64_t now = 5000 * US_PER_S;
    (void)state;
    assert_int_equal(job_minutes_left(1440, 0, now), 1440);
    assert_int_equal(job_minutes_left(1440, now + 90 * MINUTE_US + 59 * US_PER_S, now), 90);
    assert_int_equal(job_minutes_left(60, now + 90 * MINUTE_US, now), 60);
    assert_int_equal(job_minutes_left(60, now + MINUTE_US, now), 1);
    assert_true(job_minutes_left(60, now + MINUTE_US - 1, now) < 1);
    assert_true(job_minutes_left(60, now - 90 * MINUTE_US, now) < 1);
}

static void back_off_doubles_up_to_its_cap_with_full_jitter(void **state)
{
    static const struct backoff B = { .base_ms = 1000, .cap_ms = 60000 };
    static const int64_t MOST[] = { 1000, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000 };
    (void)state;
    for (int64_t failures = 0; failures < 9; failures++) {
        assert_int_equal(backoff_ms(B, failures, 0), 1);
        assert_int_equal(backoff_ms(B, failures, (uint64_t)MOST[failures] - 1), MOST[failures]);
        assert_int_equal(backoff_ms(B, failures, (uint64_t)MOST[failures]), 1);
        assert_in_range(backoff_ms(B, failures, UINT64_MAX), 1, MOST[failures]);
    }
    assert_int_equal(backoff_ms(B, INT64_MAX, 59999), 60000);
    static const struct backoff HUGE = { .base_ms = INT64_MAX / 2 + 1, .cap_ms = INT64_MAX };
    assert_in_range(backoff_ms(HUGE, 99, UINT64_MAX / 2 - 1), 1, INT64_MAX);
}

/* The batch service's words; an unknown one keeps the job running. */
static void each_status_of_a_batch_is_an_event(void **state)
{
    (void)state;
    for (enum batch_status s = 0; s < BATCH_STATUS_UNKNOWN; s++) {
        enum job_state to = JOB_NONE;
        assert_int_equal(job_next(JOB_SUBMITTING, job_batch_event(s), &to), 0);
        assert_string_equal(job_state_name(to), batch_status_name(s));
        assert_int_equal(job_is_terminal(to), batch_status_ended(s));
    }
    assert_int_equal(job_batch_event(BATCH_STATUS_UNKNOWN), JOB_EVENT__COUNT);
    enum job_state to = JOB_NONE;
    assert_int_equal(job_next(JOB_IN_PROGRESS, JOB_EVENT__COUNT, &to), 1);
}

static void both_dialects_have_a_word_for_each_state(void **state)
{
    static const char *const OPENAI[JOB_STATE__COUNT] = { "validating", "validating", "validating",
        "validating", "validating", "validating", "in_progress", "finalizing", "cancelling",
        "completed", "failed", "expired", "cancelled", "failed", "failed" };
    (void)state;
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        const char *console = s == JOB_PLANNED ? "queued" : job_state_name((enum job_state)s);
        assert_string_equal(job_openai_status((enum job_state)s), OPENAI[s]);
        assert_string_equal(job_console_status((enum job_state)s), console);
    }
}

/* In order, lowest first; what stands between bars is equal. */
static void versions_compare_by_number(void **state)
{
    static const char *const ORDER[] = { "", "1.", "beta", "v1.x", "v9999999999", "v0", "v0.0.1",
        "v0.9", "0.10", "v1", "v1.0.1", "1.2", "v1.10", "v1.10.0.1", "v2.0.0", "999999999" };
    const size_t n = sizeof ORDER / sizeof ORDER[0];
    (void)state;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            int sign = version_compare(ORDER[i], ORDER[k]);
            if ((sign > 0) - (sign < 0) != (i > k) - (i < k))
                fail_msg("'%s' against '%s' is %d", ORDER[i], ORDER[k], sign);
        }
        assert_int_equal(version_is_numeric(ORDER[i]), i >= 5);
    }
    assert_int_equal(version_compare("v1", "1.0.0"), 0);
    assert_int_equal(version_compare("v01.2", "1.2"), 0);
}

static size_t chosen(int64_t most, int64_t now, size_t jobs)
{
    static const struct policy_job JOBS[5];
    struct policy_snapshot s = {
        .max_provisioning = most, .provisioning = now, .job = JOBS, .n_jobs = jobs
    };
    cleanup_policy_plan struct policy_plan p = POLICY_PLAN_INIT;
    policy_simple(&s, &p);
    for (size_t i = 0; i < p.n; i++) {
        assert_int_equal(p.decision[i].job, i); /* strictly in the order of the queue */
        assert_int_equal(p.decision[i].verdict, POLICY_PLAN);
        assert_string_equal(p.decision[i].region, "");
        assert_true(p.decision[i].reason[0] != '\0');
    }
    return p.n;
}

/* At most max_concurrent_provisioning jobs in planned or resource_preparing, first come first served. */
static void the_simple_policy_fills_up_to_its_limit(void **state)
{
    (void)state;
    assert_int_equal(chosen(1, 0, 5), 1);
    assert_int_equal(chosen(1, 1, 5), 0);
    assert_int_equal(chosen(1, 4, 5), 0); /* the limit was higher before */
    assert_int_equal(chosen(3, 1, 5), 2);
    assert_int_equal(chosen(9, 0, 5), 5);
    assert_int_equal(chosen(0, 0, 5), 0);
    assert_int_equal(chosen(1, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_on_the_wire_are_job_and_a_uuid),
        cmocka_unit_test(windows_are_days_hours_minutes),
        cmocka_unit_test(the_queue_deadline_is_the_longer_of_two),
        cmocka_unit_test(before_the_batch_the_queue_deadline_counts),
        cmocka_unit_test(with_a_batch_expires_at_and_the_grace_count),
        cmocka_unit_test(submitting_without_an_expiry_falls_back_on_the_queue_deadline),
        cmocka_unit_test(cancelling_and_the_ended_never_expire),
        cmocka_unit_test(deadlines_lead_somewhere),
        cmocka_unit_test(the_window_is_cut_to_the_whole_minutes_left),
        cmocka_unit_test(back_off_doubles_up_to_its_cap_with_full_jitter),
        cmocka_unit_test(each_status_of_a_batch_is_an_event),
        cmocka_unit_test(both_dialects_have_a_word_for_each_state),
        cmocka_unit_test(versions_compare_by_number),
        cmocka_unit_test(the_simple_policy_fills_up_to_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
