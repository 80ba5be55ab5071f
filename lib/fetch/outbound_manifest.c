/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a tree: as many threads as are wanted, each with a file at a time, the largest first. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "fetch/outbound.h"

enum { PIECE = 1 << 20 };

struct job {
    const struct outbound *tree;
    const struct outbound_options *options;
    struct manifest *manifest;
    size_t *order; /* of the files, by size */
    atomic_size_t next;
    atomic_bool failed;
    pthread_mutex_t lock; /* of the rest */
    int64_t done;
    struct err err;
};

static void note(struct job *j, int64_t bytes)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&j->lock);
    j->done += bytes;
    if (j->options->progress != NULL)
        j->options->progress(j->options->ctx, j->done, j->tree->bytes);
}

static void fail(struct job *j, const struct err *e)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&j->lock);
    if (!atomic_exchange(&j->failed, true))
        j->err = *e;
}

/* What belongs to one file while it is read. */
struct reading {
    struct job *job;
    const struct outbound_file *file;
    int fd;
    char *piece;
    struct hasher *whole;
    struct hasher *shard;
};

static int read_shard(struct reading *r, int64_t size, struct digest *out, struct err *e)
{
    while (size > 0) {
        const size_t want = size < PIECE ? (size_t)size : PIECE;
        const ssize_t got = read(r->fd, r->piece, want);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(e, ERR_INTERNAL, "%s", r->file->path);
        if (got == 0)
            return err_set(e, ERR_CONFLICT, "%s: became shorter", r->file->path);
        hasher_add(r->shard, r->piece, (size_t)got);
        hasher_add(r->whole, r->piece, (size_t)got);
        note(r->job, got);
        size -= got;
    }
    hasher_end(r->shard, out->byte);
    return 0;
}

static int read_file(struct reading *r, struct manifest_file *to, struct err *e)
{
    const struct manifest *m = r->job->manifest;
    int64_t left = to->size;

    for (size_t i = 0; i < to->shards; i++) {
        const int64_t size = left < m->shard_bytes ? left : m->shard_bytes;
        if (atomic_load(&r->job->failed))
            return err_set(e, ERR_NOT_DONE, "another file failed");
        if (read_shard(r, size, &m->shard[to->first_shard + i], e) < 0)
            return -1;
        left -= size;
    }
    if (read(r->fd, r->piece, 1) != 0)
        return err_set(e, ERR_CONFLICT, "%s: became longer", r->file->path);
    hasher_end(r->whole, to->sha256.byte);
    return 0;
}

static int hash_file(struct job *j, size_t at, struct err *e)
{
    cleanup_free char *piece = mem_alloc(PIECE);
    cleanup_hasher struct hasher *whole = hasher_new();
    cleanup_hasher struct hasher *shard = hasher_new();
    const struct outbound_file *f = &j->tree->file[at];
    cleanup_fd int fd = file_open(f->real, O_NOFOLLOW);
    struct reading r = { j, f, fd, piece, whole, shard };

    if (fd < 0)
        return err_errno(e, ERR_INTERNAL, "%s", f->path);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return read_file(&r, &j->manifest->file[at], e);
}

static void *hash_files(void *job)
{
    struct job *j = job;

    for (size_t i = atomic_fetch_add(&j->next, 1); i < j->tree->n && !atomic_load(&j->failed);
         i = atomic_fetch_add(&j->next, 1)) {
        struct err e = ERR_INIT;
        if (hash_file(j, j->order[i], &e) < 0)
            fail(j, &e);
    }
    return NULL;
}

static int larger_first(const void *a, const void *b, void *tree)
{
    const struct outbound *t = *(const struct outbound **)tree;
    const int64_t x = t->file[*(const size_t *)a].size;
    const int64_t y = t->file[*(const size_t *)b].size;
    return (x < y) - (x > y);
}

static void lay_out(const struct outbound *t, const struct outbound_options *o, struct manifest *m)
{
    (void)str_copy(m->artifact, sizeof m->artifact, o->artifact);
    (void)str_copy(m->version, sizeof m->version, o->version);
    m->kind = o->kind;
    m->total_bytes = t->bytes;
    m->shard_bytes = o->shard_bytes > 0 ? o->shard_bytes : manifest_shard_bytes(t->bytes);
    m->file = mem_calloc(t->n, sizeof *m->file);
    for (size_t i = 0; i < t->n; i++) {
        struct manifest_file *f = &m->file[m->files++];
        f->path = mem_strdup(t->file[i].path);
        f->size = t->file[i].size;
        f->executable = t->file[i].executable;
        f->first_shard = m->shards;
        f->shards = (size_t)manifest_shards_of(f->size, m->shard_bytes);
        m->shards += f->shards;
    }
    m->shard = mem_calloc(m->shards + 1, sizeof *m->shard);
}

int outbound_manifest(
    const struct outbound *t, const struct outbound_options *o, struct manifest *out, struct err *e)
{
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    struct job j = { .tree = t, .options = o, .manifest = &m, .err = ERR_INIT };

    if (artifact_name_check("artifact", o->artifact, ARTIFACT_NAME_MAX, e) < 0 ||
        artifact_name_check("version", o->version, VERSION_NAME_MAX, e) < 0)
        return -1;
    if (o->shard_bytes < 0 || o->shard_bytes % SHARD_UNIT != 0 || o->shard_bytes > SHARD_BYTES_MAX)
        return err_set(e, ERR_INVALID, "shards of a multiple of 1 MiB, 1 MiB to 1 GiB");
    lay_out(t, o, &m);
    if (manifest_check(&m, e) < 0)
        return -1;
    j.order = mem_calloc(t->n + 1, sizeof *j.order);
    for (size_t i = 0; i < t->n; i++)
        j.order[i] = i;
    qsort_r(j.order, t->n, sizeof *j.order, larger_first, &t);
    pthread_mutex_init(&j.lock, NULL);
    thread_team(o->threads, hash_files, &j, "hash");
    pthread_mutex_destroy(&j.lock);
    free(j.order);
    if (atomic_load(&j.failed)) {
        if (e != NULL)
            *e = j.err;
        return -1;
    }
    HAND_OVER(out, &m, ((struct manifest)MANIFEST_INIT));
    return 0;
}
