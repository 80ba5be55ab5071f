/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/part.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "depot/journal.h"
#include "store/manifest_json.h"

enum { FILE_MODE = 0644, FOLDER_MODE = 0755, JOURNAL_TEXT_MAX = 1 << 20 };

void part_close(struct part *p)
{
    if (p == NULL)
        return;
    cleanup_fd_(&p->journal);
    cleanup_fd_(&p->files);
    cleanup_fd_(&p->folder);
    pthread_mutex_destroy(&p->lock);
    free(p->have);
    free(p->pending);
    free(p);
}

int part_remove(struct part *p, struct mishap *why)
{
    cleanup_part struct part *held = p;

    cleanup_fd_(&p->journal);
    p->journal = -1;
    if (tree_remove(held->depot->tmp, held->name) < 0)
        return mishap_errno(why, true, "cannot remove %s", held->name);
    return 0;
}

/* --- whose is it --- */

int part_file_is_written(int folder, const char *name)
{
    cleanup_fd int fd = tree_open(folder, name, O_RDONLY, 0);

    if (fd < 0)
        return errno == ENOENT ? 0 : 1;
    if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
        return 1;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return 0;
}

static int is_written(void *ctx, const struct tree_entry *e)
{
    (void)ctx;
    return e->kind == TREE_FILE && S_ISREG(e->stat.st_mode)
               ? part_file_is_written(e->parent, e->name)
               : 0;
}

static bool is_same(int a, int folder, const char *name)
{
    struct stat own;
    struct stat there;

    return fstat(a, &own) == 0 && fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_ino == there.st_ino && own.st_dev == there.st_dev;
}

int part_is_ours(const struct part *p, struct mishap *why)
{
    if (is_same(p->folder, p->depot->tmp, p->name))
        return 0;
    return mishap_set(
        why, MISHAP_TAKEN_OVER, "the part is not where it was: somebody took it over");
}

/* Takes a part whose writer is dead: its folder, locked, under a new name. -1: it is not to be had. */
static int take(const struct depot *d, const char *name, char new_name[DEPOT_PART_SIZE])
{
    cleanup_fd int folder = tree_open_folder(d->tmp, name);

    if (folder < 0 || flock(folder, LOCK_EX | LOCK_NB) < 0 || !is_same(folder, d->tmp, name) ||
        tree_walk(folder, is_written, NULL) != 0)
        return -1;
    if (renameat2(d->tmp, name, d->tmp, new_name, RENAME_NOREPLACE) < 0)
        return -1;
    return STEAL_FD(folder);
}

struct search {
    const struct depot *depot;
    struct part *part;
};

static int look_at(void *ctx, const struct tree_entry *e)
{
    struct search *s = ctx;
    char name[DEPOT_PART_SIZE];

    if (e->kind == TREE_FILE || !depot_is_part(e->name, s->part->manifest->version))
        return 0;
    depot_new_name(name, s->part->manifest->version, "part");
    cleanup_fd int folder = take(s->depot, e->name, name);
    if (folder < 0)
        return 0;
    if (s->part->folder >= 0) /* one is enough */
        return tree_remove(s->depot->tmp, name);
    s->part->folder = STEAL_FD(folder);
    s->part->taken = true;
    return str_copy(s->part->name, sizeof s->part->name, name);
}

/* Looks only at what lies in .tmp itself. */
static int find_dead(const struct depot *d, struct part *p)
{
    struct search s = { .depot = d, .part = p };

    return tree_list(d->tmp, look_at, &s);
}

/* --- opening --- */

/* Made under another name first, so that nobody finds it without lock and journal. */
static int begin_new(const struct depot *d, struct part *p, struct mishap *why)
{
    depot_new_name(p->name, p->manifest->version, "new");
    if (mkdirat(d->tmp, p->name, FOLDER_MODE) < 0)
        return mishap_errno(why, true, "cannot make a part");
    p->folder = tree_open_folder(d->tmp, p->name);
    if (p->folder < 0 || flock(p->folder, LOCK_EX | LOCK_NB) < 0)
        return errno == ENOENT || errno == EWOULDBLOCK
                   ? mishap_set(why, MISHAP_TAKEN_OVER, "somebody took a new part for a dead one")
                   : mishap_errno(why, true, "cannot open a new part");
    return 0;
}

static int name_new(const struct depot *d, struct part *p, struct mishap *why)
{
    char name[DEPOT_PART_SIZE];

    depot_new_name(name, p->manifest->version, "part");
    if (renameat2(d->tmp, p->name, d->tmp, name, RENAME_NOREPLACE) < 0)
        return errno == ENOENT
                   ? mishap_set(why, MISHAP_TAKEN_OVER, "somebody took a new part for a dead one")
                   : mishap_errno(why, true, "cannot name a new part");
    (void)str_copy(p->name, sizeof p->name, name);
    return 0;
}

static int open_journal(struct part *p, struct mishap *why)
{
    cleanup_buf struct buf head = BUF_INIT(JOURNAL_TEXT_MAX);

    p->journal =
        tree_open(p->folder, DEPOT_JOURNAL, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, FILE_MODE);
    if (p->journal < 0)
        return mishap_errno(why, true, "cannot open a journal");
    journal_head(&head, &p->digest, p->manifest->total_bytes);
    if (file_write(p->journal, head.data, head.len) < 0)
        return mishap_errno(why, true, "cannot write a journal");
    return 0;
}

/* Papers and journal are written anew, and nothing else belongs beside the files: what lies there may be anybody's. */
static int remove_beside(void *ctx, const struct tree_entry *e)
{
    (void)ctx;
    return e->kind == TREE_FOLDER && strcmp(e->name, DEPOT_FILES) == 0
               ? 0
               : tree_remove(e->parent, e->name);
}

/* What a writer left that was about to land it can be written to again. */
static int clear_taken(const struct part *p, struct mishap *why)
{
    if (fchmod(p->folder, FOLDER_MODE) < 0 || tree_list(p->folder, remove_beside, NULL) < 0 ||
        tree_open_up(p->folder) < 0)
        return mishap_errno(why, true, "cannot make what was left writable");
    return 0;
}

static int open_tree(struct part *p, struct mishap *why)
{
    if (p->taken && clear_taken(p, why) < 0)
        return -1;
    p->files = tree_make_folder(p->folder, DEPOT_FILES);
    if (p->files < 0)
        return mishap_errno(why, true, "cannot make " DEPOT_FILES);
    return open_journal(p, why);
}

int part_open(const struct depot *d, const struct manifest *m, const char *text, size_t size,
    struct part **out, struct mishap *why)
{
    cleanup_part struct part *p = mem_calloc(1, sizeof *p);

    *p = (struct part){ .depot = d,
        .manifest = m,
        .manifest_text = text,
        .manifest_size = size,
        .digest = manifest_digest(text, size),
        .folder = -1,
        .files = -1,
        .journal = -1,
        .have = mem_calloc(m->shards + 1, sizeof *p->have),
        .pending = mem_calloc(m->shards + 1, sizeof *p->pending) };
    pthread_mutex_init(&p->lock, NULL);
    if (find_dead(d, p) < 0)
        return mishap_errno(why, true, "cannot look for what was left");
    const bool is_new = p->folder < 0;
    if (is_new && begin_new(d, p, why) < 0)
        return -1;
    if (open_tree(p, why) < 0 || (is_new && name_new(d, p, why) < 0))
        return -1;
    *out = STEAL(p);
    return 0;
}

int part_open_file(const struct part *p, size_t file, int flags)
{
    return tree_open(p->files, p->manifest->file[file].path, flags, 0);
}

/* --- what is on disk --- */

static size_t file_of(const struct part *p, size_t shard)
{
    return manifest_place(p->manifest, shard).file;
}

static int by_number(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a;
    const size_t y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static int sync_file(const struct part *p, size_t file, struct mishap *why)
{
    cleanup_fd int fd = part_open_file(p, file, O_RDONLY);

    if (fd < 0 || fdatasync(fd) < 0)
        return mishap_errno(why, true, "cannot sync %.80s", p->manifest->file[file].path);
    return 0;
}

static void note_had(struct part *p, const size_t *shard, size_t n)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&p->lock);

    for (size_t i = 0; i < n; i++)
        p->have[shard[i]] = true;
}

void part_bitmap(struct part *p, struct buf *hex)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&p->lock);

    for (size_t i = 0; i < p->manifest->shards; i += 8) {
        unsigned byte = 0;
        for (size_t k = i; k < i + 8 && k < p->manifest->shards; k++)
            byte |= p->have[k] ? 0x80U >> (k - i) : 0;
        buf_printf(hex, "%02x", byte);
    }
}

/* Syncs the files of those shards, each once, then marks the shards. */
static int sync_shards(struct part *p, size_t *shard, size_t n, struct mishap *why)
{
    cleanup_buf struct buf marks = BUF_INIT(JOURNAL_BYTES_MAX);

    qsort(shard, n, sizeof *shard, by_number);
    for (size_t i = 0; i < n; i++) {
        const size_t file = file_of(p, shard[i]);
        if ((i == 0 || file != file_of(p, shard[i - 1])) && sync_file(p, file, why) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++)
        journal_mark(&marks, shard[i]);
    note_had(p, shard, n);
    if (file_write(p->journal, marks.data, marks.len) < 0)
        return mishap_errno(why, true, "cannot write the journal");
    return 0;
}

/* Takes over what is pending. *n: how many. NULL: none. */
static size_t *take_pending(struct part *p, int64_t least_bytes, size_t *n)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&p->lock);

    if (p->pendings == 0 || p->pending_bytes < least_bytes)
        return NULL;
    size_t *taken = p->pending;
    *n = p->pendings;
    p->pending = mem_calloc(p->manifest->shards + 1, sizeof *p->pending);
    p->pendings = 0;
    p->pending_bytes = 0;
    return taken;
}

static void add_pending(struct part *p, size_t shard)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(&p->lock);

    p->pending[p->pendings++] = shard;
    p->pending_bytes += manifest_place(p->manifest, shard).size;
}

static int sync_pending(struct part *p, int64_t least_bytes, struct mishap *why)
{
    size_t n = 0;
    cleanup_free size_t *shard = take_pending(p, least_bytes, &n);

    return shard == NULL ? 0 : sync_shards(p, shard, n, why);
}

int part_wrote(struct part *p, size_t shard, struct mishap *why)
{
    add_pending(p, shard);
    return sync_pending(p, PART_SYNC_BYTES, why);
}

int part_sync(struct part *p, struct mishap *why)
{
    return sync_pending(p, 0, why);
}
