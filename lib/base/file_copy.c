/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"

enum { PIECE = 1 << 20 };

static bool share(struct file_range from, struct file_range to, int64_t size)
{
    struct file_clone_range range = { .src_fd = from.fd,
        .src_offset = (uint64_t)from.at,
        .src_length = (uint64_t)size,
        .dest_offset = (uint64_t)to.at };

    return ioctl(to.fd, FICLONERANGE, &range) == 0;
}

/* Bytes that the kernel copied; fewer than size when it cannot, or will not. */
static int64_t copy(struct file_range from, struct file_range to, int64_t size)
{
    int64_t done = 0;

    while (done < size) {
        loff_t in = from.at + done;
        loff_t out = to.at + done;
        const ssize_t n = copy_file_range(from.fd, &in, to.fd, &out, (size_t)(size - done), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += n;
    }
    return done;
}

static int read_and_write(struct file_range from, struct file_range to, int64_t size)
{
    cleanup_free char *piece = mem_alloc(PIECE);

    for (int64_t done = 0; done < size;) {
        const int64_t left = size - done;
        const ssize_t n =
            pread(from.fd, piece, (size_t)(left < PIECE ? left : PIECE), from.at + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 1;
        if (file_write_at(to.fd, piece, (size_t)n, to.at + done) < 0)
            return -1;
        done += n;
    }
    return 0;
}

int file_copy(struct file_range from, struct file_range to, int64_t size)
{
    if (share(from, to, size))
        return 0;
    const int64_t done = copy(from, to, size);
    from.at += done;
    to.at += done;
    return done == size ? 0 : read_and_write(from, to, size - done);
}
