/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINE_VERDICT_H
#define WB_LINE_VERDICT_H

/* What a try of a line leads to: its result, or another try and when. Batch contract, "Running": retry with full-jitter
 * back-off, Retry-After honoured. Pure: the randomness is handed in. */
#include <stdbool.h>
#include <stdint.h>

#include "model/backoff.h"

struct line_terms {
    int64_t max_retries;   /* of a line that reached the server */
    int64_t max_unreached; /* of one that did not; -1: for as long as the batch has time */
    struct backoff backoff;
};

/* How a try went. */
struct line_try {
    int status;             /* of HTTP; 0: there was no answer */
    bool reached;           /* something of the request left */
    bool sound;             /* the body of the answer is an object of JSON */
    int64_t retry_after_ms; /* 0: not told */
    int64_t retries;        /* that were made before, after reaching the server */
    int64_t unreached;      /* and after not reaching it */
};

enum line_fate {
    LINE_DONE,   /* its result is a good one */
    LINE_FAILED, /* its result is an error */
    LINE_AGAIN
};

/* *wait_ms: of LINE_AGAIN. */
enum line_fate line_judge(
    const struct line_terms *terms, const struct line_try *t, uint64_t random, int64_t *wait_ms);

/* Does the answer say that the server has more than it can do? 429 and 503. */
bool line_overloads(int status);

#endif
