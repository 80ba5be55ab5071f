/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/fcgi_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/wait.h"

enum { HEADER_SIZE = 8 };

void client_reply_free(struct client_reply *r)
{
    buf_free(&r->out);
}

int client_connect(const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    if (str_copy(to.sun_path, sizeof to.sun_path, path) < 0)
        return -1;
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) < 0)
        return -1;
    return STEAL_FD(fd);
}

void client_record(
    struct buf *b, unsigned type, unsigned id, const void *data, size_t size, unsigned padding)
{
    static const char zeros[255];
    const char header[HEADER_SIZE] = { 1, (char)type, (char)(id >> 8), (char)id, (char)(size >> 8),
        (char)size, (char)padding, 0 };
    buf_add(b, header, sizeof header);
    buf_add(b, data, size);
    buf_add(b, zeros, padding);
}

void client_begin(struct buf *b, unsigned id, unsigned role, bool keep)
{
    const char body[8] = { (char)(role >> 8), (char)role, keep ? 1 : 0, 0, 0, 0, 0, 0 };
    client_record(b, CLIENT_BEGIN, id, body, sizeof body, 0);
}

static void add_length(struct buf *b, size_t size)
{
    if (size < 0x80) {
        buf_putc(b, (char)size);
        return;
    }
    const char wide[4] = { (char)(0x80 | size >> 24), (char)(size >> 16), (char)(size >> 8),
        (char)size };
    buf_add(b, wide, sizeof wide);
}

void client_pair(struct buf *pairs, const char *name, const char *value)
{
    add_length(pairs, strlen(name));
    add_length(pairs, strlen(value));
    buf_puts(pairs, name);
    buf_puts(pairs, value);
}

static void add_stream(
    struct buf *b, unsigned type, unsigned id, const char *data, size_t size, size_t record_size)
{
    for (size_t at = 0; at < size; at += record_size) {
        size_t n = size - at < record_size ? size - at : record_size;
        client_record(b, type, id, data + at, n, (8 - n % 8) % 8);
    }
}

void client_params(struct buf *b, unsigned id, const struct buf *pairs)
{
    add_stream(b, CLIENT_PARAMS, id, pairs->data, pairs->len, CLIENT_RECORD_MAX);
    client_record(b, CLIENT_PARAMS, id, NULL, 0, 0);
}

void client_body(
    struct buf *b, unsigned id, const void *data, size_t size, size_t record_size, bool whole)
{
    add_stream(b, CLIENT_STDIN, id, data, size, record_size);
    if (whole)
        client_record(b, CLIENT_STDIN, id, NULL, 0, 0);
}

int client_send(int fd, const void *data, size_t size)
{
    int64_t guard_ns = clock_deadline(CLIENT_GUARD_MS);
    size_t done = 0;
    while (done < size) {
        ssize_t n = send(fd, (const char *)data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            return -1;
        else if (wait_fd(fd, POLLOUT, guard_ns) <= 0)
            return -1;
    }
    return 0;
}

/* Number of bytes read: fewer than size when the peer closed. -1: hangs or is broken. */
static ssize_t read_full(int fd, void *data, size_t size)
{
    int64_t guard_ns = clock_deadline(CLIENT_GUARD_MS);
    size_t done = 0;
    while (done < size) {
        if (wait_fd(fd, POLLIN, guard_ns) <= 0)
            return -1;
        ssize_t n = recv(fd, (char *)data + done, size - done, 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return (ssize_t)done;
        if (n < 0)
            return -1;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static unsigned two_bytes(const unsigned char *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

/* 1 when it was END_REQUEST, 0 when more is to come, -1 when it does not fit. */
static int take_record(
    struct client_reply *r, const unsigned char *header, const unsigned char *content, size_t size)
{
    unsigned id = two_bytes(header + 2);
    if (header[0] != 1 || (r->request_id != 0 && r->request_id != id))
        return -1;
    r->request_id = id;
    if ((size + header[6]) % 8 != 0)
        r->misaligned = true;
    if (header[1] == CLIENT_STDOUT && !r->ended) {
        r->ended = size == 0;
        r->records += size > 0;
        r->largest = size > r->largest ? size : r->largest;
        buf_add(&r->out, content, size);
        return 0;
    }
    if (header[1] != CLIENT_END || size != 8)
        return -1;
    r->app_status = two_bytes(content) << 16 | two_bytes(content + 2);
    r->protocol_status = content[4];
    return 1;
}

int client_receive(int fd, struct client_reply *r)
{
    buf_clear(&r->out);
    r->records = 0;
    r->largest = 0;
    r->misaligned = r->ended = false;
    r->request_id = r->app_status = r->protocol_status = 0;
    for (int rc = 0; rc == 0;) {
        unsigned char header[HEADER_SIZE];
        ssize_t n = read_full(fd, header, sizeof header);
        if (n == 0 && r->request_id == 0)
            return 1;
        if (n != HEADER_SIZE)
            return -1;
        size_t size = two_bytes(header + 4);
        unsigned char content[CLIENT_RECORD_MAX + 255];
        n = read_full(fd, content, size + header[6]);
        if (n != (ssize_t)(size + header[6]))
            return -1;
        rc = take_record(r, header, content, size);
        if (rc < 0)
            return -1;
    }
    return 0;
}

bool client_closed(int fd)
{
    char scratch[65536];
    ssize_t n = 0;
    do
        n = read_full(fd, scratch, sizeof scratch);
    while (n == (ssize_t)sizeof scratch);
    return n >= 0;
}
