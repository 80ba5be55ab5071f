/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/gate_thread.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "store/artifact_gate.h"
#include "store/artifact_shard.h"
#include "store/gate.h"

/* Unasked it looks seldom: others may have been kicked. After a failure sooner, and SOON_MS later if a version waits that could
 * not be claimed just now. */
enum { LOOK_MS = 30000, AGAIN_MS = 2000, SOON_MS = 50, SWEEP_MS = 600000, TIMEOUT_MS = 30000 };

struct gate_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool kicked; /* under lock */
    atomic_bool stopping;
    struct gate gate;
    int64_t sweep_ns; /* the next one */
    struct db *db;
};

static bool is_stopping(void *ctx)
{
    struct gate_thread *t = ctx;
    return atomic_load(&t->stopping);
}

/* Until kicked, stopped or ms have passed. */
static void rest(struct gate_thread *t, int64_t ms)
{
    const int64_t until_ns = clock_deadline(ms);
    cleanup_unlock pthread_mutex_t *held = thread_lock(&t->lock);
    while (!t->kicked && !is_stopping(t) && clock_mono_ns() < until_ns)
        thread_cond_wait(&t->changed, &t->lock, until_ns);
    t->kicked = false;
}

/* *rest_ms: until the next look. */
static int keep(struct gate_thread *t, int64_t *rest_ms, struct err *e)
{
    struct gate_done done = { 0 };

    if (gate_run(t->db, &t->gate, &done, e) < 0)
        return -1;
    if (clock_mono_ns() >= t->sweep_ns) {
        t->sweep_ns = clock_deadline(SWEEP_MS);
        if (gate_sweep(t->db, &t->gate, &done, e) < 0)
            return -1;
    }
    if (gate_due_ms(t->db, LOOK_MS, rest_ms, e) < 0)
        return -1;
    if (*rest_ms < SOON_MS)
        *rest_ms = SOON_MS;
    return 0;
}

static void *run(void *ctx)
{
    struct gate_thread *t = ctx;
    struct err last = ERR_INIT;

    while (!is_stopping(t)) {
        int64_t rest_ms = LOOK_MS;
        struct err e = ERR_INIT;
        const int rc = gate_is_here(&t->gate) ? keep(t, &rest_ms, &e) : 0;
        if (rc < 0 && !is_stopping(t) && err_is_news(&last, &e))
            log_warn(LOG_MSG("the release gate stands still"), LOG_S("error", e.msg));
        if (rc == 0)
            last = (struct err)ERR_INIT;
        rest(t, rc < 0 ? AGAIN_MS : rest_ms);
    }
    return NULL;
}

int gate_thread_start(const struct conf *conf, struct gate_thread **out, struct err *e)
{
    static const char NAME[] = "weighbridge-artifacts/gate";
    static struct db_stmts stmts[2];
    struct gate_thread *t = mem_calloc(1, sizeof *t);

    stmts[0] = GATE_STMTS;
    stmts[1] = SHARD_STMTS;
    pthread_mutex_init(&t->lock, NULL);
    thread_cond_init(&t->changed);
    gate_init(&t->gate, conf->artifacts_root, conf->artifacts_drop_hours);
    t->gate.stopping = is_stopping;
    t->gate.ctx = t;
    t->db = db_new(&(struct db_options){ .url = conf->db_url,
        .name = NAME,
        .prepared = conf->db_prepared,
        .timeout_ms = TIMEOUT_MS,
        .stmts = stmts,
        .n_stmts = sizeof stmts / sizeof stmts[0] });
    if (thread_start(&t->thread, run, t, "gate", e) < 0) {
        db_close(t->db);
        free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void gate_thread_kick(struct gate_thread *t)
{
    if (t == NULL)
        return;
    cleanup_unlock pthread_mutex_t *held = thread_lock(&t->lock);
    t->kicked = true;
    pthread_cond_signal(&t->changed);
}

void gate_thread_stop(struct gate_thread *t)
{
    if (t == NULL)
        return;
    atomic_store(&t->stopping, true);
    gate_thread_kick(t);
    pthread_join(t->thread, NULL);
    db_close(t->db);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
