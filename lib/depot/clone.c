/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/clone.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/mem.h"

enum { PIECE = 1 << 20 };

static bool share(int from, int64_t from_offset, int to, int64_t to_offset, int64_t size)
{
    struct file_clone_range range = { .src_fd = from,
        .src_offset = (uint64_t)from_offset,
        .src_length = (uint64_t)size,
        .dest_offset = (uint64_t)to_offset };

    return ioctl(to, FICLONERANGE, &range) == 0;
}

/* Bytes that the kernel copied; fewer than size when it cannot, or will not. */
static int64_t copy(int from, int64_t from_offset, int to, int64_t to_offset, int64_t size)
{
    int64_t done = 0;

    while (done < size) {
        loff_t in = from_offset + done;
        loff_t out = to_offset + done;
        const ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(size - done), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += n;
    }
    return done;
}

static int put(int to, const char *piece, size_t size, int64_t offset)
{
    for (size_t at = 0; at < size;) {
        const ssize_t n = pwrite(to, piece + at, size - at, offset + (int64_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

static int read_and_write(int from, int64_t from_offset, int to, int64_t to_offset, int64_t size)
{
    cleanup_free char *piece = mem_alloc(PIECE);

    for (int64_t done = 0; done < size;) {
        const int64_t left = size - done;
        const ssize_t n =
            pread(from, piece, (size_t)(left < PIECE ? left : PIECE), from_offset + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        if (put(to, piece, (size_t)n, to_offset + done) < 0)
            return -1;
        done += n;
    }
    return 1;
}

int clone_range(int from, int64_t from_offset, int to, int64_t to_offset, int64_t size)
{
    if (share(from, from_offset, to, to_offset, size))
        return 1;
    const int64_t done = copy(from, from_offset, to, to_offset, size);
    return done == size
               ? 1
               : read_and_write(from, from_offset + done, to, to_offset + done, size - done);
}
