/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket that systemd passes: sd_listen_fds(3). Each test is a process of its own, as
 * descriptor 3 and the variables are the process'. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/str.h"
#include "fcgi/listener.h"

enum { GUARD_S = 60, PASSED = 3 };

static char dir[64];
static char path[sizeof(dir) + 8];

static int setup(void **state)
{
    (void)state;
    str_copy(dir, sizeof(dir), "/tmp/wb-given-XXXXXX");
    return mkdtemp(dir) && str_format(path, sizeof(path), "%s/sock", dir) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const SUFFIXES[] = { "", ".lock", ".side" };
    (void)state;
    for (size_t i = 0; i < sizeof(SUFFIXES) / sizeof(SUFFIXES[0]); i++) {
        char name[sizeof(path) + 8];
        str_format(name, sizeof(name), "%s%s", path, SUFFIXES[i]);
        unlink(name);
    }
    return rmdir(dir);
}

/* Puts a socket at descriptor 3 and sets the variables, as systemd does before it executes a program. */
static void pass(const char *name, int type, bool listening, const char *count)
{
    char pid[16];
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1);
    int fd = socket(AF_UNIX, type, 0);
    str_copy(a.sun_path, sizeof(a.sun_path), name);
    if (name[0] == '@') {
        a.sun_path[0] = '\0';
        size--;
    }
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, size), 0);
    if (listening)
        assert_int_equal(listen(fd, 8), 0);
    if (fd != PASSED) {
        assert_int_equal(dup2(fd, PASSED), PASSED);
        close(fd);
    }
    str_format(pid, sizeof(pid), "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", count, 1);
    setenv("LISTEN_FDNAMES", "operations.socket", 1);
}

/* Runs body in a child, where exit status 0 is success. */
static void in_child(int (*body)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(GUARD_S);
        _exit(body());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int take_it(void)
{
    struct err e = ERR_INIT;
    struct stat st;
    cleanup_listener struct listener l = LISTENER_INIT;
    pass(path, SOCK_STREAM, true, "1");
    if (listener_given(&l, &e) != 0 || l.fd != PASSED || strcmp(l.path, path) != 0)
        return 1;
    if ((fcntl(PASSED, F_GETFD) & FD_CLOEXEC) == 0)
        return 2;
    if (getenv("LISTEN_PID") || getenv("LISTEN_FDS") || getenv("LISTEN_FDNAMES"))
        return 3; /* a worker would take what it is not given */
    listener_tend(&l);
    if (l.lock_fd < 0 || l.side_fd < 0)
        return 4; /* an instance beside it could not get the socket */
    listener_close(&l);
    return lstat(path, &st) == 0 ? 0 : 5; /* the file is systemd's */
}

static void the_passed_socket_is_taken(void **state)
{
    (void)state;
    in_child(take_it);
}

static int take_nameless(void)
{
    struct err e = ERR_INIT;
    cleanup_listener struct listener l = LISTENER_INIT;
    char name[64];
    str_format(name, sizeof(name), "@%s", path);
    pass(name, SOCK_STREAM, true, "1");
    if (listener_given(&l, &e) != 0 || l.fd != PASSED || l.path[0] != '\0')
        return 1;
    listener_tend(&l);
    return l.lock_fd < 0 && l.side_fd < 0 ? 0 : 2;
}

static void an_abstract_one_has_no_side_socket(void **state)
{
    (void)state;
    in_child(take_nameless);
}

static int leave_alone(void)
{
    struct err e = ERR_INIT;
    struct listener l = LISTENER_INIT;
    if (listener_given(&l, &e) != 1)
        return 1;
    pass(path, SOCK_STREAM, true, "1");
    setenv("LISTEN_PID", "1", 1); /* inherited: meant for a parent */
    if (listener_given(&l, &e) != 1 || l.fd != -1)
        return 2;
    return getenv("LISTEN_FDS") ? 3 : 0;
}

static void what_is_meant_for_another_process_is_left_alone(void **state)
{
    (void)state;
    in_child(leave_alone);
}

static int refused(int type, bool listening, const char *count)
{
    struct err e = ERR_INIT;
    struct listener l = LISTENER_INIT;
    pass(path, type, listening, count);
    if (listener_given(&l, &e) != -1 || e.code != ERR_INVALID || l.fd != -1)
        return 1;
    return strstr(e.msg, "systemd") ? 0 : 2;
}

static int two(void)
{
    return refused(SOCK_STREAM, true, "2");
}

static int connected(void) /* Accept=yes passes a connection */
{
    return refused(SOCK_STREAM, false, "1");
}

static int datagram(void)
{
    return refused(SOCK_DGRAM, false, "1");
}

static void what_nobody_can_serve_is_refused(void **state)
{
    (void)state;
    in_child(two);
    unlink(path);
    in_child(connected);
    unlink(path);
    in_child(datagram);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_passed_socket_is_taken),
        TEST(an_abstract_one_has_no_side_socket),
        TEST(what_is_meant_for_another_process_is_left_alone),
        TEST(what_nobody_can_serve_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
