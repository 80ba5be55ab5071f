/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SNAPSHOT_H
#define WB_SNAPSHOT_H

/* One immutable snapshot of the operations for all processes of a machine. Each is a file of its own in
 * the runtime folder that each process reads once: a killed process leaves nothing locked, and what
 * becomes of the file later harms nobody. The shared memory names the current one by its ticket. A
 * refresher that was frozen cannot publish over a newer one: publishing compares the ticket it began
 * from. So polls spread over processes never see time run backwards. Operations contract, section 3,
 * "Freshness". */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fcgi/shared.h"

enum { SNAPSHOT_ETAG_SIZE = 24, SNAPSHOT_DEGRADED_SIZE = 24 };

struct snapshot_head {
    uint64_t magic;
    uint64_t ticket;
    uint64_t generation;  /* read before the stores were asked */
    int64_t built_ns;     /* when the stores were asked: monotonic clock */
    uint32_t unavailable; /* 1: nothing is known; answer 503 */
    uint32_t reserved;
    char etag[SNAPSHOT_ETAG_SIZE];         /* without quotes */
    char degraded[SNAPSHOT_DEGRADED_SIZE]; /* value of X-Degraded or "" */
    uint64_t body_size;
    uint64_t state_size; /* what a successor of the refresher needs: opaque here */
};

struct snapshot {
    const struct snapshot_head *head;
    const char *body;
    const void *state; /* aligned to 8 bytes */
    char *bytes;       /* owned: the whole file */
    atomic_int refs;
};

struct snapshots; /* this process' view; threads share it */
void snapshots_close(struct snapshots *s);
int snapshots_open(struct shared *shared, const char *dir, const char *name, struct snapshots **out,
    struct err *e) WARN_UNUSED;
struct shared *snapshots_shared(struct snapshots *s);

/* The current snapshot if it is of at least generation min_generation and was built within max_age_ns;
 * otherwise wakes the refresher and waits for such a one until the deadline. 0 with *out (give it back
 * by snapshot_put()), 1 when none came in time. *waited (may be NULL) tells whether it had to wait. Notes
 * that somebody polls. Any thread. */
int snapshot_get(struct snapshots *s, uint64_t min_generation, int64_t max_age_ns,
    int64_t deadline_ns, struct snapshot **out, bool *waited) WARN_UNUSED;

/* The current snapshot whatever its age, or NULL. For a refresher that takes over. */
struct snapshot *snapshot_current(struct snapshots *s);
void snapshot_put(struct snapshot *snap);

/* --- the refresher's side: one thread of each process --- */

/* Takes or renews the lease for lease_ms. 1 when another process holds it. *taken_over (may be NULL) is
 * true when it was taken from an owner that had let it lapse. */
int snapshot_lease(struct snapshots *s, int64_t lease_ms, bool *taken_over) WARN_UNUSED;
void snapshot_lease_end(struct snapshots *s);

/* What a refresh starts from: read before asking the stores. */
struct snapshot_base {
    uint64_t ticket;
    uint64_t generation;
    int64_t began_ns;
};
struct snapshot_base snapshot_begin(struct snapshots *s);

/* What is published. head supplies unavailable, etag and degraded; its other fields are filled in. */
struct snapshot_parts {
    struct snapshot_head head;
    const char *body;
    size_t body_size;
    const void *state;
    size_t state_size;
};

/* Publishes parts as the successor of base. 1 when another was published meanwhile (ours is dropped).
 * Unlinks the predecessor and what killed refreshers left. Failures: ERR_UNAVAILABLE (disk full and
 * the like; the old one stays). */
int snapshot_publish(struct snapshots *s, const struct snapshot_base *base,
    const struct snapshot_parts *parts, struct err *e) WARN_UNUSED;

/* Sleeps until somebody wants a snapshot newer than generation `have`, or the deadline. */
void snapshot_wait_wanted(struct snapshots *s, uint64_t have, int64_t deadline_ns);

/* True when somebody polled within the last ms milliseconds. */
bool snapshot_is_polled(struct snapshots *s, int64_t ms);

#endif
