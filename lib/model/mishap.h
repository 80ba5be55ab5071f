/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MISHAP_H
#define WB_MISHAP_H

/* What went wrong with a pull, and what that means for who may try again: artifacts contract section 4. A fallible function of
 * lib/fetch and lib/depot is `int verb(in..., struct mishap *m)`: 0, or -1 with *m set. It stands where struct err stands elsewhere,
 * because here each failure has a class that decides what is done next. Pure; any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum mishap_class {
    MISHAP_RETRYABLE,    /* later, or from elsewhere */
    MISHAP_SOURCE_FATAL, /* not from this source */
    MISHAP_TASK_FATAL,   /* not at all */
    MISHAP_CLASS__COUNT
};

enum mishap_reason {
#define MISHAP(id, name, class, counted) MISHAP_##id,
#include "model/mishap_reason.def"
#undef MISHAP
    MISHAP__COUNT
};

enum { MISHAP_BODY_SIZE = 2048 + 1 };

struct mishap {
    enum mishap_reason reason;   /* MISHAP_NONE: nothing */
    enum mishap_class grade;     /* usually that of the reason */
    int status;                  /* of HTTP; 0: none */
    int64_t wait_ms;             /* what the server asks for (Retry-After, RateLimit); 0: nothing */
    char text[ERR_MSG_SIZE];     /* for people; no secret */
    char body[MISHAP_BODY_SIZE]; /* start of an HTTP error's body, fit for a log; "" none */
};
#define MISHAP_INIT \
    { \
        .reason = MISHAP_NONE, .grade = MISHAP_RETRYABLE, .status = 0, .wait_ms = 0, .text = "", \
        .body = "" \
    }

const char *mishap_class_name(enum mishap_class grade);
const char *mishap_reason_name(enum mishap_reason reason);

/* The reason of that name; MISHAP_NONE: there is none. */
enum mishap_reason mishap_reason_parse(const char *name);

/* The reason under which dist_retry_total counts it. */
const char *mishap_counted_as(enum mishap_reason reason);

/* Sets *m to that reason and its class. Always -1. m may be NULL. */
int mishap_set(struct mishap *m, enum mishap_reason reason, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* From errno, whose text is appended: no space or quota (EFBIG, too: a limit on a file's size) is DISK_FULL, and so on; what the table
 * does not know is DISK_WRITE when writing, else DISK_READ, so that the two are told apart. Always -1. */
int mishap_errno(struct mishap *m, bool writing, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "context: " before its text. Always -1. */
int mishap_wrap(struct mishap *m, const char *context);

/* From an err: its text under that reason. Always -1. */
int mishap_err(struct mishap *m, enum mishap_reason reason, const struct err *e);

#define mishap_set(...)   err_failed_(mishap_set(__VA_ARGS__))
#define mishap_errno(...) err_failed_(mishap_errno(__VA_ARGS__))

#endif
