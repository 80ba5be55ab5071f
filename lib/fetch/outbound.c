/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/outbound.h"

#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/str.h"

void outbound_free(struct outbound *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->file[i].path);
        free(t->file[i].real);
    }
    free(t->file);
    *t = (struct outbound)OUTBOUND_INIT;
}

static void add(struct outbound *t, const char *path, const char *real, const struct stat *st)
{
    t->file = mem_resize(t->file, t->n + 1, sizeof *t->file);
    t->file[t->n++] = (struct outbound_file){ .path = mem_strdup(path),
        .real = mem_strdup(real),
        .size = st->st_size,
        .executable = (st->st_mode & S_IXUSR) != 0 };
    t->bytes += st->st_size;
}

static bool is_below(const char *real, const char *within)
{
    const size_t size = strlen(within);
    return strncmp(real, within, size) == 0 && (real[size] == '/' || size == 1);
}

struct walk {
    struct outbound *tree;
    enum outbound_links links;
    char within[PATH_MAX];
    size_t skip; /* bytes of the directory's own name and the slash after it */
};

static int take_file(struct walk *w, const FTSENT *f, struct err *e)
{
    const char *path = f->fts_path + w->skip;
    char real[PATH_MAX];

    if (!S_ISREG(f->fts_statp->st_mode))
        return err_set(e, ERR_INVALID, "%s: no plain file", path);
    if (manifest_path_check(path, e) < 0)
        return err_wrap(e, "%s", path);
    if (realpath(f->fts_path, real) == NULL)
        return err_errno(e, ERR_INTERNAL, "%s", path);
    if (!is_below(real, w->within))
        return err_set(e, ERR_INVALID, "%s: a link that leads outside", path);
    add(w->tree, path, real, f->fts_statp);
    return 0;
}

static int take(struct walk *w, const FTSENT *f, struct err *e)
{
    const char *path = f->fts_level > 0 ? f->fts_path + w->skip : f->fts_path;

    switch (f->fts_info) {
    case FTS_D:
    case FTS_DP:
        return 0;
    case FTS_F:
    case FTS_DEFAULT:
        return take_file(w, f, e);
    case FTS_SL:
    case FTS_SLNONE:
        return err_set(e, ERR_INVALID, "%s: %s", path,
            w->links == OUTBOUND_NO_LINKS ? "a symbolic link" : "a link that leads nowhere");
    case FTS_DC:
        return err_set(e, ERR_INVALID, "%s: a directory within itself", path);
    default:
        errno = f->fts_errno;
        return err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, "%s", path);
    }
}

static int walk_all(struct walk *w, FTS *fts, struct err *e)
{
    FTSENT *f = NULL;

    while ((errno = 0, f = fts_read(fts)) != NULL) {
        if (take(w, f, e) < 0)
            return -1;
    }
    return errno == 0 ? 0 : err_errno(e, ERR_INTERNAL, "reading the directory");
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct outbound_file *)a)->path, ((const struct outbound_file *)b)->path);
}

int outbound_walk(const char *dir, enum outbound_links links, const char *within,
    struct outbound *out, struct err *e)
{
    cleanup_outbound struct outbound t = OUTBOUND_INIT;
    char top[PATH_MAX];
    char *const paths[] = { top, NULL };
    struct stat st;

    if (realpath(dir, top) == NULL || stat(top, &st) != 0)
        return err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, "%s", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_NOT_FOUND, "%s: no directory", dir);
    struct walk w = { .tree = &t, .links = links, .skip = strlen(top) + 1 };
    if (realpath(links == OUTBOUND_FOLLOW_LINKS ? within : top, w.within) == NULL)
        return err_errno(e, ERR_NOT_FOUND, "%s", within);
    FTS *fts = fts_open(
        paths, FTS_NOCHDIR | (links == OUTBOUND_NO_LINKS ? FTS_PHYSICAL : FTS_LOGICAL), NULL);
    if (fts == NULL)
        return err_errno(e, ERR_INTERNAL, "%s", dir);
    const int rc = walk_all(&w, fts, e);
    fts_close(fts);
    if (rc < 0)
        return -1;
    if (t.n == 0)
        return err_set(e, ERR_NOT_FOUND, "%s: no file in it", dir);
    qsort(t.file, t.n, sizeof *t.file, by_path);
    HAND_OVER(out, &t, ((struct outbound)OUTBOUND_INIT));
    return 0;
}
