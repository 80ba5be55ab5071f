/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/shared.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/shm.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"

/* Words that processes share must not hide a lock of one process. */
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics are lock-free");
static_assert(ATOMIC_INT_LOCK_FREE == 2, "32-bit atomics are lock-free");
static_assert(sizeof(_Atomic uint64_t) == sizeof(uint64_t), "atomics are plain words");
static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "futex words are 32 bits");

#define SHARED_MAGIC UINT64_C(0x3130444552414857)

enum { LAYOUT_VERSION = 3, POLLED_MS = 2000, MACHINE_ID_LEN = 32, LINE_SIZE = 128 };
enum { MODE_MEMORY = 0660, MODE_FILE = 0640, MODE_FOLDER = 0755 };

/* What the file says: `weighbridge <segment> <machine id>` and a newline. */
struct name {
    int64_t id;
    char machine_id[MACHINE_ID_LEN + 1];
};

/* Where the file is, and the one whose lock its writers hold. */
struct place {
    const char *dir;
    char path[PATH_MAX];
    char aside[PATH_MAX + 8];
    char lock[PATH_MAX + 8];
};

/* Changes with whatever makes two programs read the memory differently: also with the list of metrics,
 * whose numbers are places in it. */
static uint64_t layout(void)
{
    return ((uint64_t)LAYOUT_VERSION << 48) | ((uint64_t)METRIC__COUNT << 32) |
           (uint64_t)sizeof(struct shared);
}

static int unavailable(struct err *e, const char *what, const char *path)
{
    return err_errno(e, ERR_UNAVAILABLE, "%s %s", what, path);
}

static int find_place(struct place *p, const char *dir, const char *name, struct err *e)
{
    p->dir = dir;
    if (str_format(p->path, sizeof(p->path), "%s/%s.shared", dir, name) != 0 ||
        str_format(p->aside, sizeof(p->aside), "%s.new", p->path) != 0 ||
        str_format(p->lock, sizeof(p->lock), "%s.lock", p->path) != 0)
        return err_set(e, ERR_UNAVAILABLE, "path too long: %s", dir);
    return 0;
}

/* --- names --- */

static int print_name(const struct shared *s, char out[LINE_SIZE])
{
    return str_format(out, LINE_SIZE, "weighbridge %" PRId64 " %s", s->id, s->machine_id);
}

/* False when the text is no name. It is cut up; *rest is what follows a space after it, or NULL. */
static bool parse_name(char *text, struct name *out, char **rest)
{
    *rest = text;
    const char *word = strsep(rest, " ");
    const char *id = strsep(rest, " ");
    const char *machine_id = strsep(rest, " ");
    return machine_id != NULL && strcmp(word, "weighbridge") == 0 &&
           str_to_i64(id, 0, INT_MAX, &out->id) == 0 && strlen(machine_id) == MACHINE_ID_LEN &&
           str_copy(out->machine_id, sizeof(out->machine_id), machine_id) == 0;
}

/* 1: there is no file, or nothing of ours is in it. */
static int read_name(const char *path, struct name *out, struct err *e)
{
    char line[LINE_SIZE];
    char *rest = NULL;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ELOOP ? 1 : unavailable(e, "open", path);
    ssize_t n = read(fd, line, sizeof(line) - 1);
    if (n <= 0 || line[n - 1] != '\n')
        return 1;
    line[n - 1] = '\0';
    return parse_name(line, out, &rest) && rest == NULL ? 0 : 1;
}

/* The file in its place whole, under the lock. Its group goes to *gid. */
static int write_name(const struct place *p, const struct shared *s, gid_t *gid, struct err *e)
{
    char line[LINE_SIZE];
    struct stat st;
    if (print_name(s, line) != 0)
        return err_set(e, ERR_INTERNAL, "no name for the shared memory");
    const size_t size = strlen(line);
    line[size] = '\n';
    if (unlink(p->aside) != 0 && errno != ENOENT)
        return unavailable(e, "unlink", p->aside);
    cleanup_fd int fd = open(p->aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, MODE_FILE);
    if (fd < 0)
        return unavailable(e, "create", p->aside);
    if (fchmod(fd, MODE_FILE) != 0 || fstat(fd, &st) != 0 ||
        write(fd, line, size + 1) != (ssize_t)size + 1)
        return unavailable(e, "write", p->aside);
    if (rename(p->aside, p->path) != 0)
        return unavailable(e, "rename to", p->path);
    *gid = st.st_gid;
    return 0;
}

/* --- memory --- */

void shared_leave(struct shared *s)
{
    if (s)
        (void)shmdt(s);
}

static bool is_ours(const struct shared *s, const struct name *name)
{
    return s->magic == SHARED_MAGIC && s->layout == layout() && s->id == name->id &&
           memcmp(s->machine_id, name->machine_id, MACHINE_ID_LEN + 1) == 0;
}

/* 1: it does not live any more, or is not ours. */
static int attach(const struct name *name, const char *path, struct shared **out, struct err *e)
{
    struct shmid_ds ds;
    if (shmctl((int)name->id, IPC_STAT, &ds) != 0)
        return errno == EACCES ? unavailable(e, "attach memory of", path) : 1;
    if (ds.shm_segsz != sizeof(struct shared))
        return 1;
    struct shared *s = shmat((int)name->id, NULL, 0);
    if (s == (void *)-1)
        return errno == EACCES ? unavailable(e, "attach memory of", path) : 1;
    if (!is_ours(s, name)) {
        shared_leave(s);
        return 1;
    }
    *out = s;
    return 0;
}

/* Nobody has to remove it: it goes with the last process that has it. Linux lets others attach it until
 * then (shmctl(2)). */
static int make_segment(struct shared **out, struct err *e)
{
    int id = shmget(IPC_PRIVATE, sizeof(struct shared), IPC_CREAT | MODE_MEMORY);
    if (id < 0)
        return err_errno(e, ERR_UNAVAILABLE, "make shared memory");
    struct shared *s = shmat(id, NULL, 0);
    int failed = errno;
    (void)shmctl(id, IPC_RMID, NULL);
    errno = failed;
    if (s == (void *)-1)
        return err_errno(e, ERR_UNAVAILABLE, "attach shared memory");
    char token[TOKEN_HEX_SIZE];
    digest_token(token);
    memcpy(s->machine_id, token, MACHINE_ID_LEN);
    metrics_format(s->metrics);
    s->id = id;
    s->layout = layout();
    s->magic = SHARED_MAGIC;
    *out = s;
    return 0;
}

/* Whoever may read the file may use the memory. */
static int set_group(const struct shared *s, gid_t gid, struct err *e)
{
    struct shmid_ds ds;
    if (shmctl((int)s->id, IPC_STAT, &ds) != 0)
        return err_errno(e, ERR_UNAVAILABLE, "look at shared memory");
    ds.shm_perm.gid = gid;
    if (shmctl((int)s->id, IPC_SET, &ds) != 0)
        return err_errno(e, ERR_UNAVAILABLE, "set the group of shared memory");
    return 0;
}

/* Processes that still have another keep it. */
static int make(const struct place *p, struct shared **out, struct err *e)
{
    struct shared *s = NULL;
    gid_t gid = 0;
    if (make_segment(&s, e) != 0)
        return -1;
    if (write_name(p, s, &gid, e) != 0 || set_group(s, gid, e) != 0) {
        shared_leave(s);
        return -1;
    }
    *out = s;
    return 0;
}

/* --- finding it --- */

/* Makes the folder itself, not its parents: a runtime folder in the wrong place is a mistake to tell. */
static int ensure_dir(const char *dir, struct err *e)
{
    if (mkdir(dir, MODE_FOLDER) == 0)
        return chmod(dir, MODE_FOLDER) == 0 ? 0 : unavailable(e, "chmod", dir);
    return errno == EEXIST ? 0 : unavailable(e, "make folder", dir);
}

/* flags: LOCK_NB or 0. 1: somebody else has it. */
static int lock_file(const char *path, int flags, int *out, struct err *e)
{
    cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0660);
    if (fd < 0)
        return unavailable(e, "open", path);
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && fchmod(fd, 0660) != 0)
        return unavailable(e, "chmod", path);
    while (flock(fd, LOCK_EX | flags) != 0) {
        if (errno == EWOULDBLOCK)
            return 1;
        if (errno != EINTR)
            return unavailable(e, "lock", path);
    }
    *out = STEAL_FD(fd);
    return 0;
}

static int attach_named(const struct place *p, struct shared **out, struct err *e)
{
    struct name name;
    int rc = read_name(p->path, &name, e);
    return rc != 0 ? rc : attach(&name, p->path, out, e);
}

/* What SHARED_ENV names, if that is of this folder. 1: nothing. */
static int attach_handed_on(const struct place *p, struct shared **out, struct err *e)
{
    struct name name;
    char *path = NULL;
    const char *text = getenv(SHARED_ENV);
    cleanup_free char *copy = mem_strdup(text == NULL ? "" : text);
    if (!parse_name(copy, &name, &path) || path == NULL || strcmp(path, p->path) != 0)
        return 1;
    return attach(&name, p->path, out, e);
}

void shared_hand_on(const struct shared *s, const char *dir, const char *name)
{
    struct place p;
    char line[LINE_SIZE];
    char text[PATH_MAX + LINE_SIZE];
    struct err ignored = ERR_INIT;
    if (find_place(&p, dir, name, &ignored) == 0 && print_name(s, line) == 0 &&
        str_format(text, sizeof(text), "%s %s", line, p.path) == 0)
        (void)setenv(SHARED_ENV, text, 1);
}

int shared_join(const char *dir, const char *name, struct shared **out, struct err *e)
{
    struct place p;
    return find_place(&p, dir, name, e) != 0 ? -1 : attach_named(&p, out, e);
}

int shared_open(const char *dir, const char *name, struct shared **out, struct err *e)
{
    struct place p;
    cleanup_fd int lock = -1;
    if (find_place(&p, dir, name, e) != 0)
        return -1;
    int rc = attach_handed_on(&p, out, e);
    if (rc != 1)
        return rc;
    if (ensure_dir(dir, e) != 0 || lock_file(p.lock, 0, &lock, e) != 0)
        return -1;
    rc = attach_named(&p, out, e);
    return rc == 1 ? make(&p, out, e) : rc;
}

/* Whether the file names memory that lives, be it of another version of this program. */
static bool names_living(const struct place *p)
{
    struct name name;
    struct shmid_ds ds;
    struct err ignored = ERR_INIT;
    return read_name(p->path, &name, &ignored) == 0 && shmctl((int)name.id, IPC_STAT, &ds) == 0;
}

int shared_keep_name(const struct shared *s, const char *dir, const char *name, struct err *e)
{
    struct place p;
    cleanup_fd int lock = -1;
    gid_t gid = 0;
    if (find_place(&p, dir, name, e) != 0)
        return -1;
    if (names_living(&p))
        return 0;
    if (ensure_dir(dir, e) != 0)
        return -1;
    int rc = lock_file(p.lock, LOCK_NB, &lock, e);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (names_living(&p))
        return 0;
    return write_name(&p, s, &gid, e) == 0 ? 1 : -1;
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
