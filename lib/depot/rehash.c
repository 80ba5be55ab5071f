/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/rehash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base/tree.h"

enum { PIECE = 1 << 20, ALIGN = 4096, THREADS_MAX = 16 };

struct crew {
    const struct rehash *r;
    _Atomic size_t next;
    _Atomic bool failed;
    bool has_zeros; /* zeros is the digest of shard_bytes zeros */
    struct digest zeros;
    pthread_mutex_t lock;
    struct mishap why; /* the first, under lock */
};

struct hand {
    struct crew *crew;
    struct hasher *hasher;
    unsigned char *piece;
    size_t file; /* that fd is of; SIZE_MAX: none */
    int fd;
    bool direct;
};

static void fail(struct crew *c, const struct mishap *why)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&c->lock);

    if (!atomic_exchange(&c->failed, true))
        c->why = *why;
}

/* -1: there is no such file, or it cannot be read: which errno tells. */
static int open_file(struct hand *h, size_t file)
{
    const struct rehash *r = h->crew->r;

    if (h->file == file)
        return h->fd < 0 ? -1 : 0;
    cleanup_fd_(&h->fd);
    h->fd = -1;
    h->file = file;
    h->direct = r->from_disk;
    if (h->direct)
        h->fd = tree_open(r->files, r->manifest->file[file].path, O_RDONLY | O_DIRECT, 0);
    if (h->fd < 0) {
        h->direct = false;
        h->fd = tree_open(r->files, r->manifest->file[file].path, O_RDONLY, 0);
        if (h->fd >= 0 && r->from_disk)
            (void)posix_fadvise(h->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return h->fd < 0 ? -1 : 0;
}

/* 1: hashed, and *out is the digest; 0: the file ends before; -1 with errno. */
static int hash_range(struct hand *h, const struct shard_place *at, struct digest *out)
{
    int64_t done = 0;
    int rc = 1;

    while (rc == 1 && done < at->size) {
        /* whole blocks, as O_DIRECT wants; what is read too much is not looked at */
        const ssize_t n = pread(h->fd, h->piece, PIECE, at->offset + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            rc = n == 0 ? 0 : -1;
            break;
        }
        const int64_t use = n < at->size - done ? n : at->size - done;
        hasher_add(h->hasher, h->piece, (size_t)use);
        done += use;
    }
    hasher_end(h->hasher, out->byte); /* begins anew */
    return rc;
}

static bool is_hole(const struct hand *h, const struct shard_place *at)
{
    const off_t data = lseek(h->fd, at->offset, SEEK_DATA);

    return data < 0 ? errno == ENXIO : data >= at->offset + at->size;
}

/* 1 right, 0 wrong or missing, -1 with errno. */
static int look_at(struct hand *h, size_t shard)
{
    const struct rehash *r = h->crew->r;
    const struct shard_place at = manifest_place(r->manifest, shard);
    const struct digest *want = &r->manifest->shard[shard];
    struct digest got;

    if (open_file(h, at.file) < 0)
        return errno == ENOENT || errno == ELOOP || errno == ENXIO ? 0 : -1;
    if (r->holes_are_missing && is_hole(h, &at))
        return h->crew->has_zeros && at.size == r->manifest->shard_bytes &&
               digest_equal(want, &h->crew->zeros, sizeof *want);
    const int rc = hash_range(h, &at, &got);
    return rc == 1 ? digest_equal(want, &got, sizeof got) : rc;
}

static bool is_over(const struct crew *c)
{
    return atomic_load(&c->failed) || (c->r->stop != NULL && atomic_load(c->r->stop));
}

static void work(struct hand *h)
{
    struct crew *c = h->crew;
    const struct rehash *r = c->r;
    struct mishap why = MISHAP_INIT;

    while (!is_over(c)) {
        const size_t shard = atomic_fetch_add(&c->next, 1);
        if (shard >= r->manifest->shards)
            return;
        if (r->only != NULL && !r->only[shard])
            continue;
        const int rc = look_at(h, shard);
        if (rc < 0) {
            const struct shard_place at = manifest_place(r->manifest, shard);
            (void)mishap_errno(&why, false, "cannot read %.80s", r->manifest->file[at.file].path);
            fail(c, &why);
            return;
        }
        if (rc == 1)
            r->good[shard] = true;
        if (r->hashed_bytes != NULL)
            atomic_fetch_add(r->hashed_bytes, manifest_place(r->manifest, shard).size);
    }
}

static void *run(void *ctx)
{
    struct hand h = { .crew = ctx, .hasher = hasher_new(), .file = SIZE_MAX, .fd = -1 };
    void *piece = NULL;

    if (posix_memalign(&piece, ALIGN, PIECE) != 0)
        abort();
    h.piece = piece;
    work(&h);
    cleanup_fd_(&h.fd);
    hasher_free(h.hasher);
    free(piece);
    return NULL;
}

/* The digest of a shard of zeros, only when something wants it: it takes as long as hashing a shard. */
static void learn_zeros(struct crew *c)
{
    cleanup_hasher struct hasher *h = hasher_new();
    cleanup_free char *zeros = mem_calloc(1, PIECE);

    for (int64_t left = c->r->manifest->shard_bytes; left > 0; left -= PIECE)
        hasher_add(h, zeros, PIECE);
    hasher_end(h, c->zeros.byte);
    c->has_zeros = true;
}

int rehash_run(const struct rehash *r, struct mishap *why)
{
    struct crew c = { .r = r, .why = MISHAP_INIT };

    if (r->holes_are_missing && r->manifest->total_bytes >= r->manifest->shard_bytes)
        learn_zeros(&c);
    pthread_mutex_init(&c.lock, NULL);
    thread_team(r->threads < THREADS_MAX ? r->threads : THREADS_MAX, run, &c, "rehash");
    pthread_mutex_destroy(&c.lock);
    if (atomic_load(&c.failed)) {
        *why = c.why;
        return -1;
    }
    if (r->stop != NULL && atomic_load(r->stop))
        return mishap_set(why, MISHAP_STOPPED, "stopped");
    return 0;
}
