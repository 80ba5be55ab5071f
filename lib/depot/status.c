/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "base/str.h"
#include "depot/depot.h"
#include "depot/journal.h"
#include "depot/ledger.h"
#include "depot/part.h"
#include "json/jx.h"

struct listing {
    json_object *list;
    struct depot *depot;
};

static int add_version(void *ctx, const struct tree_entry *e)
{
    const struct listing *l = ctx;
    struct mishap why = MISHAP_INIT;
    cleanup_landed struct landed v = LANDED_INIT;
    char digest[DIGEST_TEXT_SIZE];

    if (e->kind != TREE_FOLDER)
        return 0;
    json_object *o = jx_object();
    jx_set_str(o, "version", e->name);
    if (landed_open(l->depot, e->name, &v, &why) == 0) {
        digest_print(&v.digest, digest);
        jx_set_str(o, "digest", digest);
        jx_set_int(o, "total_bytes", v.manifest.total_bytes);
    } else {
        jx_set_str(o, "error", why.text);
    }
    jx_add(l->list, o);
    return 0;
}

/* Somebody has its lock, or its journal open for writing. */
static bool is_live(int part)
{
    if (flock(part, LOCK_EX | LOCK_NB) < 0)
        return true;
    (void)flock(part, LOCK_UN);
    return part_file_is_written(part, DEPOT_JOURNAL) != 0;
}

static int add_part(void *ctx, const struct tree_entry *e)
{
    const struct listing *l = ctx;
    struct mishap ignored = MISHAP_INIT;
    cleanup_free char *text = NULL;
    size_t size = 0;
    int64_t bytes = 0;
    struct journal j = { .marks = 0 };
    cleanup_fd int part = -1;

    if (e->kind != TREE_FOLDER || !depot_is_part(e->name, NULL))
        return 0;
    part = tree_open_folder(e->parent, e->name);
    if (part < 0 || tree_disk_bytes(part, &bytes) < 0)
        return 0;
    json_object *o = jx_object();
    jx_set_str(o, "name", e->name);
    jx_set_int(o, "bytes", bytes);
    if (depot_read_text(part, DEPOT_JOURNAL, JOURNAL_BYTES_MAX, &text, &size, &ignored) == 0 &&
        journal_read(text, size, &j, NULL) == 0) {
        jx_set_int(o, "total_bytes", j.total_bytes);
        jx_set_int(o, "marked_shards", (int64_t)j.marks);
    }
    jx_set_bool(o, "live", is_live(part));
    jx_add(l->list, o);
    return 0;
}

static int add_name(void *ctx, const struct tree_entry *e)
{
    const struct listing *l = ctx;

    jx_add_str(l->list, e->name);
    return 0;
}

static json_object *list_of(struct depot *d, int folder, tree_visit *visit)
{
    struct listing l = { jx_array(), d };

    (void)!tree_list(folder, visit, &l);
    return l.list;
}

static void set_current(json_object *o, int folder)
{
    char target[sizeof DEPOT_VERSIONS + VERSION_NAME_MAX + 2];
    const ssize_t n = readlinkat(folder, DEPOT_CURRENT, target, sizeof target - 1);

    if (n <= 0)
        return;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    jx_set_str(o, "current", slash == NULL ? target : slash + 1);
}

static int add_artifact(void *ctx, const struct tree_entry *e)
{
    json_object *list = ctx;
    struct depot d = DEPOT_INIT;
    cleanup_fd int folder = -1;
    cleanup_fd int versions = -1;
    cleanup_fd int tmp = -1;
    cleanup_fd int trash = -1;

    if (e->kind != TREE_FOLDER)
        return 0;
    folder = tree_open_folder(e->parent, e->name);
    versions = folder < 0 ? -1 : tree_open_folder(folder, DEPOT_VERSIONS);
    if (versions < 0)
        return 0; /* not one of ours */
    tmp = tree_open_folder(folder, DEPOT_TMP);
    trash = tree_open_folder(folder, DEPOT_TRASH);
    d.versions = versions; /* the only one that is looked at */
    json_object *o = jx_object();
    jx_set_str(o, "artifact", e->name);
    set_current(o, folder);
    jx_set(o, "versions", list_of(&d, versions, add_version));
    jx_set(o, "parts", tmp < 0 ? jx_array() : list_of(&d, tmp, add_part));
    jx_set(o, "trash", trash < 0 ? jx_array() : list_of(&d, trash, add_name));
    jx_add(list, o);
    return 0;
}

int status_print(const char *root, struct buf *out, struct mishap *m)
{
    struct ledger l = { 0, 0, 0, 0 };
    cleanup_json json_object *o = jx_object();
    json_object *artifacts = jx_array();
    cleanup_fd int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    jx_set_str(o, "root", root);
    jx_set(o, "artifacts", artifacts);
    if (fd < 0 && errno != ENOENT)
        return mishap_errno(m, false, "cannot open %.100s", root);
    if (fd >= 0) {
        if (ledger_read(fd, NULL, &l, m) < 0)
            return -1;
        if (tree_list(fd, add_artifact, artifacts) < 0)
            return mishap_errno(m, false, "cannot look through %.100s", root);
    }
    jx_set_int(o, "used_bytes", l.used_bytes);
    jx_set_int(o, "trash_bytes", l.trash_bytes);
    jx_set_int(o, "promised_bytes", l.promised_bytes);
    jx_set_int(o, "free_bytes", l.free_bytes);
    jx_print(o, out);
    return 0;
}
