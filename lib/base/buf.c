/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { FIRST_CAP = 256 };

void buf_free(struct buf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
    b->overflow = false;
}

/* cap counts the NUL; need is at most max + 1. */
static void grow(struct buf *b, size_t need)
{
    size_t cap = b->cap ? b->cap : FIRST_CAP;

    while (cap < need)
        cap = cap > b->max / 2 ? b->max + 1 : cap * 2;
    b->data = mem_resize(b->data, cap, 1);
    b->cap = cap;
}

char *buf_room(struct buf *b, size_t size)
{
    if (b->overflow || size > b->max - b->len) {
        b->overflow = true;
        return NULL;
    }
    if (!b->data || b->cap - b->len <= size)
        grow(b, b->len + size + 1);
    b->data[b->len] = '\0';
    return b->data + b->len;
}

void buf_grew(struct buf *b, size_t size)
{
    assert(b->data && size < b->cap - b->len);
    b->len += size;
    b->data[b->len] = '\0';
}

void buf_add(struct buf *b, const void *data, size_t size)
{
    if (size == 0)
        return;
    char *room = buf_room(b, size);
    if (!room)
        return;
    memcpy(room, data, size);
    buf_grew(b, size);
}

void buf_puts(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_putc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    va_list again;

    va_start(args, fmt);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *room = size > 0 ? buf_room(b, (size_t)size) : NULL;
    if (room) {
        (void)vsnprintf(room, (size_t)size + 1, fmt, again);
        buf_grew(b, (size_t)size);
    }
    va_end(again);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->overflow = false;
    if (b->data)
        b->data[0] = '\0';
}

char *buf_steal(struct buf *b)
{
    char *data = b->data ? b->data : mem_strdup("");

    b->data = NULL;
    b->len = b->cap = 0;
    b->overflow = false;
    return data;
}
