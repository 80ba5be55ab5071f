/* SPDX-License-Identifier: Apache-2.0 */
#include "model/turns.h"

size_t turns_next(size_t last, size_t n, bool (*is_ready)(void *ctx, size_t i), void *ctx)
{
    const size_t from = last < n ? last + 1 : 0;

    for (size_t k = 0; k < n; k++) {
        const size_t i = (from + k) % n;
        if (is_ready(ctx, i))
            return i;
    }
    return n;
}
