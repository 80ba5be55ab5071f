/* SPDX-License-Identifier: Apache-2.0 */
#include "store/artifact_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FILE_MODE = 0444,
    EXECUTABLE_MODE = 0555,
    FOLDER_MODE = 0555,
    OPEN_FOLDER_MODE = 0755,
    OPEN_FILE_MODE = 0644
};

static void close_fts(FTS **f)
{
    if (*f != NULL)
        fts_close(*f);
}
#define cleanup_fts __attribute__((cleanup(close_fts)))

static FTS *walk(const char *path)
{
    char *roots[] = { (char *)(uintptr_t)path, NULL };
    return fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
}

/* Calls fn for all that is at and below path. */
typedef int visit_fn(FTSENT *at, const void *ctx, struct err *e);
static int each(const char *path, visit_fn *fn, const void *ctx, struct err *e)
{
    cleanup_fts FTS *f = walk(path);

    if (f == NULL)
        return disk_failed("look into", path, e);
    errno = 0;
    for (FTSENT *at = fts_read(f); at != NULL; at = fts_read(f)) {
        if (at->fts_info == FTS_ERR || at->fts_info == FTS_DNR || at->fts_info == FTS_NS) {
            errno = at->fts_errno;
            if (errno == ENOENT && at->fts_level == 0)
                return 0;
            return disk_failed("look into", at->fts_path, e);
        }
        if (fn(at, ctx, e) < 0)
            return -1;
        errno = 0;
    }
    return errno == 0 ? 0 : disk_failed("look into", path, e);
}

static int remove_one(FTSENT *at, const void *ctx, struct err *e)
{
    (void)ctx;
    if (at->fts_info == FTS_D) /* folders that were sealed */
        return chmod(at->fts_accpath, OPEN_FOLDER_MODE) < 0 && errno != ENOENT
                   ? disk_failed("open folder", at->fts_path, e)
                   : 0;
    const int rc = at->fts_info == FTS_DP ? rmdir(at->fts_accpath) : unlink(at->fts_accpath);
    return rc < 0 && errno != ENOENT ? disk_failed("remove", at->fts_path, e) : 0;
}

int tree_remove(const char *path, struct err *e)
{
    return each(path, remove_one, NULL, e);
}

struct sealing {
    const struct manifest *manifest;
    size_t files_at; /* where in a path the part below files/ begins */
};

static struct sealing sealing_of(const char *path, const struct manifest *m)
{
    return (struct sealing){ .manifest = m, .files_at = strlen(path) + strlen("/files/") };
}

static const struct manifest_file *file_of(const FTSENT *at, const struct sealing *s)
{
    return strlen(at->fts_path) <= s->files_at
               ? NULL
               : manifest_find(s->manifest, at->fts_path + s->files_at);
}

static int check_one(FTSENT *at, const void *ctx, struct err *e)
{
    const struct sealing *s = ctx;

    if (at->fts_info == FTS_D || at->fts_info == FTS_DP)
        return 0;
    if (at->fts_info == FTS_F && (at->fts_level == 1 || file_of(at, s) != NULL))
        return 0;
    return err_set(e, ERR_INVALID, "%.100s is not in the manifest", at->fts_name);
}

int tree_check(const char *path, const struct manifest *m, struct err *e)
{
    const struct sealing s = sealing_of(path, m);
    return each(path, check_one, &s, e);
}

static int unseal_one(FTSENT *at, const void *ctx, struct err *e)
{
    (void)ctx;
    const bool folder = at->fts_info == FTS_D;
    if (!folder && at->fts_info != FTS_F)
        return 0;
    return chmod(at->fts_accpath, folder ? OPEN_FOLDER_MODE : OPEN_FILE_MODE) < 0
               ? disk_failed("open", at->fts_path, e)
               : 0;
}

int tree_unseal(const char *path, struct err *e)
{
    return each(path, unseal_one, NULL, e);
}

static int sync_folder(FTSENT *at, const void *ctx, struct err *e)
{
    (void)ctx;
    if (at->fts_info != FTS_DP)
        return 0;
    cleanup_fd int fd = open(at->fts_accpath, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? disk_failed("sync", at->fts_path, e) : 0;
}

static int seal_one(FTSENT *at, const void *ctx, struct err *e)
{
    const struct sealing *s = ctx;
    const struct manifest_file *f = file_of(at, s);
    mode_t mode = FOLDER_MODE;

    if (at->fts_info == FTS_D || at->fts_level == 0)
        return 0;
    if (at->fts_info != FTS_DP)
        mode = f != NULL && f->executable ? EXECUTABLE_MODE : FILE_MODE;
    return chmod(at->fts_accpath, mode) < 0 ? disk_failed("seal", at->fts_path, e) : 0;
}

int tree_seal(const char *path, const struct manifest *m, struct err *e)
{
    const struct sealing s = sealing_of(path, m);
    return each(path, sync_folder, &s, e) < 0 || each(path, seal_one, &s, e) < 0 ? -1 : 0;
}
