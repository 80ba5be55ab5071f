/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_TELL_H
#define WB_AGENT_TELL_H

/* The body of POST .../progress, made of what a pull shows of itself. One thread. */
#include "daemons/agent_watch.h"

enum { TELL_BODY_MAX = WATCH_BITMAP_MAX + 8192 };

/* What was reported last: speeds are differences. */
struct tell {
    int64_t bytes;
    int64_t at_ns; /* 0: nothing yet */
};

void tell_begin(struct tell *r);
void tell_print(struct tell *r, struct watch *w, struct buf *out);

#endif
