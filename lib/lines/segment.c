/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/segment.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "lines/content.h"

enum part { OUTPUT, ERRORS, LINES, PARTS };

enum {
    PENDING_MAX = 1 << 20,
    FLUSH_AT = 1 << 16,
    NAME_SIZE = 48,
    MODE = 0640,
    COPY_PIECE = 8 << 20
};

#define FAILED_BIT \
    UINT32_C(0x80000000) /* of an entry in LINES: a number, 32 bits, little end first */

struct segment {
    int64_t epoch;
    int fd[PARTS];
    struct buf pending[PARTS];
    int64_t bytes[PARTS]; /* with what is pending */
};

static void name_of(enum part part, int64_t epoch, char out[NAME_SIZE])
{
    static const char *const NAMES[PARTS] = { "output", "errors", "lines" };
    (void)!str_format(out, NAME_SIZE, "%s.%lld", NAMES[part], (long long)epoch);
}

void segment_close(struct segment *s)
{
    if (s == NULL)
        return;
    for (int p = 0; p < PARTS; p++) {
        if (s->fd[p] >= 0)
            close(s->fd[p]);
        buf_free(&s->pending[p]);
    }
    free(s);
}

static void segment_close_p(struct segment **s)
{
    segment_close(*s);
}
#define cleanup_segment __attribute__((cleanup(segment_close_p)))

int segment_open(int folder, int64_t epoch, struct segment **out, struct err *e)
{
    cleanup_segment struct segment *s = mem_calloc(1, sizeof *s);
    char name[NAME_SIZE];

    s->epoch = epoch;
    for (int p = 0; p < PARTS; p++) {
        s->fd[p] = -1;
        s->pending[p].max = PENDING_MAX;
    }
    for (int p = 0; p < PARTS; p++) {
        name_of((enum part)p, epoch, name);
        s->fd[p] =
            openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, MODE);
        if (s->fd[p] < 0)
            return content_failed(e, "segment");
    }
    if (fsync(folder) < 0)
        return content_failed(e, "segment");
    *out = STEAL(s);
    return 0;
}

static int flush(struct segment *s, enum part p, struct err *e)
{
    struct buf *b = &s->pending[p];

    if (b->len > 0 && file_write(s->fd[p], b->data, b->len) < 0)
        return content_failed(e, "segment");
    buf_clear(b);
    return 0;
}

static int add(struct segment *s, enum part p, const void *data, size_t size, struct err *e)
{
    struct buf *b = &s->pending[p];

    s->bytes[p] += (int64_t)size;
    if (b->len + size < FLUSH_AT) {
        buf_add(b, data, size);
        return 0;
    }
    if (flush(s, p, e) < 0)
        return -1;
    return file_write(s->fd[p], data, size) < 0 ? content_failed(e, "segment") : 0;
}

int segment_add(
    struct segment *s, int64_t number, bool failed, const char *text, size_t size, struct err *e)
{
    const uint32_t entry = htole32((uint32_t)number | (failed ? FAILED_BIT : 0));

    return add(s, failed ? ERRORS : OUTPUT, text, size, e) < 0 ||
                   add(s, LINES, &entry, sizeof entry, e) < 0
               ? -1
               : 0;
}

int segment_flush(struct segment *s, struct batch_segment *at, struct err *e)
{
    for (int p = 0; p < PARTS; p++) {
        if (flush(s, (enum part)p, e) < 0)
            return -1;
    }
    *at = (struct batch_segment){ .epoch = s->epoch,
        .output_bytes = s->bytes[OUTPUT],
        .error_bytes = s->bytes[ERRORS],
        .lines = s->bytes[LINES] / (int64_t)sizeof(uint32_t) };
    return 0;
}

int segment_sync(const struct segment *s, struct err *e)
{
    for (int p = 0; p < PARTS; p++) {
        if (fdatasync(s->fd[p]) < 0)
            return content_failed(e, "segment");
    }
    return 0;
}

/* --- what others wrote --- */

static int open_part(int folder, enum part part, int64_t epoch, int *out, struct err *e)
{
    char name[NAME_SIZE];

    name_of(part, epoch, name);
    *out = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return *out < 0 ? content_failed(e, name) : 0;
}

static int mark(int fd, int64_t lines, uint64_t *done, int64_t bits, struct err *e)
{
    enum { ENTRIES = 4096 };
    cleanup_free uint32_t *entry = mem_calloc(ENTRIES, sizeof *entry);

    for (int64_t at = 0; at < lines;) {
        const int64_t left = lines - at;
        const size_t n = (size_t)(left < ENTRIES ? left : ENTRIES);
        if (file_read_at(fd, entry, n * sizeof *entry, at * (int64_t)sizeof *entry) < 0)
            return err_errno(e, ERR_INTERNAL, "a segment is shorter than was recorded");
        for (size_t i = 0; i < n; i++) {
            const int64_t number = (int64_t)(le32toh(entry[i]) & ~FAILED_BIT);
            if (number >= bits || line_in(done, number))
                return err_set(e, ERR_INTERNAL, "a segment has line %lld, which is out of place",
                    (long long)number);
            line_put(done, number);
        }
        at += (int64_t)n;
    }
    return 0;
}

int segments_mark(int folder, const struct batch_segment *at, size_t n, uint64_t *done,
    int64_t bits, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        cleanup_fd int fd = -1;
        if (at[i].lines == 0)
            continue;
        if (open_part(folder, LINES, at[i].epoch, &fd, e) < 0 ||
            mark(fd, at[i].lines, done, bits, e) < 0)
            return -1;
    }
    return 0;
}

static int join(
    int from, int64_t size, struct file_range to, const struct segment_tick *tick, struct err *e)
{
    for (int64_t at = 0; at < size;) {
        const int64_t piece = size - at < COPY_PIECE ? size - at : COPY_PIECE;
        const int rc = file_copy(
            (struct file_range){ from, at }, (struct file_range){ to.fd, to.at + at }, piece);
        if (rc < 0)
            return content_failed(e, "result");
        if (rc > 0)
            return err_set(e, ERR_INTERNAL, "a segment is shorter than was recorded");
        const int told = tick->fn(tick->ctx, e);
        if (told != 0)
            return told;
        at += piece;
    }
    return 0;
}

int segments_join(const struct segment_choice *c, int to, const struct segment_tick *tick,
    int64_t *bytes, struct err *e)
{
    *bytes = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct batch_segment *s = &c->at[i];
        const int64_t size = c->errors ? s->error_bytes : s->output_bytes;
        cleanup_fd int from = -1;
        if (size == 0)
            continue;
        if (open_part(c->folder, c->errors ? ERRORS : OUTPUT, s->epoch, &from, e) < 0)
            return -1;
        const int rc = join(from, size, (struct file_range){ to, *bytes }, tick, e);
        if (rc != 0)
            return rc;
        *bytes += size;
    }
    return 0;
}
