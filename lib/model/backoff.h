/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BACKOFF_H
#define WB_BACKOFF_H

/* Exponential back-off with full jitter. Pure: the randomness is handed in (arc4random_buf() of stdlib.h has
 * some). */
#include <stdint.h>

struct backoff {
    int64_t base_ms; /* > 0: the longest first delay */
    int64_t cap_ms;  /* >= base_ms */
};

/* A delay of 1 ... min(cap, base * 2^(failures - 1)) ms, uniform over random (any 64 bits). failures: in a
 * row, counted from 1; 0 counts as 1. */
int64_t backoff_ms(struct backoff b, int64_t failures, uint64_t random);

#endif
