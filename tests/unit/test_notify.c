/* SPDX-License-Identifier: Apache-2.0 */
/* What the service manager is told (sd_notify(3)), by itself and by the supervisor. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/notify.h"
#include "base/str.h"
#include "base/wait.h"
#include "tests/fake/supervised.h"

/* The manager's end: a socket with an abstract name, which NOTIFY_SOCKET writes with '@'. */
static int manager_open(void)
{
    static int number; /* a test that failed left its own open */
    char name[64];
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    str_format(name, sizeof(name), "@wb-notify-%d-%d", (int)getpid(), number++);
    memcpy(a.sun_path + 1, name + 1, strlen(name) - 1);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, size), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static void expect(int manager, const char *text)
{
    char got[128];
    assert_int_equal(wait_fd(manager, POLLIN, clock_deadline(SUP_HANG_MS)), 1);
    ssize_t n = recv(manager, got, sizeof(got) - 1, 0);
    assert_true(n > 0);
    got[n] = '\0';
    if (str_ends(text, "="))
        got[strlen(text)] = '\0';
    assert_string_equal(got, text);
}

static bool is_quiet(int manager)
{
    char byte = 0;
    return recv(manager, &byte, 1, MSG_DONTWAIT) < 0;
}

static int forget_manager(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    return 0;
}

/* --- the datagrams --- */

static void each_state_is_one_datagram(void **state)
{
    (void)state;
    cleanup_fd int manager = manager_open();
    notify_ready();
    notify_reloading();
    notify_stopping();
    expect(manager, "READY=1");
    expect(manager, "RELOADING=1\nMONOTONIC_USEC=");
    expect(manager, "STOPPING=1");
    assert_true(is_quiet(manager));
}

static void a_reload_tells_the_monotonic_time_in_microseconds(void **state)
{
    (void)state;
    static const char BEFORE[] = "RELOADING=1\nMONOTONIC_USEC=";
    char got[128] = "";
    int64_t said_us = 0;
    cleanup_fd int manager = manager_open();
    int64_t first_us = clock_mono_ns() / 1000;
    notify_reloading();
    int64_t last_us = clock_mono_ns() / 1000;
    assert_true(recv(manager, got, sizeof(got) - 1, 0) > 0);
    assert_true(str_starts(got, BEFORE));
    assert_int_equal(str_to_i64(got + strlen(BEFORE), first_us, last_us, &said_us), 0);
}

static void the_watchdog_is_fed_only_if_there_is_one(void **state)
{
    (void)state;
    cleanup_fd int manager = manager_open();
    notify_alive();
    assert_true(is_quiet(manager));
    setenv("WATCHDOG_USEC", "30000000", 1);
    notify_alive();
    expect(manager, "WATCHDOG=1");
}

static void a_path_works_as_an_abstract_name_does(void **state)
{
    (void)state;
    char dir[] = "/tmp/wb-notify-XXXXXX";
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    assert_non_null(mkdtemp(dir));
    str_format(a.sun_path, sizeof(a.sun_path), "%s/sock", dir);
    cleanup_fd int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(manager, (const struct sockaddr *)&a, sizeof(a)), 0);
    setenv("NOTIFY_SOCKET", a.sun_path, 1);
    notify_ready();
    expect(manager, "READY=1");
    unlink(a.sun_path);
    rmdir(dir);
}

/* Nobody there, no name, a name that is none, one that is too long: the service goes on. */
static void a_manager_that_is_not_there_does_no_harm(void **state)
{
    (void)state;
    char endless[256];
    memset(endless, 'x', sizeof(endless) - 1);
    endless[0] = '/';
    endless[sizeof(endless) - 1] = '\0';
    const char *const names[] = { "/nowhere/at/all", "", "relative", endless };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        setenv("NOTIFY_SOCKET", names[i], 1);
        notify_ready();
    }
    unsetenv("NOTIFY_SOCKET");
    notify_ready();
    notify_stopping();
}

/* --- the supervisor's life --- */

static void a_start_a_reload_and_a_stop_are_told(void **state)
{
    struct supervised *p = *state;
    cleanup_fd int manager = manager_open();
    sup_behave(p, "gate");
    sup_start(p, 1, SUP_READY_MS, SUP_STOP_MS);
    sup_expect(p, "start");
    assert_true(is_quiet(manager)); /* not before a worker serves */
    sup_open_gate(p);
    sup_expect(p, "passed");
    pid_t first = sup_expect(p, "ready").pid;
    expect(manager, "READY=1");
    sup_signal(p, SIGHUP);
    expect(manager, "RELOADING=1\nMONOTONIC_USEC=");
    pid_t second = sup_expect(p, "start").pid;
    assert_true(is_quiet(manager)); /* not while it still may fail */
    sup_open_gate(p);
    sup_expect_of(p, "passed", second);
    sup_expect_handover(p, first, second);
    expect(manager, "READY=1");
    sup_stop_one(p, second);
    expect(manager, "STOPPING=1");
    assert_true(is_quiet(manager));
}

/* Or `systemctl reload` would wait for ever. */
static void a_reload_that_fails_ends_too(void **state)
{
    struct supervised *p = *state;
    cleanup_fd int manager = manager_open();
    sup_start(p, 1, SUP_READY_MS, SUP_STOP_MS);
    pid_t worker = sup_expect_ready(p);
    expect(manager, "READY=1");
    sup_behave(p, "die");
    sup_signal(p, SIGHUP);
    expect(manager, "RELOADING=1\nMONOTONIC_USEC=");
    sup_expect(p, "start");
    expect(manager, "READY=1");
    sup_expect_metric(p, METRIC_RELOADS_FAILED, 1);
    sup_stop_one(p, worker);
}

static void a_start_that_fails_is_never_called_ready(void **state)
{
    struct supervised *p = *state;
    cleanup_fd int manager = manager_open();
    sup_behave(p, "die");
    sup_start(p, 1, SUP_READY_MS, SUP_STOP_MS);
    sup_expect(p, "start");
    sup_expect_all_gone(p);
    sup_expect_exit(p, 1);
    assert_true(is_quiet(manager));
}

static void the_supervisor_feeds_the_watchdog_again_and_again(void **state)
{
    struct supervised *p = *state;
    cleanup_fd int manager = manager_open();
    setenv("WATCHDOG_USEC", "30000000", 1);
    sup_behave(p, "gate"); /* also before it is ready */
    sup_start(p, 1, SUP_READY_MS, SUP_STOP_MS);
    expect(manager, "WATCHDOG=1");
    expect(manager, "WATCHDOG=1");
    sup_expect(p, "start");
    sup_open_gate(p);
    pid_t worker = sup_expect(p, "passed").pid;
    sup_expect_of(p, "ready", worker);
    sup_stop_one(p, worker);
}

#define TELLS(f) cmocka_unit_test_teardown(f, forget_manager)
#define TESTS(f) cmocka_unit_test_setup_teardown(f, sup_setup, teardown)

static int teardown(void **state)
{
    forget_manager(NULL);
    return sup_teardown(state);
}

int main(int argc, char **argv)
{
    int role = sup_roles(argc, argv);
    if (role >= 0)
        return role;
    const struct CMUnitTest tests[] = {
        TELLS(each_state_is_one_datagram),
        TELLS(a_reload_tells_the_monotonic_time_in_microseconds),
        TELLS(the_watchdog_is_fed_only_if_there_is_one),
        TELLS(a_path_works_as_an_abstract_name_does),
        TELLS(a_manager_that_is_not_there_does_no_harm),
        TESTS(a_start_a_reload_and_a_stop_are_told),
        TESTS(a_reload_that_fails_ends_too),
        TESTS(a_start_that_fails_is_never_called_ready),
        TESTS(the_supervisor_feeds_the_watchdog_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
