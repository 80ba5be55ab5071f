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
#include "fcgi/listener.h"

enum { HANG_MS = 20000, REFUSE_MS = 60, STARTERS = 6, ROUNDS = 5, NOBODY = 65534 };

static char dir[64];
static char path[sizeof(dir) + 16];

static int setup(void **state)
{
    (void)state;
    str_copy(dir, sizeof(dir), "/tmp/wb-listener-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    return str_format(path, sizeof(path), "%s/sock", dir);
}

static int teardown(void **state)
{
    static const char *const SUFFIXES[] = { "", ".lock", ".side", ".new" };
    (void)state;
    for (size_t i = 0; i < sizeof(SUFFIXES) / sizeof(SUFFIXES[0]); i++) {
        char name[sizeof(path) + 8];
        str_format(name, sizeof(name), "%s%s", path, SUFFIXES[i]);
        unlink(name);
    }
    return rmdir(dir); /* also: nothing else was left there */
}

static void open_here(struct listener *l)
{
    struct err e = ERR_INIT;
    int rc = listener_open(l, path, NULL, HANG_MS, &e);
    if (rc != 0)
        fail_msg("%s", e.msg);
}

static void assert_refused(enum err_code code)
{
    struct err e = ERR_INIT;
    cleanup_listener struct listener l = LISTENER_INIT;
    assert_int_equal(listener_open(&l, path, NULL, REFUSE_MS, &e), -1);
    assert_int_equal(e.code, code);
    assert_non_null(strstr(e.msg, path));
    assert_int_equal(l.fd, -1);
}

static struct stat stat_of(const char *suffix)
{
    char name[sizeof(path) + 8];
    struct stat st;
    str_format(name, sizeof(name), "%s%s", path, suffix);
    assert_int_equal(lstat(name, &st), 0);
    return st;
}

static ino_t inode(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static int connect_name(const char *suffix)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    str_format(a.sun_path, sizeof(a.sun_path), "%s%s", path, suffix);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A client connects and l accepts it. */
static void assert_accepts(const struct listener *l)
{
    cleanup_fd int client = connect_name("");
    assert_true(client >= 0);
    assert_int_equal(wait_fd(l->fd, POLLIN, clock_deadline(HANG_MS)), 1);
    cleanup_fd int server = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(server >= 0);
}

static int plain_socket(const char *suffix, int backlog)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    str_format(a.sun_path, sizeof(a.sun_path), "%s%s", path, suffix);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    if (backlog >= 0)
        assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

/* Tends a listener from a thread, as the supervisor's loop does. */
struct tender {
    struct listener *l;
    int stop[2];
    pthread_t thread;
};

static void *tend_main(void *arg)
{
    struct tender *t = arg;
    for (;;) {
        struct pollfd fds[2] = { { .fd = t->l->side_fd, .events = POLLIN },
            { .fd = t->stop[0], .events = POLLIN } };
        poll(fds, 2, -1);
        if (fds[1].revents != 0)
            return NULL;
        listener_tend(t->l);
    }
}

static void tend_start(struct tender *t, struct listener *l)
{
    t->l = l;
    assert_int_equal(pipe2(t->stop, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&t->thread, NULL, tend_main, t), 0);
}

static void tend_stop(struct tender *t)
{
    close(t->stop[1]);
    pthread_join(t->thread, NULL);
    close(t->stop[0]);
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
        int rc = listener_open(&l, path, NULL, HANG_MS, &e);
        umask(old);
        assert_int_equal(rc, 0);
        assert_int_equal(stat_of("").st_mode & 07777, 0660);
        assert_int_equal(stat_of(".side").st_mode & 07777, 0600);
        assert_accepts(&l);
    }
}

static void descriptors_are_not_inherited(void **state)
{
    (void)state;
    cleanup_listener struct listener l = LISTENER_INIT;
    open_here(&l);
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
    assert_int_equal(listener_open(&l, path, "no-such-group-here", HANG_MS, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    if (!group)
        skip();
    gid_t gid = group->gr_gid;
    assert_int_equal(listener_open(&l, path, group->gr_name, HANG_MS, &e), 0);
    assert_int_equal(stat_of("").st_gid, gid);
    assert_int_equal(stat_of("").st_mode & 07777, 0660);
}

static void a_path_must_leave_room_for_its_companions(void **state)
{
    (void)state;
    char name[128];
    struct err e = ERR_INIT;
    cleanup_listener struct listener l = LISTENER_INIT;
    memset(name, 'x', sizeof(name));
    memcpy(name, dir, strlen(dir));
    name[strlen(dir)] = '/';
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
    close(plain_socket("", 1));
    cleanup_listener struct listener l = LISTENER_INIT;
    open_here(&l);
    assert_accepts(&l);
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
        if (listener_open(&l, path, NULL, HANG_MS, &e) != 0 || write(told[1], "y", 1) != 1)
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
    open_here(&l);
    assert_true(l.lock_fd >= 0);
    assert_accepts(&l);
}

/* --- what is not ours --- */

static void a_foreign_listener_is_refused_and_left_alone(void **state)
{
    (void)state;
    cleanup_fd int foreign = plain_socket("", 8);
    ino_t before = stat_of("").st_ino;
    assert_refused(ERR_CONFLICT);
    assert_int_equal(stat_of("").st_ino, before);
    cleanup_fd int client = connect_name("");
    assert_true(client >= 0);
}

static void a_listener_with_a_full_backlog_is_still_live(void **state)
{
    (void)state;
    cleanup_fd int foreign = plain_socket("", 0);
    cleanup_fd int client = connect_name(""); /* fills a backlog of 0 */
    ino_t before = stat_of("").st_ino;
    assert_true(client >= 0);
    assert_refused(ERR_CONFLICT);
    assert_int_equal(stat_of("").st_ino, before);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
    (void)state;
    cleanup_fd int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "data", 4), 4);
    assert_refused(ERR_CONFLICT);
    assert_int_equal(stat_of("").st_size, 4);
}

static void an_instance_that_hangs_keeps_its_socket(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    open_here(&first);
    assert_refused(ERR_CONFLICT); /* nobody tends first */
    assert_accepts(&first);
}

static void the_socket_is_handed_to_our_user_only(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    cleanup_listener struct listener first = LISTENER_INIT;
    open_here(&first);
    char side[sizeof(path) + 8];
    str_format(side, sizeof(side), "%s.side", path);
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(chmod(side, 0666), 0);
    struct tender t;
    tend_start(&t, &first);
    pid_t pid = fork();
    if (pid == 0) {
        char byte = 0;
        alarm(60);
        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(2);
        int fd = connect_name(".side");
        if (fd < 0)
            _exit(3);
        _exit(read(fd, &byte, 1) <= 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    tend_stop(&t);
    assert_int_equal(status, 0);
}

/* --- several instances --- */

static void a_second_instance_accepts_from_the_same_backlog(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    struct tender t;
    open_here(&first);
    tend_start(&t, &first);
    open_here(&second);
    tend_stop(&t);
    assert_true(first.lock_fd >= 0);
    assert_int_equal(second.lock_fd, -1);
    assert_int_equal(second.side_fd, -1);
    assert_int_equal(inode(first.fd), inode(second.fd));
    assert_int_equal(fcntl(second.fd, F_GETFD), FD_CLOEXEC);
    assert_accepts(&first);
    assert_accepts(&second);
    listener_tend(&second); /* the lock is not free */
    assert_int_equal(second.lock_fd, -1);
}

static void the_lock_goes_on_to_the_instances_that_stay(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    cleanup_listener struct listener third = LISTENER_INIT;
    struct tender t;
    open_here(&first);
    tend_start(&t, &first);
    open_here(&second);
    tend_stop(&t);
    listener_close(&first);
    assert_accepts(&second); /* the file stayed */
    listener_tend(&second);
    assert_true(second.lock_fd >= 0);
    assert_true(second.side_fd >= 0);
    assert_int_equal(stat_of(".side").st_mode & 07777, 0600);
    tend_start(&t, &second);
    open_here(&third);
    tend_stop(&t);
    assert_int_equal(inode(third.fd), inode(second.fd));
    assert_accepts(&third);
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
    int64_t deadline_ns = clock_deadline(HANG_MS);
    while (!atomic_load(&s->done) && clock_mono_ns() < deadline_ns)
        listener_tend(s->listener);
    return NULL;
}

static void a_start_between_two_lock_holders_waits_for_the_next(void **state)
{
    (void)state;
    cleanup_listener struct listener first = LISTENER_INIT;
    cleanup_listener struct listener second = LISTENER_INIT;
    cleanup_listener struct listener third = LISTENER_INIT;
    struct tender t;
    pthread_t thread;
    open_here(&first);
    tend_start(&t, &first);
    open_here(&second);
    tend_stop(&t);
    listener_close(&first);
    struct successor successor = { .listener = &second };
    assert_int_equal(pthread_create(&thread, NULL, take_over_main, &successor), 0);
    open_here(&third);
    atomic_store(&successor.done, true);
    pthread_join(thread, NULL);
    assert_true(second.lock_fd >= 0);
    assert_int_equal(inode(third.fd), inode(second.fd));
}

/* Workers whose supervisor was killed leave within a moment; a start meanwhile waits for that. This one
 * leaves when the new instance has looked whether somebody listens. */
static void workers_of_a_killed_supervisor_are_waited_for(void **state)
{
    (void)state;
    struct listener first = LISTENER_INIT;
    open_here(&first);
    ino_t before = inode(first.fd);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        close(first.lock_fd);
        close(first.side_fd);
        _exit(wait_fd(first.fd, POLLIN, clock_deadline(HANG_MS)) == 1 ? 0 : 1);
    }
    listener_close(&first);
    cleanup_listener struct listener next = LISTENER_INIT;
    open_here(&next);
    assert_true(next.lock_fd >= 0);
    assert_true(inode(next.fd) != before);
    assert_accepts(&next);
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
    if (read(go, &byte, 1) != 1 || listener_open(&l, path, NULL, HANG_MS, &e) != 0)
        _exit(1);
    ino_t ino = inode(l.fd);
    if (write(told, &ino, sizeof(ino)) != (ssize_t)sizeof(ino))
        _exit(1);
    for (;;) {
        struct pollfd fds[2] = { { .fd = l.side_fd, .events = POLLIN },
            { .fd = go, .events = POLLIN } };
        poll(fds, 2, -1);
        if (fds[1].revents != 0)
            _exit(0);
        listener_tend(&l);
    }
}

static void start_at_once(bool stale)
{
    int go[STARTERS][2];
    int told[2];
    pid_t pids[STARTERS];
    if (stale) {
        unlink(path);
        close(plain_socket("", 1));
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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
