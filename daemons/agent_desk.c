/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_desk.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "daemons/agent_control.h"
#include "daemons/agent_node.h"
#include "daemons/agent_puller.h"
#include "daemons/agent_tell.h"
#include "model/backoff.h"

enum { ATTEMPTS = 4, RESTING_MAX = 16, CAP_MS = 60000, BEAT_CAP = 3 };

/* What came of the last pull, until the control plane knows. */
struct pending {
    enum { NOTHING, RECEIPT, FAILURE } what;
    struct order order;
    struct outcome outcome;
    int64_t due_ns;
    int64_t tries;
    bool look_first; /* whether it counted is not known: the next heartbeat's answer tells */
};

/* An assignment that is not to be tried again before that time. */
struct resting {
    char id[ORDER_ID_SIZE];
    int64_t until_ns;
};

struct desk {
    struct settings *settings;
    int root;
    int stop_fd;
    struct control control;
    struct puller *puller;
    struct order order[ORDERS_MAX]; /* of the last heartbeat's answer, until one of them ends */
    size_t orders;
    struct pending pending;
    struct resting resting[RESTING_MAX];
    size_t rested; /* so far; the next goes to this place */
    struct tell tell;
    int64_t beat_ns; /* when the next is due, as progress_ns */
    int64_t progress_ns;
    int64_t beats_missed;
    bool registered;
};

static int64_t after_ms(int64_t ms)
{
    return clock_mono_ns() + ms * NS_PER_MS;
}

/* When to try again what failed so many times: not before the server wants it. */
static int64_t again_ns(const struct desk *d, int64_t failures, int64_t cap_ms, int64_t wait_ms)
{
    const int64_t base_ms = d->settings->conf.agent_backoff_ms;
    const struct backoff b = { base_ms, cap_ms > base_ms ? cap_ms : base_ms };
    uint64_t random = 0;

    arc4random_buf(&random, sizeof random);
    const int64_t ms = backoff_ms(b, failures, random);
    return after_ms(ms > wait_ms ? ms : wait_ms);
}

/* --- resting --- */

static void rest(struct desk *d, const struct order *o, int64_t wait_ms)
{
    struct resting *r = &d->resting[d->rested++ % RESTING_MAX];

    (void)str_copy(r->id, sizeof r->id, o->id);
    r->until_ns = again_ns(d, ATTEMPTS + 1 - o->attempts_left, CAP_MS, wait_ms);
}

/* When that order may begin: 0 at once. */
static int64_t rests_until(const struct desk *d, const struct order *o)
{
    int64_t until_ns = 0;

    for (size_t i = 0; i < RESTING_MAX; i++) {
        if (strcmp(d->resting[i].id, o->id) == 0 && d->resting[i].until_ns > until_ns)
            until_ns = d->resting[i].until_ns;
    }
    return until_ns;
}

/* --- how it ended --- */

static void log_order(
    enum log_level level, const char *what, const struct order *o, const char *why)
{
    const struct log_kv line[] = {
        LOG_MSG(what),
        LOG_S("artifact", o->artifact),
        LOG_S("version", o->version),
        LOG_S("assignment", o->id),
        { .key = str_empty(why) ? NULL : "error", .text = why, .number = 0 },
        { .key = NULL, .text = NULL, .number = 0 },
    };
    log_emit(level, line);
}

static void end_pending(struct desk *d)
{
    buf_free(&d->pending.outcome.receipt);
    d->pending.what = NOTHING;
    d->orders = 0; /* what is next, the next heartbeat tells */
    d->beat_ns = 0;
}

static void take_outcome(struct desk *d)
{
    struct pending *p = &d->pending;
    const struct order *o = puller_order(d->puller);

    if (o == NULL)
        return;
    p->order = *o;
    if (puller_take(d->puller, &p->outcome) == 0)
        return;
    p->due_ns = 0;
    p->tries = 0;
    p->look_first = false;
    if (p->outcome.landed) {
        p->what = RECEIPT;
        log_order(LOG_INFO, "landed", &p->order, NULL);
    } else if (p->outcome.m.reason == MISHAP_STOPPED) {
        rest(d, &p->order, 0);
        end_pending(d);
    } else {
        p->what = FAILURE;
        (void)agent_failed("not landed", &p->outcome.m);
    }
}

/* --- handing in --- */

static void hand_in(struct desk *d)
{
    struct pending *p = &d->pending;
    int64_t wait_ms = 0;

    if (p->what == NOTHING || p->look_first || clock_mono_ns() < p->due_ns)
        return;
    const enum control_said said =
        p->what == RECEIPT
            ? control_receipt(&d->control, &p->order, &p->outcome.receipt, &wait_ms)
            : control_failure(&d->control, &p->order, &p->outcome.m, &wait_ms, &p->look_first);
    if (said == CONTROL_LATER) {
        p->due_ns = again_ns(d, ++p->tries, CAP_MS, wait_ms);
        return;
    }
    if (said == CONTROL_UNWANTED)
        log_order(LOG_WARN, "the assignment is not wanted any more", &p->order, NULL);
    if (p->what == FAILURE || said == CONTROL_REFUSED)
        rest(d, &p->order, p->outcome.m.wait_ms);
    end_pending(d);
}

/* A failure whose answer was lost: did it count? */
static void look_at_failure(struct desk *d)
{
    struct pending *p = &d->pending;

    if (p->what != FAILURE || !p->look_first)
        return;
    p->look_first = false;
    for (size_t i = 0; i < d->orders; i++) {
        if (strcmp(d->order[i].id, p->order.id) == 0 &&
            d->order[i].attempts_left >= p->order.attempts_left)
            return; /* it did not: once more */
    }
    rest(d, &p->order, p->outcome.m.wait_ms);
    end_pending(d);
}

/* --- progress --- */

static void tell_progress(struct desk *d)
{
    const struct order *o = puller_order(d->puller);
    cleanup_buf struct buf body = BUF_INIT(TELL_BODY_MAX);

    if (o == NULL || clock_mono_ns() < d->progress_ns)
        return;
    tell_print(&d->tell, puller_watch(d->puller), &body);
    if (control_progress(&d->control, o, &body) == CONTROL_UNWANTED) {
        log_order(LOG_WARN, "the assignment is not wanted any more", o, NULL);
        watch_stop(puller_watch(d->puller));
    }
    d->progress_ns = after_ms(d->settings->conf.agent_progress_ms);
}

/* --- heartbeats --- */

static void beat_again(struct desk *d, bool answered, int64_t wait_ms)
{
    const int64_t every_ms = d->settings->conf.agent_heartbeat_ms;

    d->beats_missed = answered ? 0 : d->beats_missed + 1;
    d->beat_ns =
        answered
            ? after_ms(every_ms * 3 / 4 + (int64_t)arc4random_uniform((uint32_t)(every_ms / 2 + 1)))
            : again_ns(d, d->beats_missed, every_ms * BEAT_CAP, wait_ms);
}

static void beat(struct desk *d)
{
    struct mishap m = MISHAP_INIT;
    cleanup_buf struct buf body = BUF_INIT(NODE_BODY_MAX);
    int64_t wait_ms = 0;

    if (clock_mono_ns() < d->beat_ns)
        return;
    if (node_print(d->settings, d->root, &body, &m) < 0) {
        (void)agent_failed("this node cannot be looked at", &m);
        beat_again(d, false, 0);
        return;
    }
    const bool answered =
        control_heartbeat(&d->control, &body, d->order, &d->orders, &wait_ms) == CONTROL_DONE;
    if (answered && !d->registered)
        log_info(LOG_MSG("registered"), LOG_S("node", d->settings->node),
            LOG_S("url", d->settings->conf.agent_url));
    d->registered |= answered;
    beat_again(d, answered, wait_ms);
    if (answered)
        look_at_failure(d);
}

/* --- the next one --- */

static void begin_next(struct desk *d)
{
    struct err e = ERR_INIT;

    if (d->pending.what != NOTHING || puller_order(d->puller) != NULL)
        return;
    for (size_t i = 0; i < d->orders; i++) {
        const struct order *o = &d->order[i];
        if (rests_until(d, o) > clock_mono_ns())
            continue;
        log_order(LOG_INFO, "a pull begins", o, NULL);
        tell_begin(&d->tell);
        d->progress_ns = 0;
        if (puller_give(d->puller, d->settings, o, &e) < 0) {
            log_order(LOG_ERROR, "a pull cannot begin", o, e.msg);
            rest(d, o, 0);
        }
        return;
    }
}

/* --- the whole --- */

static int64_t sooner(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static int64_t next_due(const struct desk *d)
{
    int64_t due_ns = d->beat_ns;

    if (puller_order(d->puller) != NULL)
        return sooner(due_ns, d->progress_ns);
    if (d->pending.what != NOTHING)
        return d->pending.look_first ? due_ns : sooner(due_ns, d->pending.due_ns);
    for (size_t i = 0; i < d->orders; i++)
        due_ns = sooner(due_ns, rests_until(d, &d->order[i]));
    return due_ns;
}

int64_t desk_turn(struct desk *d)
{
    take_outcome(d);
    hand_in(d);
    tell_progress(d);
    beat(d);
    begin_next(d);
    return next_due(d);
}

int desk_fd(const struct desk *d)
{
    return puller_fd(d->puller);
}

int desk_open(struct settings *s, int root, int stop_fd, struct desk **out, struct err *e)
{
    struct desk *d = mem_calloc(1, sizeof *d);

    if (puller_start(&d->puller, e) < 0) {
        free(d);
        return -1;
    }
    d->settings = settings_use(s);
    d->root = root;
    d->stop_fd = stop_fd;
    control_begin(&d->control, s, stop_fd);
    *out = d;
    return 0;
}

void desk_close(struct desk *d)
{
    if (d == NULL)
        return;
    puller_end(d->puller);
    control_end(&d->control);
    buf_free(&d->pending.outcome.receipt);
    settings_drop(d->settings);
    free(d);
}

void desk_reload(struct desk *d, struct settings *s)
{
    control_end(&d->control);
    settings_drop(d->settings);
    d->settings = settings_use(s);
    control_begin(&d->control, s, d->stop_fd);
    d->beat_ns = 0;
    d->beats_missed = 0;
    d->registered = false;
}
