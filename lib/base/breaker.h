/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BREAKER_H
#define WB_BREAKER_H

/* Circuit breaker: after a failure a dependency is not asked for a while, then one caller may try.
 * Pure but for its lock; time is handed in. Shared by the threads of a process.
 * Rule: operations contract section 3 (it tries again at least once a second and is back within 2 s
 * of recovery). */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct breaker {
    pthread_mutex_t lock;
    int64_t open_until_ns;  /* 0: closed */
    int64_t wait_ns;        /* next time it opens, for this long */
    bool probing;           /* one caller is trying */
    int64_t probe_until_ns; /* a probe that never reported counts as failed then */
};

enum { BREAKER_FIRST_MS = 100, BREAKER_MAX_MS = 1000 };

void breaker_init(struct breaker *b);
void breaker_fini(struct breaker *b);

/* True when the caller may ask now: closed, or it is the one to try after the wait. A caller that
 * got true reports by breaker_ok() or breaker_failed(). */
bool breaker_allows(struct breaker *b, int64_t now_ns);

/* Success: closes. Returns true when it was open before (the moment to log the recovery). */
bool breaker_ok(struct breaker *b);

/* Failure: opens for 100 ms, doubling to 1 s. Returns true when it was closed before (the moment to
 * log the outage, once). */
bool breaker_failed(struct breaker *b, int64_t now_ns);

/* True while it is open or being tried. */
bool breaker_is_open(struct breaker *b);

#endif
