/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/runner.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/thread.h"
#include "lines/clerk.h"
#include "lines/engine_internal.h"
#include "lines/sweep.h"
#include "store/batch_file.h"
#include "store/chore.h"

enum { LOOK_MS = 250, PAUSE_MS = 1000, SWEEP_MS = 10000, STMT_SETS = 3, IN_HAND_MAX = 1 << 16 };

/* A thread that sees one batch through. */
struct desk {
    struct runner *r;
    pthread_t thread;
    bool taken;
    atomic_bool done; /* the thread may be joined */
    struct batch_lease lease;
};

struct runner {
    const struct conf *conf;
    struct breaker *db_breaker;
    struct breaker *kv_breaker;
    struct upstream *upstream;
    struct engine *engine;
    struct db_stmts stmts[STMT_SETS];
    char name[BATCH_HOLDER_MAX];
    atomic_bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a desk is free, or it is time to stop */
    pthread_t thread;
    pthread_t sweeper;
    bool sweeps;
    struct desk *desk; /* as many as [batch] batches */
};

static struct db *new_db(const struct runner *r, const char *thread)
{
    return db_new(&(struct db_options){
        .url = r->conf->db_url,
        .name = thread,
        .prepared = r->conf->db_prepared,
        .timeout_ms = r->conf->db_timeout_ms,
        .breaker = r->db_breaker,
        .stmts = r->stmts,
        .n_stmts = STMT_SETS,
    });
}

static struct kv *new_kv(const struct runner *r, const char *thread)
{
    return kv_new(&(struct kv_options){
        .url = r->conf->redis_url,
        .name = thread,
        .timeout_ms = r->conf->redis_timeout_ms,
        .breaker = r->kv_breaker,
    });
}

/* Until that long has passed or the runner stops. */
static void rest(struct runner *r, int64_t ms)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&r->lock);
    if (!atomic_load(&r->stopping))
        thread_cond_wait(&r->changed, &r->lock, clock_deadline(ms));
}

/* --- a batch --- */

static void tell(const struct batch_lease *l, enum clerk_end end, const struct err *e)
{
    if (end == CLERK_ENDED)
        log_info(LOG_MSG("batch ended"), LOG_S("batch", l->id), LOG_I("epoch", l->epoch));
    else if (end == CLERK_LOST)
        log_warn(LOG_MSG("batch is another's"), LOG_S("batch", l->id), LOG_I("epoch", l->epoch));
    else if (e->code != ERR_OK)
        log_warn(LOG_MSG("batch handed back"), LOG_S("batch", l->id), LOG_S("error", e->msg));
    else
        log_info(LOG_MSG("batch handed back"), LOG_S("batch", l->id));
}

static void *desk_main(void *ctx)
{
    struct desk *d = ctx;
    struct runner *r = d->r;
    {
        cleanup_db struct db *db = new_db(r, "weighbridge-batch/desk");
        cleanup_kv struct kv *kv = new_kv(r, "weighbridge-batch/desk");
        const struct clerk_tools t = { .conf = r->conf,
            .upstream = r->upstream,
            .engine = r->engine,
            .db = db,
            .kv = kv,
            .stopping = &r->stopping };
        struct err e = ERR_INIT;
        const enum clerk_end end = clerk_run(&t, &d->lease, &e);
        tell(&d->lease, end, &e);
        if (e.code != ERR_OK)
            rest(r, PAUSE_MS); /* or it is claimed, and fails, several times a second */
    }
    atomic_store(&d->done, true);
    cleanup_unlock pthread_mutex_t *held = thread_lock(&r->lock);
    (void)pthread_cond_broadcast(&r->changed);
    return NULL;
}

static void clear(struct desk *d)
{
    pthread_join(d->thread, NULL);
    batch_lease_fini(&d->lease);
    d->taken = false;
    metric_add(METRIC_BATCHES_HELD, -1);
}

static struct desk *free_desk(struct runner *r)
{
    struct desk *found = NULL;

    for (int64_t i = 0; i < r->conf->batch_batches; i++) {
        struct desk *d = &r->desk[i];
        if (d->taken && atomic_load(&d->done))
            clear(d);
        if (!d->taken)
            found = d;
    }
    return found;
}

static int sit(struct desk *d, struct db *db, struct err *e)
{
    atomic_store(&d->done, false);
    if (thread_start(&d->thread, desk_main, d, "desk", e) < 0) {
        struct err ignored = ERR_INIT;
        (void)!batch_lease_release(db, &d->lease, &ignored);
        batch_lease_fini(&d->lease);
        return -1;
    }
    d->taken = true;
    metric_add(METRIC_BATCHES_HELD, 1);
    return 0;
}

/* --- claims --- */

/* 0: there may be more; 1: not now. */
static int claim(struct runner *r, struct db *db, struct err *e)
{
    cleanup_buf struct buf in_hand = BUF_INIT(IN_HAND_MAX);
    struct desk *d = free_desk(r);

    if (d == NULL || !upstream_any(r->upstream))
        return 1;
    for (int64_t i = 0; i < r->conf->batch_batches; i++) {
        if (r->desk[i].taken)
            buf_printf(&in_hand, "%s ", r->desk[i].lease.id);
    }
    const struct batch_claim c = { r->name, r->conf->batch_lease_ms,
        in_hand.data == NULL ? "" : in_hand.data };
    const int none = batch_lease_claim(db, &c, &d->lease, e);
    return none != 0 ? none : sit(d, db, e);
}

static void *runner_main(void *ctx)
{
    struct runner *r = ctx;
    cleanup_db struct db *db = new_db(r, "weighbridge-batch/claims");
    struct err trouble = ERR_INIT;

    while (!atomic_load(&r->stopping)) {
        struct err e = ERR_INIT;
        const int rc = claim(r, db, &e);
        if (err_is_news(&trouble, &e) && e.code != ERR_OK)
            log_warn(LOG_MSG("no batch can be claimed"), LOG_S("error", e.msg));
        if (rc != 0)
            rest(r, rc < 0 ? PAUSE_MS : LOOK_MS);
    }
    return NULL;
}

static void *sweep_main(void *ctx)
{
    struct runner *r = ctx;
    cleanup_db struct db *db = new_db(r, "weighbridge-batch/sweep");
    struct err trouble = ERR_INIT;

    while (!atomic_load(&r->stopping)) {
        struct err e = ERR_INIT;
        const int rc = sweep(r->conf, db, r->name, &e);
        if (err_is_news(&trouble, &e) && rc < 0)
            log_warn(LOG_MSG("the content folder cannot be swept"), LOG_S("error", e.msg));
        rest(r, SWEEP_MS);
    }
    return NULL;
}

/* --- life --- */

int runner_check(const struct conf *conf, struct err *e)
{
    cleanup_upstream struct upstream *u = NULL;

    if (upstream_open(conf, &u, e) < 0)
        return -1;
    if (conf->batch_retry_cap_ms < conf->batch_retry_base_ms)
        return err_set(e, ERR_INVALID, "[batch] retry_cap_ms: less than retry_base_ms");
    if (!upstream_any(u))
        log_warn(LOG_MSG("there is no [batch] upstream: batches stay in validating"));
    return 0;
}

static void free_runner(struct runner *r)
{
    engine_stop(r->engine);
    upstream_close(r->upstream);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    free(r->desk);
    free(r);
}

static struct runner *make(const struct runner_options *o)
{
    const struct db_stmts all[] = { BATCH_LEASE_STMTS, BATCH_FILE_STMTS, CHORE_STMTS };
    struct runner *r = mem_calloc(1, sizeof *r);
    char host[64] = "";

    static_assert(sizeof all == sizeof r->stmts, "room for all");
    memcpy(r->stmts, all, sizeof all);
    r->conf = o->conf;
    r->db_breaker = o->db_breaker;
    r->kv_breaker = o->kv_breaker;
    (void)gethostname(host, sizeof host - 1);
    (void)str_format(r->name, sizeof r->name, "batch %s/%ld", host, (long)getpid());
    (void)pthread_mutex_init(&r->lock, NULL);
    thread_cond_init(&r->changed);
    r->desk = mem_calloc((size_t)o->conf->batch_batches, sizeof *r->desk);
    for (int64_t i = 0; i < o->conf->batch_batches; i++)
        r->desk[i].r = r;
    return r;
}

int runner_start(const struct runner_options *o, struct runner **out, struct err *e)
{
    if (runner_check(o->conf, e) < 0)
        return -1;
    struct runner *r = make(o);
    if (upstream_open(o->conf, &r->upstream, e) < 0 ||
        engine_start(o->conf, r->upstream, &r->engine, e) < 0 ||
        thread_start(&r->thread, runner_main, r, "claims", e) < 0) {
        free_runner(r);
        return -1;
    }
    r->sweeps = thread_start(&r->sweeper, sweep_main, r, "sweep", e) == 0;
    if (!r->sweeps) {
        runner_stop(r);
        return -1;
    }
    *out = r;
    return 0;
}

void runner_stop(struct runner *r)
{
    if (r == NULL)
        return;
    {
        cleanup_unlock pthread_mutex_t *held = thread_lock(&r->lock);
        atomic_store(&r->stopping, true);
        (void)pthread_cond_broadcast(&r->changed);
    }
    pthread_join(r->thread, NULL);
    if (r->sweeps)
        pthread_join(r->sweeper, NULL);
    for (int64_t i = 0; i < r->conf->batch_batches; i++) {
        if (r->desk[i].taken)
            clear(&r->desk[i]);
    }
    free_runner(r);
}
