/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "fcgi/listener_file.h"

enum { RETRY_MS = 25, GROUP_BUF_MAX = 1 << 20, FIRST_PASSED_FD = 3 };

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

/* The lock is held: binds the socket if nobody has it. 1: somebody has. */
static int bind_both(struct listener *l, struct err *e)
{
    cleanup_fd int fd = -1;
    cleanup_fd int side = -1;
    enum place place = place_of(l->path);
    if (place == PLACE_FOREIGN)
        return err_set(e, ERR_CONFLICT, "%s is there and is not a socket", l->path);
    if (place == PLACE_LIVE)
        return 1;
    int rc = listener_bind(l->path, place, l->group, &fd, &l->file, e);
    if (rc == 0)
        rc = listener_bind_side(l->path, &side, &l->side_file, e);
    if (rc != 0)
        return rc;
    l->fd = STEAL_FD(fd);
    l->side_fd = STEAL_FD(side);
    return 0;
}

/* One attempt: bind it if nobody has it, else get it from who has it. 1: not yet. */
static int open_once(struct listener *l, int64_t deadline_ns, struct err *e)
{
    cleanup_fd int lock = -1;
    int rc = listener_lock(l->path, &lock, e);
    if (rc == 0) {
        rc = bind_both(l, e);
        if (rc == 0)
            l->lock_fd = STEAL_FD(lock);
        /* Somebody listens who does not hold the lock: workers whose supervisor was killed and that
         * are about to leave, or an instance that is about to take the lock over. Let it. */
        else if (rc > 0)
            close(STEAL_FD(lock));
    }
    return rc > 0 ? listener_ask(l->path, deadline_ns, &l->fd, &l->file) : rc;
}

int listener_open(
    struct listener *l, const char *path, const char *group, int64_t timeout_ms, struct err *e)
{
    struct listener new = LISTENER_INIT;
    if (str_empty(path) || strlen(path) + LISTENER_SUFFIX_LEN >= sizeof(new.path) ||
        str_copy(new.path, sizeof(new.path), path) != 0)
        return err_set(e, ERR_INVALID, "socket path must have 1 to %zu bytes",
            sizeof(new.path) - LISTENER_SUFFIX_LEN - 1);
    if (!str_empty(group) && find_group(group, &new.group, e) != 0)
        return -1;
    int64_t deadline_ns = clock_deadline(timeout_ms);
    for (;;) {
        int rc = open_once(&new, deadline_ns, e);
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
    listener_note_folder(&new);
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
        memchr(a.sun_path, '\0', sizeof(a.sun_path) - LISTENER_SUFFIX_LEN) != NULL)
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
    if (n != 1 || !listener_is_listening(FIRST_PASSED_FD))
        return err_set(e, ERR_INVALID,
            "systemd must pass one listening unix socket (ListenStream=/path, Accept=no)");
    (void)fcntl(FIRST_PASSED_FD, F_SETFD, FD_CLOEXEC);
    *l = (struct listener)LISTENER_INIT;
    l->fd = FIRST_PASSED_FD;
    l->given = true;
    name_it(l);
    (void)listener_file_at(l->path, "", &l->file);
    listener_note_folder(l);
    return 0;
}

void listener_close(struct listener *l)
{
    const int fds[] = { l->fd, l->side_fd, l->lock_fd };
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    *l = (struct listener)LISTENER_INIT;
}
