/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/reuse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "depot/rehash.h"

enum { HASH_THREADS = 2 };

/* A missing shard, to be looked for by its digest. */
struct wanted {
    struct digest digest;
    size_t shard;
};

struct looking {
    struct part *part;
    struct wanted *wanted; /* sorted by digest */
    size_t n;
    bool *cloned; /* by shard */
    const _Atomic bool *stop;
    struct mishap *why;
};

static int by_digest(const void *a, const void *b)
{
    return memcmp(((const struct wanted *)a)->digest.byte, ((const struct wanted *)b)->digest.byte,
        DIGEST_SIZE);
}

static void list_missing(const struct part *p, struct looking *l)
{
    l->wanted = mem_calloc(p->manifest->shards + 1, sizeof *l->wanted);
    l->n = 0;
    for (size_t i = 0; i < p->manifest->shards; i++) {
        if (!p->have[i])
            l->wanted[l->n++] = (struct wanted){ p->manifest->shard[i], i };
    }
    qsort(l->wanted, l->n, sizeof *l->wanted, by_digest);
}

/* The first of those that want that digest, or l->n. */
static size_t find(const struct looking *l, const struct digest *d)
{
    size_t low = 0;
    size_t high = l->n;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (memcmp(l->wanted[middle].digest.byte, d->byte, DIGEST_SIZE) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int clone_into(struct looking *l, size_t shard, int from, const struct shard_place *at)
{
    const struct part *p = l->part;
    const struct shard_place to = manifest_place(p->manifest, shard);

    if (l->cloned[shard] || p->have[shard] || to.size != at->size)
        return 0;
    cleanup_fd int fd = part_open_file(p, to.file, O_RDWR);
    const int rc = fd < 0 ? -1
                          : file_copy((struct file_range){ from, at->offset },
                                (struct file_range){ fd, to.offset }, to.size);
    if (rc < 0)
        return mishap_errno(l->why, true, "cannot write %.80s", p->manifest->file[to.file].path);
    l->cloned[shard] = rc == 0;
    return 0;
}

/* All that want a shard that lies there get it. */
static int offer(struct looking *l, const struct manifest *m, size_t shard, int files)
{
    const struct shard_place at = manifest_place(m, shard);
    size_t i = find(l, &m->shard[shard]);

    if (i == l->n || memcmp(&l->wanted[i].digest, &m->shard[shard], sizeof *m->shard) != 0)
        return 0;
    cleanup_fd int from = tree_open(files, m->file[at.file].path, O_RDONLY, 0);
    if (from < 0)
        return 0;
    for (; i < l->n && memcmp(&l->wanted[i].digest, &m->shard[shard], sizeof *m->shard) == 0; i++) {
        if (clone_into(l, l->wanted[i].shard, from, &at) < 0)
            return -1;
    }
    return 0;
}

static int offer_all(struct looking *l, const struct manifest *m, int files)
{
    for (size_t i = 0; i < m->shards; i++) {
        if (l->stop != NULL && atomic_load(l->stop))
            return mishap_set(l->why, MISHAP_STOPPED, "stopped");
        if (offer(l, m, i, files) < 0)
            return -1;
    }
    return 0;
}

/* --- landed versions --- */

static int offer_version(void *ctx, const struct depot *d, const char *version)
{
    struct looking *l = ctx;
    struct mishap ignored = MISHAP_INIT;
    cleanup_landed struct landed v = LANDED_INIT;

    if (landed_open(d, version, &v, &ignored) != 0)
        return 0; /* damaged: of no use, and not our business here */
    return offer_all(l, &v.manifest, v.files);
}

/* --- all --- */

static int offer_folder(struct looking *l, const char *path)
{
    cleanup_fd int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (folder < 0)
        return mishap_errno(l->why, false, "cannot open %.100s", path);
    return offer_all(l, l->part->manifest, folder);
}

static int rehash_cloned(struct looking *l, int64_t *bytes)
{
    struct part *p = l->part;
    const struct rehash r = { .manifest = p->manifest,
        .files = p->files,
        .only = l->cloned,
        .good = p->have,
        .threads = HASH_THREADS,
        .stop = l->stop };

    if (rehash_run(&r, l->why) < 0)
        return -1;
    for (size_t i = 0; i < p->manifest->shards; i++) {
        if (l->cloned[i] && p->have[i])
            *bytes += manifest_place(p->manifest, i).size;
    }
    return 0;
}

int reuse_shards(const struct reuse_options *o, int64_t *bytes, struct mishap *why)
{
    struct looking l = { .part = o->part, .stop = o->stop, .why = why };
    int rc = 0;

    why->reason = MISHAP_NONE;
    *bytes = 0;
    list_missing(o->part, &l);
    l.cloned = mem_calloc(o->part->manifest->shards + 1, sizeof *l.cloned);
    if (l.n > 0 && o->folder != NULL)
        rc = offer_folder(&l, o->folder);
    if (l.n > 0 && rc == 0)
        rc = depot_walk(o->part->depot->root, offer_version, &l);
    if (l.n > 0 && rc == 0)
        rc = rehash_cloned(&l, bytes);
    free(l.wanted);
    free(l.cloned);
    if (rc < 0 && why->reason == MISHAP_NONE)
        return mishap_errno(why, false, "cannot look through the root");
    return rc;
}

/* --- moving --- */

static bool may_move(int folder, const struct manifest_file *f)
{
    struct stat st;

    return fstatat(folder, f->path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           st.st_nlink == 1 && part_file_is_written(folder, f->path) == 0;
}

int reuse_move(struct part *p, const char *folder, struct mishap *why)
{
    cleanup_fd int from = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int moved = 0;

    if (from < 0)
        return mishap_errno(why, false, "cannot open %.100s", folder);
    for (size_t i = 0; i < p->manifest->files; i++) {
        const struct manifest_file *f = &p->manifest->file[i];
        if (!may_move(from, f))
            continue;
        if (tree_make_parents(p->files, f->path) < 0)
            return mishap_errno(why, true, "cannot make a folder");
        if (renameat2(from, f->path, p->files, f->path, RENAME_NOREPLACE) < 0)
            continue; /* another file system, or not allowed: cloned later */
        if (tree_chmod(p->files, f->path, 0644) < 0)
            return mishap_errno(why, true, "cannot make %.80s writable", f->path);
        moved++;
    }
    return moved;
}
