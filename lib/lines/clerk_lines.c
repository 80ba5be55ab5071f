/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "json/jx.h"
#include "lines/clerk_internal.h"
#include "lines/line.h"
#include "store/job_progress.h"

/* The part of a batch's life in which its lines run. */

enum {
    TICK_MS = 100,
    STOP_MS = 10000,
    CLIENT_MAX = 1 << 16,
    NAME_SIZE = BATCH_ID_SIZE + 16,
    EXPIRED_TICK = 1024
};

#define EXPIRED_CODE "batch_expired"
#define EXPIRED_TEXT "This request could not be executed before the completion window expired."

struct run {
    struct clerk *c;
    struct segment *segment;
    struct flow *flow;
    uint64_t *done;
    int64_t bits;
    bool added; /* to the engine */
    bool stops; /* no new lines begin */
    bool late;
    bool stopped;             /* by the runner */
    struct batch_counts told; /* to Redis */
    int64_t checked_ns;       /* last checkpoint */
    struct err trouble;       /* the last that was logged */
};

static void run_fini(struct run *r)
{
    flow_free(r->flow);
    segment_close(r->segment);
    free(r->done);
}
#define cleanup_run __attribute__((cleanup(run_fini)))

/* --- what the batch asks for --- */

static int64_t whole(json_object *o, const char *key, int64_t dflt, int64_t min, int64_t max)
{
    int64_t n = dflt;

    if (!jx_get_int(o, key, &n) || n < min)
        return dflt;
    return n < max ? n : max;
}

static int64_t ms_of(json_object *o, const char *key, int64_t dflt)
{
    double seconds = 0;
    return jx_get_double(o, key, &seconds) && seconds > 0 && seconds < 3600
               ? (int64_t)(seconds * MS_PER_S) + 1
               : dflt;
}

/* aibrix.client, within what the configuration allows. */
static void read_client(const struct clerk *c, struct flow_options *o)
{
    const struct conf *conf = c->t->conf;
    cleanup_json json_object *aibrix = NULL;
    struct err ignored = ERR_INIT; /* our own row */
    bool adaptive = false;

    if (c->lease->aibrix != NULL)
        (void)!jx_parse_deep(c->lease->aibrix, strlen(c->lease->aibrix), CLIENT_MAX, LINE_DEPTH_MAX,
            &aibrix, &ignored);
    json_object *client = jx_get(aibrix, "client");
    json_object *retry = jx_get(client, "retry_policy");
    const int64_t all = conf->batch_max_concurrency;
    const int64_t limit = whole(client, "max_concurrency", all, 1, all);
    const int64_t factor = whole(client, "adaptive_max_factor", 1, 1, all);
    (void)jx_get_bool(client, "adaptive_concurrency", &adaptive);
    o->throttle = adaptive ? throttle_adaptive(limit, limit < all / factor ? limit * factor : all,
                                 whole(client, "adaptive_additive_increase", 1, 1, all),
                                 whole(client, "adaptive_healthy_window", 0, 1, INT32_MAX))
                           : throttle_fixed(limit);
    o->timeout_ms = whole(client, "request_timeout_seconds", conf->batch_request_timeout_s, 1,
                        conf->batch_request_timeout_s) *
                    MS_PER_S;
    o->terms.max_retries = whole(retry, "max_retries", conf->batch_max_retries, 0, 1000);
    o->terms.max_unreached = whole(retry, "no_endpoint_max_retries", -1, 0, INT32_MAX);
    o->terms.backoff.base_ms = ms_of(retry, "base_delay_seconds", conf->batch_retry_base_ms);
    o->terms.backoff.cap_ms = ms_of(retry, "max_delay_seconds", conf->batch_retry_cap_ms);
    if (o->terms.backoff.cap_ms < o->terms.backoff.base_ms)
        o->terms.backoff.cap_ms = o->terms.backoff.base_ms;
}

/* --- beginning --- */

static int prepare(struct run *r, struct err *e)
{
    struct clerk *c = r->c;
    int64_t last = 0;

    if (jsonl_last(c->input, &last, e) < 0 ||
        batch_lease_segments(c->t->db, c->lease, &c->past, &c->n_past, e) < 0)
        return -1;
    r->bits = last + 1;
    r->done = mem_calloc((size_t)(r->bits + 63) / 64 + 1, sizeof *r->done);
    if (segments_mark(c->folder, c->past, c->n_past, r->done, r->bits, e) < 0 ||
        segment_open(c->folder, c->lease->epoch, &r->segment, e) < 0)
        return -1;
    struct flow_options o = { .batch_id = c->lease->id,
        .endpoint = batch_endpoint_find(c->lease->endpoint),
        .line_max = (size_t)c->t->conf->batch_max_line_bytes,
        .answer_max = (size_t)c->t->conf->batch_max_answer_bytes,
        .secret = c->t->conf->batch_upstream_token,
        .input = c->input,
        .done = r->done,
        .bits = r->bits,
        .segment = r->segment,
        .counts = c->lease->counts,
        .usage = c->lease->usage };
    read_client(c, &o);
    r->flow = flow_new(&o);
    flow_look(r->flow, &c->seen);
    r->told.completed = -1;
    return 0;
}

/* --- once in a while --- */

static void tell(struct run *r, const struct flow_view *v)
{
    char name[NAME_SIZE];
    struct err ignored = ERR_INIT; /* the row has them within a second */
    const struct job_progress p = { .known = true,
        .total = v->counts.total,
        .completed = v->counts.completed,
        .failed = v->counts.failed,
        .input_tokens = v->usage.input_tokens,
        .output_tokens = v->usage.output_tokens,
        .total_tokens = v->usage.total_tokens };

    if (r->told.completed == v->counts.completed && r->told.failed == v->counts.failed)
        return;
    (void)!str_format(name, sizeof name, BATCH_PROGRESS_PREFIX "%s", r->c->lease->id);
    if (progress_put(r->c->t->kv, name, &p, &ignored) == 0)
        r->told = v->counts;
}

static bool moved(const struct run *r, const struct flow_view *v)
{
    const struct batch_counts *was = &r->c->seen.counts;
    return was->completed != v->counts.completed || was->failed != v->counts.failed;
}

static void trust(struct run *r, int64_t from_ns)
{
    r->c->renewed_ns = from_ns;
    flow_trust(r->flow, from_ns + r->c->lease->ttl_ms * NS_PER_MS);
    engine_wake(r->c->t->engine);
}

/* First the disk, then the row: what the row says is there. */
static int checkpoint(struct run *r, struct err *e)
{
    struct clerk *c = r->c;
    struct batch_segment at;
    struct flow_view v;

    r->checked_ns = clock_mono_ns();
    if (flow_flush(r->flow, &at, &v, e) < 0 || segment_sync(r->segment, e) < 0)
        return -1;
    const int64_t from_ns = clock_mono_ns();
    const int rc = batch_lease_checkpoint(c->t->db, c->lease, &at, &v.counts, &v.usage, e);
    if (rc != 0)
        return rc;
    metric_add(METRIC_BATCH_CHECKPOINTS, 1);
    c->now = at;
    c->seen = v;
    trust(r, from_ns);
    return 0;
}

static bool is_time(int64_t since_ns, int64_t ms)
{
    return clock_mono_ns() - since_ns >= ms * NS_PER_MS;
}

static int keep(struct run *r, const struct flow_view *v, struct err *e)
{
    struct clerk *c = r->c;

    if (moved(r, v) && is_time(r->checked_ns, c->t->conf->batch_checkpoint_ms))
        return checkpoint(r, e);
    const int64_t before_ns = c->renewed_ns;
    const int rc = clerk_tick(c, e);
    if (rc == 0 && c->renewed_ns != before_ns)
        trust(r, c->renewed_ns);
    return rc;
}

/* Whether it may go on. */
static int look(struct run *r, struct err *e)
{
    struct clerk *c = r->c;
    const int rc = batch_lease_look(c->t->db, c->lease, &c->lease->status, &r->late, e);

    if (rc != 0)
        return rc;
    r->stopped = atomic_load(c->t->stopping);
    if (c->lease->status != BATCH_CANCELLING && !r->late && !r->stopped)
        return 0;
    if (!r->stops)
        log_info(LOG_MSG("begins no more lines"), LOG_S("batch", c->lease->id),
            LOG_S("why", r->stopped ? "the runner stops"
                         : r->late  ? "expired"
                                    : "cancelled"));
    r->stops = true;
    const int64_t wait_ms = c->t->conf->batch_stop_wait_ms;
    flow_stop(r->flow, clock_deadline(r->stopped && wait_ms > STOP_MS ? STOP_MS : wait_ms));
    engine_wake(c->t->engine);
    return 0;
}

/* What the stores do not do now they do later; what cannot be written ends it. */
static bool is_passing(const struct err *e)
{
    return e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT || e->code == ERR_CONFLICT;
}

static int round_of(struct run *r, struct flow_view *v, struct err *e)
{
    int rc = look(r, e);

    if (rc == 0 && !r->added) {
        trust(r, r->c->renewed_ns);
        engine_add(r->c->t->engine, r->flow);
        r->added = true;
    }
    flow_wait(r->flow, clock_deadline(TICK_MS), v);
    tell(r, v);
    if (rc == 0)
        rc = keep(r, v, e);
    return rc;
}

static void log_trouble(struct run *r, const struct err *e)
{
    if (err_is_news(&r->trouble, e) && e->code != ERR_OK)
        log_warn(LOG_MSG("a checkpoint is late"), LOG_S("batch", r->c->lease->id),
            LOG_S("error", e->msg));
}

static int turn(struct run *r, struct err *e)
{
    struct flow_view v = { .let_go = false };

    do {
        struct err now = ERR_INIT;
        const int rc = round_of(r, &v, &now);
        if (v.broken.code != ERR_OK)
            now = v.broken;
        if (rc > 0 || v.broken.code != ERR_OK || (rc < 0 && !is_passing(&now))) {
            *e = now;
            return rc > 0 ? 1 : -1;
        }
        log_trouble(r, &now);
        if (rc < 0 && atomic_load(r->c->t->stopping)) {
            *e = now;
            return -1;
        }
    } while (!v.let_go);
    return 0;
}

/* The engine must have let go before anything goes. */
static void await(struct run *r)
{
    struct flow_view v = { .let_go = !r->added };

    while (!v.let_go) {
        flow_stop(r->flow, clock_mono_ns());
        engine_wake(r->c->t->engine);
        flow_wait(r->flow, clock_deadline(MS_PER_S), &v);
    }
}

/* --- the end --- */

/* Every line that has no result gets one that says so. */
static int expire_rest(struct run *r, struct err *e)
{
    struct clerk *c = r->c;
    cleanup_jsonl struct jsonl *lines =
        jsonl_open(c->input, (size_t)c->t->conf->batch_max_line_bytes);
    const struct batch_endpoint *endpoint = batch_endpoint_find(c->lease->endpoint);
    const struct batch_usage none = { .known = false };
    struct jsonl_line at;

    for (int64_t n = 1;; n++) {
        cleanup_line struct line line = LINE_INIT;
        cleanup_buf struct buf text = BUF_INIT(8192);
        struct err ignored = ERR_INIT;
        const int end = jsonl_next(lines, &at, e);
        if (end != 0)
            return end < 0 ? -1 : 0;
        if (line_in(r->done, at.number))
            continue;
        if (at.text != NULL)
            (void)!line_read(at.text, at.size, endpoint, &line, &ignored);
        const struct line_of of = { c->lease->id, at.number,
            line.is.custom_id == NULL ? "" : line.is.custom_id };
        line_put_error(&text, &of, EXPIRED_CODE, EXPIRED_TEXT);
        flow_result(r->flow, at.number, true, text.data, text.len, &none);
        const int rc = n % EXPIRED_TICK == 0 ? clerk_tick(c, e) : 0;
        if (rc != 0)
            return rc;
    }
}

/* The lines that have their result, this epoch's as recorded last included. */
static int mark_all(struct run *r, struct err *e)
{
    return segments_mark(r->c->folder, &r->c->now, 1, r->done, r->bits, e);
}

/* What was answered is not thrown away because a store is away for a while. */
static int checkpoint_surely(struct run *r, struct err *e)
{
    const struct timespec pause = { .tv_nsec = TICK_MS * NS_PER_MS };

    for (;;) {
        struct err now = ERR_INIT;
        const int rc = checkpoint(r, &now);
        if (rc >= 0)
            return rc;
        if (!is_passing(&now) || atomic_load(r->c->t->stopping)) {
            *e = now;
            return rc;
        }
        log_trouble(r, &now);
        (void)nanosleep(&pause, NULL);
    }
}

static int finish(struct run *r, struct err *e)
{
    struct clerk *c = r->c;
    bool rest = false;
    int rc = checkpoint_surely(r, e);

    if (rc != 0)
        return rc;
    rest = c->seen.counts.completed + c->seen.counts.failed < c->seen.counts.total;
    if (c->lease->status == BATCH_CANCELLING)
        return 0;
    if (rest && r->late) {
        rc = mark_all(r, e);
        if (rc == 0)
            rc = expire_rest(r, e);
        if (rc == 0)
            rc = checkpoint_surely(r, e);
    } else if (rest) {
        r->stopped = true; /* the runner ends, or will look again */
        return 0;
    }
    if (rc == 0)
        rc = batch_lease_finalize(c->t->db, c->lease, rest, e);
    if (rc == 1) /* cancelled in that moment, or another's */
        rc = batch_lease_look(c->t->db, c->lease, &c->lease->status, &r->late, e);
    return rc;
}

int clerk_run_lines(struct clerk *c, bool *stopped, struct err *e)
{
    cleanup_run struct run r = { .c = c };
    int rc = prepare(&r, e);

    if (rc < 0 && e->code == ERR_INTERNAL)
        return clerk_fail(c, "internal_error", "What was written of this batch is damaged.", e);
    if (rc == 0) {
        rc = turn(&r, e);
        await(&r);
    }
    if (rc == 0)
        rc = finish(&r, e);
    *stopped = r.stopped && rc == 0;
    return rc;
}
