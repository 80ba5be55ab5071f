/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SNAPSHOT_PLACE_H
#define WB_SNAPSHOT_PLACE_H

/* A runtime folder of its own with shared memory and one view of the snapshots, for cmocka tests. */
#include <sys/types.h>

#include "fcgi/snapshot.h"

enum { PLACE_HANG_MS = 20000, PLACE_PATH_SIZE = 512 };

#define PLACE_FOREVER INT64_MAX

struct place {
    char dir[64];
    struct shared *shared;
    struct snapshots *view;
};

/* cmocka's setup and teardown; *state is the struct place. */
int place_setup(void **state);
int place_teardown(void **state);

/* Calls fn (may be NULL) with the path of each file in the folder whose name holds part. Returns how
 * many there are. */
int place_each_file(const struct place *p, const char *part, void (*fn)(const char *path));
void place_remove(const char *path);

/* One more view, as another process has it. The caller closes it. */
struct snapshots *place_view(const struct place *p);

/* Publishes the text as a refresher does from begin to end; what snapshot_publish() returns. */
struct snapshot_parts place_parts(const char *body);
int place_publish(struct snapshots *view, const char *body);

/* Fails unless the view serves the text now, whatever its age. */
void place_assert_serves(struct snapshots *view, const char *body);

/* fork(); the child does not outlive a failed test for long. */
pid_t place_fork(void);
void place_expect_exit(pid_t pid, int code);

#endif
