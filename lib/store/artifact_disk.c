/* SPDX-License-Identifier: Apache-2.0 */
#include "store/artifact_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/tree.h"

enum { HASH_BUFFER = 1 << 20, TICK_BYTES = 64 << 20 };

int disk_failed(const char *what, const char *path, struct err *e)
{
    const enum err_code code = errno == ENOSPC || errno == EDQUOT ? ERR_NO_ROOM
                               : errno == ENOENT                  ? ERR_NOT_FOUND
                                                                  : ERR_UNAVAILABLE;
    return err_errno(e, code, "%s %.100s", what, path);
}

int disk_folder(int at, const char *name, bool make, int *fd, struct err *e)
{
    *fd = make ? tree_make_folder(at, name) : tree_open_folder(at, name);
    return *fd < 0 ? disk_failed(make ? "make folder" : "open folder", name, e) : 0;
}

/* The folder `name` below the one that *fd is, which it replaces. */
static int step(int *fd, const char *name, bool make, struct err *e)
{
    int next = -1;
    if (disk_folder(*fd, name, make, &next, e) < 0)
        return -1;
    close(*fd);
    *fd = next;
    return 0;
}

int disk_artifact(const char *root, const char *artifact, bool make, int *out, struct err *e)
{
    cleanup_fd int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return disk_failed("open the store", root, e);
    if (step(&fd, artifact, make, e) < 0)
        return -1;
    *out = STEAL_FD(fd);
    return 0;
}

static void part_name(const struct disk_part *p, char name[DISK_PART_NAME_SIZE])
{
    (void)!str_format(name, DISK_PART_NAME_SIZE, "%s.%s.part", p->version, p->uuid);
}

int disk_part_open(const struct disk_part *p, bool alone, bool wait, int *out, struct err *e)
{
    char name[DISK_PART_NAME_SIZE];
    cleanup_fd int fd = -1;

    part_name(p, name);
    if (disk_artifact(p->root, p->artifact, true, &fd, e) < 0 || step(&fd, ".tmp", true, e) < 0 ||
        step(&fd, name, true, e) < 0)
        return -1;
    if (flock(fd, (alone ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB)) < 0)
        return errno == EWOULDBLOCK ? 1 : disk_failed("lock", name, e);
    if (alone && tree_open_up(fd) < 0)
        return disk_failed("open", name, e);
    *out = STEAL_FD(fd);
    return 0;
}

/* All folders of path below *fd; *last is where its last segment begins. */
static int walk_folders(int *fd, const char *path, bool make, const char **last, struct err *e)
{
    char name[MANIFEST_SEGMENT_MAX + 1];
    const char *at = path;

    for (const char *slash = strchr(at, '/'); slash != NULL; slash = strchr(at, '/')) {
        (void)!str_format(name, sizeof name, "%.*s", (int)(slash - at), at);
        if (step(fd, name, make, e) < 0)
            return -1;
        at = slash + 1;
    }
    *last = at;
    return 0;
}

int disk_part_file(int part, const char *path, bool make, int *out, struct err *e)
{
    cleanup_fd int folder = -1;
    cleanup_fd int fd = -1;
    const char *name = NULL;

    if (disk_folder(part, "files", make, &folder, e) < 0 ||
        walk_folders(&folder, path, make, &name, e) < 0)
        return -1;
    fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && make) {
        fd = openat(folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd >= 0 && fsync(folder) < 0)
            return disk_failed("sync the folder of", path, e);
    }
    if (fd < 0)
        return disk_failed("open", path, e);
    *out = STEAL_FD(fd);
    return 0;
}

int disk_file(const char *root, const char *artifact, const char *version, const char *path,
    int *out, struct err *e)
{
    cleanup_fd int fd = -1;
    const char *name = NULL;

    if (disk_artifact(root, artifact, false, &fd, e) < 0 || step(&fd, "versions", false, e) < 0 ||
        step(&fd, version, false, e) < 0 || step(&fd, "files", false, e) < 0 ||
        walk_folders(&fd, path, false, &name, e) < 0)
        return -1;
    *out = tree_open(fd, name, O_RDONLY, 0);
    if (*out < 0 && (errno == ELOOP || errno == ENXIO))
        errno = ENOENT; /* a link or a pipe is not the file */
    return *out < 0 ? disk_failed("open", path, e) : 0;
}

bool disk_has_version(const char *root, const char *artifact, const char *version)
{
    struct err ignored = ERR_INIT;
    cleanup_fd int fd = -1;
    return disk_artifact(root, artifact, false, &fd, &ignored) == 0 &&
           step(&fd, "versions", false, &ignored) == 0 && step(&fd, version, false, &ignored) == 0;
}

/* --- bytes --- */

int disk_hash(int fd, int64_t at, int64_t size, const struct disk_tick *tick, struct digest *out,
    struct err *e)
{
    cleanup_hasher struct hasher *h = hasher_new();
    cleanup_free char *buffer = mem_alloc(HASH_BUFFER);
    int64_t done = 0;

    while (done < size) {
        const int64_t left = size - done;
        const ssize_t n =
            pread(fd, buffer, (size_t)(left < HASH_BUFFER ? left : HASH_BUFFER), at + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_UNAVAILABLE, "read");
        if (n == 0)
            return err_set(e, ERR_INVALID, "ends after %lld of %lld bytes", (long long)(at + done),
                (long long)(at + size));
        hasher_add(h, buffer, (size_t)n);
        done += n;
        if (tick != NULL && done % TICK_BYTES == 0 && tick->fn(tick->ctx, e) < 0)
            return -1;
    }
    hasher_end(h, out->byte);
    return 0;
}

int disk_copy(struct file_range from, struct file_range to, int64_t size, struct err *e)
{
    const int rc = file_copy(from, to, size);

    if (rc == 1)
        errno = EIO; /* the source is shorter than it was */
    if (rc != 0 || fdatasync(to.fd) < 0)
        return disk_failed("write to the", "store", e);
    return 0;
}

int disk_part_remove(const struct disk_part *p, struct err *e)
{
    struct err why = ERR_INIT;
    char name[DISK_PART_NAME_SIZE];
    cleanup_fd int tmp = -1;

    part_name(p, name);
    if (disk_artifact(p->root, p->artifact, false, &tmp, &why) < 0 ||
        step(&tmp, ".tmp", false, &why) < 0) {
        if (why.code == ERR_NOT_FOUND)
            return 0;
        *e = why;
        return -1;
    }
    return tree_remove(tmp, name) < 0 ? disk_failed("remove", name, e) : 0;
}
