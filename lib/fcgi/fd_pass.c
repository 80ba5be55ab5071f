/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/fd_pass.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Aligned room for one descriptor. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int fd_send(int to, const void *data, size_t size, int fd)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = size };
    union control control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (fd >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    }
    ssize_t n = sendmsg(to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n == (ssize_t)size)
        return 0;
    if (n >= 0)
        errno = EMSGSIZE;
    return -1;
}

ssize_t fd_receive(int from, void *data, size_t size, int *fd)
{
    struct iovec iov = { .iov_base = data, .iov_len = size };
    union control control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes) };
    *fd = -1;
    ssize_t n = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(c), sizeof(*fd));
    return n;
}
