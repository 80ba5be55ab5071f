/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_THREAD_H
#define WB_THREAD_H

/* Threads: joinable, named, with a stack of stated size; mutexes held by scope; waits on the monotonic
 * clock. There is no cancelling and no detaching. */
#include <pthread.h>
#include <stdint.h>

#include "base/err.h"

enum { THREAD_STACK_SIZE = 1 << 20, THREAD_NAME_SIZE = 16 };

/* Starts fn(ctx). name: up to 15 bytes, as `ps` shows it. ERR_INTERNAL when there is no thread to be had. */
int thread_start(
    pthread_t *t, void *(*fn)(void *), void *ctx, const char *name, struct err *e) WARN_UNUSED;

/* Runs fn(ctx) on n threads at once, the caller being one of them, and returns when all have ended. n: 1 to THREAD_TEAM_MAX, else
 * the nearest of these. Where there are not so many threads to be had, it is done by fewer: fn takes its work from what ctx shares. */
enum { THREAD_TEAM_MAX = 64 };
void thread_team(int n, void *(*fn)(void *), void *ctx, const char *name);

/*     cleanup_unlock pthread_mutex_t *held = thread_lock(&x->lock); */
static inline pthread_mutex_t *thread_lock(pthread_mutex_t *m)
{
    pthread_mutex_lock(m);
    return m;
}
static inline void thread_unlock_p(pthread_mutex_t **m)
{
    if (*m)
        pthread_mutex_unlock(*m);
}
#define cleanup_unlock __attribute__((cleanup(thread_unlock_p), unused))

/* A condition whose waits are measured on CLOCK_MONOTONIC. */
void thread_cond_init(pthread_cond_t *c);

/* Waits until signalled or until the deadline; may return early. m is held. */
void thread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns);

#endif
