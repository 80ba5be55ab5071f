/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_JSONL_H
#define WB_LINES_JSONL_H

/* The lines of a file, one after the other, in memory that does not grow with it. Lines end with LF; the last one may
 * lack it; lines of nothing but white space are none, but are counted. A reader belongs to one thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct jsonl;
void jsonl_close(struct jsonl *j); /* leaves the file open; NULL is fine */
/* fd is borrowed, and read from its start, wherever it stands. */
struct jsonl *jsonl_open(int fd, size_t line_max) OWNED_BY(jsonl_close);
static inline void jsonl_close_p(struct jsonl **j)
{
    jsonl_close(*j);
}
#define cleanup_jsonl __attribute__((cleanup(jsonl_close_p)))

struct jsonl_line {
    const char *text; /* without its LF; until the next call; NULL: longer than line_max */
    size_t size;
    int64_t offset;
    int64_t number; /* from 1 */
};

/* 1: there are no more. Failures: ERR_UNAVAILABLE, the file cannot be read. */
int jsonl_next(struct jsonl *j, struct jsonl_line *out, struct err *e) WARN_UNUSED;

/* The number of the last line of a file, blank or not. */
int jsonl_last(int fd, int64_t *out, struct err *e) WARN_UNUSED;

#endif
