/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/engine.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/thread.h"
#include "http/http_many.h"
#include "lines/engine_internal.h"
#include "lines/line.h"
#include "model/turns.h"

enum { WAIT_MS = 1000, LOOK_MS = 50, URL_SIZE = 1400, RESULT_EXTRA = 8192, HELD_MAX = 32 << 20 };

/* A line under way. */
struct flight {
    struct flow *flow;
    struct http_many_call *call;
    struct waiting line;
    uint64_t era;
    char *custom_id;
    struct buf body;
    struct flight *next;
    struct flight *before;
};

struct engine {
    const struct conf *conf;
    const struct upstream *upstream;
    struct http_many *many;
    pthread_t thread;
    pthread_mutex_t lock;
    struct flow *coming[ENGINE_FLOWS_MAX]; /* under lock */
    size_t n_coming;
    atomic_bool ending;

    struct flow *flow[ENGINE_FLOWS_MAX]; /* the thread's own, as what follows */
    size_t n;
    size_t last; /* whose line began last */
    size_t flying;
    size_t held; /* bytes of requests in flight */
    int64_t now_ns;
};

/* --- results --- */

static void count_out(struct engine *g, const struct flight *t)
{
    t->flow->flying--;
    g->flying--;
    g->held -= t->body.len;
}

static void unlink_flight(struct engine *g, struct flight *t)
{
    struct flow *f = t->flow;

    if (t->before != NULL)
        t->before->next = t->next;
    else
        f->flights = t->next;
    if (t->next != NULL)
        t->next->before = t->before;
    count_out(g, t);
}

static void free_flight(struct flight *t)
{
    free(t->custom_id);
    buf_free(&t->body);
    free(t);
}

static void put_result(struct flow *f, int64_t number, bool failed, const struct buf *text,
    const struct batch_usage *used)
{
    metric_add(failed ? METRIC_BATCH_LINES_FAILED : METRIC_BATCH_LINES_COMPLETED, 1);
    flow_result(f, number, failed, text->data, text->len, used);
}

/* What is said of a line that never had an answer. */
static const char *code_of(const struct http_many_end *end)
{
    switch ((int)end->why.code) {
    case ERR_TIMEOUT:
        return "request_timeout";
    case ERR_TOO_LARGE:
        return "answer_too_large";
    default:
        return "upstream_unreachable";
    }
}

static void land(
    struct flight *t, const struct http_many_end *end, json_object *parsed, enum line_fate fate)
{
    struct flow *f = t->flow;
    struct batch_usage used = { .known = false };
    cleanup_buf struct buf text = BUF_INIT(2 * f->o.answer_max + RESULT_EXTRA);
    const struct line_of of = { f->o.batch_id, t->line.number, t->custom_id };

    if (end->status == 0) {
        line_put_error(&text, &of, code_of(end), end->why.msg);
    } else if (end->status < 300 && fate == LINE_FAILED) {
        line_put_error(&text, &of, "invalid_response", "The server's answer is no object of JSON.");
    } else {
        const struct line_answer a = { end->status, end->request_id, end->body, end->size, parsed,
            f->o.secret };
        line_put_answer(&text, &of, &a);
    }
    if (text.overflow) {
        fate = LINE_FAILED;
        buf_clear(&text);
        line_put_error(&text, &of, "answer_too_large", "The server's answer is too large.");
    }
    if (fate == LINE_DONE)
        line_add_usage(&used, parsed);
    put_result(f, t->line.number, fate == LINE_FAILED, &text, &used);
}

static void try_later(struct engine *g, struct flight *t, bool reached, int64_t wait_ms)
{
    struct waiting w = t->line;

    if (reached)
        w.retries++;
    else
        w.unreached++;
    w.due_ns = g->now_ns + wait_ms * NS_PER_MS;
    metric_add(METRIC_BATCH_LINES_AGAIN, 1);
    waiting_put(t->flow, &w);
}

static void on_end(void *ctx, const struct http_many_end *end)
{
    struct engine *g = ctx;
    struct flight *t = end->ctx;
    struct flow *f = t->flow;
    cleanup_json json_object *parsed = NULL;
    struct err ignored = ERR_INIT;
    int64_t wait_ms = 0;
    uint64_t random = 0;

    if (end->status != 0 &&
        jx_parse_deep(end->body, end->size, f->o.answer_max, LINE_DEPTH_MAX, &parsed, &ignored) ==
            0 &&
        !json_object_is_type(parsed, json_type_object)) {
        json_object_put(parsed);
        parsed = NULL;
    }
    const struct line_try try = { .status = end->status,
        .reached = end->reached,
        .sound = parsed != NULL,
        .retry_after_ms = end->retry_after_ms,
        .retries = t->line.retries,
        .unreached = t->line.unreached };
    arc4random_buf(&random, sizeof random);
    const enum line_fate fate = line_judge(&f->o.terms, &try, random, &wait_ms);
    throttle_answer(&f->throttle, t->era, line_overloads(end->status));
    unlink_flight(g, t);
    if (fate == LINE_AGAIN)
        try_later(g, t, end->reached || end->status != 0, wait_ms);
    else
        land(t, end, parsed, fate);
    free_flight(t);
}

/* --- beginnings --- */

static void refuse(struct flow *f, const struct waiting *w, const char *custom_id, const char *code,
    const char *message)
{
    cleanup_buf struct buf text = BUF_INIT(RESULT_EXTRA);
    const struct line_of of = { f->o.batch_id, w->number, custom_id };
    const struct batch_usage none = { .known = false };

    line_put_error(&text, &of, code, message);
    put_result(f, w->number, true, &text, &none);
}

static void launch(struct engine *g, struct flow *f, const struct waiting *w,
    const struct line *line, const char *base)
{
    struct flight *t = mem_calloc(1, sizeof *t);
    char url[URL_SIZE];

    (void)!str_format(url, sizeof url, "%s%s", base, f->o.endpoint->path);
    t->flow = f;
    t->line = *w;
    t->era = f->throttle.era;
    t->custom_id = mem_strdup(line->is.custom_id);
    t->body.max = 2 * f->o.line_max;
    jx_print(line->body, &t->body);
    t->next = f->flights;
    if (t->next != NULL)
        t->next->before = t;
    f->flights = mem_kept(t);
    f->flying++;
    g->flying++;
    g->held += t->body.len;
    const struct http_many_request r = { .url = url,
        .body = t->body.data,
        .body_size = t->body.len,
        .timeout_ms = f->o.timeout_ms,
        .answer_max = f->o.answer_max,
        .ctx = t };
    t->call = http_many_start(g->many, &r);
}

/* The file was validated; what is wrong all the same is the line's result. */
static void begin(
    struct engine *g, struct flow *f, const struct waiting *w, const char *text, size_t size)
{
    cleanup_line struct line line = LINE_INIT;
    struct batch_fault fault = BATCH_FAULT_JSON;
    struct err ignored = ERR_INIT;

    if (line_read(text, size, f->o.endpoint, &line, &ignored) < 0 ||
        batch_line_check(&line.is, f->o.endpoint, &fault) < 0) {
        refuse(f, w, line.is.custom_id == NULL ? "" : line.is.custom_id, fault.code, fault.message);
        return;
    }
    const char *base = upstream_of(g->upstream, line.is.model);
    if (base == NULL)
        refuse(f, w, line.is.custom_id, BATCH_FAULT_MODEL.code, BATCH_FAULT_MODEL.message);
    else
        launch(g, f, w, &line, base);
}

static void break_flow(struct flow *f, const struct err *e)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    if (f->broken.code == ERR_OK)
        f->broken = *e;
}

static void begin_again(struct engine *g, struct flow *f)
{
    struct waiting w;
    struct err e = ERR_INIT;

    if (!waiting_take(f, g->now_ns, &w))
        return;
    cleanup_free char *text = waiting_text(f, &w, &e);
    if (text == NULL)
        break_flow(f, &e);
    else
        begin(g, f, &w, text, w.size);
}

static void begin_next(struct engine *g, struct flow *f)
{
    struct jsonl_line at;
    struct err e = ERR_INIT;

    for (;;) {
        const int end = jsonl_next(f->reader, &at, &e);
        if (end < 0)
            break_flow(f, &e);
        f->at_end = end > 0;
        if (end != 0)
            return;
        if (at.number < f->o.bits && line_in(f->done, at.number))
            continue;
        const struct waiting w = { .number = at.number, .offset = at.offset, .size = at.size };
        if (at.text == NULL)
            refuse(f, &w, "", BATCH_FAULT_LONG.code, BATCH_FAULT_LONG.message);
        else
            begin(g, f, &w, at.text, at.size);
        return;
    }
}

static bool is_due(const struct engine *g, const struct flow *f)
{
    return f->n_waiting > 0 && f->next_due_ns <= g->now_ns;
}

static bool may_begin(struct engine *g, struct flow *f)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
    return !f->stopping && f->broken.code == ERR_OK && g->now_ns < f->trust_ns;
}

static bool is_ready(void *ctx, size_t i)
{
    struct engine *g = ctx;
    struct flow *f = g->flow[i];

    if ((int64_t)f->flying >= f->throttle.limit)
        return false;
    if (!is_due(g, f) && (f->at_end || f->n_waiting >= ENGINE_WAITING_MAX))
        return false;
    return may_begin(g, f);
}

static void begin_lines(struct engine *g)
{
    while ((int64_t)g->flying < g->conf->batch_max_concurrency && g->held < HELD_MAX) {
        const size_t i = turns_next(g->last, g->n, is_ready, g);
        if (i >= g->n)
            return;
        g->last = i;
        if (is_due(g, g->flow[i]))
            begin_again(g, g->flow[i]);
        else
            begin_next(g, g->flow[i]);
    }
}

/* --- ends --- */

static void break_off(struct engine *g, struct flow *f)
{
    struct flight *t = STEAL(f->flights);

    while (t != NULL) {
        struct flight *next = t->next;
        http_many_drop(g->many, t->call);
        count_out(g, t);
        free_flight(t);
        t = next;
    }
}

/* Has the engine nothing more to do for it? */
static bool is_over(struct engine *g, struct flow *f)
{
    bool over = f->flying == 0 && f->at_end && f->n_waiting == 0;
    bool late = false;
    {
        cleanup_unlock pthread_mutex_t *held = thread_lock(&f->lock);
        const bool broken = f->broken.code != ERR_OK;
        late = broken || (f->stopping && g->now_ns >= f->stop_by_ns);
        over = over || (f->flying == 0 && (f->stopping || broken));
    }
    if (late)
        break_off(g, f);
    return over || late;
}

static void part(struct engine *g)
{
    for (size_t i = 0; i < g->n;) {
        struct flow *f = g->flow[i];
        if (!is_over(g, f)) {
            i++;
            continue;
        }
        g->flow[i] = g->flow[--g->n];
        flow_let_go(f);
    }
}

/* --- the thread --- */

static void welcome(struct engine *g)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&g->lock);

    for (size_t i = 0; i < g->n_coming && g->n < ENGINE_FLOWS_MAX; i++)
        g->flow[g->n++] = g->coming[i];
    g->n_coming = 0;
}

/* Until a line is to be tried again, or something that no event tells of may have changed. */
static int wait_ms(const struct engine *g)
{
    int64_t due_ns = g->now_ns + (g->n > 0 ? LOOK_MS : WAIT_MS) * NS_PER_MS;

    for (size_t i = 0; i < g->n; i++) {
        if (g->flow[i]->next_due_ns < due_ns)
            due_ns = g->flow[i]->next_due_ns;
    }
    return clock_left_ms(due_ns);
}

static void *engine_main(void *ctx)
{
    struct engine *g = ctx;

    while (!atomic_load(&g->ending)) {
        welcome(g);
        g->now_ns = clock_mono_ns();
        begin_lines(g);
        http_many_turn(g->many, wait_ms(g), on_end, g);
        g->now_ns = clock_mono_ns();
        part(g);
        metric_set(METRIC_BATCH_LINES_FLYING, (int64_t)g->flying);
    }
    return NULL;
}

static void free_engine(struct engine *g)
{
    http_many_close(g->many);
    (void)pthread_mutex_destroy(&g->lock);
    free(g);
}

int engine_start(
    const struct conf *conf, const struct upstream *upstream, struct engine **out, struct err *e)
{
    struct engine *g = mem_calloc(1, sizeof *g);
    const struct http_many_options o = { .user_agent = "weighbridge-batch",
        .ca_file = conf->batch_upstream_ca_file,
        .bearer = conf->batch_upstream_token,
        .keep = conf->batch_max_concurrency };

    g->conf = conf;
    g->upstream = upstream;
    (void)pthread_mutex_init(&g->lock, NULL);
    if (http_many_open(&o, &g->many, e) < 0 ||
        thread_start(&g->thread, engine_main, g, "engine", e) < 0) {
        free_engine(g);
        return -1;
    }
    *out = g;
    return 0;
}

void engine_stop(struct engine *g)
{
    if (g == NULL)
        return;
    atomic_store(&g->ending, true);
    http_many_wake(g->many);
    pthread_join(g->thread, NULL);
    free_engine(g);
}

void engine_add(struct engine *g, struct flow *f)
{
    {
        cleanup_unlock pthread_mutex_t *held = thread_lock(&g->lock);
        g->coming[g->n_coming++] = f;
    }
    http_many_wake(g->many);
}

void engine_wake(struct engine *g)
{
    http_many_wake(g->many);
}
