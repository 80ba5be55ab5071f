/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LIVE_H
#define WB_LIVE_H

/* All that is live in Redis, of copies and of gallery operations: the index and one MGET. */
#include "store/op_overlay.h"
#include "store/staging.h"

struct live {
    struct overlays staging;
    struct op_overlays ops;
};
#define LIVE_INIT \
    { \
        .staging = OVERLAYS_INIT, .ops = OP_OVERLAYS_INIT \
    }
void live_free(struct live *l);
#define cleanup_live __attribute__((cleanup(live_free)))

/* All live overlays, each kind in key order. before: an earlier list of this thread, or NULL: what it has
 * is asked for together with the index, in one round trip, and values that are the same as there are not
 * parsed again (they are shared: either list may be freed first). Errors are those of kv.h. */
int live_list(
    struct kv *kv, const struct live *before, struct live *out, struct err *e) WARN_UNUSED;

#endif
