/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_CONTROL_H
#define WB_AGENT_CONTROL_H

/* What `agent run` says to the control plane: artifacts contract section 3, "Nodes". One thread. Each call takes 10 s at most and tries once; whoever
 * calls tries again. What goes wrong with a kind of call is logged once, as is its end. */
#include "daemons/agent_order.h"
#include "fetch/service.h"

enum control_call {
    CONTROL_HEARTBEAT,
    CONTROL_PROGRESS,
    CONTROL_RECEIPT,
    CONTROL_FAILURE,
    CONTROL__CALLS
};

struct control {
    struct service service;
    const char *node;
    struct err last[CONTROL__CALLS]; /* what is wrong with such calls; ERR_OK: nothing */
};

enum control_said {
    CONTROL_DONE,
    CONTROL_LATER,   /* no answer, or one that says later, or a token that is not taken */
    CONTROL_REFUSED, /* never: not as it is */
    CONTROL_UNWANTED /* it is no assignment of this node any more, or over */
};

/* stop_fd: readable: calls end. s stays in use until control_end(). */
void control_begin(struct control *c, struct settings *s, int stop_fd);
void control_end(struct control *c);

/* CONTROL_DONE: *n orders are in out. *wait_ms, also of the others: what the service asks for before the next try, or 0. */
enum control_said control_heartbeat(struct control *c, const struct buf *body,
    struct order out[ORDERS_MAX], size_t *n, int64_t *wait_ms);

enum control_said control_progress(
    struct control *c, const struct order *o, const struct buf *body);

/* A receipt (may be handed in any number of times), or a failure (which counts each time: *may_be_done tells that the answer is missing, and so
 * whether it counted is not known). */
enum control_said control_receipt(
    struct control *c, const struct order *o, const struct buf *body, int64_t *wait_ms);
enum control_said control_failure(struct control *c, const struct order *o, const struct mishap *m,
    int64_t *wait_ms, bool *may_be_done);

#endif
