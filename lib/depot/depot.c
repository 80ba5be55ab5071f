/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/depot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/manifest_json.h"

enum { UUID_SIZE = 36, DIGEST_FILE_MAX = 256, ROOT_MODE = 0755 };

void depot_close(struct depot *d)
{
    cleanup_fd_(&d->tmp);
    cleanup_fd_(&d->versions);
    cleanup_fd_(&d->folder);
    cleanup_fd_(&d->root);
    *d = (struct depot)DEPOT_INIT;
}

static int open_folders(struct depot *d, bool create)
{
    int (*open_folder)(int, const char *) = create ? tree_make_folder : tree_open_folder;

    d->folder = open_folder(d->root, d->name);
    if (d->folder < 0)
        return -1;
    d->versions = open_folder(d->folder, DEPOT_VERSIONS);
    d->tmp = open_folder(d->folder, DEPOT_TMP);
    return d->versions < 0 || d->tmp < 0 ? -1 : 0;
}

int depot_open(
    struct depot *d, const char *root, const char *artifact, bool create, struct mishap *m)
{
    cleanup_depot struct depot got = DEPOT_INIT;

    (void)str_copy(got.name, sizeof got.name, artifact);
    if (create && mkdir(root, ROOT_MODE) < 0 && errno != EEXIST)
        return mishap_errno(m, true, "cannot make %.80s", root);
    got.root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (got.root < 0 || open_folders(&got, create) < 0) {
        if (errno == ENOENT && !create)
            return mishap_set(m, MISHAP_ARTIFACT_MISSING, "no %s below %.120s", artifact, root);
        return mishap_errno(m, create, "cannot open %s below %.80s", artifact, root);
    }
    HAND_OVER(d, &got, ((struct depot)DEPOT_INIT));
    return 0;
}

/* Takes fd, opened or not, as a file of at most max bytes. */
static int read_text(
    int fd, const char *name, size_t max, char **out, size_t *size, struct mishap *m)
{
    struct stat st;
    cleanup_free char *text = NULL;

    const bool is_plain = fd >= 0 || errno != ENXIO;

    if (is_plain && (fd < 0 || fstat(fd, &st) < 0))
        return mishap_errno(m, false, "cannot open %.100s", name);
    if (!is_plain || st.st_size < 0 || (size_t)st.st_size > max)
        return mishap_set(
            m, MISHAP_MANIFEST_MISMATCH, "%.100s is no file of at most %zu bytes", name, max);
    text = mem_calloc(1, (size_t)st.st_size + 1);
    if (file_read(fd, text, (size_t)st.st_size) < 0)
        return mishap_errno(m, false, "cannot read %.100s", name);
    *out = STEAL(text);
    *size = (size_t)st.st_size;
    return 0;
}

int depot_read_text(
    int folder, const char *name, size_t max, char **out, size_t *size, struct mishap *m)
{
    cleanup_fd int fd = tree_open(folder, name, O_RDONLY, 0);

    return read_text(fd, name, max, out, size, m);
}

int depot_read_file(const char *path, size_t max, char **out, size_t *size, struct mishap *m)
{
    cleanup_fd int fd = file_open(path, 0);

    return read_text(fd, path, max, out, size, m);
}

/* --- a landed version --- */

void landed_close(struct landed *v)
{
    cleanup_fd_(&v->files);
    cleanup_fd_(&v->folder);
    manifest_free(&v->manifest);
    *v = (struct landed)LANDED_INIT;
}

/* README.digest is "<64 hex digits>  manifest.json", as sha256sum -c takes it. */
static int check_digest(const struct landed *v, struct mishap *m)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    char want[DIGEST_TEXT_SIZE];

    if (depot_read_text(v->folder, DEPOT_DIGEST, DIGEST_FILE_MAX, &text, &size, m) < 0)
        return -1;
    digest_print(&v->digest, want);
    if (!str_starts(text, want + sizeof "sha256:" - 1))
        return mishap_set(m, MISHAP_MANIFEST_MISMATCH,
            DEPOT_MANIFEST " does not have the digest that " DEPOT_DIGEST " states");
    return 0;
}

static int read_landed(const char *version, struct landed *v, struct mishap *m)
{
    struct err e = ERR_INIT;
    cleanup_free char *text = NULL;
    size_t size = 0;

    if (depot_read_text(v->folder, DEPOT_MANIFEST, MANIFEST_BYTES_MAX, &text, &size, m) < 0)
        return -1;
    if (manifest_read(text, size, &v->manifest, &e) < 0)
        return mishap_set(m, MISHAP_MANIFEST_MISMATCH, DEPOT_MANIFEST ": %.180s", e.msg);
    if (strcmp(v->manifest.version, version) != 0)
        return mishap_set(
            m, MISHAP_MANIFEST_MISMATCH, DEPOT_MANIFEST " is of version %s", v->manifest.version);
    v->digest = manifest_digest(text, size);
    return check_digest(v, m);
}

int landed_open(const struct depot *d, const char *version, struct landed *v, struct mishap *m)
{
    cleanup_landed struct landed got = LANDED_INIT;

    got.folder = tree_open_folder(d->versions, version);
    if (got.folder < 0 && errno == ENOENT)
        return 1;
    if (got.folder < 0)
        return mishap_errno(m, false, "cannot open version %s", version);
    got.files = tree_open_folder(got.folder, DEPOT_FILES);
    if (got.files < 0)
        return mishap_errno(m, false, "version %s has no " DEPOT_FILES, version);
    if (read_landed(version, &got, m) < 0)
        return -1;
    HAND_OVER(v, &got, ((struct landed)LANDED_INIT));
    return 0;
}

int depot_digest(const struct depot *d, const char *version, struct digest *out)
{
    struct mishap ignored = MISHAP_INIT;
    cleanup_free char *text = NULL;
    size_t size = 0;
    char path[VERSION_NAME_MAX + sizeof "/" DEPOT_DIGEST];

    if (str_format(path, sizeof path, "%s/" DEPOT_DIGEST, version) < 0 ||
        depot_read_text(d->versions, path, DIGEST_FILE_MAX, &text, &size, &ignored) < 0)
        return -1;
    text[strcspn(text, " \n")] = '\0';
    return digest_parse_bare(text, out, NULL);
}

/* --- all versions --- */

struct walk {
    depot_visit *visit;
    void *ctx;
    struct depot *depot;
};

static int walk_version(void *ctx, const struct tree_entry *e)
{
    const struct walk *w = ctx;

    return e->kind == TREE_FOLDER ? w->visit(w->ctx, w->depot, e->name) : 0;
}

static int walk_artifact(void *ctx, const struct tree_entry *e)
{
    const struct walk *all = ctx;
    struct depot d = DEPOT_INIT;
    struct walk w = { all->visit, all->ctx, &d };
    cleanup_fd int folder = -1;
    cleanup_fd int versions = -1;

    if (e->kind != TREE_FOLDER || str_copy(d.name, sizeof d.name, e->name) < 0)
        return 0;
    folder = tree_open_folder(e->parent, e->name);
    versions = folder < 0 ? -1 : tree_open_folder(folder, DEPOT_VERSIONS);
    if (versions < 0)
        return 0; /* not one of ours */
    d.versions = versions;
    return tree_list(versions, walk_version, &w);
}

int depot_walk(int root, depot_visit *visit, void *ctx)
{
    struct walk w = { visit, ctx, NULL };

    return tree_list(root, walk_artifact, &w);
}

/* --- names of parts --- */

/* Is it "<version>.<uuid>" and that end? */
static bool is_named(const char *name, const char *version, const char *end)
{
    const size_t size = strlen(name);
    const size_t rest = 1 + UUID_SIZE + strlen(end);

    if (size <= rest || !str_ends(name, end) || name[size - rest] != '.')
        return false;
    return version == NULL ||
           (strlen(version) == size - rest && strncmp(name, version, size - rest) == 0);
}

bool depot_is_part(const char *name, const char *version)
{
    return is_named(name, version, ".part") || is_named(name, version, ".new");
}

void depot_new_name(char out[DEPOT_PART_SIZE], const char *version, const char *kind)
{
    char token[TOKEN_HEX_SIZE];

    digest_token(token);
    (void)str_format(out, DEPOT_PART_SIZE, "%s.%.8s-%.4s-%.4s-%.4s-%.12s.%s", version, token,
        token + 8, token + 12, token + 16, token + 20, kind);
}
