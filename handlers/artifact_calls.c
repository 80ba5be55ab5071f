/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/artifacts_app.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "handlers/artifact_json.h"
#include "handlers/json_text.h"
#include "store/node.h"

/* Readers of one version: racks x 4, at least 8, at most what nginx/artifacts_readers.conf has. */
enum { READERS_OF_RACK = 4, READERS_LEAST = 8, READERS_MOST = 256 };

static json_object *versions_json(const struct versions *v)
{
    json_object *list = jx_array();
    for (size_t i = 0; i < v->n; i++)
        jx_add(list, version_json(&v->row[i]));
    return list;
}

int get_artifacts(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_versions struct versions found = VERSIONS_INIT;

    if (artifact_list(req->db, &found, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < found.n; i++) {
        json_object *o = jx_object();
        json_set_text(o, "artifact", found.row[i].artifact);
        jx_set_str(o, "kind", found.row[i].kind);
        jx_set(o, "newest", version_json(&found.row[i]));
        jx_add(list, o);
    }
    json_object *answer = jx_object();
    jx_set(answer, "artifacts", list);
    reply_json(reply, answer);
    return 0;
}

static int list_versions(struct web_req *req, struct versions *out, struct err *e)
{
    const char *name = web_param(req, "name");

    if (artifact_name_check("name", name, ARTIFACT_NAME_MAX, e) < 0)
        return -1;
    return version_list(req->db, name, out, e);
}

int get_artifact(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_versions struct versions found = VERSIONS_INIT;

    if (list_versions(req, &found, e) < 0)
        return -1;
    json_object *o = jx_object();
    json_set_text(o, "artifact", found.row[0].artifact);
    jx_set_str(o, "kind", found.row[0].kind);
    jx_set(o, "versions", versions_json(&found));
    reply_json(reply, o);
    return 0;
}

int get_versions(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_versions struct versions found = VERSIONS_INIT;

    if (list_versions(req, &found, e) < 0)
        return -1;
    json_object *o = jx_object();
    jx_set(o, "versions", versions_json(&found));
    reply_json(reply, o);
    return 0;
}

/* --- one version --- */

static bool is_out(const char *state)
{
    return strcmp(state, "published") == 0 || strcmp(state, "withdrawn") == 0;
}

static bool may_see_all(const struct web_req *req)
{
    return (req->caller.role & (ROLE_ADMIN | ROLE_PUBLISHER)) != 0;
}

static void release_text(void *ctx)
{
    struct manifest_text *t = ctx;
    manifest_text_free(t);
    free(t);
}

/* The exact bytes. What is not published is nobody's but its publisher's. */
static int get_manifest(struct web_req *req, const struct artifacts_named *named,
    struct web_reply *reply, struct err *e)
{
    cleanup_manifest_text struct manifest_text got = MANIFEST_TEXT_INIT;

    if (version_manifest(req->db, named->artifact, named->version, &got, e) < 0)
        return -1;
    if (!is_out(got.state) && !may_see_all(req))
        return err_set(e, ERR_NOT_FOUND, "version %s of %s is %s, not published", named->version,
            named->artifact, got.state);
    struct manifest_text *kept = mem_calloc(1, sizeof *kept);
    HAND_OVER(kept, &got, ((struct manifest_text)MANIFEST_TEXT_INIT));
    reply->immutable = true;
    reply_borrow(reply, kept->text, kept->size, kept->digest, release_text, kept);
    return 0;
}

int get_version(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_versions struct versions found = VERSIONS_INIT;
    struct artifacts_named named;
    char ignored[16];

    if (artifacts_named(req, &named, e) < 0)
        return -1;
    const int none = web_query(req, "state", ignored, sizeof ignored, e);
    if (none != 0)
        return none < 0 ? -1 : get_manifest(req, &named, reply, e);
    if (version_get(req->db, named.artifact, named.version, &found, e) < 0)
        return -1;
    reply_json(reply, version_json(&found.row[0]));
    return 0;
}

/* --- bytes --- */

/* A withdrawn version goes on to those that have begun with it. */
static int may_read(struct web_req *req, const struct artifacts_named *named,
    const struct artifact_file_at *f, struct err *e)
{
    if (strcmp(f->state, "published") == 0)
        return 0;
    if (!is_out(f->state))
        return err_set(e, ERR_NOT_FOUND, "version %s of %s is %s, not published", named->version,
            named->artifact, f->state);
    if (req->caller.role == ROLE_NODE) {
        const int none = assignment_concerns(req->db, req->caller.subject, f->version_id, e);
        if (none <= 0)
            return none;
    }
    return err_set(e, ERR_CONFLICT, "version %s of %s is withdrawn: %s", named->version,
        named->artifact, f->reason);
}

/* For a header: everything but what is safe in a path is escaped. */
static void put_path(struct buf *out, const char *path)
{
    static const char SAFE[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    for (const char *at = path; *at != '\0'; at++) {
        if (strchr(SAFE, *at) != NULL)
            buf_putc(out, *at);
        else
            buf_printf(out, "%%%02X", (unsigned char)*at);
    }
}

int get_file(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_buf struct buf to = BUF_INIT(REPLY_LINES_MAX);
    const char *path = web_param(req, "path");
    struct artifacts_named named;
    struct artifact_file_at f;
    int64_t racks = 0;

    if (artifacts_named(req, &named, e) < 0 || manifest_path_check(path, e) < 0 ||
        version_file(req->db, named.artifact, named.version, path, &f, e) < 0 ||
        may_read(req, &named, &f, e) < 0 || node_racks(req->db, &racks, e) < 0)
        return -1;
    int64_t readers = racks * READERS_OF_RACK;
    readers = readers < READERS_LEAST ? READERS_LEAST : readers;
    readers = readers > READERS_MOST ? READERS_MOST : readers;
    buf_printf(&to, "/_wb_bytes/%lld/%s/versions/%s/files/", (long long)readers, named.artifact,
        named.version);
    put_path(&to, path);
    reply->type = "application/octet-stream";
    reply->immutable = true;
    reply_line(reply, "X-Accel-Redirect", to.data);
    return 0;
}

/* --- who has what --- */

/* Rows of one version stand together. */
static json_object *spread_of_version(const struct db_rows *rows, int *row)
{
    json_object *o = jx_object();
    json_object *nodes = jx_array();
    const char *version = db_text(rows, *row, SPREAD_VERSION);
    const int n = db_rows_count(rows);

    json_set_text(o, "version", version);
    jx_set_str(o, "state", db_text(rows, *row, SPREAD_VERSION_STATE));
    jx_set_str(o, "digest", db_text(rows, *row, SPREAD_DIGEST));
    for (; *row < n && strcmp(version, db_text(rows, *row, SPREAD_VERSION)) == 0; ++*row) {
        if (db_text(rows, *row, SPREAD_NODE)[0] != '\0')
            jx_add(nodes, spread_json(rows, *row));
    }
    jx_set(o, "nodes", nodes);
    return o;
}

int get_distribution(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const char *name = web_param(req, "name");

    if (artifact_name_check("name", name, ARTIFACT_NAME_MAX, e) < 0 ||
        node_spread(req->db, name, &rows, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (int row = 0; row < db_rows_count(&rows);)
        jx_add(list, spread_of_version(&rows, &row));
    json_object *o = jx_object();
    json_set_text(o, "artifact", name);
    jx_set(o, "versions", list);
    reply_json(reply, o);
    return 0;
}
