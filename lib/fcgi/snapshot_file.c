/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/snapshot_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

/* head, body, padding, state: what a successor reads of the state may need alignment. */
enum { PARTS = 4, STATE_ALIGN = 8, FILE_MODE = 0640 };
#define ORPHAN_US (60 * US_PER_S)

static size_t padding(uint64_t body_size)
{
    return (size_t)(-body_size % STATE_ALIGN);
}

static int file_path(const struct snapshots *s, uint64_t ticket, char out[PATH_MAX])
{
    return str_format(out, PATH_MAX, "%s/%s%" PRIu64, s->dir, s->prefix, ticket);
}

/* All of iov, whatever pieces write(2) takes it in. */
static int write_all(int fd, struct iovec iov[PARTS])
{
    for (int i = 0; i < PARTS;) {
        if (iov[i].iov_len == 0) {
            i++;
            continue;
        }
        ssize_t n = writev(fd, &iov[i], PARTS - i);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return -1;
        for (size_t left = (size_t)n; left > 0 && i < PARTS;) {
            size_t step = left < iov[i].iov_len ? left : iov[i].iov_len;
            iov[i].iov_base = (char *)iov[i].iov_base + step;
            iov[i].iov_len -= step;
            left -= step;
            if (iov[i].iov_len == 0)
                i++;
        }
    }
    return 0;
}

static void *unconst(const void *p)
{
    return (void *)(uintptr_t)p; /* struct iovec serves reads too */
}

/* A file that is there is a stranger's: it may be being read, so it is unlinked and not rewritten. */
static int create(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(path, flags, FILE_MODE);
    if (fd < 0 && errno == EEXIST && unlink(path) == 0)
        fd = open(path, flags, FILE_MODE);
    return fd;
}

/* Whatever the umask. Looking costs less than setting, which a file system on disk writes down. */
static int set_mode(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -1;
    return (st.st_mode & 07777) == FILE_MODE ? 0 : fchmod(fd, FILE_MODE);
}

static int write_file(const char *path, const struct snapshot_head *head,
    const struct snapshot_parts *parts, struct err *e)
{
    cleanup_fd int fd = create(path);
    if (fd < 0)
        return err_errno(e, ERR_UNAVAILABLE, "create %s", path);
    static const char PAD[STATE_ALIGN];
    struct iovec iov[PARTS] = {
        { .iov_base = unconst(head), .iov_len = sizeof(*head) },
        { .iov_base = unconst(parts->body), .iov_len = parts->body_size },
        { .iov_base = unconst(PAD), .iov_len = padding(parts->body_size) },
        { .iov_base = unconst(parts->state), .iov_len = parts->state_size },
    };
    if (set_mode(fd) != 0 || write_all(fd, iov) != 0 || close(STEAL_FD(fd)) != 0)
        return err_errno(e, ERR_UNAVAILABLE, "write %s", path);
    return 0;
}

int snapshot_file_write(const struct snapshots *s, uint64_t ticket,
    const struct snapshot_head *head, const struct snapshot_parts *parts, struct err *e)
{
    char path[PATH_MAX];
    if (file_path(s, ticket, path) != 0)
        return err_set(e, ERR_UNAVAILABLE, "path too long: %s", s->dir);
    int rc = write_file(path, head, parts, e);
    if (rc != 0)
        unlink(path);
    return rc;
}

static bool head_fits(
    const struct snapshots *s, const struct snapshot_head *h, uint64_t ticket, size_t file_size)
{
    size_t rest = file_size - sizeof(*h);
    if (h->magic != s->magic || h->ticket != ticket || h->body_size > rest)
        return false;
    rest -= h->body_size;
    size_t pad = padding(h->body_size);
    return pad <= rest && h->state_size == rest - pad && h->etag[SNAPSHOT_ETAG_SIZE - 1] == '\0' &&
           h->degraded[SNAPSHOT_DEGRADED_SIZE - 1] == '\0';
}

/* Copied and not mapped, large ones too: a mapped file that somebody truncates kills its readers by SIGBUS. */
int snapshot_file_read(const struct snapshots *s, uint64_t ticket, struct snapshot **out)
{
    char path[PATH_MAX];
    struct snapshot_head head;
    struct stat st;
    if (file_path(s, ticket, path) != 0)
        return 1;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(head) ||
        file_read(fd, &head, sizeof(head)) != 0)
        return 1;
    size_t size = (size_t)st.st_size;
    if (!head_fits(s, &head, ticket, size))
        return 1;
    cleanup_free char *bytes = mem_alloc(size);
    if (file_read(fd, bytes, size) != 0)
        return 1;
    memcpy(bytes, &head, sizeof(head)); /* what was checked */
    struct snapshot *snap = mem_calloc(1, sizeof(*snap));
    snap->bytes = STEAL(bytes);
    snap->head = (const void *)snap->bytes;
    snap->body = snap->bytes + sizeof(head);
    snap->state = snap->body + head.body_size + padding(head.body_size);
    atomic_init(&snap->refs, 1);
    *out = snap;
    return 0;
}

void snapshot_file_unlink(const struct snapshots *s, uint64_t ticket)
{
    char path[PATH_MAX];
    if (ticket != 0 && file_path(s, ticket, path) == 0)
        unlink(path);
}

/* Published tickets only grow, so what is below the current one either had its successor or was never
 * published. What is above may be being written and is left. */
static bool is_left_over(
    const struct snapshots *s, const char *name, const struct stat *st, uint64_t current)
{
    size_t prefix_len = strlen(s->prefix);
    if (strncmp(name, s->prefix, prefix_len) == 0) {
        int64_t ticket = 0;
        return str_to_i64(name + prefix_len, 1, INT64_MAX, &ticket) == 0 &&
               (uint64_t)ticket < current;
    }
    /* Of other shared memory: of a service that has ended, or of a generation that is being replaced.
     * Those who still use it can make a new one. */
    int64_t written_us = st->st_mtim.tv_sec * US_PER_S + st->st_mtim.tv_nsec / 1000;
    return strncmp(name, s->prefix, s->family_len) == 0 && clock_wall_us() - written_us > ORPHAN_US;
}

static void cleanup_dir_(DIR **d)
{
    if (*d)
        closedir(*d);
}

void snapshot_file_clean(const struct snapshots *s, uint64_t current)
{
    __attribute__((cleanup(cleanup_dir_))) DIR *dir = opendir(s->dir);
    if (!dir)
        return;
    for (const struct dirent *d = readdir(dir); d; d = readdir(dir)) {
        struct stat st;
        if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            is_left_over(s, d->d_name, &st, current))
            unlinkat(dirfd(dir), d->d_name, 0);
    }
}
