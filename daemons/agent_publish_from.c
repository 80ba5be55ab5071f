/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_publish_from.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

enum { REVISION_MAX = 128 };
static const char BLOBS[] = "blobs/sha256/";

int from_folder(const char *dir, struct outbound *out, struct err *e)
{
    return outbound_walk(dir, OUTBOUND_NO_LINKS, NULL, out, e);
}

/* --- Hugging Face --- */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A revision is one name in snapshots/. */
static int check_revision(const char *name, struct err *e)
{
    if (*name == '\0' || *name == '.' || strchr(name, '/') != NULL)
        return err_set(e, ERR_INVALID, "no revision: '%.40s'", name);
    return 0;
}

/* What refs/main says: 0, 1 when there is none. */
static int read_main(const char *dir, char revision[REVISION_MAX])
{
    char path[PATH_MAX];

    if (str_format(path, sizeof path, "%s/refs/main", dir) < 0)
        return 1;
    cleanup_fd int fd = file_open(path, 0);
    const ssize_t n = fd < 0 ? -1 : read(fd, revision, REVISION_MAX - 1);
    if (n <= 0)
        return 1;
    revision[n] = '\0';
    revision[strcspn(revision, "\r\n")] = '\0';
    return 0;
}

/* The only one that there is. */
static int find_only(const char *snapshots, char revision[REVISION_MAX], struct err *e)
{
    DIR *d = opendir(snapshots);
    size_t n = 0;

    if (d == NULL)
        return err_errno(e, ERR_NOT_FOUND, "%s", snapshots);
    for (const struct dirent *at = readdir(d); at != NULL;
         at = readdir(d)) { /* NOLINT(concurrency-mt-unsafe) */
        if (at->d_name[0] == '.')
            continue;
        n++;
        (void)str_copy(revision, REVISION_MAX, at->d_name);
    }
    closedir(d);
    return n == 1 ? 0 : err_set(e, ERR_INVALID, "%zu snapshots: name one by --revision", n);
}

int from_hf(const char *dir, const char *revision, struct outbound *out, struct err *e)
{
    char snapshots[PATH_MAX];
    char snapshot[PATH_MAX];
    char found[REVISION_MAX] = "";
    char within[PATH_MAX];

    if (str_format(snapshots, sizeof snapshots, "%s/snapshots", dir) < 0)
        return err_set(e, ERR_INVALID, "too long a name");
    if (!is_folder(
            snapshots)) { /* a snapshot itself, whose blobs lie beside its parent, or a clone */
        if (str_format(within, sizeof within, "%s/../../blobs", dir) < 0 || !is_folder(within))
            return from_folder(dir, out, e);
        (void)str_format(within, sizeof within, "%s/../..", dir);
        return outbound_walk(dir, OUTBOUND_FOLLOW_LINKS, within, out, e);
    }
    if (revision == NULL && read_main(dir, found) != 0 && find_only(snapshots, found, e) < 0)
        return -1;
    if (revision == NULL)
        revision = found;
    if (check_revision(revision, e) < 0)
        return -1;
    if (str_format(snapshot, sizeof snapshot, "%s/%s", snapshots, revision) < 0)
        return err_set(e, ERR_INVALID, "too long a name");
    return outbound_walk(snapshot, OUTBOUND_FOLLOW_LINKS, dir, out, e);
}

/* --- OCI --- */

static bool has(const struct outbound *t, const char *path)
{
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->file[i].path, path) == 0)
            return true;
    }
    return false;
}

int from_oci(const char *dir, struct outbound *out, struct err *e)
{
    cleanup_outbound struct outbound t = OUTBOUND_INIT;

    if (from_folder(dir, &t, e) < 0)
        return -1;
    if (!has(&t, "oci-layout") || !has(&t, "index.json"))
        return err_set(
            e, ERR_INVALID, "no OCI image layout: oci-layout and index.json are not both there");
    HAND_OVER(out, &t, ((struct outbound)OUTBOUND_INIT));
    return 0;
}

int from_oci_check(const struct manifest *m, struct err *e)
{
    for (size_t i = 0; i < m->files; i++) {
        const struct manifest_file *f = &m->file[i];
        struct digest named;
        if (!str_starts(f->path, BLOBS))
            continue;
        if (digest_parse_bare(f->path + sizeof BLOBS - 1, &named, e) < 0 ||
            memcmp(named.byte, f->sha256.byte, sizeof named.byte) != 0)
            return err_set(e, ERR_INVALID, "%s: the blob's sha256 is not its name", f->path);
    }
    return 0;
}
