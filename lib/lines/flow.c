/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/flow.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"

struct flow *flow_new(const struct flow_options *o)
{
    const size_t words = (size_t)(o->bits + 63) / 64;
    struct flow *f = mem_calloc(1, sizeof *f);

    f->o = *o;
    f->o.done = NULL;
    (void)pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->moved);
    f->counts = o->counts;
    f->usage = o->usage;
    f->throttle = o->throttle;
    f->done = mem_calloc(words + 1, sizeof *f->done);
    memcpy(f->done, o->done, words * sizeof *f->done);
    f->reader = mem_kept(jsonl_open(o->input, o->line_max));
    f->next_due_ns = INT64_MAX;
    return f;
}

void flow_free(struct flow *f)
{
    if (f == NULL)
        return;
    (void)pthread_cond_destroy(&f->moved);
    (void)pthread_mutex_destroy(&f->lock);
    jsonl_close(f->reader);
    free(f->waiting);
    free(f->done);
    free(f);
}

static void view(const struct flow *f, struct flow_view *out)
{
    *out = (struct flow_view){
        .counts = f->counts, .usage = f->usage, .let_go = f->let_go, .broken = f->broken
    };
}

void flow_look(struct flow *f, struct flow_view *out)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    view(f, out);
}

void flow_wait(struct flow *f, int64_t deadline_ns, struct flow_view *out)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);

    if (!f->let_go)
        thread_cond_wait(&f->moved, &f->lock, deadline_ns);
    view(f, out);
}

int flow_flush(struct flow *f, struct batch_segment *at, struct flow_view *out, struct err *e)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);

    if (f->broken.code != ERR_OK) {
        *e = f->broken;
        return -1;
    }
    if (segment_flush(f->o.segment, at, e) < 0) {
        f->broken = *e;
        return -1;
    }
    view(f, out);
    return 0;
}

void flow_stop(struct flow *f, int64_t by_ns)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);

    if (!f->stopping || by_ns < f->stop_by_ns)
        f->stop_by_ns = by_ns;
    f->stopping = true;
}

void flow_trust(struct flow *f, int64_t until_ns)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    f->trust_ns = until_ns;
}

static void add_usage(struct batch_usage *to, const struct batch_usage *used)
{
    to->input_tokens += used->input_tokens;
    to->cached_tokens += used->cached_tokens;
    to->output_tokens += used->output_tokens;
    to->reasoning_tokens += used->reasoning_tokens;
    to->total_tokens += used->total_tokens;
}

void flow_result(struct flow *f, int64_t number, bool failed, const char *text, size_t size,
    const struct batch_usage *used)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);

    if (f->broken.code != ERR_OK ||
        segment_add(f->o.segment, number, failed, text, size, &f->broken) < 0)
        return;
    if (failed)
        f->counts.failed++;
    else
        f->counts.completed++;
    add_usage(&f->usage, used);
}

void flow_let_go(struct flow *f)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);

    f->let_go = true;
    (void)pthread_cond_broadcast(&f->moved);
}
