/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_SEGMENT_H
#define WB_LINES_SEGMENT_H

/* What one holder of a batch writes: results and errors in the order in which they come, and which lines they are of.
 * Nobody else ever writes to these files; the next holder begins its own and takes of the older ones what their last
 * checkpoint recorded, to the byte. Batch contract, "Running". Failures: ERR_NO_ROOM, ERR_UNAVAILABLE; after one the
 * segment is of no further use.
 *
 * One thread at a time, segment_sync() excepted. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/batch_lease.h"

struct segment;
void segment_close(struct segment *s); /* NULL is fine */

/* folder: of the batch, borrowed. The files are made anew. */
int segment_open(int folder, int64_t epoch, struct segment **out, struct err *e) WARN_UNUSED;

/* The result of a line: text ends with LF. */
int segment_add(struct segment *s, int64_t number, bool failed, const char *text, size_t size,
    struct err *e) WARN_UNUSED;

/* Hands to the kernel what was added; *at is how long the files are then. */
int segment_flush(struct segment *s, struct batch_segment *at, struct err *e) WARN_UNUSED;

/* What was flushed is on the disk when this returns. Beside segment_add() in another thread. */
int segment_sync(const struct segment *s, struct err *e) WARN_UNUSED;

/* Marks in done the lines that the segments have, each once. bits: how many done has room for. ERR_INTERNAL: a segment
 * is shorter than was recorded, or has a line twice. */
int segments_mark(int folder, const struct batch_segment *at, size_t n, uint64_t *done,
    int64_t bits, struct err *e) WARN_UNUSED;

/* What of which segments goes into a file: their results, or their errors. */
struct segment_choice {
    int folder;
    const struct batch_segment *at;
    size_t n;
    bool errors;
};

/* Copies what is chosen, one segment behind the other, into to. *bytes is their sum. tick is
 * called now and then: anything but 0 ends the copying, and is returned. */
struct segment_tick {
    int (*fn)(void *ctx, struct err *e);
    void *ctx;
};
int segments_join(const struct segment_choice *c, int to, const struct segment_tick *tick,
    int64_t *bytes, struct err *e) WARN_UNUSED;

/* A set of lines by number. */
static inline bool line_in(const uint64_t *set, int64_t number)
{
    return (set[number / 64] >> (number % 64) & 1) != 0;
}
static inline void line_put(uint64_t *set, int64_t number)
{
    set[number / 64] |= UINT64_C(1) << (number % 64);
}

#endif
