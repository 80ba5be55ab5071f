/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "fcgi/listener_file.h"

enum { ASK_MS = 100 };

/* Whether the lock that we hold is still the one that others ask for. */
static bool lock_counts(const struct listener *l)
{
    struct stat st;
    if (fstat(l->lock_fd, &st) != 0)
        return false;
    const struct listener_file file = { .dev = st.st_dev, .ino = st.st_ino };
    return listener_file_is(l->path, ".lock", &file);
}

static void let_go(struct listener *l)
{
    close(STEAL_FD(l->lock_fd));
    if (l->side_fd >= 0)
        close(STEAL_FD(l->side_fd));
}

/* With the lock comes the side socket. 1: somebody else has it. */
static int take_lock(struct listener *l, struct err *e)
{
    cleanup_fd int lock = -1;
    if (listener_make_folder(l, e) != 0)
        return -1;
    int rc = listener_lock(l->path, &lock, e);
    if (rc == 0)
        rc = listener_bind_side(l->path, &l->side_fd, &l->side_file, e);
    if (rc == 0)
        l->lock_fd = STEAL_FD(lock);
    return rc;
}

static void change(struct listener *l, int fd, const struct listener_file *file)
{
    close(l->fd);
    l->fd = fd;
    l->file = *file;
}

/* The lock is held and the file at the path is not ours: a new socket. 1: something appeared there meanwhile. */
static int bind_again(struct listener *l, struct err *e)
{
    struct listener_file file = { .ino = 0 };
    int fd = -1;
    enum place place = place_of(l->path);
    if (l->given)
        return err_set(e, ERR_CONFLICT,
            "the socket %s was removed: restart the .socket unit, which holds it", l->path);
    if (place == PLACE_FOREIGN)
        return err_set(
            e, ERR_CONFLICT, "%s is there and is not a socket: nobody can connect", l->path);
    if (place == PLACE_LIVE)
        return err_set(
            e, ERR_CONFLICT, "somebody else listens on %s: nobody can connect to us", l->path);
    int rc = listener_bind(l->path, place, l->group, &fd, &file, e);
    if (rc != 0)
        return rc;
    change(l, fd, &file);
    log_warn(LOG_MSG("the socket's file was gone: listening on a new one"), LOG_S("path", l->path));
    return 0;
}

/* Another instance has the lock: the one who makes the socket again if need be. */
static bool follow(struct listener *l)
{
    struct listener_file file = { .ino = 0 };
    cleanup_fd int fd = -1;
    if (listener_ask(l->path, clock_deadline(ASK_MS), &fd, &file) != 0 ||
        (file.dev == l->file.dev && file.ino == l->file.ino))
        return false;
    change(l, STEAL_FD(fd), &file);
    log_info(LOG_MSG("got the new listening socket"), LOG_S("path", l->path));
    return true;
}

static bool keep_files(struct listener *l, struct err *e)
{
    const bool had_lock = l->lock_fd >= 0;
    if (had_lock && !lock_counts(l))
        let_go(l);
    if (l->lock_fd < 0 && take_lock(l, e) == 0 && !had_lock)
        log_info(LOG_MSG("took over the listening socket"), LOG_S("path", l->path));
    if (l->lock_fd >= 0 && !listener_file_is(l->path, ".side", &l->side_file)) {
        let_go(l);
        (void)!take_lock(l, e);
    }
    if (listener_file_is(l->path, "", &l->file))
        return false;
    return l->lock_fd >= 0 ? bind_again(l, e) == 0 : follow(l);
}

static void serve_side(const struct listener *l)
{
    while (l->side_fd >= 0) {
        cleanup_fd int peer = accept4(l->side_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (peer < 0)
            return;
        listener_hand_over(peer, l->fd, &l->file);
    }
}

bool listener_tend(struct listener *l)
{
    struct err e = ERR_INIT;
    if (l->fd < 0 || l->path[0] == '\0')
        return false;
    bool changed = keep_files(l, &e);
    if (err_is_news(&l->trouble, &e) && e.code != ERR_OK)
        log_warn(LOG_MSG("the listening socket is not as it should be"), LOG_S("error", e.msg));
    serve_side(l);
    return changed;
}
