/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int file_only_plain(int fd)
{
    struct stat st;

    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        return fd;
    close(fd);
    errno = ENXIO;
    return -1;
}

int file_open(const char *path, int flags)
{
    return file_only_plain(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags));
}

int file_read_at(int fd, void *to, size_t size, int64_t offset)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = pread(fd, (char *)to + at, size - at, offset + (int64_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENODATA;
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

int file_read(int fd, void *to, size_t size)
{
    return file_read_at(fd, to, size, 0);
}

int file_write(int fd, const void *from, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = write(fd, (const char *)from + at, size - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

int file_write_at(int fd, const void *from, size_t size, int64_t offset)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = pwrite(fd, (const char *)from + at, size - at, offset + (int64_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}
