/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/str.h"
#include "depot/ledger.h"
#include "depot/part.h"

enum { FILE_MODE = 0644, BLOCK = 512 };

/* --- strangers --- */

static bool is_folder_of(const struct manifest *m, const char *path)
{
    const size_t size = strlen(path);

    for (size_t i = 0; i < m->files; i++) {
        if (strncmp(m->file[i].path, path, size) == 0 && m->file[i].path[size] == '/')
            return true;
    }
    return false;
}

/* Removes what the manifest does not know, links, and files that have another name somewhere. */
static int weed(void *ctx, const struct tree_entry *e)
{
    const struct manifest *m = ((const struct part *)ctx)->manifest;

    switch (e->kind) {
    case TREE_FOLDER:
        return 0;
    case TREE_FOLDER_END:
        return is_folder_of(m, e->path) ? 0 : unlinkat(e->parent, e->name, AT_REMOVEDIR);
    case TREE_FILE:
    default:
        if (S_ISREG(e->stat.st_mode) && e->stat.st_nlink == 1 && manifest_find(m, e->path) != NULL)
            return 0;
        return unlinkat(e->parent, e->name, 0);
    }
}

/* --- sizes --- */

/* -1 with errno. What is there keeps its content as far as it may count. */
static int set_size(const struct part *p, const struct manifest_file *f)
{
    struct stat st;
    cleanup_fd int fd = -1;

    if (tree_make_parents(p->files, f->path) < 0)
        return -1;
    fd = tree_open(p->files, f->path, O_RDWR | O_CREAT, FILE_MODE);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_size > f->size && ftruncate(fd, f->size) < 0)
        return -1;
    if (f->size == 0)
        return 0;
    while (fallocate(fd, 0, 0, f->size) < 0) {
        if (errno == EINTR)
            continue;
        return errno == EOPNOTSUPP || errno == ENOSYS ? ftruncate(fd, f->size) : -1;
    }
    return 0;
}

/* Bytes that are still to be taken from the file system. */
static int64_t missing_bytes(const struct part *p)
{
    int64_t more = 0;

    for (size_t i = 0; i < p->manifest->files; i++) {
        const struct manifest_file *f = &p->manifest->file[i];
        struct stat st;
        const int64_t there = fstatat(p->files, f->path, &st, AT_SYMLINK_NOFOLLOW) == 0
                                  ? (int64_t)st.st_blocks * BLOCK
                                  : 0;
        more += f->size > there ? f->size - there : 0;
    }
    return more;
}

int part_prepare(struct part *p, int64_t capacity_bytes, struct mishap *why)
{
    struct ledger l;

    if (tree_walk(p->files, weed, p) < 0)
        return mishap_errno(why, true, "cannot clear what does not belong into the part");
    if (ledger_read(p->depot->root, p->name, &l, why) < 0 ||
        ledger_check(&l, missing_bytes(p), capacity_bytes, why) < 0)
        return -1;
    for (size_t i = 0; i < p->manifest->files; i++) {
        if (set_size(p, &p->manifest->file[i]) < 0)
            return mishap_errno(why, true, "cannot reserve %lld bytes for %.80s",
                (long long)p->manifest->file[i].size, p->manifest->file[i].path);
    }
    return 0;
}
