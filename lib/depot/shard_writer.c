/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/shard_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { ALIGN = 4096 };
#define DIRECT_LEAST ((int64_t)1 << 20) /* smaller shards: not worth it */

struct shard_writer {
    struct part *part;
    struct hasher *hasher;
    unsigned char *buffer;
    size_t buffer_size;
    size_t filled;
    size_t file; /* that the descriptors are of; SIZE_MAX: none */
    int plain;
    int direct; /* -1: not for this file */
    size_t shard;
    struct shard_place at;
    int64_t taken;   /* bytes of the shard that came */
    int64_t written; /* of them, on their way to the disk */
};

void shard_writer_free(struct shard_writer *w)
{
    if (w == NULL)
        return;
    cleanup_fd_(&w->direct);
    cleanup_fd_(&w->plain);
    hasher_free(w->hasher);
    free(w->buffer);
    free(w);
}

struct shard_writer *shard_writer_new(struct part *p, size_t buffer_bytes)
{
    struct shard_writer *w = mem_calloc(1, sizeof *w);
    void *buffer = NULL;

    if (posix_memalign(&buffer, ALIGN, buffer_bytes) != 0)
        abort();
    *w = (struct shard_writer){ .part = p,
        .hasher = hasher_new(),
        .buffer = buffer,
        .buffer_size = buffer_bytes,
        .file = SIZE_MAX,
        .plain = -1,
        .direct = -1 };
    return w;
}

static int open_file(struct shard_writer *w, size_t file, struct mishap *why)
{
    const char *path = w->part->manifest->file[file].path;

    if (w->file == file)
        return 0;
    cleanup_fd_(&w->direct);
    cleanup_fd_(&w->plain);
    w->direct = -1;
    w->file = SIZE_MAX;
    w->plain = part_open_file(w->part, file, O_RDWR);
    if (w->plain < 0)
        return mishap_errno(why, true, "cannot open %.80s", path);
    if (w->part->manifest->file[file].size >= DIRECT_LEAST)
        w->direct = part_open_file(w->part, file, O_RDWR | O_DIRECT); /* or not: EINVAL */
    w->file = file;
    return 0;
}

int shard_writer_begin(struct shard_writer *w, size_t shard, struct mishap *why)
{
    unsigned char ignored[DIGEST_SIZE];

    w->shard = shard;
    w->at = manifest_place(w->part->manifest, shard);
    w->taken = w->written = 0;
    w->filled = 0;
    hasher_end(w->hasher, ignored);
    return open_file(w, w->at.file, why);
}

/* Whole blocks go past the page cache, what is left at a file's end goes through it. */
static int put_all(struct shard_writer *w, int64_t offset)
{
    size_t whole = w->direct >= 0 ? w->filled - w->filled % ALIGN : 0;

    if (whole > 0 && file_write_at(w->direct, w->buffer, whole, offset) < 0) {
        if (errno != EINVAL) /* EINVAL: the file system cannot, and says so only now */
            return -1;
        cleanup_fd_(&w->direct);
        w->direct = -1;
        whole = 0;
    }
    if (whole == w->filled)
        return 0;
    const int64_t rest = offset + (int64_t)whole;
    if (file_write_at(w->plain, w->buffer + whole, w->filled - whole, rest) < 0)
        return -1;
    /* begin to write it out now, so that the sync at the end has less to wait for */
    (void)sync_file_range(w->plain, rest, (off_t)(w->filled - whole), SYNC_FILE_RANGE_WRITE);
    return 0;
}

static int flush(struct shard_writer *w, struct mishap *why)
{
    const int64_t offset = w->at.offset + w->written;

    if (w->filled == 0)
        return 0;
    if (part_is_ours(w->part, why) < 0)
        return -1;
    if (put_all(w, offset) < 0)
        return mishap_errno(
            why, true, "cannot write %.80s", w->part->manifest->file[w->at.file].path);
    w->written += (int64_t)w->filled;
    w->filled = 0;
    return 0;
}

int shard_writer_add(struct shard_writer *w, const void *data, size_t size, struct mishap *why)
{
    const unsigned char *from = data;

    if ((int64_t)size > w->at.size - w->taken)
        return mishap_set(why, MISHAP_SHARD_MISMATCH, "more bytes came than the shard has");
    hasher_add(w->hasher, from, size);
    w->taken += (int64_t)size;
    while (size > 0) {
        const size_t room = w->buffer_size - w->filled;
        const size_t n = size < room ? size : room;
        memcpy(w->buffer + w->filled, from, n);
        w->filled += n;
        from += n;
        size -= n;
        if (w->filled == w->buffer_size && flush(w, why) < 0)
            return -1;
    }
    return 0;
}

int shard_writer_end(struct shard_writer *w, struct mishap *why)
{
    struct digest got;

    if (w->taken < w->at.size)
        return mishap_set(why, MISHAP_SHORT_BODY, "%lld bytes came of %lld", (long long)w->taken,
            (long long)w->at.size);
    hasher_end(w->hasher, got.byte);
    if (!digest_equal(&got, &w->part->manifest->shard[w->shard], sizeof got))
        return mishap_set(why, MISHAP_SHARD_MISMATCH,
            "%.80s: bytes %lld to %lld are not as the manifest says",
            w->part->manifest->file[w->at.file].path, (long long)w->at.offset,
            (long long)(w->at.offset + w->at.size - 1));
    if (flush(w, why) < 0)
        return -1;
    return part_wrote(w->part, w->shard, why);
}
