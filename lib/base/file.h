/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FILE_H
#define WB_FILE_H

/* Whole reads and writes, in whatever pieces the kernel takes them. Any thread. */
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/* Opens a plain file for reading, links followed unless flags (O_NOFOLLOW) forbid it. A descriptor, or -1 with errno: ENXIO for whatever is
 * no plain file. Never waits for the other end of a pipe. */
int file_open(const char *path, int flags) WARN_UNUSED;

/* Gives fd back if it is of a plain file; else closes it: -1 with ENXIO. fd < 0: as it is. */
int file_only_plain(int fd) WARN_UNUSED;

/* size bytes from offset on, wherever fd stands. 0, or -1 with errno: ENODATA when the file ends before. */
int file_read_at(int fd, void *to, size_t size, int64_t offset) WARN_UNUSED;

/* The same from the start of the file. */
int file_read(int fd, void *to, size_t size) WARN_UNUSED;

/* size bytes where fd stands. 0, or -1 with errno. */
int file_write(int fd, const void *from, size_t size) WARN_UNUSED;

/* size bytes at offset, wherever fd stands. 0, or -1 with errno. */
int file_write_at(int fd, const void *from, size_t size, int64_t offset) WARN_UNUSED;

struct file_range {
    int fd;
    int64_t at;
};

/* size bytes from one file into another at the cheapest that the file systems can: a clone, else copy_file_range(2), else through memory.
 * 0: as asked; 1: `from` has fewer, or cannot be read; -1 with errno: `to` cannot be written. */
int file_copy(struct file_range from, struct file_range to, int64_t size) WARN_UNUSED;

#endif
