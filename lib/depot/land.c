/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/land.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "store/seal.h"

enum { FOLDER_MODE = 0555, NEW_MODE = 0644, RECEIPT_MAX = 1 << 20 };

static int sync_data(const struct part *p, struct mishap *why)
{
    for (size_t i = 0; i < p->manifest->files; i++) {
        cleanup_fd int fd = part_open_file(p, i, O_RDONLY);
        if (fd < 0 || fsync(fd) < 0)
            return mishap_errno(why, true, "cannot sync %.80s", p->manifest->file[i].path);
    }
    return 0;
}

static int remove_journal(struct part *p, struct mishap *why)
{
    cleanup_fd_(&p->journal);
    p->journal = -1;
    if (unlinkat(p->folder, DEPOT_JOURNAL, 0) < 0 && errno != ENOENT)
        return mishap_errno(why, true, "cannot remove the journal");
    return 0;
}

static int write_file(
    const struct part *p, const char *name, const char *text, size_t size, struct mishap *why)
{
    if (unlinkat(p->folder, name, 0) < 0 && errno != ENOENT)
        return mishap_errno(why, true, "cannot replace %s", name);
    cleanup_fd int fd = tree_open(p->folder, name, O_WRONLY | O_CREAT | O_EXCL, NEW_MODE);
    if (fd < 0 || file_write(fd, text, size) < 0 || fsync(fd) < 0)
        return mishap_errno(why, true, "cannot write %s", name);
    return 0;
}

static int write_papers(const struct part *p, const struct receipt *r, struct mishap *why)
{
    cleanup_buf struct buf text = BUF_INIT(RECEIPT_MAX);
    char line[SEAL_LINE_SIZE];

    if (write_file(p, DEPOT_MANIFEST, p->manifest_text, p->manifest_size, why) < 0)
        return -1;
    seal_line(&p->digest, line);
    if (write_file(p, DEPOT_DIGEST, line, strlen(line), why) < 0)
        return -1;
    receipt_print(r, p->manifest, &text);
    buf_putc(&text, '\n');
    return write_file(p, DEPOT_RECEIPT, text.data, text.len, why);
}

/* Somebody who can still write to a file would write into the version. */
static int find_writer(void *ctx, const struct tree_entry *e)
{
    (void)ctx;
    return e->kind == TREE_FILE ? part_file_is_written(e->parent, e->name) : 0;
}

static int check_alone(const struct part *p, struct mishap *why)
{
    const int rc = tree_walk(p->folder, find_writer, NULL);

    if (rc < 0)
        return mishap_errno(why, false, "cannot look through the part");
    if (rc > 0)
        return mishap_set(
            why, MISHAP_TAKEN_OVER, "somebody else has a file of the part open for writing");
    return part_is_ours(p, why);
}

/* 1: the same is there. */
static int compare_landed(const struct part *p, struct mishap *why)
{
    cleanup_landed struct landed v = LANDED_INIT;
    const int rc = landed_open(p->depot, p->manifest->version, &v, why);

    if (rc < 0)
        return -1;
    if (rc > 0)
        return mishap_set(why, MISHAP_TAKEN_OVER, "the version came and went");
    if (!digest_equal(&v.digest, &p->digest, sizeof p->digest))
        return mishap_set(why, MISHAP_MANIFEST_MISMATCH,
            "version %s is here already, with another manifest", p->manifest->version);
    return 1;
}

static int move_in(const struct part *p, struct mishap *why)
{
    const struct depot *d = p->depot;
    const char *version = p->manifest->version;

    if (renameat2(d->tmp, p->name, d->versions, version, RENAME_NOREPLACE) < 0) {
        if (errno == EEXIST)
            return compare_landed(p, why);
        if (errno == ENOENT)
            return mishap_set(why, MISHAP_TAKEN_OVER, "the part was taken over");
        return mishap_errno(why, true, "cannot move the part to its place");
    }
    if (fsync(d->versions) < 0 || fsync(d->tmp) < 0)
        return mishap_errno(why, true, "cannot sync the folders");
    if (fchmod(p->folder, FOLDER_MODE) < 0)
        return mishap_errno(why, true, "cannot make the version read-only");
    return 0;
}

int land_part(struct part *p, const struct receipt *r, struct mishap *why)
{
    if (sync_data(p, why) < 0 || remove_journal(p, why) < 0 || write_papers(p, r, why) < 0)
        return -1;
    if (seal_tree(p->folder, p->manifest) < 0)
        return mishap_errno(why, true, "cannot make the part durable and read-only");
    if (check_alone(p, why) < 0)
        return -1;
    return move_in(p, why);
}

int land_finish(const struct depot *d, const char *version, struct mishap *why)
{
    struct stat st;
    cleanup_fd int folder = tree_open_folder(d->versions, version);

    if (folder < 0 || fstat(folder, &st) < 0)
        return mishap_errno(why, false, "cannot open version %s", version);
    if ((st.st_mode & ALLPERMS) == FOLDER_MODE)
        return 0;
    if (fsync(d->versions) < 0 || fsync(d->tmp) < 0 || fchmod(folder, FOLDER_MODE) < 0)
        return mishap_errno(why, true, "cannot finish version %s", version);
    return 0;
}

int switch_current(const struct depot *d, const char *version, struct mishap *why)
{
    char target[VERSION_NAME_MAX + sizeof DEPOT_VERSIONS + 1];
    char name[DEPOT_PART_SIZE];
    struct stat st;

    if (fstatat(d->versions, version, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return 1;
        return mishap_errno(why, false, "cannot look at version %s", version);
    }
    (void)str_format(target, sizeof target, DEPOT_VERSIONS "/%s", version);
    depot_new_name(name, version, "current");
    if (symlinkat(target, d->tmp, name) < 0)
        return mishap_errno(why, true, "cannot make a link");
    if (renameat(d->tmp, name, d->folder, DEPOT_CURRENT) < 0) {
        (void)mishap_errno(why, true, "cannot switch " DEPOT_CURRENT);
        (void)unlinkat(d->tmp, name, 0);
        return -1;
    }
    if (fsync(d->folder) < 0)
        return mishap_errno(why, true, "cannot sync the folder");
    return 0;
}
