/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LISTENER_PLACE_H
#define WB_LISTENER_PLACE_H

/* A folder of its own with the path of a service's socket, for cmocka tests of the listener. */
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fcgi/listener.h"

enum { LISTENER_HANG_MS = 20000 };

extern char listener_dir[64];
extern char listener_folder[80]; /* listener_dir/run */
extern char listener_path[96];   /* listener_folder/sock */

/* cmocka's setup and teardown, which fails when files are left that are no listener's. */
int listener_place_setup(void **state);
int listener_place_teardown(void **state);

/* Removes all files of listeners. */
void listener_place_clear(void);

/* Opens l at the path, which must work. */
void listener_open_here(struct listener *l);

/* The file with that suffix, which must be there. */
struct stat listener_stat(const char *suffix);
ino_t listener_inode(int fd);

/* A connection to path + suffix, or -1. */
int listener_connect(const char *suffix);

/* A client connects and l accepts it. */
void listener_assert_accepts(const struct listener *l);

/* A socket at path + suffix that is nobody's of ours; backlog -1: it does not listen. */
int listener_plain_socket(const char *suffix, int backlog);

/* Tends a listener from a thread, as the supervisor's loop does when somebody asks. */
struct listener_tender {
    struct listener *l;
    int stop[2];
    pthread_t thread;
};
void listener_tend_start(struct listener_tender *t, struct listener *l);
void listener_tend_stop(struct listener_tender *t);

#endif
