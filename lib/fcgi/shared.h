/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SHARED_H
#define WB_SHARED_H

/* The shared mapping of a service: one file in the runtime folder, mapped by all its processes on this
 * machine. Holds the change generation, the snapshot's publication words, the refresher's lease and all
 * metric counters. Survives reloads; a file of another boot or layout is replaced. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct shared {
    uint64_t magic;
    uint64_t layout;
    char boot_id[40];
    char machine_id[40]; /* random, made with the file: names this machine in wake-up messages */
    _Atomic uint64_t generation;   /* bumped by every acting call before it answers */
    _Atomic uint64_t rows_changed; /* of these, those that changed rows in Postgres */
    _Atomic uint64_t ticket;       /* of the current snapshot; 0: none yet */
    _Atomic uint64_t next_ticket;
    _Atomic uint32_t published; /* futex: changes when a snapshot is published */
    _Atomic uint32_t wanted;    /* futex: changes when somebody wants a newer one */
    _Atomic int64_t last_poll_ns;
    _Atomic uint64_t lease_owner; /* 0: free */
    _Atomic int64_t lease_until_ns;
    _Alignas(64) int64_t metrics[256];
};

/* Maps dir/name.shared, made with mode 0660 if need be. NULL in *out is never given with 0. Failures:
 * ERR_UNAVAILABLE with the path. The mapping stays for the life of the process. */
int shared_map(const char *dir, const char *name, struct shared **out, struct err *e) WARN_UNUSED;
void shared_unmap(struct shared *s);

/* An acting call has committed and changed the overlay: polls that begin from now on must see it. Wakes
 * the refresher only if somebody polls. */
void shared_bump(struct shared *s);

/* The same for a call that changed rows: rows that were read before are no longer the last good ones,
 * should Postgres fail before they are read again. */
void shared_bump_rows(struct shared *s);

#endif
