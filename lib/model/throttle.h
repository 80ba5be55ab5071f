/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_THROTTLE_H
#define WB_THROTTLE_H

/* How many requests may be in flight: additive increase, halved when the server has too much (429, 503). Batch contract,
 * "Running": adaptive when asked. Pure, no clock: of the answers to what was started before a halving none halves again. */
#include <stdbool.h>
#include <stdint.h>

struct throttle {
    bool adaptive; /* else limit never changes */
    int64_t limit;
    int64_t most;
    int64_t step;   /* that it grows by */
    int64_t window; /* good answers in a row until it does; 0: as many as the limit is */
    int64_t good;
    uint64_t era; /* halvings so far: a request has the era that it was started in */
};

/* most >= start >= 1. */
struct throttle throttle_fixed(int64_t limit);
struct throttle throttle_adaptive(int64_t start, int64_t most, int64_t step, int64_t window);

/* An answer to a request of that era. */
void throttle_answer(struct throttle *t, uint64_t era, bool overloaded);

#endif
