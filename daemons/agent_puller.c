/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_puller.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/thread.h"

enum { BODY_MAX = 64 << 10 };

enum state { IDLE, GIVEN, ENDED, LEAVING };

struct puller {
    pthread_t thread;
    struct watch watch;
    int ended_fd;
    struct settings
        *settings; /* of the order: the thread's while state is GIVEN, as is the outcome */
    struct order order;
    struct outcome outcome;
    pthread_mutex_t lock; /* holds the state */
    pthread_cond_t changed;
    enum state state;
};

static bool await_order(struct puller *p)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&p->lock);

    while (p->state == IDLE || p->state == ENDED)
        pthread_cond_wait(&p->changed, &p->lock);
    return p->state == GIVEN;
}

static void end_order(struct puller *p)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&p->lock);

    if (p->state == GIVEN)
        p->state = ENDED;
    stop_raise(p->ended_fd);
}

static void *work(void *ctx)
{
    struct puller *p = ctx;

    while (await_order(p)) {
        p->outcome = (struct outcome){ false, MISHAP_INIT, BUF_INIT(BODY_MAX) };
        p->outcome.landed = order_carry_out(p->settings, &p->order, &p->watch, &p->outcome.receipt,
                                &p->outcome.m) == 0;
        end_order(p);
    }
    return NULL;
}

static void free_puller(struct puller *p)
{
    watch_fini(&p->watch);
    cleanup_fd_(&p->ended_fd);
    settings_drop(p->settings);
    buf_free(&p->outcome.receipt);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int puller_start(struct puller **out, struct err *e)
{
    struct puller *p = mem_calloc(1, sizeof *p);

    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->ended_fd = -1;
    if (watch_init(&p->watch, e) == 0)
        p->ended_fd = stop_event_fd(e);
    if (p->ended_fd < 0 || thread_start(&p->thread, work, p, "pull", e) < 0) {
        free_puller(p);
        return -1;
    }
    *out = p;
    return 0;
}

static void set_state(struct puller *p, enum state state)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&p->lock);

    p->state = state;
    pthread_cond_signal(&p->changed);
}

static enum state state_of(struct puller *p)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&p->lock);
    return p->state;
}

void puller_end(struct puller *p)
{
    if (p == NULL)
        return;
    watch_stop(&p->watch);
    set_state(p, LEAVING);
    (void)pthread_join(p->thread, NULL);
    free_puller(p);
}

int puller_fd(const struct puller *p)
{
    return p->ended_fd;
}

int puller_give(struct puller *p, struct settings *s, const struct order *o, struct err *e)
{
    if (watch_begin(&p->watch, e) < 0)
        return -1;
    p->settings = settings_use(s);
    p->order = *o;
    set_state(p, GIVEN);
    return 0;
}

const struct order *puller_order(const struct puller *p)
{
    return p->settings == NULL ? NULL : &p->order;
}

struct watch *puller_watch(struct puller *p)
{
    return &p->watch;
}

int puller_take(struct puller *p, struct outcome *out)
{
    uint64_t ignored = 0;

    if (state_of(p) != ENDED)
        return 0;
    (void)!read(p->ended_fd, &ignored, sizeof ignored);
    *out = p->outcome;
    p->outcome.receipt = (struct buf)BUF_INIT(BODY_MAX);
    settings_drop(STEAL(p->settings));
    set_state(p, IDLE);
    return 1;
}
