/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/keeper.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "store/gallery_keep.h"

enum { AGAIN_MS = 1000, LOOK_MS = 60000, VALUES_MAX = 64 << 20 };

struct keeper {
    struct db *db;
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct buf values; /* given and not begun; empty: none. Of lock */
    bool stopping;     /* of lock */
    pthread_t thread;
};

/* Takes what is there, at once or when it comes. False: stop. */
static bool take(struct keeper *k, struct buf *values)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&k->lock);
    while (k->values.len == 0 && !k->stopping)
        thread_cond_wait(&k->given, &k->lock, clock_deadline(LOOK_MS));
    const struct buf taken = k->values;
    buf_clear(values);
    k->values = *values;
    *values = taken;
    return !k->stopping;
}

static void rest(struct keeper *k)
{
    const int64_t until_ns = clock_deadline(AGAIN_MS);
    cleanup_unlock pthread_mutex_t *held = thread_lock(&k->lock);
    while (!k->stopping && clock_mono_ns() < until_ns)
        thread_cond_wait(&k->given, &k->lock, until_ns);
}

static void *run(void *ctx)
{
    struct keeper *k = ctx;
    cleanup_buf struct buf values = BUF_INIT(VALUES_MAX);
    struct err last = ERR_INIT;

    while (take(k, &values)) {
        struct err e = ERR_INIT;
        int64_t kept = 0;
        if (gallery_keep(k->db, values.data, &kept, &e) == 0) {
            metric_add(METRIC_OPERATIONS_KEPT, kept);
            last = (struct err)ERR_INIT;
            continue;
        }
        if (err_is_news(&last, &e))
            log_warn(LOG_MSG("last reports are not written to their rows"), LOG_S("error", e.msg));
        rest(k);
    }
    return NULL;
}

static void keeper_free(struct keeper *k)
{
    db_close(k->db);
    buf_free(&k->values);
    pthread_cond_destroy(&k->given);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

int keeper_start(const struct conf *conf, struct keeper **out, struct err *e)
{
    struct keeper *k = mem_calloc(1, sizeof(*k));
    pthread_mutex_init(&k->lock, NULL);
    thread_cond_init(&k->given);
    k->values = (struct buf)BUF_INIT(VALUES_MAX);
    k->db = db_new(&(struct db_options){ .url = conf->db_url,
        .name = "weighbridge-operations/keeper",
        .prepared = conf->db_prepared,
        .timeout_ms = conf->db_timeout_ms,
        .stmts = &GALLERY_KEEP_STMTS,
        .n_stmts = 1 });
    if (thread_start(&k->thread, run, k, "keeper", e) < 0) {
        keeper_free(k);
        return -1;
    }
    *out = k;
    return 0;
}

void keeper_give(struct keeper *k, const struct buf *values)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&k->lock);
    buf_clear(&k->values);
    buf_add(&k->values, values->data, values->len);
    pthread_cond_signal(&k->given);
}

void keeper_stop(struct keeper *k)
{
    if (k == NULL)
        return;
    {
        cleanup_unlock pthread_mutex_t *held = thread_lock(&k->lock);
        k->stopping = true;
        pthread_cond_signal(&k->given);
    }
    pthread_join(k->thread, NULL);
    keeper_free(k);
}
