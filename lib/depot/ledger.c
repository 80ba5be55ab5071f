/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/ledger.h"

#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>

#include "depot/depot.h"
#include "depot/journal.h"

struct tally {
    struct ledger *ledger;
    const char *own;
};

/* What the part still lacks of what its journal says it will have. */
static void add_promise(int tmp, const char *name, struct ledger *l)
{
    struct mishap ignored = MISHAP_INIT;
    struct journal j;
    cleanup_free char *text = NULL;
    size_t size = 0;
    int64_t there = 0;
    cleanup_fd int part = tree_open_folder(tmp, name);

    if (part < 0 ||
        depot_read_text(part, DEPOT_JOURNAL, JOURNAL_BYTES_MAX, &text, &size, &ignored) < 0 ||
        journal_read(text, size, &j, NULL) < 0 || tree_disk_bytes(part, &there) < 0)
        return;
    if (j.total_bytes > there)
        l->promised_bytes += j.total_bytes - there;
}

static int add_part(void *ctx, const struct tree_entry *e)
{
    const struct tally *t = ctx;

    if (e->kind == TREE_FOLDER && depot_is_part(e->name, NULL) &&
        (t->own == NULL || strcmp(t->own, e->name) != 0))
        add_promise(e->parent, e->name, t->ledger);
    return 0;
}

static int add_artifact(void *ctx, const struct tree_entry *e)
{
    struct tally *t = ctx;
    int64_t bytes = 0;
    int64_t trash = 0;
    cleanup_fd int folder = -1;
    cleanup_fd int tmp = -1;
    cleanup_fd int in_trash = -1;

    if (e->kind != TREE_FOLDER)
        return 0;
    folder = tree_open_folder(e->parent, e->name);
    if (folder < 0 || tree_disk_bytes(folder, &bytes) < 0)
        return 0; /* not one of ours */
    in_trash = tree_open_folder(folder, DEPOT_TRASH);
    if (in_trash >= 0 && tree_disk_bytes(in_trash, &trash) < 0)
        trash = 0;
    t->ledger->used_bytes += bytes - trash;
    t->ledger->trash_bytes += trash;
    tmp = tree_open_folder(folder, DEPOT_TMP);
    return tmp < 0 ? 0 : tree_list(tmp, add_part, t);
}

int ledger_read(int root, const char *own, struct ledger *out, struct mishap *why)
{
    struct ledger l = { 0, 0, 0, 0 };
    struct tally t = { .ledger = &l, .own = own };
    struct statvfs fs;

    if (tree_list(root, add_artifact, &t) < 0)
        return mishap_errno(why, false, "cannot look at the root");
    if (fstatvfs(root, &fs) < 0)
        return mishap_errno(why, false, "cannot ask the file system for its space");
    l.free_bytes = (int64_t)(fs.f_bavail * fs.f_frsize);
    *out = l;
    return 0;
}

int ledger_check(
    const struct ledger *l, int64_t more_bytes, int64_t capacity_bytes, struct mishap *why)
{
    const int64_t free_bytes = l->free_bytes - l->promised_bytes;
    const int64_t quota_bytes = capacity_bytes - l->used_bytes - l->promised_bytes;

    if (more_bytes > free_bytes)
        return mishap_set(why, MISHAP_DISK_FULL,
            "%" PRId64 " bytes more are needed, %" PRId64 " are free, %" PRId64
            " of them promised to others",
            more_bytes, l->free_bytes, l->promised_bytes);
    if (capacity_bytes > 0 && more_bytes > quota_bytes)
        return mishap_set(why, MISHAP_DISK_FULL,
            "%" PRId64 " bytes more are needed, of %" PRId64 " allowed %" PRId64
            " are used and %" PRId64 " promised",
            more_bytes, capacity_bytes, l->used_bytes, l->promised_bytes);
    return 0;
}
