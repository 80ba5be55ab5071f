/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/artifact_json.h"

#include <string.h>

#include "base/buf.h"
#include "db/db_row.h"
#include "handlers/json_text.h"

/* Readers that a node may have at the store for one assignment: contract section 4, "Fetching". */
enum { ORIGIN_CONCURRENCY = 4, URL_MAX = 4096, STORED_JSON_MAX = 1 << 20 };

json_object *version_json(const struct version_row *v)
{
    json_object *o = jx_object();

    json_set_text(o, "artifact", v->artifact);
    json_set_text(o, "version", v->version);
    jx_set_str(o, "kind", v->kind);
    jx_set_str(o, "state", v->state);
    json_set_text(o, "reason", v->reason);
    jx_set_str(o, "digest", v->digest);
    jx_set_int(o, "total_bytes", v->total_bytes);
    jx_set_int(o, "shard_bytes", v->shard_bytes);
    jx_set_int(o, "files", v->files);
    jx_set_int(o, "shards", v->shards);
    jx_set_int(o, "missing_shards", v->missing);
    json_set_text(o, "publisher", v->publisher);
    json_set_time(o, "created_at", v->created_us);
    json_set_time(o, "progress_at", v->progress_us);
    json_set_time(o, "published_at", v->published_us);
    json_set_time(o, "withdrawn_at", v->withdrawn_us);
    return o;
}

/* JSON that Postgres keeps. */
static void set_stored(json_object *o, const char *key, const char *text)
{
    struct err ignored = ERR_INIT;
    json_object *value = NULL;

    if (jx_parse(text, strlen(text), STORED_JSON_MAX, &value, &ignored) < 0)
        value = jx_array();
    jx_set(o, key, value);
}

json_object *node_json(const struct node_row *n)
{
    json_object *o = jx_object();

    json_set_text(o, "node", n->name);
    json_set_text(o, "rack", n->rack);
    json_set_text(o, "zone", n->zone);
    json_set_text(o, "address", n->address);
    jx_set_int(o, "capacity_bytes", n->capacity_bytes);
    jx_set_int(o, "used_bytes", n->used_bytes);
    set_stored(o, "mounts", n->mounts_json);
    set_stored(o, "versions", n->versions_json);
    json_set_text(o, "agent_version", n->agent_version);
    jx_set_bool(o, "alive", n->alive);
    json_set_time(o, "registered_at", n->registered_us);
    json_set_time(o, "seen_at", n->seen_us);
    return o;
}

json_object *assignment_json(const struct assignment_row *a)
{
    json_object *o = jx_object();

    jx_set_str(o, "id", a->id);
    json_set_text(o, "node", a->node);
    json_set_text(o, "artifact", a->artifact);
    json_set_text(o, "version", a->version);
    jx_set_str(o, "digest", a->digest);
    jx_set_str(o, "state", a->state);
    json_set_text(o, "reason", a->reason);
    jx_set_str(o, "phase", a->phase);
    jx_set_int(o, "total_bytes", a->total_bytes);
    jx_set_int(o, "bytes", a->bytes);
    jx_set_int(o, "attempts", a->attempts);
    jx_set_int(o, "attempts_left", ASSIGNMENT_ATTEMPTS - a->attempts);
    json_set_time(o, "created_at", a->created_us);
    json_set_time(o, "started_at", a->started_us);
    json_set_time(o, "changed_at", a->changed_us);
    return o;
}

json_object *sources_json(const struct assignment_row *a, const char *origin)
{
    cleanup_buf struct buf url = BUF_INIT(URL_MAX);
    json_object *list = jx_array();
    json_object *o = jx_object();

    buf_printf(&url, "%s/api/v1/artifacts/%s/versions/%s", origin, a->artifact, a->version);
    jx_set_str(o, "url", url.data);
    jx_set_str(o, "kind", "origin");
    jx_set_int(o, "max_concurrency", ORIGIN_CONCURRENCY);
    jx_add(list, o);
    return list;
}

json_object *order_json(const struct assignment_row *a, const char *origin)
{
    json_object *o = jx_object();

    jx_set_str(o, "id", a->id);
    jx_set_null(o, "release");
    json_set_text(o, "artifact", a->artifact);
    json_set_text(o, "version", a->version);
    jx_set_str(o, "digest", a->digest);
    jx_set_int(o, "total_bytes", a->total_bytes);
    jx_set_str(o, "phase", a->phase);
    jx_set(o, "sources", sources_json(a, origin));
    jx_set_null(o, "deadline");
    jx_set_int(o, "attempts_left", ASSIGNMENT_ATTEMPTS - a->attempts);
    return o;
}

json_object *spread_json(const struct db_rows *rows, int row)
{
    const char *digest = db_text(rows, row, SPREAD_NODE_DIGEST);
    json_object *o = jx_object();

    json_set_text(o, "node", db_text(rows, row, SPREAD_NODE));
    json_set_text(o, "rack", db_text(rows, row, SPREAD_RACK));
    json_set_text(o, "zone", db_text(rows, row, SPREAD_ZONE));
    json_set_text(o, "state", db_text(rows, row, SPREAD_STATE));
    jx_set_bool(o, "alive", strcmp(db_text(rows, row, SPREAD_ALIVE), "true") == 0);
    /* What it has is not what was published. */
    jx_set_bool(o, "other_digest",
        digest[0] != '\0' && strcmp(digest, db_text(rows, row, SPREAD_DIGEST)) != 0);
    return o;
}

int version_nodes_json(
    struct db *db, const char *artifact, const char *version, json_object **out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (node_spread(db, artifact, &rows, e) < 0)
        return -1;
    *out = jx_array();
    for (int i = 0; i < db_rows_count(&rows); i++) {
        if (strcmp(db_text(&rows, i, SPREAD_VERSION), version) == 0 &&
            db_text(&rows, i, SPREAD_NODE)[0] != '\0')
            jx_add(*out, spread_json(&rows, i));
    }
    return 0;
}
