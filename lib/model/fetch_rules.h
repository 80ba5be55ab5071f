/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FETCH_RULES_H
#define WB_FETCH_RULES_H

/* What the answer to a request for a shard means: artifacts contract section 4, "Fetching" and "Errors have classes". Pure; any
 * thread. */
#include <stdbool.h>
#include <stdint.h>

#include "model/mishap.h"

/* Content-Range of a 206 (RFC 9110 section 14.4): "bytes first-last/total", decimal, nothing else, last < total. An unknown total ("*") is
 * no answer for us. -1: not of that form, *out untouched. */
struct content_range {
    int64_t first;
    int64_t last;
    int64_t total;
};
int content_range_parse(const char *text, struct content_range *out) WARN_UNUSED;

/* How long a server wants us to stay away by its RateLimit field (IETF draft; `r=0;t=87`, or the older `limit=10, remaining=0, reset=87`):
 * milliseconds, at most an hour; 0 when something is left or it says nothing of the kind. */
int64_t rate_limit_wait_ms(const char *text);

/* The head of an answer. Texts may be NULL: not sent. */
struct fetch_answer {
    int status;
    const char *content_range;
    const char *content_encoding;
    const char *rate_limit;
    int64_t retry_after_ms; /* 0: not sent */
    bool url_expired;       /* the URL or the token was past its time when it was asked for */
};

/* Only a 206 with exactly the wanted range and total is accepted: 0. Else -1 with *m: reason, class, status and how long to wait. */
int fetch_judge(const struct fetch_answer *a, int64_t first, int64_t size, int64_t total,
    struct mishap *m) WARN_UNUSED;

/* The same for a request of a whole small thing (a manifest): 200. */
int fetch_judge_whole(const struct fetch_answer *a, struct mishap *m) WARN_UNUSED;

/* Is the time of a signed URL over? Knows `X-Amz-Date` with `X-Amz-Expires`, and `Expires` or `expires` (seconds since 1970). now_s:
 * seconds since 1970. */
bool url_expired(const char *url, int64_t now_s);

#endif
