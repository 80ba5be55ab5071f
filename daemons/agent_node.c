/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_node.h"

#include <string.h>
#include <sys/statvfs.h>

#include "config.h"
#include "depot/depot.h"
#include "depot/ledger.h"
#include "json/jx.h"

/* Bytes of the body that versions may take, and those of one beside its names. */
enum { VERSIONS_BYTES = NODE_BODY_MAX - 8192, VERSION_BYTES = 160 };

struct listing {
    json_object *list;
    size_t bytes;
};

static int add_version(void *ctx, const struct depot *d, const char *version)
{
    struct listing *l = ctx;
    const size_t bytes = VERSION_BYTES + strlen(d->name) + strlen(version);
    struct digest digest;
    char text[DIGEST_TEXT_SIZE];

    if (l->bytes + bytes > VERSIONS_BYTES ||
        artifact_name_check("", d->name, ARTIFACT_NAME_MAX, NULL) < 0 ||
        artifact_name_check("", version, VERSION_NAME_MAX, NULL) < 0 ||
        depot_digest(d, version, &digest) < 0)
        return 0; /* nothing that landed */
    json_object *o = jx_object();
    digest_print(&digest, text);
    jx_set_str(o, "artifact", d->name);
    jx_set_str(o, "version", version);
    jx_set_str(o, "digest", text);
    jx_set_str(o, "state", "landed");
    jx_add(l->list, o);
    l->bytes += bytes;
    return 0;
}

static json_object *mounts_of(const struct settings *s, int64_t total_bytes, int64_t used_bytes)
{
    json_object *list = jx_array();
    json_object *o = jx_object();

    jx_set_str(o, "path", s->root);
    jx_set_int(o, "total_bytes", total_bytes);
    jx_set_int(o, "used_bytes", used_bytes);
    jx_add(list, o);
    return list;
}

int node_print(const struct settings *s, int root, struct buf *out, struct mishap *m)
{
    struct ledger l = { 0, 0, 0, 0 };
    struct statvfs fs;
    cleanup_json json_object *o = jx_object();
    struct listing versions = { jx_array(), 0 };

    jx_set(o, "versions", versions.list);
    if (ledger_read(root, NULL, &l, m) < 0)
        return -1;
    if (fstatvfs(root, &fs) < 0 || depot_walk(root, add_version, &versions) < 0)
        return mishap_errno(m, false, "cannot look through the root");
    const int64_t total_bytes = (int64_t)(fs.f_blocks * fs.f_frsize);
    const int64_t used_bytes = (int64_t)((fs.f_blocks - fs.f_bfree) * fs.f_frsize);
    jx_set_str(o, "rack", s->conf.agent_rack);
    jx_set_str(o, "zone", s->conf.agent_zone);
    jx_set_str(o, "address", s->conf.agent_address);
    jx_set_int(o, "capacity_bytes",
        s->conf.agent_capacity_bytes > 0 ? s->conf.agent_capacity_bytes : total_bytes);
    jx_set_int(o, "used_bytes", l.used_bytes);
    jx_set(o, "mounts", mounts_of(s, total_bytes, used_bytes));
    jx_set_str(o, "agent_version", PACKAGE_VERSION);
    jx_print(o, out);
    return 0;
}
