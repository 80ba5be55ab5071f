/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/crew.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"

struct crew_thread {
    struct crew *crew;
    size_t number;
    pthread_t thread;
};

struct crew {
    struct crew_options o;
    pthread_mutex_t lock;
    pthread_cond_t work; /* an item came, or stopping */
    pthread_cond_t idle; /* an item was done */
    void **item;         /* ring of o.queue places */
    size_t first;
    size_t waiting;
    size_t running;
    bool stopping;
    struct crew_thread *thread;
    size_t threads;
};

/* The next item, or NULL when the crew is to end. */
static void *take(struct crew *c)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);

    while (!c->stopping && c->waiting == 0)
        pthread_cond_wait(&c->work, &c->lock);
    if (c->stopping)
        return NULL;
    void *item = c->item[c->first];
    c->first = (c->first + 1) % c->o.queue;
    c->waiting--;
    c->running++;
    return item;
}

static void done(struct crew *c)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);

    c->running--;
    pthread_cond_broadcast(&c->idle);
}

static void *thread_main(void *ctx)
{
    struct crew_thread *t = ctx;
    struct crew *c = t->crew;
    void *own = c->o.open(t->number, c->o.ctx);
    void *item;

    while ((item = take(c)) != NULL) {
        c->o.run(item, own);
        done(c);
    }
    c->o.close(own);
    return NULL;
}

int crew_start(const struct crew_options *o, struct crew **out, struct err *e)
{
    struct crew *c = mem_calloc(1, sizeof *c);

    c->o = *o;
    pthread_mutex_init(&c->lock, NULL);
    thread_cond_init(&c->work);
    thread_cond_init(&c->idle);
    c->item = mem_calloc(o->queue, sizeof *c->item);
    c->thread = mem_calloc(o->threads, sizeof *c->thread);
    for (; c->threads < o->threads; c->threads++) {
        struct crew_thread *t = &c->thread[c->threads];
        char name[THREAD_NAME_SIZE];
        t->crew = c;
        t->number = c->threads + 1;
        (void)str_format(name, sizeof name, "%s-%zu", o->name, t->number);
        if (thread_start(&t->thread, thread_main, t, name, e) < 0) {
            crew_stop(c);
            crew_free(c);
            return -1;
        }
    }
    *out = c;
    return 0;
}

int crew_submit(struct crew *c, void *item)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);

    if (c->stopping || c->waiting == c->o.queue)
        return 1;
    c->item[(c->first + c->waiting) % c->o.queue] = item;
    c->waiting++;
    pthread_cond_signal(&c->work);
    return 0;
}

size_t crew_room(struct crew *c)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);
    return c->stopping ? 0 : c->o.queue - c->waiting;
}

size_t crew_waiting(struct crew *c)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);
    return c->waiting;
}

size_t crew_running(struct crew *c)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);
    return c->running;
}

/* An item that will not be run, or NULL. */
static void *leftover(struct crew *c)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);

    c->stopping = true;
    pthread_cond_broadcast(&c->work);
    if (c->waiting == 0)
        return NULL;
    void *item = c->item[c->first];
    c->first = (c->first + 1) % c->o.queue;
    c->waiting--;
    return item;
}

void crew_stop(struct crew *c)
{
    void *item;

    while ((item = leftover(c)) != NULL)
        c->o.drop(item, c->o.ctx);
}

bool crew_wait(struct crew *c, int64_t deadline_ns)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);

    while (c->running > 0 && clock_mono_ns() < deadline_ns)
        thread_cond_wait(&c->idle, &c->lock, deadline_ns);
    return c->running == 0;
}

void crew_free(struct crew *c)
{
    crew_stop(c);
    for (size_t i = 0; i < c->threads; i++)
        pthread_join(c->thread[i].thread, NULL);
    pthread_cond_destroy(&c->idle);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c->thread);
    free(c->item);
    free(c);
}
