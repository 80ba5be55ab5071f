/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/fetch.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/thread.h"
#include "fetch/fetch_one.h"

#define IDLE_NS NS_PER_S

struct fetch {
    struct fetch_options o;
    int stop_fd;
    pthread_t thread[FETCH_WORKERS_MAX];
    unsigned threads;
    pthread_mutex_t lock; /* holds the rest */
    pthread_cond_t changed;
    struct fetch_plan *plan;
    struct fetch_result result;
    struct fetch_progress progress;
    unsigned at_work;
    bool stopped;
};

static bool has(const void *ctx, size_t source, size_t shard)
{
    const struct fetch_options *o = ctx;
    return source < sources_count(o->sources) &&
           sources_has(o->sources, source, manifest_place(o->manifest, shard).file);
}

static unsigned least(size_t a, size_t b)
{
    return (unsigned)(a < b ? a : b);
}

unsigned fetch_workers(const struct fetch_options *o)
{
    const unsigned per_source = o->per_source > 0 ? o->per_source : FETCH_PER_SOURCE;
    const unsigned in_flight = o->in_flight > 0 ? o->in_flight : FETCH_IN_FLIGHT;
    size_t missing = 0;

    for (size_t i = 0; i < o->manifest->shards && missing < FETCH_WORKERS_MAX; i++)
        missing += o->have[i] ? 0 : 1;
    return least(least(in_flight, sources_count(o->sources) * per_source), missing);
}

/* --- a thread --- */

static void land_flight(struct fetch *f, const struct fetch_next *flight, const struct mishap *m)
{
    uint64_t random = 0;

    arc4random_buf(&random, sizeof random);
    fetch_plan_ended(f->plan, flight, m, clock_mono_ns(), random);
    if (m->reason == MISHAP_NONE) {
        const int64_t size = manifest_place(f->o.manifest, flight->shard).size;
        f->result.bytes[flight->source] += size;
        f->progress.bytes += size;
    } else {
        f->progress.failures++;
        if (fetch_plan_why(f->plan)->reason != MISHAP_NONE)
            stop_raise(f->stop_fd); /* what is in flight is in vain */
    }
    pthread_cond_broadcast(&f->changed);
}

/* What to do next: FETCH_GO, or FETCH_DONE when nothing will come any more. lock is held. */
static enum fetch_step next_flight(struct fetch *f, struct fetch_next *out)
{
    for (;;) {
        const int64_t now_ns = clock_mono_ns();
        const enum fetch_step step =
            f->stopped ? FETCH_DONE : fetch_plan_next(f->plan, now_ns, out);
        if (step != FETCH_WAIT)
            return step == FETCH_GO ? FETCH_GO : FETCH_DONE;
        const int64_t until_ns =
            out->until_ns > now_ns + IDLE_NS ? now_ns + IDLE_NS : out->until_ns;
        thread_cond_wait(&f->changed, &f->lock, until_ns);
    }
}

static void *work(void *ctx)
{
    struct fetch *f = ctx;
    struct fetch_lines lines = { .line = { NULL }, .o = f->o.http };
    struct fetch_next flight = { 0, 0, 0 };
    void *hand = f->o.sink->open(f->o.sink->ctx);

    lines.o.stop_fd = f->stop_fd;
    pthread_mutex_lock(&f->lock);
    while (next_flight(f, &flight) == FETCH_GO) {
        struct mishap m = MISHAP_INIT;
        pthread_mutex_unlock(&f->lock);
        (void)!fetch_one(&lines, &f->o, hand, &flight, &m);
        pthread_mutex_lock(&f->lock);
        land_flight(f, &flight, &m);
    }
    f->at_work--;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    f->o.sink->close(hand);
    fetch_lines_close(&lines);
    return NULL;
}

/* --- the whole --- */

static void free_fetch(struct fetch *f)
{
    fetch_plan_free(f->plan);
    cleanup_fd_(&f->stop_fd);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static struct fetch_plan *plan_of(struct fetch *f)
{
    const struct fetch_plan_options po = { .shards = f->o.manifest->shards,
        .sources = sources_count(f->o.sources) > 0 ? sources_count(f->o.sources) : 1,
        .per_source = f->o.per_source,
        .backoff = f->o.backoff,
        .has = has,
        .ctx = &f->o };
    struct fetch_plan *plan = fetch_plan_new(&po);

    for (size_t i = 0; i < f->o.manifest->shards; i++) {
        if (f->o.have[i])
            fetch_plan_have(plan, i);
    }
    return plan;
}

int fetch_start(const struct fetch_options *o, struct fetch **out, struct err *e)
{
    struct fetch *f = mem_calloc(1, sizeof *f);
    const unsigned wanted = fetch_workers(o);

    f->o = *o;
    pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->changed);
    f->plan = plan_of(f);
    f->stop_fd = stop_event_fd(e);
    if (f->stop_fd < 0) {
        free_fetch(f);
        return -1;
    }
    for (unsigned i = 0; i < (wanted > 0 ? wanted : 1); i++) {
        pthread_mutex_lock(&f->lock);
        f->at_work++;
        pthread_mutex_unlock(&f->lock);
        if (thread_start(&f->thread[i], work, f, "fetch", e) == 0) {
            f->threads++;
            continue;
        }
        pthread_mutex_lock(&f->lock);
        f->at_work--;
        pthread_mutex_unlock(&f->lock);
        break;
    }
    if (f->threads == 0) {
        free_fetch(f);
        return -1;
    }
    *out = f;
    return 0;
}

struct fetch_progress fetch_look(struct fetch *f)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    return f->progress;
}

bool fetch_wait(struct fetch *f, int64_t deadline_ns)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);

    while (f->at_work > 0 && clock_mono_ns() < deadline_ns)
        thread_cond_wait(&f->changed, &f->lock, deadline_ns);
    return f->at_work == 0;
}

void fetch_stop(struct fetch *f)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);

    f->stopped = true;
    stop_raise(f->stop_fd);
    pthread_cond_broadcast(&f->changed);
}

int fetch_end(struct fetch *f, struct fetch_result *out, struct mishap *m)
{
    struct fetch_next ignored;

    for (unsigned i = 0; i < f->threads; i++)
        (void)pthread_join(f->thread[i], NULL);
    for (size_t i = 0; i < MISHAP__COUNT; i++)
        f->result.failures[i] = fetch_plan_failures(f->plan, (enum mishap_reason)i);
    *out = f->result;
    const enum fetch_step step = fetch_plan_next(f->plan, clock_mono_ns(), &ignored);
    const struct mishap why = *fetch_plan_why(f->plan);
    const bool stopped = f->stopped;
    free_fetch(f);
    if (step == FETCH_DONE)
        return 0;
    if (stopped)
        return mishap_set(m, MISHAP_STOPPED, "stopped");
    *m = why;
    return -1;
}
