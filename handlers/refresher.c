/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/refresher.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/wait.h"
#include "handlers/operations_app.h"
#include "handlers/poll.h"
#include "kv/kv.h"
#include "store/staging.h"

enum {
    LEASE_MS = 350,    /* over a period and a store's deadline, under the age a poll still takes */
    POLLED_MS = 10000, /* nobody polled for so long: rest */
    REST_MS = 1000,
    STANDBY_MS = 40, /* how often a process without the lease looks whether it lapsed */
    OVERDUE_MS =
        100, /* a change that nobody published for so long: whoever has the lease is not well */
    MIN_GAP_MS = 4, /* between two refreshes, however many changes there are */
    RETRY_MS = 50,  /* after a snapshot that could not be written */
    LISTEN_RETRY_MS = 1000,
    LISTEN_MS = 60000,
    STATE_MAX = 256 << 20,
};

struct refresher {
    const struct conf *conf;
    struct snapshots *snapshots;
    struct keeper *keeper; /* NULL: nothing is written */
    struct poll_source *source;
    struct poll_answer answer;
    struct buf state;
    int64_t took_ms;       /* the last refresh */
    uint64_t known_ticket; /* the snapshot that `source` remembers at least as well */
    atomic_bool blocked;   /* no snapshot can be written */
    _Atomic uint32_t stopping;
    int stop_fd;
    pthread_t refresh_thread;
    pthread_t listen_thread;
};

static bool is_stopping(struct refresher *r)
{
    return atomic_load(&r->stopping) != 0;
}

static int64_t thread_cpu_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
}

/* Whoever published last knows the last good rows and overlays: take them over, so that an outage that
 * goes on while refreshers change hides nothing. */
static void learn_from_predecessor(struct refresher *r)
{
    struct snapshot *snap = snapshot_current(r->snapshots);
    if (snap == NULL)
        return;
    if (snap->head->ticket != r->known_ticket) {
        struct err e = ERR_INIT;
        if (poll_restore(r->source, snap->state, snap->head->state_size, &e) < 0)
            log_warn(LOG_MSG("the predecessor's snapshot is of no use"), LOG_S("error", e.msg));
        r->known_ticket = snap->head->ticket;
    }
    snapshot_put(snap);
}

static void note_published(struct refresher *r, int64_t cpu_us)
{
    struct snapshot *snap = snapshot_current(r->snapshots);
    if (snap != NULL) {
        r->known_ticket = snap->head->ticket;
        snapshot_put(snap);
    }
    metric_add(METRIC_SNAPSHOTS, 1);
    metric_add(METRIC_SNAPSHOT_SECONDS, cpu_us);
    metric_set(METRIC_SNAPSHOT_OPERATIONS, (int64_t)r->answer.entries);
}

static int refresh(struct refresher *r, struct snapshot_base *base)
{
    struct err e = ERR_INIT;
    int64_t cpu_us = thread_cpu_us();

    learn_from_predecessor(r);
    *base = snapshot_begin(r->snapshots);
    const uint64_t rows_changed = atomic_load(&snapshots_shared(r->snapshots)->rows_changed);
    poll_ask(r->source, rows_changed, &r->answer);
    if (r->keeper != NULL && r->answer.behind.len > 0)
        keeper_give(r->keeper, &r->answer.behind);
    poll_save(r->source, &r->state);
    if (r->answer.body.overflow || r->state.overflow) {
        log_error(LOG_MSG("too many operations for one snapshot"));
        return -1;
    }
    const struct snapshot_parts parts = {
        .head = r->answer.head,
        .body = r->answer.body.data,
        .body_size = r->answer.body.len,
        .state = r->state.data,
        .state_size = r->state.len,
    };
    int rc = snapshot_publish(r->snapshots, base, &parts, &e);
    r->took_ms = (clock_mono_ns() - base->began_ns) / NS_PER_MS;
    if (atomic_exchange(&r->blocked, rc < 0) != (rc < 0)) {
        if (rc < 0)
            log_error(LOG_MSG("snapshots cannot be written: polls ask the stores themselves"),
                LOG_S("error", e.msg));
        else
            log_info(LOG_MSG("snapshots can be written again"));
    }
    if (rc == 0)
        note_published(r, thread_cpu_us() - cpu_us);
    return rc;
}

static void rest(struct refresher *r, int64_t until_ns)
{
    while (!is_stopping(r) && clock_mono_ns() < until_ns)
        wait_word(&r->stopping, 0, until_ns);
}

/* Where there is so much to read that it takes longer, nobody should begin the same beside it. */
static int64_t lease_ms(const struct refresher *r)
{
    return r->took_ms > LEASE_MS / 2 ? 2 * r->took_ms : LEASE_MS;
}

/* A change that is not in the snapshot yet, and since when it was seen so. */
struct overdue {
    uint64_t ticket;
    int64_t since_ns; /* 0: the snapshot has every change */
};

/* Who died or froze keeps the lease for longer than a poll that must see a change can wait. */
static bool is_overdue(struct refresher *r, struct overdue *o)
{
    const uint64_t changes = atomic_load(&snapshots_shared(r->snapshots)->generation);
    const int64_t now_ns = clock_mono_ns();
    uint64_t ticket = 0;
    bool behind = true;
    struct snapshot *snap = snapshot_current(r->snapshots);
    if (snap != NULL) {
        ticket = snap->head->ticket;
        behind = snap->head->generation < changes;
        snapshot_put(snap);
    }
    if (behind && o->since_ns != 0 && o->ticket == ticket)
        return now_ns - o->since_ns >= OVERDUE_MS * NS_PER_MS;
    *o = (struct overdue){ .ticket = ticket, .since_ns = behind ? now_ns : 0 };
    return false;
}

static void *refresh_main(void *ctx)
{
    struct refresher *r = ctx;
    struct snapshot_base base = { .generation = 0 };
    struct overdue overdue = { .since_ns = 0 };

    while (!is_stopping(r)) {
        bool taken_over = false;
        if (!snapshot_is_polled(r->snapshots, POLLED_MS)) {
            snapshot_lease_end(r->snapshots);
            snapshot_wait_wanted(r->snapshots, UINT64_MAX, clock_deadline(REST_MS));
            continue;
        }
        if (snapshot_lease(r->snapshots, lease_ms(r), &taken_over) == 1) {
            if (is_overdue(r, &overdue))
                (void)!refresh(r, &base);
            rest(r, clock_deadline(STANDBY_MS));
            continue;
        }
        if (taken_over)
            metric_add(METRIC_SNAPSHOT_TAKEOVERS, 1);
        if (refresh(r, &base) < 0)
            rest(r, clock_deadline(RETRY_MS));
        snapshot_wait_wanted(r->snapshots, base.generation,
            base.began_ns + r->conf->operations_refresh_ms * NS_PER_MS);
        rest(r, base.began_ns + MIN_GAP_MS * NS_PER_MS);
    }
    snapshot_lease_end(r->snapshots);
    return NULL;
}

/* A message of this machine changes nothing: its sender has bumped already. */
static void heard(struct shared *shared, const char *message)
{
    if (str_starts(message, shared->machine_id))
        return;
    if (str_ends(message, CHANGED_ROWS))
        shared_bump_rows(shared);
    else
        shared_bump(shared);
}

/* Other machines' changes. */
static void *listen_main(void *ctx)
{
    struct refresher *r = ctx;
    struct shared *shared = snapshots_shared(r->snapshots);
    cleanup_kv struct kv *kv = kv_new(&(struct kv_options){
        .url = r->conf->redis_url,
        .name = "weighbridge-changes",
        .timeout_ms = r->conf->redis_timeout_ms,
        .breaker = NULL,
    });

    while (!is_stopping(r)) {
        struct err e = ERR_INIT;
        if (kv_subscribe(kv, CHANGES_CHANNEL, &e) < 0) {
            rest(r, clock_deadline(LISTEN_RETRY_MS));
            continue;
        }
        shared_bump(shared); /* what was said while nobody listened is not known */
        for (int rc = 0; rc >= 0 && !is_stopping(r);) {
            cleanup_free char *message = NULL;
            rc = kv_next_message(kv, r->stop_fd, clock_deadline(LISTEN_MS), &message, &e);
            if (rc == 0)
                heard(shared, message);
        }
    }
    return NULL;
}

static void refresher_free(struct refresher *r)
{
    if (r->stop_fd >= 0)
        close(r->stop_fd);
    poll_source_free(r->source);
    poll_answer_free(&r->answer);
    buf_free(&r->state);
    free(r);
}

static void ask_to_stop(struct refresher *r)
{
    struct shared *shared = snapshots_shared(r->snapshots);
    atomic_store(&r->stopping, 1);
    wake_word(&r->stopping);
    atomic_fetch_add(&shared->wanted, 1);
    wake_word(&shared->wanted);
    stop_raise(r->stop_fd);
}

int refresher_start(const struct conf *conf, struct snapshots *s, struct keeper *keeper,
    struct refresher **out, struct err *e)
{
    struct refresher *r = mem_calloc(1, sizeof(*r));
    r->conf = conf;
    r->snapshots = s;
    r->keeper = keeper;
    poll_answer_init(&r->answer);
    r->state = (struct buf)BUF_INIT(STATE_MAX);
    r->source = poll_source_new(
        conf, "weighbridge-operations/refresher", conf->operations_store_timeout_ms);
    r->stop_fd = stop_event_fd(e);
    if (r->stop_fd < 0 || thread_start(&r->refresh_thread, refresh_main, r, "refresher", e) < 0) {
        refresher_free(r);
        return -1;
    }
    if (thread_start(&r->listen_thread, listen_main, r, "changes", e) < 0) {
        ask_to_stop(r);
        pthread_join(r->refresh_thread, NULL);
        refresher_free(r);
        return -1;
    }
    *out = r;
    return 0;
}

bool refresher_is_blocked(struct refresher *r)
{
    return atomic_load(&r->blocked);
}

void refresher_stop(struct refresher *r)
{
    if (r == NULL)
        return;
    ask_to_stop(r);
    pthread_join(r->refresh_thread, NULL);
    pthread_join(r->listen_thread, NULL);
    refresher_free(r);
}
