/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/fcgi_feed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { PULL_MAX = 65536, PUNCH_AFTER = 1 << 20 };

static int append(struct fcgi_feed *f, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pwrite(f->fd, (const char *)data + done, size - done, f->end);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            done += (size_t)n;
            f->end += n;
        }
    }
    return 0;
}

int feed_begin(struct fcgi_feed *f, struct conn *conn, struct err *e)
{
    f->conn = conn;
    f->end = 0;
    f->taken = 0;
    if (f->fd < 0)
        f->fd = memfd_create("request", MFD_CLOEXEC);
    if (f->fd < 0)
        return err_errno(e, ERR_UNAVAILABLE, "no file for a request's bytes");
    if (ftruncate(f->fd, 0) < 0 || lseek(f->fd, 0, SEEK_SET) < 0 ||
        append(f, conn->held.data, conn->held.len) < 0)
        return err_errno(e, ERR_UNAVAILABLE, "cannot keep a request's bytes");
    return 0;
}

/* What libfcgi has read of a long body needs no memory any more. Failing to free it harms nothing now. */
static void forget_read(const struct fcgi_feed *f)
{
    off_t at = lseek(f->fd, 0, SEEK_CUR);
    if (at >= PUNCH_AFTER)
        (void)fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, at);
}

/* Takes from the socket what belongs to the request: looking first leaves the next request's bytes. */
static int pull(struct fcgi_feed *f)
{
    ssize_t seen = recv(f->conn->fd, f->window, PULL_MAX, MSG_PEEK);
    if (seen < 0 && errno == EINTR)
        return 0;
    if (seen <= 0)
        return -1;
    size_t used = fcgi_scan(&f->conn->scan, f->window, (size_t)seen);
    ssize_t got = recv(f->conn->fd, f->window, used, MSG_DONTWAIT);
    if (got != (ssize_t)used || f->conn->scan.phase == FCGI_PHASE_BAD)
        return -1;
    forget_read(f);
    return append(f, f->window, used);
}

int64_t feed_ready(struct fcgi_feed *f)
{
    while (f->conn->scan.body == f->taken && f->conn->scan.phase == FCGI_PHASE_BODY)
        if (pull(f) < 0)
            return -1;
    if (f->conn->scan.phase == FCGI_PHASE_BAD)
        return -1;
    return (int64_t)(f->conn->scan.body - f->taken);
}

void feed_close(struct fcgi_feed *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}
