/* SPDX-License-Identifier: Apache-2.0 */
#include "store/inspect.h"

#include <fcntl.h>

#include "base/tree.h"

struct look {
    const struct manifest *m;
    bool modes;
    size_t seen;
    struct mishap *why;
};

static int refuse(struct look *l, const char *path, const char *what)
{
    return mishap_set(l->why, MISHAP_MANIFEST_MISMATCH, "%.150s: %s", path, what);
}

static int look_at(void *ctx, const struct tree_entry *e)
{
    struct look *l = ctx;

    if (e->kind != TREE_FILE) /* a folder without a file of ours is empty, or has a stranger */
        return 0;
    const struct manifest_file *f = manifest_find(l->m, e->path);
    if (f == NULL)
        return refuse(l, e->path, "the manifest does not have it");
    if (!S_ISREG(e->stat.st_mode))
        return refuse(l, e->path, "no plain file");
    if (e->stat.st_size != f->size)
        return refuse(l, e->path, "not of the size that the manifest says");
    if (l->modes && (e->stat.st_mode & S_IXUSR) != (f->executable ? S_IXUSR : 0U))
        return refuse(l, e->path, "not of the mode that the manifest says");
    l->seen++;
    return 0;
}

int inspect_tree(const struct manifest *m, int files, bool modes, struct mishap *why)
{
    struct look l = { m, modes, 0, why };

    why->reason = MISHAP_NONE;
    if (tree_walk(files, look_at, &l) < 0)
        return why->reason == MISHAP_NONE
                   ? mishap_errno(why, false, "cannot look through the files")
                   : -1;
    if (l.seen == m->files)
        return 0;
    for (size_t i = 0; i < m->files; i++) {
        struct stat st;
        cleanup_fd int fd = tree_open(files, m->file[i].path, O_PATH, 0);
        if (fd < 0 || fstat(fd, &st) < 0)
            return refuse(&l, m->file[i].path, "missing");
    }
    return mishap_set(why, MISHAP_MANIFEST_MISMATCH, "the files changed meanwhile");
}
