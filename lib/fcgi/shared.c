/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/shared.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/str.h"
#include "base/wait.h"
#include "base/metrics.h"

/* Words that processes share must not hide a lock of one process. */
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics are lock-free");
static_assert(ATOMIC_INT_LOCK_FREE == 2, "32-bit atomics are lock-free");
static_assert(sizeof(_Atomic uint64_t) == sizeof(uint64_t), "atomics are plain words");
static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "futex words are 32 bits");
static_assert((size_t)METRIC__COUNT <= sizeof(((struct shared *)0)->metrics) / sizeof(int64_t),
    "the mapping has room for every metric");

#define SHARED_MAGIC UINT64_C(0x3130444552414857)

enum { LAYOUT_VERSION = 2, POLLED_MS = 2000, MACHINE_ID_LEN = 32, BOOT_ID_LEN = 36 };

/* Changes with whatever makes two programs read the file differently: also with the list of metrics,
 * whose numbers are places in it. */
static uint64_t layout(void)
{
    return ((uint64_t)LAYOUT_VERSION << 48) | ((uint64_t)METRIC__COUNT << 32) |
           (uint64_t)sizeof(struct shared);
}

static void read_boot_id(char out[BOOT_ID_LEN + 1])
{
    memset(out, 0, BOOT_ID_LEN + 1);
    cleanup_fd int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, out, BOOT_ID_LEN) != BOOT_ID_LEN)
        memset(out, 0, BOOT_ID_LEN + 1);
}

static int unavailable(struct err *e, const char *what, const char *path)
{
    return err_errno(e, ERR_UNAVAILABLE, "%s %s", what, path);
}

static int map_fd(int fd, const char *path, struct shared **out, struct err *e)
{
    void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return unavailable(e, "map", path);
    *out = p;
    return 0;
}

/* Maps the file that is there. 1: none, or it is of another boot or layout. */
static int map_existing(const char *path, const char *boot_id, struct shared **out, struct err *e)
{
    cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 1 : unavailable(e, "open", path);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return unavailable(e, "stat", path);
    if (st.st_size != (off_t)sizeof(struct shared))
        return 1;
    struct shared *s = NULL;
    if (map_fd(fd, path, &s, e) != 0)
        return -1;
    if (s->magic != SHARED_MAGIC || s->layout != layout() ||
        memcmp(s->boot_id, boot_id, BOOT_ID_LEN + 1) != 0) {
        shared_unmap(s);
        return 1;
    }
    *out = s;
    return 0;
}

/* Makes a new file beside and puts it in place whole. Processes that still map an old one keep it. */
static int map_new(const char *path, const char *boot_id, struct shared **out, struct err *e)
{
    char aside[PATH_MAX];
    if (str_format(aside, sizeof(aside), "%s.new", path) != 0)
        return err_set(e, ERR_UNAVAILABLE, "path too long: %s", path);
    if (unlink(aside) != 0 && errno != ENOENT)
        return unavailable(e, "unlink", aside);
    cleanup_fd int fd = open(aside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0660);
    if (fd < 0)
        return unavailable(e, "create", aside);
    if (fchmod(fd, 0660) != 0)
        return unavailable(e, "chmod", aside);
    /* Really allocated: a full disk must show here, not as SIGBUS at the first store. */
    errno = posix_fallocate(fd, 0, (off_t)sizeof(struct shared));
    if (errno != 0)
        return unavailable(e, "allocate", aside);
    struct shared *s = NULL;
    if (map_fd(fd, aside, &s, e) != 0)
        return -1;
    char token[TOKEN_HEX_SIZE];
    digest_token(token);
    memcpy(s->machine_id, token, MACHINE_ID_LEN);
    memcpy(s->boot_id, boot_id, BOOT_ID_LEN);
    s->layout = layout();
    s->magic = SHARED_MAGIC;
    if (rename(aside, path) != 0) {
        int rc = unavailable(e, "rename to", path);
        shared_unmap(s);
        return rc;
    }
    *out = s;
    return 0;
}

/* Makes the folder itself, not its parents: a runtime folder in the wrong place is a mistake to tell. */
static int ensure_dir(const char *dir, struct err *e)
{
    if (mkdir(dir, 0750) == 0)
        return chmod(dir, 0750) == 0 ? 0 : unavailable(e, "chmod", dir);
    return errno == EEXIST ? 0 : unavailable(e, "make folder", dir);
}

static int lock_file(const char *path, int *out, struct err *e)
{
    cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0660);
    if (fd < 0)
        return unavailable(e, "open", path);
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && fchmod(fd, 0660) != 0)
        return unavailable(e, "chmod", path);
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return unavailable(e, "lock", path);
    *out = STEAL_FD(fd);
    return 0;
}

int shared_map(const char *dir, const char *name, struct shared **out, struct err *e)
{
    char path[PATH_MAX - 8];
    char lock_path[PATH_MAX];
    char boot_id[BOOT_ID_LEN + 1];
    if (str_format(path, sizeof(path), "%s/%s.shared", dir, name) != 0 ||
        str_format(lock_path, sizeof(lock_path), "%s.lock", path) != 0)
        return err_set(e, ERR_UNAVAILABLE, "path too long: %s", dir);
    if (ensure_dir(dir, e) != 0)
        return -1;
    read_boot_id(boot_id);
    cleanup_fd int lock = -1;
    if (lock_file(lock_path, &lock, e) != 0)
        return -1;
    int rc = map_existing(path, boot_id, out, e);
    return rc == 1 ? map_new(path, boot_id, out, e) : rc;
}

void shared_unmap(struct shared *s)
{
    if (s)
        munmap(s, sizeof(*s));
}

void shared_bump_rows(struct shared *s)
{
    atomic_fetch_add(&s->rows_changed, 1);
    shared_bump(s);
}

void shared_bump(struct shared *s)
{
    atomic_fetch_add(&s->generation, 1);
    /* A poll that begins after this reads the new generation and asks by itself; one that is already
     * waiting has noted that it polls. With nobody polling the refresher may sleep. */
    int64_t last_ns = atomic_load(&s->last_poll_ns);
    if (last_ns == 0 || clock_mono_ns() - last_ns > (int64_t)POLLED_MS * NS_PER_MS)
        return;
    atomic_fetch_add(&s->wanted, 1);
    wake_word(&s->wanted);
}
