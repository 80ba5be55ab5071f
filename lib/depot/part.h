/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PART_H
#define WB_PART_H

/* A pull in progress: <artifact>/.tmp/<version>.<uuid>.part, laid out as the version it becomes. One writer's own: artifacts contract
 * section 4.
 *
 * A part whose writer died is taken over by renaming it. Its writer counts as dead only when all of these say so: the flock(2) of its
 * folder is free, and the kernel knows nobody who has its journal or a file of it open for writing (a read lease, fcntl(2) F_SETLEASE,
 * is granted). A lock that does nothing, or no answer about leases, costs another part and so bandwidth, never data. A writer
 * looks before each write whether its part still lies under its name.
 *
 * One thread opens and lands it; part_wrote() and the shard writers may run in any number of threads between. */
#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/thread.h"
#include "depot/depot.h"

/* A shard's bytes are on disk, and re-hashed or hashed as they were written. */
enum { PART_SYNC_BYTES = 256 << 20 }; /* written bytes between two syncs of data */

struct part {
    const struct depot *depot; /* borrowed, as are: */
    const struct manifest *manifest;
    const char *manifest_text; /* exact bytes */
    size_t manifest_size;
    struct digest digest;
    char name[DEPOT_PART_SIZE];
    int folder;
    int files;
    int journal; /* open for writing as long as we write: others see by it that we live */
    bool taken;  /* over from a dead writer */
    bool *have;  /* by shard; only ever set */
    pthread_mutex_t lock;
    size_t *pending; /* shards written since the last sync, under lock */
    size_t pendings;
    int64_t pending_bytes;
};

void part_close(struct part *p); /* leaves it on disk, to be resumed; NULL is fine */
static inline void part_close_p(struct part **p)
{
    part_close(*p);
}
#define cleanup_part __attribute__((cleanup(part_close_p)))

/* Takes over what a dead writer left of this version, or begins anew. Removes what else dead writers left of it. */
int part_open(const struct depot *d, const struct manifest *m, const char *text, size_t size,
    struct part **out, struct mishap *why) WARN_UNUSED;

/* Makes the tree of files what the manifest says: strangers removed, missing made, sizes right, space reserved by fallocate(2) where
 * the file system can (else it is left sparse). capacity_bytes: what all below the root may use, 0: the file system. MISHAP_DISK_FULL with
 * how much is needed and there, before anything is written. */
int part_prepare(struct part *p, int64_t capacity_bytes, struct mishap *why) WARN_UNUSED;

/* Does it still lie under its name? MISHAP_TAKEN_OVER. */
int part_is_ours(const struct part *p, struct mishap *why) WARN_UNUSED;

/* A shard was written whole and its hash was right: it is had once its data is synced, which is done in batches. */
int part_wrote(struct part *p, size_t shard, struct mishap *why) WARN_UNUSED;

/* Syncs what is pending, and marks it. */
int part_sync(struct part *p, struct mishap *why) WARN_UNUSED;

/* Appends which shards are had: two hex digits for eight, the first in the highest bit, as a node reports it. While shards are being fetched,
 * from any thread. */
void part_bitmap(struct part *p, struct buf *hex);

/* Removes it from disk, and closes it. */
int part_remove(struct part *p, struct mishap *why) WARN_UNUSED;

/* Opens a file of it. flags: O_RDONLY or O_RDWR, and O_DIRECT. -1 with errno. */
int part_open_file(const struct part *p, size_t file, int flags) WARN_UNUSED;

/* Does anybody have that plain file open for writing? 1 yes, or it cannot be told; 0 no. */
int part_file_is_written(int folder, const char *name);

#endif
