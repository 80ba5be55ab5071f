/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <time.h>

#include "base/clock.h"
#include "base/str.h"

int thread_start(pthread_t *t, void *(*fn)(void *), void *ctx, const char *name, struct err *e)
{
    char cut[THREAD_NAME_SIZE];
    pthread_attr_t attr;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK_SIZE);
    const int rc = pthread_create(t, &attr, fn, ctx);
    (void)pthread_attr_destroy(&attr);
    if (rc != 0)
        return err_set(e, ERR_INTERNAL, "no thread %s: error %d", name, rc);
    (void)str_copy(cut, sizeof cut, name);
    (void)pthread_setname_np(*t, cut);
    return 0;
}

void thread_team(int n, void *(*fn)(void *), void *ctx, const char *name)
{
    pthread_t thread[THREAD_TEAM_MAX - 1] = { 0 };
    const int others = (n < THREAD_TEAM_MAX ? n : THREAD_TEAM_MAX) - 1;
    int started = 0;

    while (started < others && thread_start(&thread[started], fn, ctx, name, NULL) == 0)
        started++;
    (void)fn(ctx);
    while (started > 0)
        pthread_join(thread[--started], NULL);
}

void thread_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(c, &attr);
    (void)pthread_condattr_destroy(&attr);
}

void thread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns)
{
    const struct timespec until = {
        .tv_sec = deadline_ns / NS_PER_S,
        .tv_nsec = deadline_ns % NS_PER_S,
    };
    (void)pthread_cond_timedwait(c, m, &until);
}
