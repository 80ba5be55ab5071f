/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SNAPSHOT_INTERNAL_H
#define WB_SNAPSHOT_INTERNAL_H

/* What the three parts of the snapshot share: its state in this process (snapshot.c), its files
 * (snapshot_file.c) and the refresher's lease (snapshot_lease.c). */
#include <pthread.h>

#include "fcgi/snapshot.h"

struct snapshots {
    struct shared *shared; /* borrowed */
    char *dir;
    char *prefix;      /* of the names of our files; those of other shared memory have another */
    size_t family_len; /* so much of prefix is common to all of the service's */
    uint64_t magic; /* of this memory's snapshots: no file of a service before is taken for one */
    uint64_t owner; /* who we are in the lease */
    uint32_t wanted_seen; /* refresher's thread: requests answered so far */
    bool clean_due;       /* refresher's thread: a predecessor may have left files */
    pthread_mutex_t lock;
    struct snapshot *current; /* under lock; holds a reference */
};

/* Writes the file of ticket. Failures: ERR_UNAVAILABLE; no file stays then. */
int snapshot_file_write(const struct snapshots *s, uint64_t ticket,
    const struct snapshot_head *head, const struct snapshot_parts *parts,
    struct err *e) WARN_UNUSED;

/* Reads the file of ticket, with one reference. 0, or 1 when it is not there or makes no sense. */
int snapshot_file_read(
    const struct snapshots *s, uint64_t ticket, struct snapshot **out) WARN_UNUSED;

void snapshot_file_unlink(const struct snapshots *s, uint64_t ticket);

/* Unlinks files older than the current ticket that are still there, and files of other shared memory that
 * have not been written for a minute. */
void snapshot_file_clean(const struct snapshots *s, uint64_t current);

#endif
