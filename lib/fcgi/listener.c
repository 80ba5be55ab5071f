/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"

enum {
    BACKLOG = 1024,
    RETRY_MS = 25,
    GROUP_BUF_MAX = 1 << 20,
    SUFFIX_LEN = 5,
    FIRST_PASSED_FD = 3
};

static const gid_t GROUP_KEEP = (gid_t)-1;

/* What lies at the socket's path. */
enum place { PLACE_FREE, PLACE_STALE, PLACE_LIVE, PLACE_FOREIGN };

static int find_group(const char *name, gid_t *out, struct err *e)
{
    for (size_t size = 1024; size <= GROUP_BUF_MAX; size *= 4) {
        cleanup_free char *buf = mem_alloc(size);
        struct group group;
        struct group *found = NULL;
        int rc = getgrnam_r(name, &group, buf, size, &found);
        if (rc == ERANGE)
            continue;
        if (!found)
            break;
        *out = found->gr_gid;
        return 0;
    }
    return err_set(e, ERR_INVALID, "no group %s", name);
}

/* path + suffix as a socket address. Lengths were checked by listener_open(). */
static struct sockaddr_un address(const char *path, const char *suffix)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    if (str_format(a.sun_path, sizeof(a.sun_path), "%s%s", path, suffix) != 0)
        a.sun_path[0] = '\0';
    return a;
}

static int new_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int connect_to(int fd, const struct sockaddr_un *a)
{
    return connect(fd, (const struct sockaddr *)a, sizeof(*a));
}

/* A new listening socket, complete with mode and group, under a name nobody connects to; the caller
 * moves it to its place. So there is no moment at which it can be reached with another mode. Only the
 * holder of the lock does this, so one fixed name is enough. */
static int listen_aside(
    const struct sockaddr_un *aside, mode_t mode, gid_t group, int *out, struct err *e)
{
    cleanup_fd int fd = new_socket();
    if (fd < 0)
        return err_errno(e, ERR_INTERNAL, "socket");
    if (unlink(aside->sun_path) != 0 && errno != ENOENT)
        return err_errno(e, ERR_INTERNAL, "unlink %s", aside->sun_path);
    if (bind(fd, (const struct sockaddr *)aside, sizeof(*aside)) != 0)
        return err_errno(e, ERR_INTERNAL, "bind %s", aside->sun_path);
    if (group != GROUP_KEEP && chown(aside->sun_path, (uid_t)-1, group) != 0)
        return err_errno(e, ERR_INTERNAL, "chgrp %s", aside->sun_path);
    if (chmod(aside->sun_path, mode) != 0)
        return err_errno(e, ERR_INTERNAL, "chmod %s", aside->sun_path);
    if (listen(fd, BACKLOG) != 0)
        return err_errno(e, ERR_INTERNAL, "listen on %s", aside->sun_path);
    *out = STEAL_FD(fd);
    return 0;
}

static enum place look_at(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? PLACE_FREE : PLACE_FOREIGN;
    if (!S_ISSOCK(st.st_mode))
        return PLACE_FOREIGN;
    cleanup_fd int fd = new_socket();
    struct sockaddr_un a = address(path, "");
    if (fd >= 0 && connect_to(fd, &a) != 0) {
        if (errno == ECONNREFUSED)
            return PLACE_STALE;
        if (errno == ENOENT)
            return PLACE_FREE;
    }
    return PLACE_LIVE; /* also with a full backlog, or when we may not connect */
}

static int try_lock(const char *path, int *out, struct err *e)
{
    struct sockaddr_un name = address(path, ".lock");
    cleanup_fd int fd = open(name.sun_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(e, ERR_INTERNAL, "open %s", name.sun_path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK || errno == EINTR)
            return 1;
        return err_errno(e, ERR_INTERNAL, "lock %s", name.sun_path);
    }
    *out = STEAL_FD(fd);
    return 0;
}

static int open_side(const char *path, int *out, struct err *e)
{
    struct sockaddr_un aside = address(path, ".new");
    struct sockaddr_un side = address(path, ".side");
    cleanup_fd int fd = -1;
    if (listen_aside(&aside, 0600, GROUP_KEEP, &fd, e) != 0)
        return -1;
    if (rename(aside.sun_path, side.sun_path) != 0)
        return err_errno(e, ERR_INTERNAL, "rename to %s", side.sun_path);
    *out = STEAL_FD(fd);
    return 0;
}

/* 1: something appeared at the path meanwhile. */
static int bind_here(const char *path, enum place place, gid_t group, int *out, struct err *e)
{
    struct sockaddr_un aside = address(path, ".new");
    cleanup_fd int fd = -1;
    if (listen_aside(&aside, 0660, group, &fd, e) != 0)
        return -1;
    /* A free name is taken by link(), which never replaces; a stale one by rename(), which does so
     * without a moment in between. */
    int rc = place == PLACE_FREE ? link(aside.sun_path, path) : rename(aside.sun_path, path);
    if (rc != 0)
        rc = errno == EEXIST ? 1 : err_errno(e, ERR_INTERNAL, "move socket to %s", path);
    if (place == PLACE_FREE || rc != 0)
        unlink(aside.sun_path);
    if (rc != 0)
        return rc;
    *out = STEAL_FD(fd);
    return 0;
}

static bool is_listening(int fd)
{
    int domain = 0;
    int accepting = 0;
    socklen_t size = sizeof(domain);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0)
        return false;
    size = sizeof(accepting);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &size) != 0)
        return false;
    return domain == AF_UNIX && accepting != 0;
}

/* The descriptor that came with the byte on fd, or -1. */
static int receive_fd(int fd)
{
    char byte = 0;
    struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes) };
    if (recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) <= 0)
        return -1;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    int got = -1;
    memcpy(&got, CMSG_DATA(c), sizeof(got));
    return got;
}

static void send_fd(int to, int fd)
{
    char byte = 'L';
    struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    if (sendmsg(to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
        log_warn(LOG_MSG("listening socket could not be handed over"), LOG_I("errno", errno));
}

static bool is_one_of_us(int fd)
{
    struct ucred peer = { .pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1 };
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* Asks the instance that holds the lock. 0, or 1 when nobody answers (yet). */
static int ask_side(const char *path, int64_t deadline_ns, int *out)
{
    cleanup_fd int side = new_socket();
    struct sockaddr_un a = address(path, ".side");
    if (side < 0 || connect_to(side, &a) != 0 || !is_one_of_us(side))
        return 1;
    if (wait_fd(side, POLLIN, deadline_ns) != 1)
        return 1;
    cleanup_fd int fd = receive_fd(side);
    if (fd < 0 || !is_listening(fd))
        return 1;
    *out = STEAL_FD(fd);
    return 0;
}

/* One attempt: bind it if nobody has it, else get it from who has it. 1: not yet. */
static int open_once(struct listener *l, gid_t group, int64_t deadline_ns, struct err *e)
{
    cleanup_fd int lock = -1;
    if (try_lock(l->path, &lock, e) < 0)
        return -1;
    if (lock >= 0) {
        enum place place = look_at(l->path);
        if (place == PLACE_FOREIGN)
            return err_set(e, ERR_CONFLICT, "%s is there and is not a socket", l->path);
        if (place == PLACE_FREE || place == PLACE_STALE) {
            cleanup_fd int fd = -1;
            cleanup_fd int side = -1;
            int rc = bind_here(l->path, place, group, &fd, e);
            if (rc == 0)
                rc = open_side(l->path, &side, e);
            if (rc != 0)
                return rc;
            l->fd = STEAL_FD(fd);
            l->side_fd = STEAL_FD(side);
            l->lock_fd = STEAL_FD(lock);
            return 0;
        }
        /* Somebody listens who does not hold the lock: workers whose supervisor was killed and that
         * are about to leave, or an instance that is about to take the lock over. Let it. */
        close(STEAL_FD(lock));
    }
    return ask_side(l->path, deadline_ns, &l->fd);
}

int listener_open(
    struct listener *l, const char *path, const char *group, int64_t timeout_ms, struct err *e)
{
    struct listener new = LISTENER_INIT;
    gid_t gid = GROUP_KEEP;
    if (str_empty(path) || strlen(path) + SUFFIX_LEN >= sizeof(new.path) ||
        str_copy(new.path, sizeof(new.path), path) != 0)
        return err_set(e, ERR_INVALID, "socket path must have 1 to %zu bytes",
            sizeof(new.path) - SUFFIX_LEN - 1);
    if (!str_empty(group) && find_group(group, &gid, e) != 0)
        return -1;
    int64_t deadline_ns = clock_deadline(timeout_ms);
    for (;;) {
        int rc = open_once(&new, gid, deadline_ns, e);
        if (rc < 0)
            return -1;
        if (rc == 0)
            break;
        int left_ms = clock_left_ms(deadline_ns);
        if (left_ms == 0)
            return err_set(e, ERR_CONFLICT,
                "somebody else listens on %s and does not hand the socket over", path);
        poll(NULL, 0, left_ms < RETRY_MS ? left_ms : RETRY_MS);
    }
    *l = new;
    return 0;
}

/* Whether LISTEN_FDS is meant for this process, and how many they are. */
static bool passed(int64_t *n)
{
    const char *pid_text = getenv("LISTEN_PID");
    const char *n_text = getenv("LISTEN_FDS");
    int64_t pid = 0;
    return pid_text != NULL && n_text != NULL && str_to_i64(pid_text, 1, INT32_MAX, &pid) == 0 &&
           pid == getpid() && str_to_i64(n_text, 1, INT32_MAX, n) == 0;
}

/* Its name is where the side socket goes. Without one (abstract) there will be none. */
static void name_it(struct listener *l)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    socklen_t size = sizeof(a);
    if (getsockname(l->fd, (struct sockaddr *)&a, &size) == 0 && size <= sizeof(a) &&
        memchr(a.sun_path, '\0', sizeof(a.sun_path) - SUFFIX_LEN) != NULL)
        (void)str_copy(l->path, sizeof(l->path), a.sun_path);
}

int listener_given(struct listener *l, struct err *e)
{
    int64_t n = 0;
    bool ours = passed(&n);
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    if (!ours)
        return 1;
    if (n != 1 || !is_listening(FIRST_PASSED_FD))
        return err_set(e, ERR_INVALID,
            "systemd must pass one listening unix socket (ListenStream=/path, Accept=no)");
    (void)fcntl(FIRST_PASSED_FD, F_SETFD, FD_CLOEXEC);
    *l = (struct listener)LISTENER_INIT;
    l->fd = FIRST_PASSED_FD;
    name_it(l);
    return 0;
}

static void take_over(struct listener *l)
{
    struct err e = ERR_INIT;
    cleanup_fd int lock = -1;
    int rc = try_lock(l->path, &lock, &e);
    if (rc == 0)
        rc = open_side(l->path, &l->side_fd, &e);
    if (rc == 0) {
        l->lock_fd = STEAL_FD(lock);
        log_info(LOG_MSG("took over the listening socket"), LOG_S("path", l->path));
    } else if (rc < 0) {
        log_warn(LOG_MSG("cannot take over the listening socket"), LOG_S("error", e.msg));
    }
}

void listener_tend(struct listener *l)
{
    if (l->fd < 0 || l->path[0] == '\0')
        return;
    if (l->lock_fd < 0)
        take_over(l);
    while (l->side_fd >= 0) {
        cleanup_fd int peer = accept4(l->side_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (peer < 0)
            return;
        if (is_one_of_us(peer))
            send_fd(peer, l->fd);
    }
}

void listener_close(struct listener *l)
{
    const int fds[] = { l->fd, l->side_fd, l->lock_fd };
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    *l = (struct listener)LISTENER_INIT;
}
