/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SHARED_H
#define WB_SHARED_H

/* The memory that all processes of a service on this machine share: the change generation, the snapshot's
 * publication words, the refresher's lease and all metric counters. It is a System V segment and no
 * mapped file, since whoever can truncate a mapped file kills all who map it by SIGBUS. It lives as long
 * as one process has it, reloads included, and nothing of it is left behind. A small file in the
 * runtime folder names it, for instances and CGI processes that come later; a supervisor's workers get
 * its name from their environment, whatever becomes of the file. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/metrics.h"

struct shared {
    uint64_t magic;
    uint64_t layout;
    int64_t id;          /* of the segment */
    char machine_id[40]; /* random, made with the memory: names this machine in wake-up messages */
    _Atomic uint64_t generation;   /* bumped by every acting call before it answers */
    _Atomic uint64_t rows_changed; /* of these, those that changed rows in Postgres */
    _Atomic uint64_t ticket;       /* of the current snapshot; 0: none yet */
    _Atomic uint64_t next_ticket;
    _Atomic uint32_t published; /* futex: changes when a snapshot is published */
    _Atomic uint32_t wanted;    /* futex: changes when somebody wants a newer one */
    _Atomic int64_t last_poll_ns;
    _Atomic uint64_t lease_owner; /* 0: free */
    _Atomic int64_t lease_until_ns;
    _Alignas(64) int64_t metrics[METRICS_WORDS];
};

/* Environment variable that tells a worker the memory of who started it. */
#define SHARED_ENV "WEIGHBRIDGE_SHARED"

/* The memory of the service `name` with its runtime folder in dir: what SHARED_ENV or the file
 * dir/name.shared names, or a new one that the file names from then on, with mode 0660 whatever the umask
 * and the file's group. Makes the folder, but not its parents. What the file says is not taken on trust:
 * memory of another layout (another version's) or service counts as none. Failures: ERR_UNAVAILABLE with the
 * path. Give it back by shared_leave(); processes keep it to their end. */
int shared_open(const char *dir, const char *name, struct shared **out, struct err *e) WARN_UNUSED;

/* The same for who must not make one (a CGI process may be another user's): 1 when there is none. */
int shared_join(const char *dir, const char *name, struct shared **out, struct err *e) WARN_UNUSED;

void shared_leave(struct shared *s);

/* Puts SHARED_ENV into this process' environment, for those that it starts. Before threads. */
void shared_hand_on(const struct shared *s, const char *dir, const char *name);

/* Has the file name s again if it is gone or names nothing that lives; one that names other living memory
 * stays. 0 when that was not needed, 1 when it was done. Failures: as shared_open(). For a supervisor, now
 * and then; never blocks for long. */
int shared_keep_name(
    const struct shared *s, const char *dir, const char *name, struct err *e) WARN_UNUSED;

/* An acting call has committed and changed the overlay: polls that begin from now on must see it. Wakes
 * the refresher only if somebody polls. */
void shared_bump(struct shared *s);

/* The same for a call that changed rows: rows that were read before are no longer the last good ones,
 * should Postgres fail before they are read again. */
void shared_bump_rows(struct shared *s);

#endif
