/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FD_PASS_H
#define WB_FD_PASS_H

/* A few bytes and a descriptor over a unix socket (SCM_RIGHTS, unix(7)). Any thread. */
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Sends data and, unless it is -1, fd, which stays open here. 0, or -1 with errno; never blocks. */
int fd_send(int to, const void *data, size_t size, int fd) WARN_UNUSED;

/* What recv() returns for data. *fd is the descriptor that came along (close-on-exec, the caller's) or -1. */
ssize_t fd_receive(int from, void *data, size_t size, int *fd) WARN_UNUSED;

#endif
