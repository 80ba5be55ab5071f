/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/str.h"
#include "base/tree.h"
#include "db/db_row.h"
#include "model/job.h"
#include "store/artifact_disk.h"
#include "store/artifact_gate.h"
#include "store/gate.h"

enum { OLD_S = 86400, PATH_SIZE = 4096 };

static void close_dir(DIR **d)
{
    if (*d != NULL)
        closedir(*d);
}
#define cleanup_dir __attribute__((cleanup(close_dir)))

/* <version>.<uuid>.part: the uuid. */
static bool uuid_of(const char *name, char uuid[UUID_SIZE])
{
    static const char END[] = ".part";
    const size_t tail = UUID_SIZE - 1 + sizeof END - 1;
    const size_t n = strlen(name);

    if (n <= tail || strcmp(name + n - (sizeof END - 1), END) != 0)
        return false;
    (void)!str_format(uuid, UUID_SIZE, "%.*s", UUID_SIZE - 1, name + n - tail);
    return job_uuid_valid(uuid);
}

static bool is_old(int folder, const char *name)
{
    struct stat st;
    return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && time(NULL) - st.st_ctime > OLD_S;
}

static int sweep_parts(struct db *db, const char *folder, struct gate_done *done, struct err *e)
{
    cleanup_dir DIR *d = opendir(folder);
    char uuid[UUID_SIZE];

    if (d == NULL)
        return errno == ENOENT || errno == ENOTDIR ? 0 : disk_failed("look into", folder, e);
    for (const struct dirent *at = readdir(d); at != NULL;
         at = readdir(d)) { /* NOLINT(concurrency-mt-unsafe) */
        if (!uuid_of(at->d_name, uuid) || !is_old(dirfd(d), at->d_name))
            continue;
        const int unknown = gate_knows_part(db, uuid, e);
        if (unknown < 0)
            return -1;
        if (unknown == 0)
            continue;
        if (tree_remove(dirfd(d), at->d_name) < 0)
            return disk_failed("remove", at->d_name, e);
        done->parts++;
    }
    return 0;
}

static int drop_uploads(struct db *db, const struct gate *g, struct gate_done *done, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (gate_drop(db, g->drop_hours, &rows, e) < 0)
        return -1;
    for (int i = 0; i < db_rows_count(&rows); i++) {
        const struct disk_part p = { g->root, db_text(&rows, i, 0), db_text(&rows, i, 1),
            db_text(&rows, i, 2) };
        done->dropped++;
        if (disk_part_remove(&p, e) < 0)
            return -1;
    }
    return 0;
}

/* The web server removes a body after its answer, unless it dies before. */
static int sweep_spool(int root, struct gate_done *done, struct err *e)
{
    cleanup_fd int spool = tree_open_folder(root, ".spool");

    if (spool < 0)
        return errno == ENOENT ? 0 : disk_failed("look into", ".spool", e);
    const int64_t removed = tree_remove_old_files(spool, OLD_S);
    if (removed < 0)
        return disk_failed("clear", ".spool", e);
    done->spooled += removed;
    return 0;
}

int gate_sweep(struct db *db, const struct gate *g, struct gate_done *done, struct err *e)
{
    cleanup_dir DIR *d = NULL;
    char path[PATH_SIZE];

    if (drop_uploads(db, g, done, e) < 0)
        return -1;
    d = opendir(g->root);
    if (d == NULL)
        return disk_failed("look into", g->root, e);
    for (const struct dirent *at = readdir(d); at != NULL;
         at = readdir(d)) { /* NOLINT(concurrency-mt-unsafe) */
        if (at->d_name[0] == '.' ||
            str_format(path, sizeof path, "%s/%s/.tmp", g->root, at->d_name) < 0)
            continue;
        if (sweep_parts(db, path, done, e) < 0)
            return -1;
    }
    return sweep_spool(dirfd(d), done, e);
}
