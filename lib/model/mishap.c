/* SPDX-License-Identifier: Apache-2.0 */
#include "model/mishap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#undef mishap_set
#undef mishap_errno

static const struct {
    const char *name;
    enum mishap_class grade;
    const char *counted;
} REASONS[MISHAP__COUNT] = {
#define MISHAP(id, name, class, counted) [MISHAP_##id] = { (name), MISHAP_##class, (counted) },
#include "model/mishap_reason.def"
#undef MISHAP
};

static const char *const CLASSES[MISHAP_CLASS__COUNT] = {
    [MISHAP_RETRYABLE] = "retryable",
    [MISHAP_SOURCE_FATAL] = "source_fatal",
    [MISHAP_TASK_FATAL] = "task_fatal",
};

const char *mishap_class_name(enum mishap_class grade)
{
    return CLASSES[grade];
}

const char *mishap_reason_name(enum mishap_reason reason)
{
    return REASONS[reason].name;
}

enum mishap_reason mishap_reason_parse(const char *name)
{
    for (size_t i = 0; i < MISHAP__COUNT; i++) {
        if (strcmp(REASONS[i].name, name) == 0)
            return (enum mishap_reason)i;
    }
    return MISHAP_NONE;
}

const char *mishap_counted_as(enum mishap_reason reason)
{
    return REASONS[reason].counted;
}

static void begin(struct mishap *m, enum mishap_reason reason)
{
    *m = (struct mishap)MISHAP_INIT;
    m->reason = reason;
    m->grade = REASONS[reason].grade;
}

int mishap_set(struct mishap *m, enum mishap_reason reason, const char *fmt, ...)
{
    va_list args;

    if (m == NULL)
        return -1;
    begin(m, reason);
    va_start(args, fmt);
    (void)vsnprintf(m->text, sizeof m->text, fmt, args);
    va_end(args);
    return -1;
}

static enum mishap_reason reason_of(int code, bool writing)
{
    switch (code) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return MISHAP_DISK_FULL;
    case EROFS:
        return MISHAP_READ_ONLY;
    case EACCES:
    case EPERM:
        return MISHAP_PERMISSION;
    default:
        return writing ? MISHAP_DISK_WRITE : MISHAP_DISK_READ;
    }
}

int mishap_errno(struct mishap *m, bool writing, const char *fmt, ...)
{
    const int code = errno;
    char what[ERR_MSG_SIZE];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return mishap_set(m, reason_of(code, writing), "%.150s: %.80s", what, strerror(code));
}

int mishap_err(struct mishap *m, enum mishap_reason reason, const struct err *e)
{
    return mishap_set(m, reason, "%s", e->msg);
}

int mishap_wrap(struct mishap *m, const char *context)
{
    char text[ERR_MSG_SIZE];

    (void)str_format(text, sizeof text, "%.150s: %s", context, m->text);
    (void)str_copy(m->text, sizeof m->text, text);
    return -1;
}
