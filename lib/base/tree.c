/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"

enum { FOLDER_MODE = 0755, FILE_MODE = 0644, PATH_SIZE = 4096, BLOCK = 512 };

int tree_open(int dir, const char *path, int flags, mode_t mode)
{
    const bool plain = (flags & (O_DIRECTORY | O_PATH)) == 0;
    /* Not for writers: they would not wait until a lease is given up, which others take to see whether they are there. A pipe lets O_RDWR
     * in at once. */
    const int at_once = plain && (flags & O_ACCMODE) == O_RDONLY ? O_NONBLOCK : 0;
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | at_once),
        .mode = (flags & O_CREAT) != 0 ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    const int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    return plain ? file_only_plain(fd) : fd;
}

int tree_open_folder(int dir, const char *path)
{
    return tree_open(dir, path, O_RDONLY | O_DIRECTORY, 0);
}

int tree_make_folder(int dir, const char *name)
{
    if (mkdirat(dir, name, FOLDER_MODE) == 0) {
        if (fsync(dir) < 0)
            return -1;
    } else if (errno != EEXIST) {
        return -1;
    }
    return tree_open_folder(dir, name);
}

int tree_make_parents(int dir, const char *path)
{
    char parent[PATH_SIZE];

    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        if (str_format(parent, sizeof parent, "%.*s", (int)(slash - path), path) < 0) {
            errno = ENAMETOOLONG;
            return -1;
        }
        if (mkdirat(dir, parent, FOLDER_MODE) < 0 && errno != EEXIST)
            return -1;
    }
    return 0;
}

/* --- walking --- */

struct walk {
    struct buf path;
    bool flat; /* does not go into folders */
    tree_visit *visit;
    void *ctx;
};

static int walk(struct walk *w, int dir);

static int walk_folder(struct walk *w, struct tree_entry *e)
{
    e->kind = TREE_FOLDER;
    int rc = w->visit(w->ctx, e);
    if (rc != 0 || w->flat)
        return rc;
    cleanup_fd int folder = tree_open_folder(e->parent, e->name);
    if (folder < 0)
        return errno == ENOENT ? 0 : -1;
    rc = walk(w, folder);
    if (rc != 0)
        return rc;
    e->kind = TREE_FOLDER_END;
    e->folder = folder;
    e->path = w->path.data;
    return w->visit(w->ctx, e);
}

static int walk_entry(struct walk *w, int dir, const char *name)
{
    struct tree_entry e = { .kind = TREE_FILE, .parent = dir, .folder = -1, .name = name };
    const size_t before = w->path.len;

    if (fstatat(dir, name, &e.stat, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    buf_printf(&w->path, "%s%s", before == 0 ? "" : "/", name);
    if (w->path.overflow) {
        errno = ENAMETOOLONG;
        return -1;
    }
    e.path = w->path.data;
    const int rc = S_ISDIR(e.stat.st_mode) ? walk_folder(w, &e) : w->visit(w->ctx, &e);
    w->path.len = before;
    w->path.data[before] = '\0';
    return rc;
}

static void closedir_p(DIR **d)
{
    if (*d != NULL)
        closedir(*d);
}

/* A descriptor of its own, as closedir() closes it. */
static DIR *open_list(int dir)
{
    const int own = tree_open_folder(dir, ".");
    DIR *d = own < 0 ? NULL : fdopendir(own);
    if (own >= 0 && d == NULL)
        close(own);
    return d;
}

static int walk(struct walk *w, int dir)
{
    __attribute__((cleanup(closedir_p))) DIR *d = open_list(dir);
    if (d == NULL)
        return -1;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(d);
        if (entry == NULL)
            return errno == 0 ? 0 : -1;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        const int rc = walk_entry(w, dir, entry->d_name);
        if (rc != 0)
            return rc;
    }
}

static int begin_walk(int dir, bool flat, tree_visit *visit, void *ctx)
{
    struct walk w = { BUF_INIT(PATH_SIZE), flat, visit, ctx };

    buf_puts(&w.path, "");
    const int rc = walk(&w, dir);
    const int code = errno;
    buf_free(&w.path);
    errno = code;
    return rc;
}

int tree_walk(int dir, tree_visit *visit, void *ctx)
{
    return begin_walk(dir, false, visit, ctx);
}

int tree_list(int dir, tree_visit *visit, void *ctx)
{
    return begin_walk(dir, true, visit, ctx);
}

/* --- what is done with whole trees --- */

int tree_chmod(int dir, const char *name, mode_t mode)
{
    return fchmodat(dir, name, mode, AT_SYMLINK_NOFOLLOW);
}

/* What is mounted below is not ours to remove. */
static int remove_entry(void *ctx, const struct tree_entry *e)
{
    if (e->stat.st_dev != *(const dev_t *)ctx) {
        errno = EXDEV;
        return -1;
    }
    switch (e->kind) {
    case TREE_FOLDER: /* or what is in it could not be removed */
        return tree_chmod(e->parent, e->name, FOLDER_MODE) < 0 && errno != ENOENT ? -1 : 0;
    case TREE_FOLDER_END:
        return unlinkat(e->parent, e->name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
    case TREE_FILE:
    default:
        return unlinkat(e->parent, e->name, 0) < 0 && errno != ENOENT ? -1 : 0;
    }
}

int tree_remove(int dir, const char *name)
{
    struct stat st;
    cleanup_fd int folder = -1;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(dir, name, 0) < 0 && errno != ENOENT ? -1 : 0;
    if (tree_chmod(dir, name, FOLDER_MODE) < 0)
        return errno == ENOENT ? 0 : -1;
    folder = tree_open_folder(dir, name);
    if (folder < 0)
        return -1;
    if (tree_walk(folder, remove_entry, &st.st_dev) < 0)
        return -1;
    return unlinkat(dir, name, AT_REMOVEDIR);
}

struct aging {
    int64_t before_s;
    int64_t removed;
};

static int remove_if_old(void *ctx, const struct tree_entry *e)
{
    struct aging *a = ctx;

    if (!S_ISREG(e->stat.st_mode) || e->stat.st_mtim.tv_sec > a->before_s)
        return 0;
    if (unlinkat(e->parent, e->name, 0) < 0)
        return errno == ENOENT ? 0 : -1;
    a->removed++;
    return 0;
}

int64_t tree_remove_old_files(int dir, int64_t age_s)
{
    struct aging a = { clock_wall_us() / US_PER_S - age_s, 0 };

    return tree_list(dir, remove_if_old, &a) < 0 ? -1 : a.removed;
}

static int open_up(void *ctx, const struct tree_entry *e)
{
    (void)ctx;
    if (e->kind == TREE_FOLDER_END || S_ISLNK(e->stat.st_mode))
        return 0;
    const mode_t mode = e->kind == TREE_FOLDER ? FOLDER_MODE : FILE_MODE;
    return (e->stat.st_mode & ALLPERMS) == mode ? 0 : tree_chmod(e->parent, e->name, mode);
}

int tree_open_up(int dir)
{
    return fchmod(dir, FOLDER_MODE) < 0 ? -1 : tree_walk(dir, open_up, NULL);
}

static int sync_folder(void *ctx, const struct tree_entry *e)
{
    (void)ctx;
    return e->kind == TREE_FOLDER_END ? fsync(e->folder) : 0;
}

int tree_sync_folders(int dir)
{
    return tree_walk(dir, sync_folder, NULL) < 0 ? -1 : fsync(dir);
}

static int add_bytes(void *ctx, const struct tree_entry *e)
{
    if (e->kind != TREE_FOLDER_END)
        *(int64_t *)ctx += (int64_t)e->stat.st_blocks * BLOCK;
    return 0;
}

int tree_disk_bytes(int dir, int64_t *out)
{
    int64_t bytes = 0;

    if (tree_walk(dir, add_bytes, &bytes) < 0)
        return -1;
    *out = bytes;
    return 0;
}
