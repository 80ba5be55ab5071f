/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FETCH_PLAN_H
#define WB_FETCH_PLAN_H

/* Which shard is asked for next, and where: artifacts contract section 4. A state machine without a clock of its own and without
 * I/O: the time is handed in, and so is the randomness of back-off. One thread at a time.
 *
 * A shard is tried FETCH_TRIES times over its sources. After a failure it waits (exponential, full jitter, up to 60 s), holding no
 * slot; it goes to another source when there is one. A source that is down or throttles is left alone as a whole for as long as it
 * asks, or by the same back-off; throttling has an allowance of its own (FETCH_THROTTLES in a row). The same shard bad twice from
 * one source, and a burst of bad shards from it (FETCH_BURST within a minute, or two that are a twentieth of at least 20), end the source. A shard
 * without any source left fails the whole: artifact_missing when all said so, else with what was last said. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/backoff.h"
#include "model/mishap.h"

enum {
    FETCH_TRIES = 4,
    FETCH_THROTTLES = 20,
    FETCH_BURST = 5,
    FETCH_SOURCES_MAX = 64,
    FETCH_PER_SOURCE = 4
};

struct fetch_plan_options {
    size_t shards;
    size_t sources;         /* 1 to FETCH_SOURCES_MAX */
    unsigned per_source;    /* in flight at once of a source; 0: FETCH_PER_SOURCE */
    struct backoff backoff; /* of a shard, and of a source */
    /* Has the source that shard? */
    bool (*has)(const void *ctx, size_t source, size_t shard);
    const void *ctx;
};

struct fetch_plan;
void fetch_plan_free(struct fetch_plan *p); /* NULL is fine */
struct fetch_plan *fetch_plan_new(const struct fetch_plan_options *o) OWNED_BY(fetch_plan_free);
static inline void fetch_plan_free_p(struct fetch_plan **p)
{
    fetch_plan_free(*p);
}
#define cleanup_fetch_plan __attribute__((cleanup(fetch_plan_free_p)))

/* A shard that need not be fetched. Before the first fetch_plan_next(). */
void fetch_plan_have(struct fetch_plan *p, size_t shard);

enum fetch_step {
    FETCH_GO,   /* fetch *shard from *source, then say how it went */
    FETCH_WAIT, /* nothing before *until_ns (INT64_MAX: before something in flight has ended) */
    FETCH_DONE, /* all shards are there */
    FETCH_LOST  /* it cannot succeed any more: fetch_plan_why() */
};
struct fetch_next {
    size_t shard;
    size_t source;
    int64_t until_ns;
};
enum fetch_step fetch_plan_next(struct fetch_plan *p, int64_t now_ns, struct fetch_next *out);

/* How a shard in flight ended; m->reason MISHAP_NONE: well. random: any 64 bits. */
void fetch_plan_ended(struct fetch_plan *p, const struct fetch_next *flight, const struct mishap *m,
    int64_t now_ns, uint64_t random);

/* Why it is lost; MISHAP_NONE while it is not. */
const struct mishap *fetch_plan_why(const struct fetch_plan *p);

/* Failures by reason so far, the retries among them. */
size_t fetch_plan_failures(const struct fetch_plan *p, enum mishap_reason reason);

/* Is a source given up, and why? NULL: it is not. */
const struct mishap *fetch_plan_source(const struct fetch_plan *p, size_t source);

#endif
