/* SPDX-License-Identifier: Apache-2.0 */

/* Counts of running jobs in Redis, and the hint that wakes planners: jobs contract, section 5, "Loop". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "store/job_progress.h"
#include "tests/store/staging_fixture.h"

static const char *const ID = "00000000-0000-4000-8000-000000000001";
static const char *const OTHER = "00000000-0000-4000-8000-000000000002";

#define KEY "wb:1:job:00000000-0000-4000-8000-000000000001"

static void must(int result, const struct err *e)
{
    if (result != 0)
        fail_msg("%s", e->msg);
}

static void counts_come_back(void **state)
{
    struct err e = ERR_INIT;
    const struct job_progress p = { .total = 10,
        .completed = 7,
        .failed = 1,
        .input_tokens = 100,
        .output_tokens = 50,
        .total_tokens = 150 };
    const char *const ids[] = { OTHER, ID };
    struct job_progress got[2];
    (void)state;
    must(job_progress_put(staging_kv, ID, &p, &e), &e);
    must(job_progress_get(staging_kv, ids, 2, got, &e), &e);
    assert_false(got[0].known);
    assert_true(got[1].known);
    assert_int_equal(got[1].total, 10);
    assert_int_equal(got[1].completed, 7);
    assert_int_equal(got[1].failed, 1);
    assert_int_equal(got[1].input_tokens, 100);
    assert_int_equal(got[1].output_tokens, 50);
    assert_int_equal(got[1].total_tokens, 150);
    long long ttl = RAW(T("PTTL"), T(KEY));
    assert_in_range(ttl, 30000, 60000);
    must(job_progress_get(staging_kv, NULL, 0, NULL, &e), &e);
}

/* Unparsable is absent. */
static void what_makes_no_sense_is_absent(void **state)
{
    static const char *const VALUES[] = { "", "null", "[]", "{}", "{\"total\":1", "nonsense",
        "{\"total\":-1,\"completed\":0,\"failed\":0,\"input_tokens\":0,\"output_tokens\":0,"
        "\"total_tokens\":0}",
        "{\"total\":\"1\",\"completed\":0,\"failed\":0,\"input_tokens\":0,\"output_tokens\":0,"
        "\"total_tokens\":0}" };
    struct err e = ERR_INIT;
    struct job_progress got = { .known = true };
    (void)state;
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        (void)RAW(T("SET"), T(KEY), T(VALUES[i]));
        must(job_progress_get(staging_kv, &ID, 1, &got, &e), &e);
        assert_false(got.known);
    }
    (void)RAW(T("DEL"), T(KEY));
    (void)RAW(T("RPUSH"), T(KEY), T("1")); /* not even a text */
    must(job_progress_get(staging_kv, &ID, 1, &got, &e), &e);
    assert_false(got.known);
}

static void an_id_is_no_way_into_other_keys(void **state)
{
    struct err e = ERR_INIT;
    const char *odd = "x:../y";
    const struct job_progress p = { .total = 1 };
    struct job_progress got = { .known = false };
    (void)state;
    assert_int_equal(job_progress_put(staging_kv, odd, &p, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_int_equal(job_progress_get(staging_kv, &odd, 1, &got, &e), -1);
}

/* Published at most once in 100 ms. */
static void a_hint_wakes_who_listens_and_is_debounced(void **state)
{
    struct err e = ERR_INIT;
    cleanup_kv struct kv *listener = staging_connect();
    cleanup_free char *first = NULL;
    cleanup_free char *second = NULL;
    (void)state;
    must(kv_subscribe(listener, PLANNER_CHANNEL, &e), &e);
    must(planner_wake(staging_kv, "enqueue", &e), &e);
    must(kv_next_message(listener, -1, clock_deadline(PATIENT_MS), &first, &e), &e);
    assert_string_equal(first, "enqueue");
    (void)RAW(T("PEXPIRE"), T("wb:1:planner:woken"),
        T("60000")); /* the hint is fresh, however slow we are */
    must(planner_wake(staging_kv, "debounced", &e), &e);
    (void)RAW(T("DEL"), T("wb:1:planner:woken"));
    must(planner_wake(staging_kv, "cancel", &e), &e);
    must(kv_next_message(listener, -1, clock_deadline(PATIENT_MS), &second, &e), &e);
    assert_string_equal(second, "cancel");
    assert_in_range(RAW(T("PTTL"), T("wb:1:planner:woken")) + 2, 0, 102); /* -2: gone already */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(counts_come_back),
        TEST(what_makes_no_sense_is_absent),
        TEST(an_id_is_no_way_into_other_keys),
        TEST(a_hint_wakes_who_listens_and_is_debounced),
    };
    return cmocka_run_group_tests(tests, staging_open, staging_close);
}
