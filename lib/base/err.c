/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* The header's macros of these names are for callers. */
#undef err_set
#undef err_wrap
#undef err_errno

enum { ERRNO_TEXT_SIZE = 80, WIDE = 4 * ERR_MSG_SIZE };

static const char *const NAMES[ERR__COUNT] = {
    [ERR_OK] = "ok",
    [ERR_INVALID] = "invalid",
    [ERR_UNAUTHENTICATED] = "unauthenticated",
    [ERR_FORBIDDEN] = "forbidden",
    [ERR_NOT_FOUND] = "not_found",
    [ERR_METHOD] = "method",
    [ERR_CONFLICT] = "conflict",
    [ERR_NO_LENGTH] = "no_length",
    [ERR_TOO_LARGE] = "too_large",
    [ERR_MEDIA_TYPE] = "media_type",
    [ERR_TIMEOUT] = "timeout",
    [ERR_UNAVAILABLE] = "unavailable",
    [ERR_MISMATCH] = "mismatch",
    [ERR_NO_ROOM] = "no_room",
    [ERR_NOT_DONE] = "not_done",
    [ERR_INTERNAL] = "internal",
};

/* Texts of libraries and of requests end up here, in any encoding: what is no UTF-8 becomes '?', so
 * that a reply made from the message is always valid. */
static void store(struct err *e, enum err_code code, const char *text)
{
    size_t size = strlen(text);
    size_t len = 0;

    for (size_t i = 0; i < size;) {
        size_t step = str_utf8_char(text + i, size - i);
        if (len + (step ? step : 1) >= sizeof e->msg)
            break;
        if (step == 0) {
            e->msg[len++] = '?';
            i++;
            continue;
        }
        memcpy(e->msg + len, text + i, step);
        len += step;
        i += step;
    }
    e->msg[len] = '\0';
    e->code = code;
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    char text[WIDE] = "";
    va_list args;

    if (!e)
        return -1;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    store(e, code, text);
    return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    char text[WIDE] = "";
    char whole[WIDE + ERR_MSG_SIZE + 2];
    va_list args;

    if (!e)
        return -1;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)snprintf(whole, sizeof whole, "%s: %s", text, e->msg);
    store(e, e->code, whole);
    return -1;
}

int err_errno(struct err *e, enum err_code code, const char *fmt, ...)
{
    int number = errno;
    char text[WIDE] = "";
    char reason[ERRNO_TEXT_SIZE] = "";
    char whole[WIDE + ERRNO_TEXT_SIZE + 2];
    va_list args;

    if (!e)
        return -1;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)snprintf(whole, sizeof whole, "%s: %s", text, strerror_r(number, reason, sizeof reason));
    store(e, code, whole);
    return -1;
}

bool err_is_news(struct err *last, const struct err *e)
{
    if (last->code == e->code && strcmp(last->msg, e->msg) == 0)
        return false;
    *last = *e;
    return true;
}

const char *err_name(enum err_code code)
{
    if ((unsigned)code >= ERR__COUNT)
        return "unknown";
    return NAMES[code];
}
