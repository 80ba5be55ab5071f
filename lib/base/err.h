/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ERR_H
#define WB_ERR_H

/* The error value. A fallible function is `int verb(in..., T *out, struct err *e)`: 0 is success,
 * -1 is failure with *e set and *out untouched, 1 only where its header documents an expected
 * outcome. Set once where the error arises, add context when it crosses a module, and either
 * return it or log it, never both. */
#include <stdbool.h>

#include "base/cleanup.h"

enum err_code {
    ERR_OK,
    ERR_INVALID,         /* the caller's input is wrong */
    ERR_UNAUTHENTICATED, /* no or an unknown credential */
    ERR_FORBIDDEN,       /* known, but may not */
    ERR_NOT_FOUND,
    ERR_METHOD,    /* the thing exists, the verb does not */
    ERR_CONFLICT,  /* somebody else's state stands against it */
    ERR_NO_LENGTH, /* a body is required and its length is not told */
    ERR_TOO_LARGE,
    ERR_MEDIA_TYPE,
    ERR_TIMEOUT,     /* a dependency did not answer by the deadline */
    ERR_UNAVAILABLE, /* a dependency is down or its breaker is open */
    ERR_MISMATCH,    /* well formed, but not what it was to be */
    ERR_NO_ROOM,     /* no space left, or no quota */
    ERR_NOT_DONE,    /* what was asked did not happen; the text is for the caller */
    ERR_INTERNAL,    /* a defect or an answer that makes no sense */
    ERR__COUNT
};

enum { ERR_MSG_SIZE = 236 };

struct err {
    enum err_code code;
    char msg[ERR_MSG_SIZE]; /* always terminated, UTF-8 whole; holds no secret */
};

#define ERR_INIT \
    { \
        .code = ERR_OK, .msg = "" \
    }

/* Sets *e to code and the formatted text, cut at a whole UTF-8 character when too long. e may be
 * NULL. Always returns -1, so that `return err_set(e, ...)` reads well. Any thread. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "context: " before the text that *e holds, keeping its code. Always returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* err_set with ": " and the text of errno appended. Reads errno before anything else. */
int err_errno(struct err *e, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Says where the caller is compiled that these fail, so that neither warnings nor analyzers follow
 * the way on which a failure was none. */
static inline int err_failed_(int failure)
{
    (void)failure;
    return -1;
}

#define err_set(...)   err_failed_(err_set(__VA_ARGS__))
#define err_wrap(...)  err_failed_(err_wrap(__VA_ARGS__))
#define err_errno(...) err_failed_(err_errno(__VA_ARGS__))

/* For what is looked at again and again and must be told once: true when e is not what *last is, which becomes
 * e. Both may be ERR_OK. */
bool err_is_news(struct err *last, const struct err *e);

/* The lower-case name of a code ("not_found"), static storage. */
const char *err_name(enum err_code code);

#endif
