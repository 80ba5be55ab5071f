/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FILE_H
#define WB_FILE_H

/* Whole reads and writes, in whatever pieces the kernel takes them. Any thread. */
#include <stddef.h>

#include "base/cleanup.h"

/* size bytes from the start of the file, wherever fd stands. 0, or -1 with errno, or when it is shorter. */
int file_read(int fd, void *to, size_t size) WARN_UNUSED;

/* size bytes where fd stands. 0, or -1 with errno. */
int file_write(int fd, const void *from, size_t size) WARN_UNUSED;

#endif
