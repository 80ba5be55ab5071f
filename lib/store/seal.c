/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seal.h"

#include <fcntl.h>

#include "base/str.h"
#include "base/tree.h"

enum { PLAIN_MODE = 0444, EXECUTABLE_MODE = 0555, FOLDER_MODE = 0555 };

/* Paths of a walk begin with "files/", but for the papers. */
static mode_t mode_of(const struct manifest *m, const char *path)
{
    static const char BEGIN[] = "files/";
    const struct manifest_file *f =
        str_starts(path, BEGIN) ? manifest_find(m, path + sizeof BEGIN - 1) : NULL;

    return f != NULL && f->executable ? EXECUTABLE_MODE : PLAIN_MODE;
}

/* By a descriptor, as the name may lead elsewhere. */
static int set_file_mode(const struct tree_entry *e, mode_t mode)
{
    cleanup_fd int fd = tree_open(e->parent, e->name, O_RDONLY, 0);

    return fd < 0 ? -1 : fchmod(fd, mode);
}

static int set_mode(void *ctx, const struct tree_entry *e)
{
    switch (e->kind) {
    case TREE_FOLDER:
        return 0;
    case TREE_FOLDER_END:
        return fchmod(e->folder, FOLDER_MODE);
    case TREE_FILE:
    default:
        return set_file_mode(e, mode_of(ctx, e->path));
    }
}

void seal_line(const struct digest *manifest, char out[SEAL_LINE_SIZE])
{
    char text[DIGEST_TEXT_SIZE];

    digest_print(manifest, text);
    (void)str_format(out, SEAL_LINE_SIZE, "%s  manifest.json\n", text + sizeof "sha256:" - 1);
}

int seal_tree(int folder, const struct manifest *m)
{
    return tree_sync_folders(folder) < 0 ? -1 : tree_walk(folder, set_mode, (void *)(uintptr_t)m);
}
