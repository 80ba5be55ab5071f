/* SPDX-License-Identifier: Apache-2.0 */
#include "model/line_verdict.h"

enum {
    OK = 200,
    REDIRECT = 300,
    REQUEST_TIMEOUT = 408,
    TOO_EARLY = 425,
    TOO_MANY = 429,
    SERVER_ERROR = 500,
    NOT_IMPLEMENTED = 501,
    UNAVAILABLE = 503
};

bool line_overloads(int status)
{
    return status == TOO_MANY || status == UNAVAILABLE;
}

/* Could the same line go well another time? */
static bool may_pass(const struct line_try *t)
{
    if (t->status == 0)
        return true;
    if (t->status >= OK && t->status < REDIRECT)
        return !t->sound;
    if (t->status == NOT_IMPLEMENTED)
        return false;
    return t->status == REQUEST_TIMEOUT || t->status == TOO_EARLY || t->status == TOO_MANY ||
           t->status >= SERVER_ERROR;
}

enum line_fate line_judge(
    const struct line_terms *terms, const struct line_try *t, uint64_t random, int64_t *wait_ms)
{
    const bool reached = t->reached || t->status != 0;
    const int64_t made = reached ? t->retries : t->unreached;
    const int64_t most = reached ? terms->max_retries : terms->max_unreached;

    if (t->status >= OK && t->status < REDIRECT && t->sound)
        return LINE_DONE;
    if (!may_pass(t) || (most >= 0 && made >= most))
        return LINE_FAILED;
    /* What the server asks for, and not all of them at its end. */
    *wait_ms = t->retry_after_ms + backoff_ms(terms->backoff, made + 1, random);
    return LINE_AGAIN;
}
