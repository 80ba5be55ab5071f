/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/fcgi_req_internal.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/wait.h"

enum { RECORD_END = 3, RECORD_STDOUT = 6, RECORD_MAX = 65528 };
enum { BATCH_RECORDS = 16, IOV_PER_RECORD = 4, TAIL_SIZE = 24, READ_MAX = 1 << 20 };

/* An answer on its way: head and body are one stream of bytes, cut into records. */
struct reply {
    const char *head;
    size_t head_size;
    const char *body;
    size_t size; /* of both */
    size_t at;   /* bytes put into records so far */
    unsigned request_id;
    struct iovec iov[BATCH_RECORDS * IOV_PER_RECORD + 1];
    int iovs;
    unsigned char headers[BATCH_RECORDS][FCGI_HEADER_SIZE];
    unsigned char tail[TAIL_SIZE];
};

static const unsigned char PADDING[8];

/* As the index keeps it. */
static unsigned char short_size(size_t size)
{
    return size < UINT8_MAX ? (unsigned char)size : UINT8_MAX;
}

static void index_names(struct fcgi_req *r)
{
    size_t n = 0;
    for (; n < FCGI_NAMES_INDEXED && r->env[n] != NULL; n++)
        r->name_size[n] = short_size((size_t)(strchrnul(r->env[n], '=') - r->env[n]));
    r->indexed = n;
}

static const char *value_of(const char *entry, const char *name, size_t size)
{
    return strncmp(entry, name, size) == 0 && entry[size] == '=' ? entry + size + 1 : NULL;
}

/* A request is asked for a dozen names, most of which few or no others are as long as. */
static const char *indexed_value(const struct fcgi_req *r, const char *name, size_t size)
{
    const char *value = NULL;
    for (size_t n = r->indexed; value == NULL && n > 0;) {
        const unsigned char *at = memrchr(r->name_size, short_size(size), n);
        if (at == NULL)
            return NULL;
        n = (size_t)(at - r->name_size);
        value = value_of(r->env[n], name, size);
    }
    return value;
}

const char *fcgi_env(struct fcgi_req *r, const char *name)
{
    const size_t size = strlen(name);
    const char *last = NULL;
    if (r->indexed == 0)
        index_names(r);
    for (char *const *p = r->env + r->indexed; *p != NULL; p++) {
        const char *value = value_of(*p, name, size);
        last = value != NULL ? value : last;
    }
    return last != NULL ? last : indexed_value(r, name, size);
}

static ssize_t read_cgi(struct fcgi_req *r, void *data, size_t size)
{
    if (size > r->body_left)
        size = (size_t)r->body_left;
    if (size == 0)
        return 0;
    ssize_t n = -1;
    do
        n = read(r->in_fd, data, size);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return -1;
    r->body_left -= (uint64_t)n;
    return n;
}

static ssize_t read_fcgx(struct fcgi_req *r, void *data, size_t size)
{
    int n = FCGX_GetStr(data, (int)size, r->fcgx->in);
    return FCGX_GetError(r->fcgx->in) != 0 ? -1 : n;
}

static ssize_t read_fed(struct fcgi_req *r, void *data, size_t size)
{
    int64_t ready = feed_ready(r->feed);
    if (ready <= 0)
        return (ssize_t)ready;
    ssize_t n = read_fcgx(r, data, (int64_t)size < ready ? size : (size_t)ready);
    if (n <= 0)
        return -1;
    r->feed->taken += (uint64_t)n;
    return n;
}

ssize_t fcgi_read(struct fcgi_req *r, void *data, size_t size)
{
    if (r->cut)
        return -1;
    if (r->begun || size == 0)
        return 0;
    if (size > READ_MAX)
        size = READ_MAX;
    ssize_t n = r->fcgx == NULL   ? read_cgi(r, data, size)
                : r->feed == NULL ? read_fcgx(r, data, size)
                                  : read_fed(r, data, size);
    r->cut = n < 0;
    return n;
}

void fcgi_req_drain(struct fcgi_req *r)
{
    if (r->fcgx == NULL || r->feed != NULL)
        return;
    char scratch[8192];
    while (fcgi_read(r, scratch, sizeof scratch) > 0)
        continue;
}

static void put_header(unsigned char *p, unsigned type, unsigned id, size_t size, size_t padding)
{
    p[0] = 1;
    p[1] = (unsigned char)type;
    p[2] = (unsigned char)(id >> 8);
    p[3] = (unsigned char)id;
    p[4] = (unsigned char)(size >> 8);
    p[5] = (unsigned char)size;
    p[6] = (unsigned char)padding;
    p[7] = 0;
}

static void add_bytes(struct reply *p, const void *data, size_t size)
{
    if (size == 0)
        return;
    /* writev takes no const; it does not write */
    union {
        const void *in;
        void *out;
    } plain = { .in = data };
    p->iov[p->iovs++] = (struct iovec){ .iov_base = plain.out, .iov_len = size };
}

/* One record with the next bytes of the stream. */
static void add_record(struct reply *p, unsigned char *header)
{
    size_t size = p->size - p->at < RECORD_MAX ? p->size - p->at : RECORD_MAX;
    size_t padding = (8 - size % 8) % 8;
    put_header(header, RECORD_STDOUT, p->request_id, size, padding);
    add_bytes(p, header, FCGI_HEADER_SIZE);
    size_t of_head = 0;
    if (p->at < p->head_size) {
        of_head = p->head_size - p->at < size ? p->head_size - p->at : size;
        add_bytes(p, p->head + p->at, of_head);
    }
    if (size > of_head)
        add_bytes(p, p->body + (p->at + of_head - p->head_size), size - of_head);
    add_bytes(p, PADDING, padding);
    p->at += size;
}

/* Up to a batch of records, and after the last one the stream's end and the request's. */
static void next_batch(struct reply *p)
{
    p->iovs = 0;
    for (int i = 0; i < BATCH_RECORDS && p->at < p->size; i++)
        add_record(p, p->headers[i]);
    if (p->at < p->size)
        return;
    memset(p->tail, 0, sizeof p->tail);
    put_header(p->tail, RECORD_STDOUT, p->request_id, 0, 0);
    put_header(p->tail + FCGI_HEADER_SIZE, RECORD_END, p->request_id, FCGI_HEADER_SIZE, 0);
    add_bytes(p, p->tail, sizeof p->tail);
}

/* A CGI's output may be a file, which only writev() takes. */
static ssize_t write_some(const struct fcgi_req *r, struct iovec *iov, int iovs)
{
    if (r->fcgx == NULL)
        return writev(r->out_fd, iov, iovs);
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)iovs };
    return sendmsg(r->out_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* After a write that failed, whether to try again: at once, or when there is room. */
static bool may_go_on(const struct fcgi_req *r, int64_t deadline_ns)
{
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN)
        return false;
    worker_follow(r->worker);
    if (clock_mono_ns() < deadline_ns && wait_fd(r->out_fd, POLLOUT, deadline_ns) == 1)
        return true;
    errno = ETIMEDOUT;
    return false;
}

/* Writes all of iov, which it uses up. A peer that reads, but slowly, is given no longer than the others. */
static int write_all(const struct fcgi_req *r, struct iovec *iov, int iovs, int64_t deadline_ns)
{
    while (iovs > 0) {
        ssize_t n = write_some(r, iov, iovs);
        if (n < 0 && !may_go_on(r, deadline_ns))
            return -1;
        size_t done = n > 0 ? (size_t)n : 0;
        while (iovs > 0 && done >= iov->iov_len) {
            done -= iov->iov_len;
            iov++;
            iovs--;
        }
        if (iovs > 0) {
            iov->iov_base = (char *)iov->iov_base + done;
            iov->iov_len -= done;
        }
    }
    return 0;
}

static int send_plain(const struct fcgi_req *r, struct reply *p)
{
    add_bytes(p, p->head, p->head_size);
    add_bytes(p, p->body, p->size - p->head_size);
    return write_all(r, p->iov, p->iovs, INT64_MAX);
}

static int send_records(const struct fcgi_req *r, struct reply *p)
{
    int64_t deadline_ns = clock_deadline(r->send_timeout_ms);
    p->request_id = (unsigned)r->fcgx->requestId;
    do {
        next_batch(p);
        if (write_all(r, p->iov, p->iovs, deadline_ns) < 0)
            return -1;
    } while (p->at < p->size);
    return 0;
}

int fcgi_send(struct fcgi_req *r, const char *head, size_t head_size, const char *body,
    size_t body_size, struct err *e)
{
    assert(!r->begun);
    fcgi_req_drain(r);
    r->begun = true;
    struct reply p;
    p.head = head;
    p.head_size = head_size;
    p.body = body;
    p.size = head_size + body_size;
    p.at = 0;
    p.iovs = 0;
    int rc = r->fcgx == NULL ? send_plain(r, &p) : send_records(r, &p);
    if (rc == 0)
        return 0;
    r->failed = true;
    return err_errno(e, ERR_UNAVAILABLE, "the answer could not be sent");
}

void fcgi_may_wait(struct fcgi_req *r)
{
    worker_follow(r->worker);
}

int fcgi_thread(const struct fcgi_req *r)
{
    return r->thread;
}

bool fcgi_is_cgi(const struct fcgi_req *r)
{
    return r->fcgx == NULL;
}
