/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/wait.h"

/* Only a guard against hanging: no test waits for it. */
enum { GUARD_S = 30, LONG_MS = 25000 };

struct pair {
    int reader;
    int writer;
};

static struct pair open_pipe(void)
{
    int fds[2] = { -1, -1 };

    assert_int_equal(pipe(fds), 0);
    return (struct pair){ fds[0], fds[1] };
}

static void close_pipe(struct pair *p)
{
    close(p->reader);
    close(p->writer);
}

#define cleanup_pipe __attribute__((cleanup(close_pipe)))

static void clocks_agree_on_units(void **state)
{
    (void)state;
    int64_t before = clock_mono_ns();
    assert_true(clock_mono_ns() >= before);
    assert_true(clock_deadline(1000) - before >= NS_PER_S);
    /* 2020-01-01 and 2100-01-01. */
    assert_true(clock_wall_us() > INT64_C(1577836800) * US_PER_S);
    assert_true(clock_wall_us() < INT64_C(4102444800) * US_PER_S);
}

static void left_is_rounded_up_and_bounded(void **state)
{
    (void)state;
    assert_int_equal(clock_left_ms(0), 0);
    assert_int_equal(clock_left_ms(clock_mono_ns()), 0);
    assert_true(clock_left_ms(clock_mono_ns() + NS_PER_S) > 0);
    assert_int_equal(clock_left_ms(INT64_MAX), INT_MAX);
}

static void a_ready_descriptor_ends_the_wait(void **state)
{
    cleanup_pipe struct pair p = open_pipe();

    (void)state;
    assert_int_equal(write(p.writer, "x", 1), 1);
    assert_int_equal(wait_fd(p.reader, POLLIN, clock_deadline(LONG_MS)), 1);
    assert_int_equal(wait_fd(p.writer, POLLOUT, clock_deadline(LONG_MS)), 1);
}

static void a_hung_up_descriptor_ends_the_wait(void **state)
{
    cleanup_pipe struct pair p = open_pipe();

    (void)state;
    close(p.writer);
    p.writer = -1;
    assert_int_equal(wait_fd(p.reader, POLLIN, clock_deadline(LONG_MS)), 1);
}

static void the_deadline_ends_the_wait(void **state)
{
    cleanup_pipe struct pair p = open_pipe();
    int64_t deadline = clock_deadline(20);

    (void)state;
    assert_int_equal(wait_fd(p.reader, POLLIN, deadline), 0);
    assert_true(clock_mono_ns() >= deadline);
}

static void a_passed_deadline_still_looks_once(void **state)
{
    cleanup_pipe struct pair p = open_pipe();

    (void)state;
    assert_int_equal(wait_fd(p.reader, POLLIN, 0), 0);
    assert_int_equal(write(p.writer, "x", 1), 1);
    assert_int_equal(wait_fd(p.reader, POLLIN, 0), 1);
}

static void a_closed_descriptor_is_an_error(void **state)
{
    struct pair p = open_pipe();

    (void)state;
    close_pipe(&p);
    errno = 0;
    assert_int_equal(wait_fd(p.reader, POLLIN, clock_deadline(LONG_MS)), -1);
    assert_int_equal(errno, EBADF);
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void a_signal_does_not_end_the_wait(void **state)
{
    cleanup_pipe struct pair p = open_pipe();
    struct sigaction action = { .sa_handler = on_alarm };
    struct sigaction old;

    (void)state;
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 5; i++) {
            kill(getppid(), SIGALRM);
            poll(NULL, 0, 5);
        }
        _exit(write(p.writer, "x", 1) != 1);
    }
    assert_int_equal(wait_fd(p.reader, POLLIN, clock_deadline(LONG_MS)), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
}

static _Atomic uint32_t *shared_words(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(p, MAP_FAILED);
    return p;
}

static void another_value_ends_the_sleep_at_once(void **state)
{
    _Atomic uint32_t *word = shared_words();
    int64_t begin = clock_mono_ns();

    (void)state;
    wait_word(word, 1, clock_deadline(LONG_MS));
    assert_true(clock_mono_ns() - begin < LONG_MS * (int64_t)NS_PER_MS);
    munmap(word, 4096);
}

static void the_deadline_ends_the_sleep(void **state)
{
    _Atomic uint32_t *word = shared_words();
    int64_t deadline = clock_deadline(20);

    (void)state;
    while (clock_left_ms(deadline) > 0)
        wait_word(word, 0, deadline);
    wait_word(word, 0, deadline);
    munmap(word, 4096);
}

/* The child that sleeps may get there before or after the wake-up: both must end it. */
static void a_wake_reaches_other_processes(void **state)
{
    _Atomic uint32_t *words = shared_words();
    _Atomic uint32_t *ready = words + 1;
    int status = -1;

    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int64_t deadline = clock_deadline(LONG_MS);
        atomic_store(ready, 1);
        wake_word(ready);
        while (atomic_load(words) == 0 && clock_left_ms(deadline) > 0)
            wait_word(words, 0, deadline);
        _exit(clock_left_ms(deadline) == 0);
    }
    int64_t deadline = clock_deadline(LONG_MS);
    while (atomic_load(ready) == 0 && clock_left_ms(deadline) > 0)
        wait_word(ready, 0, deadline);
    atomic_store(words, 1);
    wake_word(words);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    munmap(words, 4096);
}

static void signals_come_as_a_descriptor(void **state)
{
    struct err e = ERR_INIT;

    (void)state;
    stop_block();
    stop_block();
    cleanup_fd int fd = stop_signal_fd(&e);
    assert_true(fd >= 0);
    assert_int_equal(stop_next_signal(fd), 0);
    raise(SIGHUP);
    raise(SIGTERM);
    assert_int_equal(wait_fd(fd, POLLIN, clock_deadline(LONG_MS)), 1);
    int first = stop_next_signal(fd);
    int second = stop_next_signal(fd);
    assert_true(first == SIGHUP || first == SIGTERM);
    assert_int_equal(first + second, SIGHUP + SIGTERM);
    assert_int_equal(stop_next_signal(fd), 0);
}

static void a_broken_pipe_does_not_kill(void **state)
{
    cleanup_pipe struct pair p = open_pipe();

    (void)state;
    stop_block();
    close(p.reader);
    p.reader = -1;
    assert_int_equal(write(p.writer, "x", 1), -1);
    assert_int_equal(errno, EPIPE);
}

/* FCGX_Init installs handlers for PIPE and USR1 where it finds the defaults. */
static void handlers_of_libraries_are_put_away(void **state)
{
    struct sigaction action = { .sa_handler = on_alarm };
    struct sigaction found;

    (void)state;
    assert_int_equal(sigaction(SIGPIPE, &action, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    stop_block();
    assert_int_equal(sigaction(SIGPIPE, NULL, &found), 0);
    assert_ptr_equal(found.sa_handler, SIG_IGN);
    assert_int_equal(sigaction(SIGUSR1, NULL, &found), 0);
    assert_ptr_equal(found.sa_handler, SIG_DFL);
}

static int status_after_signal(int signal)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        stop_unblock();
        raise(signal);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_child_gets_its_signals_back(void **state)
{
    static const int SIGNALS[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE };

    (void)state;
    stop_block();
    for (size_t i = 0; i < sizeof SIGNALS / sizeof SIGNALS[0]; i++) {
        int status = status_after_signal(SIGNALS[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGNALS[i]);
    }
}

static void a_raised_stop_stays(void **state)
{
    struct err e = ERR_INIT;
    cleanup_fd int fd = stop_event_fd(&e);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(wait_fd(fd, POLLIN, 0), 0);
    stop_raise(fd);
    stop_raise(fd);
    assert_int_equal(wait_fd(fd, POLLIN, 0), 1);
    assert_int_equal(wait_fd(fd, POLLIN, 0), 1);
}

static void a_deadline_is_prolonged_up_to_a_limit_and_never_shortened(void **state)
{
    (void)state;
    const int64_t now_ns = clock_mono_ns();
    const int64_t far_ns = now_ns + INT64_C(3600) * NS_PER_S;
    const int64_t moved_ns = clock_prolong(now_ns, 60000, far_ns);
    assert_true(moved_ns >= now_ns + 60 * NS_PER_S && moved_ns < far_ns);
    assert_int_equal(clock_prolong(now_ns, 60000, now_ns + NS_PER_S), now_ns + NS_PER_S);
    assert_int_equal(clock_prolong(now_ns, 60000, now_ns - NS_PER_S), now_ns);
    assert_int_equal(clock_prolong(far_ns, 1, now_ns), far_ns);
    assert_int_equal(clock_prolong(far_ns, 60000, INT64_MAX), far_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_is_prolonged_up_to_a_limit_and_never_shortened),
        cmocka_unit_test(clocks_agree_on_units),
        cmocka_unit_test(left_is_rounded_up_and_bounded),
        cmocka_unit_test(a_ready_descriptor_ends_the_wait),
        cmocka_unit_test(a_hung_up_descriptor_ends_the_wait),
        cmocka_unit_test(the_deadline_ends_the_wait),
        cmocka_unit_test(a_passed_deadline_still_looks_once),
        cmocka_unit_test(a_closed_descriptor_is_an_error),
        cmocka_unit_test(a_signal_does_not_end_the_wait),
        cmocka_unit_test(another_value_ends_the_sleep_at_once),
        cmocka_unit_test(the_deadline_ends_the_sleep),
        cmocka_unit_test(a_wake_reaches_other_processes),
        cmocka_unit_test(signals_come_as_a_descriptor),
        cmocka_unit_test(a_broken_pipe_does_not_kill),
        cmocka_unit_test(handlers_of_libraries_are_put_away),
        cmocka_unit_test(a_child_gets_its_signals_back),
        cmocka_unit_test(a_raised_stop_stays),
    };

    alarm(GUARD_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
