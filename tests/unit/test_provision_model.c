/* SPDX-License-Identifier: Apache-2.0
 * Names of machines, and the words of provisions and batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "model/batch.h"
#include "model/provision.h"

#define JOB "0197a5c2-0d4e-7b1a-9c3d-5e6f70819203"

static void a_name_says_cluster_job_and_attempt(void **state)
{
    char name[PROVISION_NAME_SIZE];
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(provision_name("c1", JOB, 3, name, &e), 0);
    assert_string_equal(name, "wb-c1-" JOB "-3");
}

/* The longest name is one that all providers take (64 characters). */
static void the_longest_name_fits(void **state)
{
    char name[PROVISION_NAME_SIZE];
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(provision_name("abcdefghij12", JOB, 99999, name, &e), 0);
    assert_string_equal(name, "wb-abcdefghij12-" JOB "-99999");
    assert_true(strlen(name) <= 64);
}

static void refuse_name(const char *cluster, const char *job, int attempt, const char *piece)
{
    char name[PROVISION_NAME_SIZE] = "untouched";
    struct err e = ERR_INIT;
    assert_int_equal(provision_name(cluster, job, attempt, name, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_non_null(strstr(e.msg, piece));
    assert_string_equal(name, "untouched");
}

static void what_makes_no_name_is_refused(void **state)
{
    (void)state;
    refuse_name("", JOB, 0, "cluster id");
    refuse_name("abcdefghij123", JOB, 0, "cluster id");
    refuse_name("a-b", JOB, 0, "cluster id");
    refuse_name("A", JOB, 0, "cluster id");
    refuse_name("c1", "job", 0, "job id");
    refuse_name("c1", "0197A5C2-0d4e-7b1a-9c3d-5e6f70819203", 0, "job id");
    refuse_name("c1", JOB "0", 0, "job id");
    refuse_name("c1", "0197a5c2-0d4e-7b1a-9c3d-5e6f7081920", 0, "job id");
    refuse_name("c1", JOB, -1, "attempt");
    refuse_name("c1", JOB, 100000, "attempt");
}

static void a_name_comes_apart(void **state)
{
    char job[PROVISION_JOB_SIZE] = "";
    int attempt = -1;
    (void)state;
    assert_true(provision_name_parse("wb-c1-" JOB "-12", "c1", job, &attempt));
    assert_string_equal(job, JOB);
    assert_int_equal(attempt, 12);
}

/* Another installation's machines are never ours (jobs contract, section 5, intents). */
static void names_of_others_are_not_ours(void **state)
{
    static const char *const OTHERS[] = {
        "",
        "wb-c1",
        "wb-c1-",
        "wb-c2-" JOB "-1",
        "wb-c11-" JOB "-1",
        "xwb-c1-" JOB "-1",
        "WB-c1-" JOB "-1",
        "wb-c1-" JOB,
        "wb-c1-" JOB "-",
        "wb-c1-" JOB "-1x",
        "wb-c1-" JOB "-01",
        "wb-c1-" JOB "--1",
        "wb-c1-" JOB "-100000",
        "wb-c1-x" JOB "-1",
        "wb-c1-trainer",
    };
    char job[PROVISION_JOB_SIZE] = "untouched";
    int attempt = -1;
    (void)state;
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        if (provision_name_parse(OTHERS[i], "c1", job, &attempt))
            fail_msg("took %s for ours", OTHERS[i]);
    }
    assert_false(provision_name_parse("wb--" JOB "-1", "", job, &attempt));
    assert_string_equal(job, "untouched");
    assert_int_equal(attempt, -1);
}

static void words_of_provisions(void **state)
{
    enum provision_status s = PROVISION_PENDING;
    (void)state;
    for (enum provision_status i = 0; i < PROVISION_STATUS__COUNT; i++) {
        assert_true(provision_status_parse(provision_status_name(i), &s));
        assert_int_equal(s, i);
    }
    assert_string_equal(provision_status_name(PROVISION_RELEASE_FAILED), "release_failed");
    assert_false(provision_status_parse("gone", &s));
}

/* No capacity, 429, 5xx and time-outs go back to the queue; 4xx end the job (section 2). */
static void what_is_tried_again(void **state)
{
    (void)state;
    assert_true(provision_error_retryable(PROVISION_ERROR_NO_CAPACITY));
    assert_true(provision_error_retryable(PROVISION_ERROR_BUSY));
    assert_true(provision_error_retryable(PROVISION_ERROR_UNAVAILABLE));
    assert_true(provision_error_retryable(PROVISION_ERROR_TIMEOUT));
    assert_false(provision_error_retryable(PROVISION_ERROR_REFUSED));
    assert_false(provision_error_retryable(PROVISION_ERROR_DENIED));
    assert_false(provision_error_retryable(PROVISION_ERROR_NO_GPU_TYPE));
    assert_string_equal(provision_error_name(PROVISION_ERROR_NO_CAPACITY), "NoCapacity");
}

static void words_of_batches(void **state)
{
    (void)state;
    for (enum batch_status s = 0; s < BATCH_STATUS_UNKNOWN; s++)
        assert_int_equal(batch_status_parse(batch_status_name(s)), s);
    assert_int_equal(batch_status_parse("in_progress"), BATCH_IN_PROGRESS);
    assert_int_equal(batch_status_parse("finalized"), BATCH_STATUS_UNKNOWN);
    assert_int_equal(batch_status_parse(""), BATCH_STATUS_UNKNOWN);
    assert_true(batch_status_ended(BATCH_EXPIRED));
    assert_false(batch_status_ended(BATCH_CANCELLING));
    assert_false(batch_status_ended(BATCH_STATUS_UNKNOWN)); /* it keeps running and is polled */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_says_cluster_job_and_attempt),
        cmocka_unit_test(the_longest_name_fits),
        cmocka_unit_test(what_makes_no_name_is_refused),
        cmocka_unit_test(a_name_comes_apart),
        cmocka_unit_test(names_of_others_are_not_ours),
        cmocka_unit_test(words_of_provisions),
        cmocka_unit_test(what_is_tried_again),
        cmocka_unit_test(words_of_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
