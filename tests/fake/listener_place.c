/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/listener_place.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/wait.h"

enum { NAME_SIZE = sizeof(listener_path) + 8 };

char listener_dir[64];
char listener_folder[80];
char listener_path[96];

static void name_of(const char *suffix, char out[NAME_SIZE])
{
    assert_int_equal(str_format(out, NAME_SIZE, "%s%s", listener_path, suffix), 0);
}

int listener_place_setup(void **state)
{
    (void)state;
    str_copy(listener_dir, sizeof(listener_dir), "/tmp/wb-listener-XXXXXX");
    if (!mkdtemp(listener_dir) ||
        str_format(listener_folder, sizeof(listener_folder), "%s/run", listener_dir) != 0 ||
        str_format(listener_path, sizeof(listener_path), "%s/sock", listener_folder) != 0)
        return -1;
    return mkdir(listener_folder, 0755);
}

void listener_place_clear(void)
{
    static const char *const SUFFIXES[] = { "", ".lock", ".side", ".new" };
    for (size_t i = 0; i < sizeof(SUFFIXES) / sizeof(SUFFIXES[0]); i++) {
        char name[NAME_SIZE];
        name_of(SUFFIXES[i], name);
        unlink(name);
    }
}

int listener_place_teardown(void **state)
{
    (void)state;
    listener_place_clear();
    int rc = rmdir(listener_folder); /* also: nothing else was left there */
    return rmdir(listener_dir) == 0 ? rc : -1;
}

void listener_open_here(struct listener *l)
{
    struct err e = ERR_INIT;
    int rc = listener_open(l, listener_path, NULL, LISTENER_HANG_MS, &e);
    if (rc != 0)
        fail_msg("%s", e.msg);
}

struct stat listener_stat(const char *suffix)
{
    char name[NAME_SIZE];
    struct stat st;
    name_of(suffix, name);
    assert_int_equal(lstat(name, &st), 0);
    return st;
}

ino_t listener_inode(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static struct sockaddr_un address_of(const char *suffix)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    assert_int_equal(str_format(a.sun_path, sizeof(a.sun_path), "%s%s", listener_path, suffix), 0);
    return a;
}

int listener_connect(const char *suffix)
{
    struct sockaddr_un a = address_of(suffix);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void listener_assert_accepts(const struct listener *l)
{
    cleanup_fd int client = listener_connect("");
    assert_true(client >= 0);
    assert_int_equal(wait_fd(l->fd, POLLIN, clock_deadline(LISTENER_HANG_MS)), 1);
    cleanup_fd int server = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(server >= 0);
}

int listener_plain_socket(const char *suffix, int backlog)
{
    struct sockaddr_un a = address_of(suffix);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    if (backlog >= 0)
        assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static void *tend_main(void *arg)
{
    struct listener_tender *t = arg;
    for (;;) {
        struct pollfd fds[2] = { { .fd = t->l->side_fd, .events = POLLIN },
            { .fd = t->stop[0], .events = POLLIN } };
        poll(fds, 2, -1);
        if (fds[1].revents != 0)
            return NULL;
        (void)listener_tend(t->l);
    }
}

void listener_tend_start(struct listener_tender *t, struct listener *l)
{
    t->l = l;
    assert_int_equal(pipe2(t->stop, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&t->thread, NULL, tend_main, t), 0);
}

void listener_tend_stop(struct listener_tender *t)
{
    close(t->stop[1]);
    pthread_join(t->thread, NULL);
    close(t->stop[0]);
}
