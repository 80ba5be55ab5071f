/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BUF_H
#define WB_BUF_H

/* A growing byte buffer with a stated maximum. What would pass the maximum is not added and marks
 * the buffer as overflowed for good; callers check once, at the end. One thread at a time. */
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

struct buf {
    char *data; /* NULL while empty; data[len] is always NUL otherwise */
    size_t len;
    size_t cap;
    size_t max; /* bytes, without the NUL */
    bool overflow;
};

#define BUF_INIT(max_bytes) \
    { \
        .data = NULL, .len = 0, .cap = 0, .max = (max_bytes), .overflow = false \
    }

void buf_free(struct buf *b);
#define cleanup_buf __attribute__((cleanup(buf_free)))

void buf_add(struct buf *b, const void *data, size_t size);
void buf_puts(struct buf *b, const char *text);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Makes room for size bytes after len and returns where they start, or NULL when that would pass
 * the maximum (the buffer is then overflowed). The caller adds what it wrote to b->len by
 * buf_grew(). */
char *buf_room(struct buf *b, size_t size);
void buf_grew(struct buf *b, size_t size);

/* Empties the buffer and its overflow mark, keeps its memory. */
void buf_clear(struct buf *b);

/* Hands over the NUL-terminated bytes (never NULL) and leaves the buffer empty. */
char *buf_steal(struct buf *b) OWNED_BY(free);

#endif
