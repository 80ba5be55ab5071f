/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TREE_H
#define WB_TREE_H

/* Trees of files by descriptors: nothing here follows a symbolic link or leaves the folder it was given. Paths are relative, with
 * slashes, as in manifests. Functions give 0, or -1 with errno. Any thread. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"

/* openat(2) that stays beneath dir and follows no link, with O_CLOEXEC. mode: of a new file. A descriptor, or -1 with errno: ENXIO for whatever is
 * no plain file, unless flags has O_DIRECTORY or O_PATH. Never waits for the other end of a pipe; O_WRONLY therefore only with O_EXCL. */
int tree_open(int dir, const char *path, int flags, mode_t mode) WARN_UNUSED;

/* tree_open() of a folder for reading. */
int tree_open_folder(int dir, const char *path) WARN_UNUSED;

/* Makes a folder unless it is there, and syncs its parent when it was made; then opens it. A descriptor, or -1. */
int tree_make_folder(int dir, const char *name) WARN_UNUSED;

/* Makes all folders above path that are missing (0755). */
int tree_make_parents(int dir, const char *path) WARN_UNUSED;

enum tree_kind { TREE_FILE, TREE_FOLDER, TREE_FOLDER_END };

/* An entry of a walk. A folder comes twice: before what is in it, and after it as TREE_FOLDER_END. Whatever is neither folder nor
 * plain file is a TREE_FILE, too: look at stat. */
struct tree_entry {
    enum tree_kind kind;
    int parent;       /* descriptor of the folder it is in */
    int folder;       /* its own, for TREE_FOLDER_END; else -1 */
    const char *name; /* in parent */
    const char *path; /* from where the walk began */
    struct stat stat;
};

/* Calls visit for all below dir (not dir itself), in no order. Ends at the first visit that gives not 0, with that. -1 with errno when
 * a folder cannot be read; entries that vanish meanwhile are passed over. */
typedef int tree_visit(void *ctx, const struct tree_entry *e);
int tree_walk(int dir, tree_visit *visit, void *ctx) WARN_UNUSED;

/* The same for what lies in dir itself; folders come once, as TREE_FOLDER. */
int tree_list(int dir, tree_visit *visit, void *ctx) WARN_UNUSED;

/* fchmodat(2) that follows no link: of one, -1 with EOPNOTSUPP. Needs /proc. */
int tree_chmod(int dir, const char *name, mode_t mode) WARN_UNUSED;

/* Removes `name` of dir: a folder with all that is in it, read-only folders too, but nothing that is mounted there (EXDEV); of a link the link.
 * Gone already is fine. */
int tree_remove(int dir, const char *name) WARN_UNUSED;

/* Removes the plain files of dir itself, not of folders in it, that nobody wrote to for so long. How many; -1 with errno. */
int64_t tree_remove_old_files(int dir, int64_t age_s) WARN_UNUSED;

/* Makes dir and all below it writable for its owner: folders 0755, files 0644. */
int tree_open_up(int dir) WARN_UNUSED;

/* Syncs all folders below dir, and dir. */
int tree_sync_folders(int dir) WARN_UNUSED;

/* Bytes on disk below dir. */
int tree_disk_bytes(int dir, int64_t *out) WARN_UNUSED;

#endif
