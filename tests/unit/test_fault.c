/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs contract section 5, "Fault injection": named points, off by default. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"

static struct faults *parsed(const char *text)
{
    struct faults *f = NULL;
    struct err e = ERR_INIT;
    if (faults_parse(text, &f, &e) < 0)
        fail_msg("%s", e.msg);
    return f;
}

static int off(void **state)
{
    (void)state;
    faults_set(NULL);
    faults_set_job(NULL);
    return 0;
}

static void nothing_happens_unless_it_is_set(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_null(parsed(""));
    assert_null(parsed("   "));
    for (int p = 0; p < FAULT__COUNT; p++)
        assert_int_equal(fault_at((enum fault_point)p, &e), 0);
}

static void a_point_fails_where_it_is_named(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_faults struct faults *f = parsed(" plan.commit=fail  poll.call=fail ");
    faults_set(f);
    assert_int_equal(fault_at(FAULT_PLAN_COMMIT, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "plan.commit"));
    assert_int_equal(fault_at(FAULT_POLL_CALL, &e), -1);
    assert_int_equal(fault_at(FAULT_PLAN_COMMITTED, &e), 0);
}

static void a_star_is_every_point_and_a_job_has_its_own(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_faults struct faults *f = parsed("*=fail");
    faults_set_job(f);
    for (int p = 0; p < FAULT__COUNT; p++)
        assert_int_equal(fault_at((enum fault_point)p, &e), -1);
    faults_set_job(NULL);
    assert_int_equal(fault_at(FAULT_PLAN_COMMIT, &e), 0);
}

static void probability_is_a_share_of_the_times(void **state)
{
    (void)state;
    enum { TIMES = 10000 };
    struct err e = ERR_INIT;
    int failed = 0;
    cleanup_faults struct faults *f = parsed("plan.commit=fail@0.25 plan.committed=fail@0");
    faults_set(f);
    for (int i = 0; i < TIMES; i++) {
        failed += fault_at(FAULT_PLAN_COMMIT, &e) < 0;
        assert_int_equal(fault_at(FAULT_PLAN_COMMITTED, &e), 0);
    }
    assert_in_range(
        failed, TIMES / 5, TIMES * 3 / 10); /* over eleven deviations away on either side */
}

static void delays_delay(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    cleanup_faults struct faults *f = parsed("plan.commit=delay:30");
    faults_set(f);
    const int64_t end = clock_deadline(30);
    assert_int_equal(fault_at(FAULT_PLAN_COMMIT, &e), 0);
    assert_true(clock_mono_ns() >= end);
}

/* How a child ends or stops that comes to a point with those faults. */
static int fate_of_child(const char *text, pid_t *pid)
{
    int status = 0;
    *pid = fork();
    if (*pid == 0) {
        struct faults *f = NULL;
        struct err e = ERR_INIT;
        if (faults_parse(text, &f, &e) < 0)
            _exit(2);
        faults_set(f);
        _exit(fault_at(FAULT_PLAN_COMMIT, &e) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(*pid, &status, WUNTRACED), *pid);
    return status;
}

static void kill_and_stop_are_signals(void **state)
{
    (void)state;
    pid_t pid = 0;
    int status = fate_of_child("plan.commit=kill", &pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = fate_of_child("plan.commit=stop", &pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* So that a process that is started again is not killed again. */
static void with_a_file_it_happens_once_for_all_processes(void **state)
{
    (void)state;
    char dir[] = "/tmp/wb-fault-XXXXXX";
    char file[64];
    char text[128];
    pid_t pid = 0;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(str_format(file, sizeof file, "%s/once", dir), 0);
    assert_int_equal(str_format(text, sizeof text, "plan.commit=fail!%s", file), 0);
    assert_int_equal(WEXITSTATUS(fate_of_child(text, &pid)), 1);
    assert_int_equal(WEXITSTATUS(fate_of_child(text, &pid)), 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const char *const BAD[] = { "plan.commit", "=kill", "nowhere=kill",
        "plan.commit=explode", "plan.commit=delay", "plan.commit=delay:x", "plan.commit=delay:-1",
        "plan.commit=kill@2", "plan.commit=kill@x", "plan.commit=kill!here", "plan.commit=kill!" };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct faults *f = NULL;
        struct err e = ERR_INIT;
        assert_int_equal(faults_parse(BAD[i], &f, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
        assert_null(f);
    }
}

static void points_have_names_and_words(void **state)
{
    (void)state;
    for (int p = 0; p < FAULT__COUNT; p++) {
        assert_true(strlen(fault_name((enum fault_point)p)) > 2);
        assert_true(strlen(fault_when((enum fault_point)p)) > 10);
        for (int q = 0; q < p; q++)
            assert_string_not_equal(
                fault_name((enum fault_point)p), fault_name((enum fault_point)q));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(nothing_happens_unless_it_is_set, off),
        cmocka_unit_test_teardown(a_point_fails_where_it_is_named, off),
        cmocka_unit_test_teardown(a_star_is_every_point_and_a_job_has_its_own, off),
        cmocka_unit_test_teardown(probability_is_a_share_of_the_times, off),
        cmocka_unit_test_teardown(delays_delay, off),
        cmocka_unit_test_teardown(kill_and_stop_are_signals, off),
        cmocka_unit_test_teardown(with_a_file_it_happens_once_for_all_processes, off),
        cmocka_unit_test_teardown(what_makes_no_sense_is_refused, off),
        cmocka_unit_test_teardown(points_have_names_and_words, off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
