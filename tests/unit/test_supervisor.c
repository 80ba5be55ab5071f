/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor keeps its workers: starting, replacing and ending them. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "tests/fake/supervised.h"

/* --- life of workers --- */

static void term_ends_all_workers(void **state)
{
    struct supervised *p = *state;
    sup_start(p, 3, SUP_READY_MS, SUP_STOP_MS);
    sup_expect_n_ready(p, 3);
    sup_signal(p, SIGTERM);
    for (int i = 0; i < 3; i++)
        sup_expect(p, "term");
    sup_expect_all_gone(p);
    sup_expect_exit(p, 0);
    assert_int_equal(sup_value(p, METRIC_WORKERS_STARTED), 3);
    assert_int_equal(sup_value(p, METRIC_WORKERS_DIED), 0);
}

static void int_ends_all_workers_too(void **state)
{
    struct supervised *p = *state;
    pid_t worker = sup_start_one(p);
    sup_signal(p, SIGINT);
    sup_expect_of(p, "term", worker);
    sup_expect_all_gone(p);
    sup_expect_exit(p, 0);
}

static void a_killed_worker_is_replaced(void **state)
{
    struct supervised *p = *state;
    pid_t first = sup_start_one(p);
    assert_int_equal(kill(first, SIGKILL), 0);
    pid_t second = sup_expect_ready(p);
    assert_int_not_equal(first, second);
    sup_stop_one(p, second);
    assert_int_equal(sup_value(p, METRIC_WORKERS_STARTED), 2);
    assert_int_equal(sup_value(p, METRIC_WORKERS_DIED), 1);
}

static void workers_that_die_young_are_started_ever_more_slowly(void **state)
{
    struct supervised *p = *state;
    pid_t worker = sup_start_one(p);
    sup_behave(p, "die");
    assert_int_equal(kill(worker, SIGKILL), 0);
    int64_t last_ns = sup_expect(p, "start").at_ns;
    for (int64_t wait_ms = 200; wait_ms <= 800; wait_ms *= 2) {
        int64_t now_ns = sup_expect(p, "start").at_ns;
        assert_true(
            now_ns - last_ns >= wait_ms * NS_PER_MS); /* at least; never a figure for at most */
        last_ns = now_ns;
    }
    sup_behave(p, "ready");
    worker = sup_expect_ready(p); /* and it goes on when the cause is gone */
    sup_stop_one(p, worker);
}

static void a_replacement_that_never_is_ready_is_replaced(void **state)
{
    struct supervised *p = *state;
    sup_start(p, 1, 1500, SUP_STOP_MS);
    pid_t worker = sup_expect_ready(p);
    sup_behave(p, "never");
    assert_int_equal(kill(worker, SIGKILL), 0);
    pid_t silent = sup_expect(p, "start").pid;
    sup_behave(p, "ready");
    worker = sup_expect_ready(p);
    assert_int_not_equal(worker, silent);
    sup_stop_one(p, worker);
    assert_int_equal(sup_value(p, METRIC_WORKERS_DIED), 2);
}

static void workers_leave_when_the_supervisor_is_killed(void **state)
{
    struct supervised *p = *state;
    sup_start(p, 2, SUP_READY_MS, SUP_STOP_MS);
    sup_expect_n_ready(p, 2);
    sup_signal(p, SIGKILL);
    sup_expect(p, "term");
    sup_expect(p, "term");
    sup_expect_all_gone(p);
    assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
    p->pid = 0;
}

/* Waits until the supervisor has said so that many times. */
static void wait_for_words(int log, const char *words, int times)
{
    char text[65536];
    for (int64_t until_ns = clock_deadline(SUP_HANG_MS);;) {
        int seen = 0;
        ssize_t n = pread(log, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words))
            seen++;
        if (seen >= times)
            return;
        assert_true(clock_mono_ns() < until_ns);
        poll(NULL, 0, 1);
    }
}

/* As when the machine has no descriptors left: it goes on trying, and the worker comes when there are some. */
static void a_worker_that_cannot_be_started_is_started_later(void **state)
{
    struct supervised *p = *state;
    struct rlimit before;
    cleanup_fd int log = memfd_create("log", MFD_CLOEXEC);
    cleanup_fd int mine = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_int_equal(dup2(log, STDERR_FILENO), STDERR_FILENO);
    sup_start(p, 1, SUP_READY_MS, SUP_STOP_MS);
    assert_int_equal(dup2(mine, STDERR_FILENO), STDERR_FILENO);
    pid_t worker = sup_expect_ready(p);
    assert_int_equal(prlimit(p->pid, RLIMIT_NOFILE, NULL, &before), 0);
    const struct rlimit none = { .rlim_cur = 6, .rlim_max = before.rlim_max }; /* it has more */
    assert_int_equal(prlimit(p->pid, RLIMIT_NOFILE, &none, NULL), 0);
    assert_int_equal(kill(worker, SIGKILL), 0);
    wait_for_words(log, "cannot start a worker", 3);
    assert_int_equal(sup_value(p, METRIC_WORKERS_STARTED), 1);
    assert_int_equal(prlimit(p->pid, RLIMIT_NOFILE, &before, NULL), 0);
    worker = sup_expect_ready(p);
    sup_stop_one(p, worker);
}

/* --- stopping --- */

static void a_worker_that_does_not_leave_is_killed(void **state)
{
    struct supervised *p = *state;
    sup_behave(p, "stubborn");
    sup_start(p, 1, SUP_READY_MS, 100);
    pid_t worker = sup_expect_ready(p);
    sup_signal(p, SIGTERM);
    sup_expect_of(p, "term", worker);
    sup_expect_all_gone(p);
    sup_expect_exit(p, 1);
}

static void a_second_term_kills_at_once(void **state)
{
    struct supervised *p = *state;
    sup_behave(p, "stubborn");
    sup_start(p, 2, SUP_READY_MS, 3600 * MS_PER_S);
    sup_expect_n_ready(p, 2);
    sup_signal(p, SIGTERM);
    sup_expect(p, "term");
    sup_expect(p, "term");
    sup_signal(p, SIGTERM);
    sup_expect_all_gone(p);
    sup_expect_exit(p, 1);
}

/* --- the first generation --- */

static void first_generation_fails(struct supervised *p, const char *how)
{
    sup_behave(p, how);
    sup_start(p, 2, 1000, SUP_STOP_MS);
    struct sup_event ev;
    while (sup_next_event(p, &ev)) /* one may be ended before it could start */
        assert_true(strcmp(ev.what, "start") == 0 || strcmp(ev.what, "term") == 0);
    sup_expect_exit(p, 1);
    assert_int_equal(sup_value(p, METRIC_RELOADS_FAILED), 0);
}

static void a_first_generation_that_dies_is_an_error(void **state)
{
    first_generation_fails(*state, "die");
}

static void a_first_generation_that_never_is_ready_is_an_error(void **state)
{
    first_generation_fails(*state, "never");
}

static void closing_the_pipe_without_a_byte_is_not_ready(void **state)
{
    first_generation_fails(*state, "mute");
}

static void term_ends_a_first_generation_that_is_not_ready(void **state)
{
    struct supervised *p = *state;
    sup_behave(p, "never");
    sup_start(p, 1, SUP_READY_MS, SUP_STOP_MS);
    pid_t worker = sup_expect(p, "start").pid;
    sup_stop_one(p, worker);
}

static void copy_program(const char *to)
{
    char buf[65536];
    char aside[SUP_PATH_SIZE];
    str_format(aside, sizeof(aside), "%s.new", to);
    cleanup_fd int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    cleanup_fd int out = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n = read(in, buf, sizeof(buf)); n != 0; n = read(in, buf, sizeof(buf)))
        assert_int_equal(write(out, buf, (size_t)n), n);
    assert_int_equal(rename(aside, to), 0);
}

/* The running binary's file is replaced before the supervisor looks where it lies. */
static void workers_are_started_from_a_binary_that_was_replaced(void **state)
{
    struct supervised *p = *state;
    char program[SUP_PATH_SIZE];
    char socket_path[SUP_PATH_SIZE];
    listener_close(&p->listener);
    str_format(program, sizeof(program), "%s/program", p->dir);
    str_format(socket_path, sizeof(socket_path), "%s/sock", p->dir);
    copy_program(program);
    int write_end = sup_open_report(p);
    p->pid = fork();
    if (p->pid == 0) {
        fcntl(write_end, F_SETFD, 0);
        execl(program, "weighbridge-test", "supervise", socket_path, (char *)NULL);
        _exit(4);
    }
    close(write_end);
    sup_expect_of(p, "start", p->pid);
    copy_program(program);
    sup_open_gate(p);
    pid_t worker = sup_expect_ready(p);
    sup_stop_one(p, worker);
}

int main(int argc, char **argv)
{
    int role = sup_roles(argc, argv);
    if (role >= 0)
        return role;
    const struct CMUnitTest tests[] = {
        SUP_TEST(term_ends_all_workers),
        SUP_TEST(int_ends_all_workers_too),
        SUP_TEST(a_killed_worker_is_replaced),
        SUP_TEST(workers_that_die_young_are_started_ever_more_slowly),
        SUP_TEST(a_replacement_that_never_is_ready_is_replaced),
        SUP_TEST(workers_leave_when_the_supervisor_is_killed),
        SUP_TEST(a_worker_that_cannot_be_started_is_started_later),
        SUP_TEST(a_worker_that_does_not_leave_is_killed),
        SUP_TEST(a_second_term_kills_at_once),
        SUP_TEST(a_first_generation_that_dies_is_an_error),
        SUP_TEST(a_first_generation_that_never_is_ready_is_an_error),
        SUP_TEST(closing_the_pipe_without_a_byte_is_not_ready),
        SUP_TEST(term_ends_a_first_generation_that_is_not_ready),
        SUP_TEST(workers_are_started_from_a_binary_that_was_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
