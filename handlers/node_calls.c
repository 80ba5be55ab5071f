/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/artifacts_app.h"

#include <string.h>

#include "base/str.h"
#include "handlers/artifact_json.h"
#include "handlers/text_limits.h"
#include "store/node.h"

enum {
    TEXT_MAX_PLACE = 64, /* rack, zone */
    TEXT_MAX_ADDRESS = 255,
    TEXT_MAX_AGENT = 64,
    TEXT_MAX_MOUNT = 1024,
    TEXT_MAX_HAS = 32,
    MOUNTS_MAX = 256,
    VERSIONS_MAX = 4096,
    STORED_MAX = 1 << 20,
};

struct node_body {
    const char *rack;
    const char *zone;
    const char *address;
    const char *agent_version;
    json_object *mounts;
    json_object *versions;
    int64_t capacity_bytes;
    int64_t used_bytes;
};

static const struct jx_field NODE_FIELDS[] = {
    JX_TEXT(struct node_body, rack, 0, TEXT_MAX_PLACE),
    JX_TEXT(struct node_body, zone, 0, TEXT_MAX_PLACE),
    JX_TEXT(struct node_body, address, 0, TEXT_MAX_ADDRESS),
    JX_TEXT(struct node_body, agent_version, 0, TEXT_MAX_AGENT),
    JX_INT(struct node_body, capacity_bytes, 0, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct node_body, used_bytes, 0, 0, OVERLAY_NUMBER_MAX),
    JX_RAW(struct node_body, mounts, 0),
    JX_RAW(struct node_body, versions, 0),
};

struct mount_body {
    const char *path;
    int64_t total_bytes;
    int64_t used_bytes;
};

static const struct jx_field MOUNT_FIELDS[] = {
    JX_TEXT(struct mount_body, path, JX_REQUIRED, TEXT_MAX_MOUNT),
    JX_INT(struct mount_body, total_bytes, 0, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct mount_body, used_bytes, 0, 0, OVERLAY_NUMBER_MAX),
};

struct has_body {
    const char *artifact;
    const char *version;
    const char *digest;
    const char *state;
};

static const struct jx_field HAS_FIELDS[] = {
    JX_TEXT(struct has_body, artifact, JX_REQUIRED, ARTIFACT_NAME_MAX),
    JX_TEXT(struct has_body, version, JX_REQUIRED, VERSION_NAME_MAX),
    JX_TEXT(struct has_body, digest, JX_REQUIRED, DIGEST_TEXT_SIZE),
    JX_TEXT(struct has_body, state, JX_REQUIRED, TEXT_MAX_HAS),
};

/* A mount: its path, or an object with more. Unknown members are left out. */
static int check_mount(json_object *o, json_object *out, struct err *e)
{
    struct mount_body b = { .total_bytes = -1, .used_bytes = -1 };
    json_object *kept = jx_object();

    jx_add(out, kept);
    if (json_object_is_type(o, json_type_string)) {
        if (json_object_get_string_len(o) > TEXT_MAX_MOUNT)
            return err_set(e, ERR_INVALID, "a path is longer than %d bytes", TEXT_MAX_MOUNT);
        jx_set_str(kept, "path", json_object_get_string(o));
        return 0;
    }
    if (jx_bind(o, MOUNT_FIELDS, sizeof MOUNT_FIELDS / sizeof MOUNT_FIELDS[0], JX_LENIENT, &b, e) <
        0)
        return -1;
    jx_set_str(kept, "path", b.path);
    if (b.total_bytes >= 0)
        jx_set_int(kept, "total_bytes", b.total_bytes);
    if (b.used_bytes >= 0)
        jx_set_int(kept, "used_bytes", b.used_bytes);
    return 0;
}

static int check_has(json_object *o, json_object *out, struct err *e)
{
    struct has_body b = { .artifact = NULL };
    struct digest ignored;
    json_object *kept = jx_object();

    jx_add(out, kept);
    if (jx_bind(o, HAS_FIELDS, sizeof HAS_FIELDS / sizeof HAS_FIELDS[0], JX_LENIENT, &b, e) < 0 ||
        artifact_name_check("artifact", b.artifact, ARTIFACT_NAME_MAX, e) < 0 ||
        artifact_name_check("version", b.version, VERSION_NAME_MAX, e) < 0 ||
        artifact_name_check("state", b.state, TEXT_MAX_HAS, e) < 0)
        return -1;
    if (digest_parse(b.digest, &ignored, e) < 0)
        return err_wrap(e, "digest");
    jx_set_str(kept, "artifact", b.artifact);
    jx_set_str(kept, "version", b.version);
    jx_set_str(kept, "digest", b.digest);
    jx_set_str(kept, "state", b.state);
    return 0;
}

/* Each element checked and printed; an array that is not there is empty. */
struct list_rule {
    const char *name;
    size_t most;
    int (*check)(json_object *o, json_object *out, struct err *e);
};

static int check_list(
    json_object *list, const struct list_rule *rule, struct buf *out, struct err *e)
{
    cleanup_json json_object *kept = jx_array();
    const size_t n = list == NULL                                 ? 0
                     : json_object_is_type(list, json_type_array) ? json_object_array_length(list)
                                                                  : rule->most + 1;
    if (n > rule->most)
        return err_set(
            e, ERR_INVALID, "%s: must be an array of at most %zu", rule->name, rule->most);
    for (size_t i = 0; i < n; i++) {
        if (rule->check(json_object_array_get_idx(list, i), kept, e) < 0)
            return err_wrap(e, "%s", rule->name);
    }
    jx_print(kept, out);
    return 0;
}

static const char *or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

static int report(struct web_req *req, const char *node, const struct node_body *b, struct err *e)
{
    static const struct list_rule MOUNTS = { "mounts", MOUNTS_MAX, check_mount };
    static const struct list_rule VERSIONS = { "versions", VERSIONS_MAX, check_has };
    cleanup_buf struct buf mounts = BUF_INIT(STORED_MAX);
    cleanup_buf struct buf versions = BUF_INIT(STORED_MAX);

    if (check_list(b->mounts, &MOUNTS, &mounts, e) < 0 ||
        check_list(b->versions, &VERSIONS, &versions, e) < 0)
        return -1;
    const struct node_row n = { .name = node,
        .rack = or_empty(b->rack),
        .zone = or_empty(b->zone),
        .address = or_empty(b->address),
        .mounts_json = mounts.data,
        .versions_json = versions.data,
        .agent_version = or_empty(b->agent_version),
        .capacity_bytes = b->capacity_bytes,
        .used_bytes = b->used_bytes };
    return node_report(req->db, &n, e);
}

int put_node(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_assignments struct assignments todo = ASSIGNMENTS_INIT;
    struct node_body b = { .rack = NULL };
    const char *node = NULL;

    if (artifacts_node(req, &node, e) < 0 ||
        web_bind(req, NODE_FIELDS, sizeof NODE_FIELDS / sizeof NODE_FIELDS[0], JX_STRICT, &b, e) <
            0 ||
        report(req, node, &b, e) < 0 || assignment_todo(req->db, node, &todo, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < todo.n; i++)
        jx_add(list, order_json(&todo.row[i], req->conf->artifacts_origin));
    reply_json(reply, list);
    return 0;
}

int get_nodes(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_nodes struct nodes found = NODES_INIT;

    if (node_list(req->db, &found, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(list, node_json(&found.row[i]));
    json_object *o = jx_object();
    jx_set(o, "nodes", list);
    reply_json(reply, o);
    return 0;
}

int get_node(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_nodes struct nodes found = NODES_INIT;
    const char *node = NULL;

    if (artifacts_node(req, &node, e) < 0 || node_get(req->db, node, &found, e) < 0)
        return -1;
    reply_json(reply, node_json(&found.row[0]));
    return 0;
}
