/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/listener_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/log.h"
#include "base/str.h"
#include "base/wait.h"
#include "fcgi/fd_pass.h"

enum { BACKLOG = 1024 };

static const gid_t GROUP_KEEP = (gid_t)-1;

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

bool listener_file_at(const char *path, const char *suffix, struct listener_file *out)
{
    struct sockaddr_un name = address(path, suffix);
    struct stat st;
    if (lstat(name.sun_path, &st) != 0)
        return false;
    *out = (struct listener_file){ .dev = st.st_dev, .ino = st.st_ino };
    return true;
}

bool listener_file_is(const char *path, const char *suffix, const struct listener_file *file)
{
    struct listener_file there = { .ino = 0 };
    return listener_file_at(path, suffix, &there) && there.dev == file->dev &&
           there.ino == file->ino;
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

enum place place_of(const char *path)
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

int listener_lock(const char *path, int *out, struct err *e)
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

int listener_bind_side(const char *path, int *out, struct listener_file *file, struct err *e)
{
    struct sockaddr_un aside = address(path, ".new");
    struct sockaddr_un side = address(path, ".side");
    cleanup_fd int fd = -1;
    if (listen_aside(&aside, 0600, GROUP_KEEP, &fd, e) != 0)
        return -1;
    if (!listener_file_at(path, ".new", file) || rename(aside.sun_path, side.sun_path) != 0)
        return err_errno(e, ERR_INTERNAL, "rename to %s", side.sun_path);
    *out = STEAL_FD(fd);
    return 0;
}

int listener_bind(const char *path, enum place place, gid_t group, int *out,
    struct listener_file *file, struct err *e)
{
    struct sockaddr_un aside = address(path, ".new");
    struct listener_file made = { .ino = 0 };
    cleanup_fd int fd = -1;
    if (listen_aside(&aside, 0660, group, &fd, e) != 0)
        return -1;
    /* A free name is taken by link(), which never replaces; a stale one by rename(), which does so
     * without a moment in between. */
    int rc = !listener_file_at(path, ".new", &made) ? -1
             : place == PLACE_FREE                  ? link(aside.sun_path, path)
                                                    : rename(aside.sun_path, path);
    if (rc != 0)
        rc = errno == EEXIST ? 1 : err_errno(e, ERR_INTERNAL, "move socket to %s", path);
    if (place == PLACE_FREE || rc != 0)
        unlink(aside.sun_path);
    if (rc != 0)
        return rc;
    *file = made;
    *out = STEAL_FD(fd);
    return 0;
}

bool listener_is_listening(int fd)
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

static bool is_one_of_us(int fd)
{
    struct ucred peer = { .pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1 };
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

int listener_ask(const char *path, int64_t deadline_ns, int *out, struct listener_file *file)
{
    struct listener_file told = { .ino = 0 };
    cleanup_fd int side = new_socket();
    struct sockaddr_un a = address(path, ".side");
    if (side < 0 || connect_to(side, &a) != 0 || !is_one_of_us(side))
        return 1;
    if (wait_fd(side, POLLIN, deadline_ns) != 1)
        return 1;
    cleanup_fd int fd = -1;
    ssize_t n = fd_receive(side, &told, sizeof(told), &fd);
    if (n != (ssize_t)sizeof(told) || fd < 0 || !listener_is_listening(fd))
        return 1;
    *file = told;
    *out = STEAL_FD(fd);
    return 0;
}

void listener_hand_over(int peer, int fd, const struct listener_file *file)
{
    if (is_one_of_us(peer) && fd_send(peer, file, sizeof(*file), fd) != 0)
        log_warn(LOG_MSG("listening socket could not be handed over"), LOG_I("errno", errno));
}

/* "" when the path has no folder. */
static void folder_of(const char *path, char out[sizeof(((struct listener *)0)->path)])
{
    const char *slash = strrchr(path, '/');
    const size_t size = slash == NULL ? 0 : (size_t)(slash - path);
    memcpy(out, path, size);
    out[size] = '\0';
}

void listener_note_folder(struct listener *l)
{
    struct stat st;
    char folder[sizeof(l->path)];
    folder_of(l->path, folder);
    if (folder[0] == '\0' || stat(folder, &st) != 0)
        return;
    l->folder_mode = st.st_mode & 07777;
    l->folder_group = st.st_gid;
}

int listener_make_folder(const struct listener *l, struct err *e)
{
    char folder[sizeof(l->path)];
    folder_of(l->path, folder);
    if (l->folder_mode == 0 || folder[0] == '\0')
        return 0;
    if (mkdir(folder, 0700) != 0)
        return errno == EEXIST ? 0 : err_errno(e, ERR_INTERNAL, "make folder %s", folder);
    if (chown(folder, (uid_t)-1, l->folder_group) != 0 || chmod(folder, l->folder_mode) != 0)
        return err_errno(e, ERR_INTERNAL, "set the rights of %s", folder);
    return 0;
}
