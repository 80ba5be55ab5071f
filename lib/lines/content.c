/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/content.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/str.h"
#include "base/tree.h"
#include "model/batch.h"

enum { ID_DIGITS = 32, NAME_SIZE = CONTENT_ID_SIZE + 8, FILE_MODE = 0640, DIR_MODE = 0750 };

#define ID_PREFIX "file-"

void content_new_id(char out[CONTENT_ID_SIZE])
{
    char token[TOKEN_HEX_SIZE];

    digest_token(token);
    (void)!str_format(out, CONTENT_ID_SIZE, ID_PREFIX "%.*s", ID_DIGITS, token);
}

bool content_id_valid(const char *id)
{
    const char *hex = id + strlen(ID_PREFIX);
    return str_starts(id, ID_PREFIX) && strlen(hex) == ID_DIGITS &&
           strspn(hex, "0123456789abcdef") == ID_DIGITS;
}

void content_path(const char *id, char out[CONTENT_PATH_SIZE])
{
    (void)!str_format(out, CONTENT_PATH_SIZE, "files/%.2s/%s", id + strlen(ID_PREFIX), id);
}

int content_failed(struct err *e, const char *what)
{
    const bool full = errno == ENOSPC || errno == EDQUOT;
    const bool none = errno == ENOENT;

    return err_errno(e, full ? ERR_NO_ROOM : none ? ERR_NOT_FOUND : ERR_UNAVAILABLE, "%s", what);
}

static int open_root(const char *root, int *out, struct err *e)
{
    const int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_errno(e, ERR_UNAVAILABLE, "[batch] root");
    *out = fd;
    return 0;
}

/* A folder in another, made if make is set. */
static int open_in(int at, const char *name, bool make, int *out, struct err *e)
{
    const bool made = make && mkdirat(at, name, DIR_MODE) == 0;

    if (made && fsync(at) < 0)
        return content_failed(e, name);
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return content_failed(e, name);
    *out = fd;
    return 0;
}

static int open_two(
    const char *root, const char *first, const char *second, bool make, int *out, struct err *e)
{
    cleanup_fd int top = -1;
    cleanup_fd int middle = -1;

    return open_root(root, &top, e) < 0 || open_in(top, first, make, &middle, e) < 0
               ? -1
               : open_in(middle, second, make, out, e);
}

/* The folder that a file lies in. */
static int folder_of(const char *root, const char *id, bool make, int *out, struct err *e)
{
    char two[3];

    if (!content_id_valid(id))
        return err_set(e, ERR_NOT_FOUND, "no id of a file");
    (void)!str_format(two, sizeof two, "%.2s", id + strlen(ID_PREFIX));
    return open_two(root, "files", two, make, out, e);
}

static void name_of_new(const char *id, char out[NAME_SIZE])
{
    (void)!str_format(out, NAME_SIZE, "%s.new", id);
}

int content_create(const char *root, const char *id, int *out, struct err *e)
{
    cleanup_fd int folder = -1;
    char name[NAME_SIZE];

    if (folder_of(root, id, true, &folder, e) < 0)
        return -1;
    name_of_new(id, name);
    const int fd =
        openat(folder, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    if (fd < 0)
        return content_failed(e, "content of a file");
    *out = fd;
    return 0;
}

int content_land(const char *root, const char *id, int fd, struct err *e)
{
    cleanup_fd int folder = -1;
    char name[NAME_SIZE];

    if (folder_of(root, id, false, &folder, e) < 0)
        return -1;
    name_of_new(id, name);
    if (fsync(fd) < 0 || renameat(folder, name, folder, id) < 0 || fsync(folder) < 0)
        return content_failed(e, "content of a file");
    return 0;
}

int content_open(const char *root, const char *id, int *out, struct err *e)
{
    cleanup_fd int folder = -1;

    if (folder_of(root, id, false, &folder, e) < 0)
        return -1;
    const int fd = openat(folder, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return content_failed(e, "content of a file");
    *out = fd;
    return 0;
}

int content_remove(const char *root, const char *id, struct err *e)
{
    cleanup_fd int folder = -1;
    char name[NAME_SIZE];

    if (folder_of(root, id, false, &folder, e) < 0)
        return e != NULL && e->code == ERR_NOT_FOUND ? 0 : -1;
    name_of_new(id, name);
    if ((unlinkat(folder, name, 0) < 0 && errno != ENOENT) ||
        (unlinkat(folder, id, 0) < 0 && errno != ENOENT))
        return content_failed(e, "content of a file");
    return 0;
}

int content_work(const char *root, const char *batch_id, int *out, struct err *e)
{
    return open_two(root, "work", batch_id, true, out, e);
}

static int remove_all_in(int folder, struct err *e)
{
    const int fd = dup(folder);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry = NULL;

    if (dir == NULL)
        return content_failed(e, "working folder");
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(folder, entry->d_name, 0);
    }
    (void)closedir(dir);
    return 0;
}

int content_work_remove(const char *root, const char *batch_id, struct err *e)
{
    cleanup_fd int top = -1;
    cleanup_fd int work = -1;
    cleanup_fd int folder = -1;
    struct err none = ERR_INIT;

    if (open_root(root, &top, e) < 0)
        return -1;
    if (open_in(top, "work", false, &work, &none) < 0 ||
        open_in(work, batch_id, false, &folder, &none) < 0)
        return none.code == ERR_NOT_FOUND ? 0 : err_set(e, none.code, "%s", none.msg);
    if (remove_all_in(folder, e) < 0)
        return -1;
    return unlinkat(work, batch_id, AT_REMOVEDIR) < 0 ? content_failed(e, "working folder") : 0;
}

/* --- what is old --- */

enum { IDS_MAX = 1 << 20 };

static void close_dir_p(DIR **dir)
{
    if (*dir != NULL)
        (void)closedir(*dir);
}
#define cleanup_dir __attribute__((cleanup(close_dir_p)))

/* A folder to be read; consumes fd. */
static int open_dir(int fd, DIR **out, struct err *e)
{
    *out = fdopendir(fd);
    if (*out != NULL)
        return 0;
    (void)content_failed(e, "folder");
    close(fd);
    return -1;
}

/* The next entry that is no folder of dots and was written so long ago; NULL: no more. */
static const char *next_old(DIR *dir, int64_t age_s)
{
    const int64_t before_s = clock_wall_us() / US_PER_S - age_s;
    const struct dirent *entry = NULL;
    struct stat st;

    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.' &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtim.tv_sec <= before_s)
            return entry->d_name;
    }
    return NULL;
}

static int open_below(const char *root, const char *name, DIR **out, struct err *e)
{
    cleanup_fd int top = -1;
    int fd = -1;

    return open_root(root, &top, e) < 0 || open_in(top, name, true, &fd, e) < 0
               ? -1
               : open_dir(fd, out, e);
}

/* Also of those that never came to their name. */
static void add_id(struct buf *ids, const char *name)
{
    char id[CONTENT_ID_SIZE];

    (void)!str_format(id, sizeof id, "%.*s", CONTENT_ID_SIZE - 1, name);
    if (content_id_valid(id))
        buf_printf(ids, "%s%s", ids->len > 0 ? " " : "", id);
}

int content_old_files(const char *root, int64_t age_s,
    int (*fn)(void *ctx, const char *ids, struct err *e), void *ctx, struct err *e)
{
    cleanup_dir DIR *files = NULL;
    const struct dirent *entry = NULL;

    if (open_below(root, "files", &files, e) < 0)
        return -1;
    while ((entry = readdir(files)) != NULL) {
        cleanup_buf struct buf ids = BUF_INIT(IDS_MAX);
        cleanup_dir DIR *folder = NULL;
        const char *name = NULL;
        int fd = -1;
        if (entry->d_name[0] == '.')
            continue;
        if (open_in(dirfd(files), entry->d_name, false, &fd, e) < 0 || open_dir(fd, &folder, e) < 0)
            return -1;
        while ((name = next_old(folder, age_s)) != NULL && ids.len < IDS_MAX - CONTENT_ID_SIZE)
            add_id(&ids, name);
        if (ids.len > 0 && fn(ctx, ids.data, e) < 0)
            return -1;
    }
    return 0;
}

int content_old_work(const char *root, int64_t age_s,
    int (*fn)(void *ctx, const char *batch_id, struct err *e), void *ctx, struct err *e)
{
    cleanup_dir DIR *work = NULL;
    const char *name = NULL;

    if (open_below(root, "work", &work, e) < 0)
        return -1;
    while ((name = next_old(work, age_s)) != NULL) {
        if (fn(ctx, name, e) < 0)
            return -1;
    }
    return 0;
}

int content_clear_spool(const char *root, int64_t age_s, struct err *e)
{
    cleanup_fd int top = -1;
    cleanup_fd int spool = -1;
    struct err none = ERR_INIT;

    if (open_root(root, &top, e) < 0)
        return -1;
    if (open_in(top, ".spool", false, &spool, &none) < 0)
        return none.code == ERR_NOT_FOUND ? 0 : err_set(e, none.code, "%s", none.msg);
    return tree_remove_old_files(spool, age_s) < 0 ? content_failed(e, ".spool") : 0;
}
