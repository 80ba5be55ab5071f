/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LISTENER_H
#define WB_LISTENER_H

/* The service's unix socket. The first instance binds it under a lock file; a second instance started
 * with the same arguments gets the same listening socket from the first over a side socket
 * (SCM_RIGHTS), so both accept from one backlog, and takes the lock over when the first has gone. A
 * stale socket file is replaced; a live one never is, and neither is a file that is no socket. A socket file
 * that is removed is made again, with its folder if need be. Where systemd holds the socket (a .socket
 * unit), it passes it on, and only the side socket is ours. */
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* A file, whatever its name. */
struct listener_file {
    dev_t dev;
    ino_t ino;
};

struct listener {
    int fd;      /* listening socket, CLOEXEC, backlog 1024 */
    int lock_fd; /* >= 0: this instance holds the lock and serves the side socket */
    int side_fd; /* >= 0: listening side socket */
    char path[108];
    /* What follows is for listener_tend(). */
    bool given; /* systemd's: not ours to make again */
    gid_t group;
    struct listener_file file; /* of fd */
    struct listener_file side_file;
    mode_t folder_mode; /* 0: not known */
    gid_t folder_group;
    struct err trouble; /* why it cannot be put right, as it was last told */
};

#define LISTENER_INIT \
    { \
        .fd = -1, .lock_fd = -1, .side_fd = -1, .path = "", .group = (gid_t)-1 \
    }

/* Binds path with mode 0660 whatever the umask, and group (NULL or "": unchanged). Failures:
 * ERR_INVALID (path too long, group unknown), ERR_CONFLICT (somebody who is no instance of ours
 * listens there, or no handover within timeout_ms), ERR_INTERNAL. */
int listener_open(struct listener *l, const char *path, const char *group, int64_t timeout_ms,
    struct err *e) WARN_UNUSED;

/* The socket that systemd passed to this process (sd_listen_fds(3)); its variables go from the
 * environment, so that no child takes it for its own. Before threads. 1: none was passed. ERR_INVALID:
 * several, or no listening unix socket. */
int listener_given(struct listener *l, struct err *e) WARN_UNUSED;

/* Called about once a second and when side_fd is readable: hands the socket to who asks, takes the lock over
 * when it is free, and sees to it that the files are there. Blocks for a tenth of a second at most, and
 * that only while another instance has the lock and the socket file is not the one it was. True when fd
 * is another socket now, because the file of the old one had gone: whoever accepts from the old one must be given
 * this one, and may go on with connections. */
bool listener_tend(struct listener *l);

/* Closes; the file stays for the instances that go on (the next start replaces a stale one). */
void listener_close(struct listener *l);
#define cleanup_listener __attribute__((cleanup(listener_close)))

#endif
