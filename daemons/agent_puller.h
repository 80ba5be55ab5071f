/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_PULLER_H
#define WB_AGENT_PULLER_H

/* The thread of `agent run` that carries assignments out, one at a time. All of these are called by one other thread, which never waits here
 * but in puller_end(). */
#include "daemons/agent_order.h"

struct puller;

/* ERR_INTERNAL: no thread or descriptor. */
int puller_start(struct puller **out, struct err *e) WARN_UNUSED;

/* Ends a pull in progress, which stays on disk to be resumed, and frees it. NULL is fine. */
void puller_end(struct puller *p);

/* Readable once a pull has ended, until puller_take(). */
int puller_fd(const struct puller *p);

/* Begins. Nothing may be in hand. */
int puller_give(
    struct puller *p, struct settings *s, const struct order *o, struct err *e) WARN_UNUSED;

/* What is in hand, taken or not; NULL: nothing. */
const struct order *puller_order(const struct puller *p);

/* The pull in hand, to look at and to stop. */
struct watch *puller_watch(struct puller *p);

struct outcome {
    bool landed;
    struct mishap m;    /* why it has not */
    struct buf receipt; /* to be handed in when it has; the caller's */
};

/* 1: it has ended, and nothing is in hand any more; 0: not yet. */
int puller_take(struct puller *p, struct outcome *out);

#endif
