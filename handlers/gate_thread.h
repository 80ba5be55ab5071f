/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_GATE_THREAD_H
#define WB_GATE_THREAD_H

/* The release gate beside the handlers, so that what has just been uploaded is published at once and not when housekeeping
 * comes by. A thread with a connection of its own. */
#include "base/conf.h"
#include "base/err.h"

struct gate_thread;
int gate_thread_start(const struct conf *conf, struct gate_thread **out, struct err *e) WARN_UNUSED;
/* There is something to verify. NULL is fine. Any thread. */
void gate_thread_kick(struct gate_thread *t);
/* What is in hand is given back. NULL is fine. */
void gate_thread_stop(struct gate_thread *t);

#endif
