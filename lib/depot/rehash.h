/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_REHASH_H
#define WB_REHASH_H

/* Hashing what lies on disk: leftovers of a part before anything is fetched, a landed version, a sample of what was just written. Several
 * threads; the caller waits. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "model/manifest.h"
#include "model/mishap.h"

struct rehash {
    const struct manifest *manifest; /* borrowed, as is all here */
    int files;                       /* the folder of its files */
    const bool *only;                /* by shard: which to look at; NULL: all */
    bool *good;                      /* by shard: set true for those that are right, never false */
    bool
        holes_are_missing; /* what lies in a hole is not read; it is right only where zeros are wanted */
    bool from_disk;        /* past the page cache, where the file system can */
    int threads;
    const _Atomic bool *stop;      /* ends it early; NULL: none */
    _Atomic int64_t *hashed_bytes; /* for who watches; NULL: nobody */
};

/* Looks at all shards that are asked for. A file that is missing or too short has none that are right. -1: reading failed, or
 * MISHAP_STOPPED. */
int rehash_run(const struct rehash *r, struct mishap *why) WARN_UNUSED;

#endif
