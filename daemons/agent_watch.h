/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_WATCH_H
#define WB_AGENT_WATCH_H

/* How a pull looks to another thread than the one that carries it out, and how that thread ends it early. Whoever pulls never waits here
 * for whoever looks. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/thread.h"
#include "depot/part.h"

enum { WATCH_BITMAP_MAX = 60000 };

struct watch {
    _Atomic bool stop;
    int stop_fd;          /* readable with stop */
    pthread_mutex_t lock; /* holds the rest */
    bool verifying;       /* all shards are there */
    int64_t bytes;        /* of shards that are right: only ever grows within a pull */
    /* name of the first file that lacks some; "" none, or not known yet */
    char file[MANIFEST_SEGMENT_MAX + 1];
    struct buf verified; /* part_bitmap(); empty: not known yet */
};

/* ERR_INTERNAL: no descriptor. */
int watch_init(struct watch *w, struct err *e) WARN_UNUSED;
void watch_fini(struct watch *w);

/* Before the next pull. */
int watch_begin(struct watch *w, struct err *e) WARN_UNUSED;

/* The pull ends soon, with MISHAP_STOPPED, unless it is as good as landed. For good, until watch_begin(). */
void watch_stop(struct watch *w);

/* --- by who pulls; w may be NULL --- */

const _Atomic bool *watch_stop_flag(const struct watch *w);
int watch_stop_fd(const struct watch *w); /* -1: none */
/* bytes: of all shards that are right, on disk or about to be. */
void watch_fetching(struct watch *w, struct part *p, int64_t bytes);
void watch_verifying(struct watch *w, struct part *p);

#endif
