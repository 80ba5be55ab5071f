/* SPDX-License-Identifier: Apache-2.0 */
#include "store/live.h"

void live_free(struct live *l)
{
    overlays_free(&l->staging);
    op_overlays_free(&l->ops);
}

int live_list(struct kv *kv, const struct live *before, struct live *out, struct err *e)
{
    struct live found = LIVE_INIT;
    if (staging_list(kv, before ? &before->staging : NULL, &found.staging, e) < 0)
        return -1;
    *out = found;
    return 0;
}
