/* SPDX-License-Identifier: Apache-2.0 */
#include "model/backoff.h"

#include <assert.h>

int64_t backoff_ms(struct backoff b, int64_t failures, uint64_t random)
{
    assert(b.base_ms > 0 && b.cap_ms >= b.base_ms);
    int64_t most = b.base_ms;
    for (int64_t i = 1; i < failures && most < b.cap_ms; i++)
        most = most > b.cap_ms / 2 ? b.cap_ms : most * 2;
    return 1 + (int64_t)(random % (uint64_t)most);
}
