/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRIGGER_H
#define WB_TRIGGER_H

/* Wakes one thread out of a wait: however often it is raised before the thread looks, it is one wake-up.
 * Jobs contract section 5, "Loop": triggers are coalesced to one pending. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct trigger {
    pthread_mutex_t lock;
    pthread_cond_t raised;
    unsigned pending; /* bits raised since the last wait */
};

void trigger_init(struct trigger *t);
void trigger_fini(struct trigger *t);

/* Any thread. bits: not 0, the caller's own meaning. */
void trigger_raise(struct trigger *t, unsigned bits);

/* Waits until something is pending or the deadline (monotonic ns) has passed, and takes all that is pending:
 * 0 when nothing was. One thread. */
unsigned trigger_wait(struct trigger *t, int64_t deadline_ns);

#endif
