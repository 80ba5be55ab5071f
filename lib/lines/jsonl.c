/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/jsonl.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

enum { PIECE = 1 << 16 };

struct jsonl {
    int fd;
    size_t line_max;
    char *data;
    size_t cap;
    size_t from; /* of what is not handed out yet */
    size_t to;
    int64_t offset; /* of from in the file */
    int64_t number; /* of the last line */
    bool ended;     /* the file has no more */
};

struct jsonl *jsonl_open(int fd, size_t line_max)
{
    struct jsonl *j = mem_calloc(1, sizeof *j);

    j->fd = fd;
    j->line_max = line_max;
    j->cap = PIECE;
    j->data = mem_alloc(j->cap);
    return j;
}

void jsonl_close(struct jsonl *j)
{
    if (j == NULL)
        return;
    free(j->data);
    free(j);
}

/* More of the file behind what is there. */
static int fill(struct jsonl *j, struct err *e)
{
    if (j->from > 0) {
        memmove(j->data, j->data + j->from, j->to - j->from);
        j->to -= j->from;
        j->from = 0;
    }
    if (j->to == j->cap) {
        j->cap *= 2;
        j->data = mem_resize(j->data, j->cap, 1);
    }
    for (;;) {
        const ssize_t n =
            pread(j->fd, j->data + j->to, j->cap - j->to, (off_t)(j->offset + (int64_t)j->to));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_UNAVAILABLE, "the input file cannot be read");
        j->ended = n == 0;
        j->to += (size_t)n;
        return 0;
    }
}

static void pass(struct jsonl *j, size_t size)
{
    j->from += size;
    j->offset += (int64_t)size;
}

/* The rest of a line that is too long, its LF included. */
static int skip(struct jsonl *j, struct err *e)
{
    for (;;) {
        const char *end = memchr(j->data + j->from, '\n', j->to - j->from);
        if (end != NULL) {
            pass(j, (size_t)(end - (j->data + j->from)) + 1);
            return 0;
        }
        pass(j, j->to - j->from);
        if (j->ended)
            return 0;
        if (fill(j, e) < 0)
            return -1;
    }
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (strchr(" \t\r", text[i]) == NULL || text[i] == '\0')
            return false;
    }
    return true;
}

/* The next line, blank or not. */
static int take(struct jsonl *j, struct jsonl_line *out, struct err *e)
{
    size_t seen = 0;

    for (;;) {
        const size_t there = j->to - j->from;
        const char *start = j->data + j->from;
        const char *end = memchr(start + seen, '\n', there - seen);
        const bool last = end == NULL && j->ended;
        const size_t size = end != NULL ? (size_t)(end - start) : there;
        if (last && there == 0)
            return 1;
        if (end == NULL && !last && size <= j->line_max) {
            seen = there;
            if (fill(j, e) < 0)
                return -1;
            continue;
        }
        *out = (struct jsonl_line){ .text = size <= j->line_max ? start : NULL,
            .size = size,
            .offset = j->offset,
            .number = ++j->number };
        if (end == NULL && !last)
            return skip(j, e);
        pass(j, size + (end != NULL ? 1 : 0));
        return 0;
    }
}

int jsonl_next(struct jsonl *j, struct jsonl_line *out, struct err *e)
{
    for (;;) {
        const int rc = take(j, out, e);
        if (rc != 0 || out->text == NULL || !is_blank(out->text, out->size))
            return rc;
    }
}

int jsonl_last(int fd, int64_t *out, struct err *e)
{
    cleanup_free char *data = mem_alloc(PIECE);
    int64_t lines = 0;
    int64_t at = 0;
    bool open = false; /* the last line so far has no LF */

    for (;;) {
        const ssize_t n = pread(fd, data, PIECE, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_UNAVAILABLE, "the input file cannot be read");
        if (n == 0)
            break;
        for (const char *p = data; (p = memchr(p, '\n', (size_t)(data + n - p))) != NULL; p++)
            lines++;
        open = data[n - 1] != '\n';
        at += n;
    }
    *out = lines + (open ? 1 : 0);
    return 0;
}
