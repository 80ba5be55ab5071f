/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LISTENER_FILE_H
#define WB_LISTENER_FILE_H

/* The files of a service's socket: PATH, where clients connect; PATH.lock, whose lock one instance holds;
 * PATH.side, where that one hands the socket to others; PATH.new, under which a socket is made ready. For
 * listener.c and listener_tend.c only. Paths are short enough for their suffixes. */
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "fcgi/listener.h"

enum { LISTENER_SUFFIX_LEN = 5 };

/* What lies at the socket's path. */
enum place { PLACE_FREE, PLACE_STALE, PLACE_LIVE, PLACE_FOREIGN };
enum place place_of(const char *path);

/* The file at path + suffix as it is now; false when there is none. */
bool listener_file_at(const char *path, const char *suffix, struct listener_file *out);

/* Whether the file at path + suffix is this one. */
bool listener_file_is(const char *path, const char *suffix, const struct listener_file *file);

/* Takes the lock. 1: somebody else has it. Failures: ERR_INTERNAL with the path. */
int listener_lock(const char *path, int *out, struct err *e) WARN_UNUSED;

/* A listening socket at path, which is free or stale, with mode 0660 and the group (-1: unchanged). There is no moment at which
 * it can be reached with other ones. The lock is held. 1: something appeared at the path meanwhile.
 * Failures: ERR_INTERNAL. */
int listener_bind(const char *path, enum place place, gid_t group, int *out,
    struct listener_file *file, struct err *e) WARN_UNUSED;

/* The side socket, in place of whatever is there. The lock is held. Failures: ERR_INTERNAL. */
int listener_bind_side(
    const char *path, int *out, struct listener_file *file, struct err *e) WARN_UNUSED;

bool listener_is_listening(int fd); /* a listening unix socket */

/* Asks the instance that holds the lock for its socket. 1: nobody answered by the deadline. */
int listener_ask(
    const char *path, int64_t deadline_ns, int *out, struct listener_file *file) WARN_UNUSED;

/* Hands fd, whose file is `file`, to who has connected to the side socket, if that is our user. Never blocks. */
void listener_hand_over(int peer, int fd, const struct listener_file *file);

/* Remembers what the folder of l's path is like, and makes it again like that. Failures: ERR_INTERNAL. */
void listener_note_folder(struct listener *l);
int listener_make_folder(const struct listener *l, struct err *e) WARN_UNUSED;

#endif
