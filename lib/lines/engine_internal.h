/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_ENGINE_INTERNAL_H
#define WB_LINES_ENGINE_INTERNAL_H

/* Lines that are to be tried again: what the engine keeps of them is where they are, not what they say. For the files
 * of the engine, and its thread. */
#include "lines/flow.h"

enum {
    ENGINE_FLOWS_MAX = 256,
    ENGINE_WAITING_MAX = 4096 /* of a flow; no new line begins beyond */
};

struct waiting {
    int64_t due_ns;
    int64_t number;
    int64_t offset;
    size_t size;
    int64_t retries;
    int64_t unreached;
};

void waiting_put(struct flow *f, const struct waiting *w);

/* One that is due; false: there is none. */
bool waiting_take(struct flow *f, int64_t now_ns, struct waiting *out);

/* Its text, read again. NULL with *e: it cannot be. The caller frees it. */
char *waiting_text(const struct flow *f, const struct waiting *w, struct err *e);

#endif
