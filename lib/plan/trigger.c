/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trigger.h"

#include "base/clock.h"
#include "base/thread.h"

void trigger_init(struct trigger *t)
{
    pthread_mutex_init(&t->lock, NULL);
    thread_cond_init(&t->raised);
    t->pending = 0;
}

void trigger_fini(struct trigger *t)
{
    pthread_cond_destroy(&t->raised);
    pthread_mutex_destroy(&t->lock);
}

void trigger_raise(struct trigger *t, unsigned bits)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&t->lock);

    if ((t->pending | bits) == t->pending)
        return;
    t->pending |= bits;
    pthread_cond_signal(&t->raised);
}

unsigned trigger_wait(struct trigger *t, int64_t deadline_ns)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&t->lock);

    while (t->pending == 0 && clock_mono_ns() < deadline_ns)
        thread_cond_wait(&t->raised, &t->lock, deadline_ns);
    const unsigned taken = t->pending;
    t->pending = 0;
    return taken;
}
