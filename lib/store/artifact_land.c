/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/str.h"
#include "base/tree.h"
#include "store/artifact_disk.h"
#include "store/inspect.h"
#include "store/manifest_json.h"
#include "store/seal.h"

enum { SEALED_MODE = 0555 };

/* A file beside files/, whole and on the disk. */
static int put_file(int part, const char *name, const char *text, size_t size, struct err *e)
{
    if (unlinkat(part, name, 0) < 0 && errno != ENOENT)
        return disk_failed("replace", name, e);
    cleanup_fd int fd = tree_open(part, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || file_write(fd, text, size) < 0 || fsync(fd) < 0)
        return disk_failed("write", name, e);
    return 0;
}

static int sync_files(int part, const struct manifest *m, struct err *e)
{
    for (size_t i = 0; i < m->files; i++) {
        cleanup_fd int fd = -1;
        if (disk_part_file(part, m->file[i].path, false, &fd, e) < 0)
            return -1;
        if (fsync(fd) < 0)
            return disk_failed("sync", m->file[i].path, e);
    }
    return 0;
}

/* Of a version whose files were read back: are they all that is there? */
static int check_files(int part, const struct manifest *m, struct err *e)
{
    struct mishap why = MISHAP_INIT;
    cleanup_fd int files = -1;

    if (disk_folder(part, "files", true, &files, e) < 0)
        return -1;
    return inspect_tree(m, files, false, &why) < 0 ? err_set(e, ERR_INVALID, "%s", why.text) : 0;
}

/* .tmp/<part> -> versions/<version> */
static int move(const struct disk_part *p, struct err *e)
{
    char name[DISK_PART_NAME_SIZE];
    cleanup_fd int artifact = -1;
    cleanup_fd int from = -1;
    cleanup_fd int to = -1;

    (void)!str_format(name, sizeof name, "%s.%s.part", p->version, p->uuid);
    if (disk_artifact(p->root, p->artifact, true, &artifact, e) < 0 ||
        disk_folder(artifact, ".tmp", true, &from, e) < 0 ||
        disk_folder(artifact, "versions", true, &to, e) < 0)
        return -1;
    if (renameat2(from, name, to, p->version, RENAME_NOREPLACE) < 0)
        return errno == EEXIST
                   ? err_set(e, ERR_CONFLICT, "the store has a version %s already", p->version)
                   : disk_failed("land", name, e);
    if (fsync(from) < 0 || fsync(to) < 0)
        return disk_failed("sync the folder of", p->version, e);
    return 0;
}

int disk_seal(const char *root, const char *artifact, const char *version, struct err *e)
{
    cleanup_fd int top = -1;
    cleanup_fd int versions = -1;
    cleanup_fd int fd = -1;

    if (disk_artifact(root, artifact, false, &top, e) < 0 ||
        disk_folder(top, "versions", false, &versions, e) < 0 ||
        disk_folder(versions, version, false, &fd, e) < 0)
        return -1;
    return fchmod(fd, SEALED_MODE) < 0 || fsync(fd) < 0 ? disk_failed("seal", version, e) : 0;
}

int disk_land(const struct disk_part *p, int part, const struct manifest *m, const char *text,
    size_t size, struct err *e)
{
    const struct digest sha256 = manifest_digest(text, size);
    char line[SEAL_LINE_SIZE];

    seal_line(&sha256, line);
    if (check_files(part, m, e) < 0 || sync_files(part, m, e) < 0 ||
        put_file(part, "manifest.json", text, size, e) < 0 ||
        put_file(part, "README.digest", line, strlen(line), e) < 0)
        return -1;
    if (seal_tree(part, m) < 0)
        return disk_failed("seal", p->version, e);
    if (fault_at(FAULT_GATE_SEALED, e) < 0 || move(p, e) < 0)
        return -1;
    return disk_seal(p->root, p->artifact, p->version, e);
}
