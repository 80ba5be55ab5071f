/* SPDX-License-Identifier: Apache-2.0 */
/* The service's socket: one backlog for all instances, never a moment with a wrong mode, and nobody
 * else's socket taken. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/wait.h"
#include "tests/fake/listener_place.h"

enum { REFUSE_MS = 60, STARTERS = 6, ROUNDS = 5, NOBODY = 65534 };

static void assert_refused(enum err_code code)
{
    struct err e = ERR_INIT;
    cleanup_listener struct listener l = LISTENER_INIT;
    assert_int_equal(listener_open(&l, listener_path, NULL, REFUSE_MS, &e), -1);
    assert_int_equal(e.code, code);
    assert_non_null(strstr(e.msg, listener_path));
    assert_int_equal(l.fd, -1);
}

/* --- binding --- */

/* Report 7. */
static void socket_has_mode_0660_whatever_the_umask(void **state)
{
    (void)state;
    const mode_t masks[] = { 0, 022, 077, 0177 };
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        struct err e = ERR_INIT;
        cleanup_listener struct listener l = LISTENER_INIT;
        mode_t old = umask(masks[i]);
        int rc = listener_open(&l, listener_path, NULL, LISTENER_HANG_MS, &e);
        umask(old);
        assert_int_equal(rc, 0);
        assert_int_equal(listener_stat("").st_mode & 07777, 0660);
        assert_int_equal(listener_stat(".side").st_mode & 07777, 0600);
        listener_assert_accepts(&l);
    }
}

static void descriptors_are_not_inherited(void **state)
{
    (void)state;
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    assert_int_equal(fcntl(l.fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(l.lock_fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(l.side_fd, F_GETFD), FD_CLOEXEC);
}

static void group_is_set_and_an_unknown_one_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    gid_t gids[64];
    int n = getgroups(64, gids);
    const struct group *group = getgrgid(n > 0 ? gids[n - 1] : getgid());
    cleanup_listener struct listener l = LISTENER_INIT;
    assert_int_equal(
        listener_open(&l, listener_path, "no-such-group-here", LISTENER_HANG_MS, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    if (!group)
        skip();
    gid_t gid = group->gr_gid;
    assert_int_equal(listener_open(&l, listener_path, group->gr_name, LISTENER_HANG_MS, &e), 0);
    assert_int_equal(listener_stat("").st_gid, gid);
    assert_int_equal(listener_stat("").st_mode & 07777, 0660);
}

static void a_path_must_leave_room_for_its_companions(void **state)
{
    (void)state;
    char name[128];
    struct err e = ERR_INIT;
    cleanup_listener struct listener l = LISTENER_INIT;
    memset(name, 'x', sizeof(name));
    memcpy(name, listener_folder, strlen(listener_folder));
    name[strlen(listener_folder)] = '/';
    name[103] = '\0';
    assert_int_equal(listener_open(&l, name, NULL, REFUSE_MS, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_int_equal(listener_open(&l, "", NULL, REFUSE_MS, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    name[102] = '\0';
    assert_int_equal(listener_open(&l, name, NULL, REFUSE_MS, &e), 0);
    unlink(name);
    str_copy(name + 102, 6, ".lock");
    unlink(name);
    str_copy(name + 102, 6, ".side");
    unlink(name);
}

static void a_stale_socket_file_is_replaced(void **state)
{
    (void)state;
    close(listener_plain_socket("", 1));
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    listener_assert_accepts(&l);
}

static void the_socket_of_a_killed_instance_is_replaced(void **state)
{
    (void)state;
    int told[2];
    char byte = 0;
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct err e = ERR_INIT;
        struct listener l = LISTENER_INIT;
        alarm(60);
        if (listener_open(&l, listener_path, NULL, LISTENER_HANG_MS, &e) != 0 ||
            write(told[1], "y", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(told[1]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    close(told[0]);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    cleanup_listener struct listener l = LISTENER_INIT;
    listener_open_here(&l);
    assert_true(l.lock_fd >= 0);
    listener_assert_accepts(&l);
}

/* --- what is not ours --- */

static void a_foreign_listener_is_refused_and_left_alone(void **state)
{
    (void)state;
    cleanup_fd int foreign = listener_plain_socket("", 8);
    ino_t before = listener_stat("").st_ino;
    assert_refused(ERR_CONFLICT);
    assert_int_equal(listener_stat("").st_ino, before);
    cleanup_fd int client = listener_connect("");
    assert_true(client >= 0);
}

static void a_listener_with_a_full_backlog_is_still_live(void **state)
{
    (void)state;
    cleanup_fd int foreign = listener_plain_socket("", 0);
    cleanup_fd int client = listener_connect(""); /* fills a backlog of 0 */
    ino_t before = listener_stat("").st_ino;
    assert_true(client >= 0);
    assert_refused(ERR_CONFLICT);
    assert_int_equal(listener_stat("").st_ino, before);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
    (void)state;
    cleanup_fd int fd = open(listener_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "data", 4), 4);
    assert_refused(ERR_CONFLICT);
    assert_int_equal(listener_stat("").st_size, 4);
}

static void an_instance_that_hangs_keeps_its_socket(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    listener_open_here(&first);
    assert_refused(ERR_CONFLICT); /* nobody tends first */
    listener_assert_accepts(&first);
}

static void the_socket_is_handed_to_our_user_only(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    cleanup_listener struct listener first = LISTENER_INIT;
    listener_open_here(&first);
    char side[sizeof(listener_path) + 8];
    str_format(side, sizeof(side), "%s.side", listener_path);
    assert_int_equal(chmod(listener_dir, 0755), 0);
    assert_int_equal(chmod(side, 0666), 0);
    struct listener_tender t;
    listener_tend_start(&t, &first);
    pid_t pid = fork();
    if (pid == 0) {
        char byte = 0;
        alarm(60);
        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(2);
        int fd = listener_connect(".side");
        if (fd < 0)
            _exit(3);
        _exit(read(fd, &byte, 1) <= 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    listener_tend_stop(&t);
    assert_int_equal(status, 0);
}

/* --- several instances --- */

static void a_second_instance_accepts_from_the_same_backlog(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    struct listener_tender t;
    listener_open_here(&first);
    listener_tend_start(&t, &first);
    listener_open_here(&second);
    listener_tend_stop(&t);
    assert_true(first.lock_fd >= 0);
    assert_int_equal(second.lock_fd, -1);
    assert_int_equal(second.side_fd, -1);
    assert_int_equal(listener_inode(first.fd), listener_inode(second.fd));
    assert_int_equal(fcntl(second.fd, F_GETFD), FD_CLOEXEC);
    listener_assert_accepts(&first);
    listener_assert_accepts(&second);
    (void)listener_tend(&second); /* the lock is not free */
    assert_int_equal(second.lock_fd, -1);
}

static void the_lock_goes_on_to_the_instances_that_stay(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    cleanup_listener struct listener third = LISTENER_INIT;
    struct listener_tender t;
    listener_open_here(&first);
    listener_tend_start(&t, &first);
    listener_open_here(&second);
    listener_tend_stop(&t);
    listener_close(&first);
    listener_assert_accepts(&second); /* the file stayed */
    (void)listener_tend(&second);
    assert_true(second.lock_fd >= 0);
    assert_true(second.side_fd >= 0);
    assert_int_equal(listener_stat(".side").st_mode & 07777, 0600);
    listener_tend_start(&t, &second);
    listener_open_here(&third);
    listener_tend_stop(&t);
    assert_int_equal(listener_inode(third.fd), listener_inode(second.fd));
    listener_assert_accepts(&third);
}

/* A third one starts when the first has gone and the second does not know yet: it must not keep the lock
 * from the second. */
struct successor {
    struct listener *listener;
    atomic_bool done; /* the third one has what it asked for */
};

static void *take_over_main(void *arg)
{
    struct successor *s = arg;
    int64_t deadline_ns = clock_deadline(LISTENER_HANG_MS);
    while (!atomic_load(&s->done) && clock_mono_ns() < deadline_ns)
        (void)listener_tend(s->listener);
    return NULL;
}

static void a_start_between_two_lock_holders_waits_for_the_next(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    cleanup_listener struct listener third = LISTENER_INIT;
    struct listener_tender t;
    pthread_t thread;
    listener_open_here(&first);
    listener_tend_start(&t, &first);
    listener_open_here(&second);
    listener_tend_stop(&t);
    listener_close(&first);
    struct successor successor = { .listener = &second };
    assert_int_equal(pthread_create(&thread, NULL, take_over_main, &successor), 0);
    listener_open_here(&third);
    atomic_store(&successor.done, true);
    pthread_join(thread, NULL);
    assert_true(second.lock_fd >= 0);
    assert_int_equal(listener_inode(third.fd), listener_inode(second.fd));
}

/* Workers whose supervisor was killed leave within a moment; a start meanwhile waits for that. This one
 * leaves when the new instance has looked whether somebody listens. */
static void workers_of_a_killed_supervisor_are_waited_for(void **state)
{
    (void)state;
    struct listener first = LISTENER_INIT;
    listener_open_here(&first);
    ino_t before = listener_inode(first.fd);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        close(first.lock_fd);
        close(first.side_fd);
        _exit(wait_fd(first.fd, POLLIN, clock_deadline(LISTENER_HANG_MS)) == 1 ? 0 : 1);
    }
    listener_close(&first);
    cleanup_listener struct listener next = LISTENER_INIT;
    listener_open_here(&next);
    assert_true(next.lock_fd >= 0);
    assert_true(listener_inode(next.fd) != before);
    listener_assert_accepts(&next);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* In a child: opens when told to go, tells its socket, serves until told to end. */
static void start_and_tell(int go, int told)
{
    char byte = 0;
    struct err e = ERR_INIT;
    struct listener l = LISTENER_INIT;
    alarm(60);
    if (read(go, &byte, 1) != 1 ||
        listener_open(&l, listener_path, NULL, LISTENER_HANG_MS, &e) != 0)
        _exit(1);
    ino_t ino = listener_inode(l.fd);
    if (write(told, &ino, sizeof(ino)) != (ssize_t)sizeof(ino))
        _exit(1);
    for (;;) {
        struct pollfd fds[2] = { { .fd = l.side_fd, .events = POLLIN },
            { .fd = go, .events = POLLIN } };
        poll(fds, 2, -1);
        if (fds[1].revents != 0)
            _exit(0);
        (void)listener_tend(&l);
    }
}

static void start_at_once(bool stale)
{
    int go[STARTERS][2];
    int told[2];
    pid_t pids[STARTERS];
    if (stale) {
        unlink(listener_path);
        close(listener_plain_socket("", 1));
    }
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    for (int i = 0; i < STARTERS; i++) {
        assert_int_equal(pipe2(go[i], O_CLOEXEC), 0);
        pids[i] = fork();
        if (pids[i] == 0) {
            for (int j = 0; j <= i; j++)
                close(go[j][1]);
            start_and_tell(go[i][0], told[1]);
        }
        close(go[i][0]);
    }
    close(told[1]);
    for (int i = 0; i < STARTERS; i++)
        assert_int_equal(write(go[i][1], "g", 1), 1);
    ino_t first = 0;
    for (int i = 0; i < STARTERS; i++) {
        ino_t ino = 0;
        assert_int_equal(read(told[0], &ino, sizeof(ino)), sizeof(ino));
        if (i == 0)
            first = ino;
        assert_int_equal(ino, first);
    }
    close(told[0]);
    for (int i = 0; i < STARTERS; i++)
        close(go[i][1]);
    for (int i = 0; i < STARTERS; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void instances_that_start_at_once_share_one_socket(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++)
        start_at_once(i % 2 == 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, listener_place_setup, listener_place_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(socket_has_mode_0660_whatever_the_umask),
        TEST(descriptors_are_not_inherited),
        TEST(group_is_set_and_an_unknown_one_refused),
        TEST(a_path_must_leave_room_for_its_companions),
        TEST(a_stale_socket_file_is_replaced),
        TEST(the_socket_of_a_killed_instance_is_replaced),
        TEST(a_foreign_listener_is_refused_and_left_alone),
        TEST(a_listener_with_a_full_backlog_is_still_live),
        TEST(a_file_that_is_no_socket_is_left_alone),
        TEST(an_instance_that_hangs_keeps_its_socket),
        TEST(the_socket_is_handed_to_our_user_only),
        TEST(a_second_instance_accepts_from_the_same_backlog),
        TEST(the_lock_goes_on_to_the_instances_that_stay),
        TEST(a_start_between_two_lock_holders_waits_for_the_next),
        TEST(workers_of_a_killed_supervisor_are_waited_for),
        TEST(instances_that_start_at_once_share_one_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
