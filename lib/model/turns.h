/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TURNS_H
#define WB_TURNS_H

/* Whose turn it is: round robin over n that come and go. Batch contract, "Fairness between batches". Pure. */
#include <stdbool.h>
#include <stddef.h>

/* The next of 0 .. n-1 after last (n or more: none was before) that is ready; n: none is. */
size_t turns_next(size_t last, size_t n, bool (*is_ready)(void *ctx, size_t i), void *ctx);

#endif
