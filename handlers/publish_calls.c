/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/artifacts_app.h"

#include <string.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "handlers/artifact_json.h"
#include "store/artifact_disk.h"
#include "store/artifact_shard.h"
#include "store/manifest_json.h"
#include "web/web_body.h"

enum { REASON_MAX = 500 };

/* --- manifest --- */

static int read_text(const struct web_req *req, char **text, size_t *size, struct err *e)
{
    cleanup_fd int fd = -1;
    int64_t bytes = 0;

    if (web_body_spooled(req->fcgi, &fd, &bytes, e) < 0)
        return -1;
    if (bytes > MANIFEST_BYTES_MAX)
        return err_set(e, ERR_TOO_LARGE, "a manifest has at most %d bytes", MANIFEST_BYTES_MAX);
    cleanup_free char *got = mem_calloc((size_t)bytes + 1, 1);
    if (file_read(fd, got, (size_t)bytes) < 0)
        return err_errno(e, ERR_UNAVAILABLE, "the body that the web server took cannot be read");
    *text = STEAL(got);
    *size = (size_t)bytes;
    return 0;
}

static int check_names(const struct manifest *m, const struct artifacts_named *named, struct err *e)
{
    if (strcmp(m->artifact, named->artifact) != 0)
        return err_set(e, ERR_INVALID, "artifact: the address says %s", named->artifact);
    if (strcmp(m->version, named->version) != 0)
        return err_set(e, ERR_INVALID, "version: the address says %s", named->version);
    return 0;
}

/* What is missing of a version, as digests. */
static int missing_json(struct db *db, int64_t id, json_object **out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    char text[DIGEST_TEXT_SIZE];

    if (version_missing(db, id, &rows, e) < 0)
        return -1;
    *out = jx_array();
    for (int i = 0; i < db_rows_count(&rows); i++) {
        (void)!str_format(text, sizeof text, "sha256:%s", db_text(&rows, i, 0));
        jx_add_str(*out, text);
    }
    return 0;
}

static bool is(const struct version_row *v, const char *state)
{
    return strcmp(v->state, state) == 0;
}

/* 202 while something is to be done: by the publisher, or by the release gate for a new version. */
static int answer_announced(struct web_req *req, struct web_reply *reply,
    const struct version_row *v, bool is_new, struct err *e)
{
    json_object *missing = NULL;

    if (missing_json(req->db, v->id, &missing, e) < 0)
        return -1;
    json_object *o = version_json(v);
    jx_set(o, "missing", missing);
    if (is_new || is(v, "uploading") || is(v, "verifying"))
        reply_accepted(reply, o);
    else
        reply_json(reply, o);
    return 0;
}

static void kick_gate(struct web_req *req)
{
    struct artifacts_app *app = req->app;
    gate_thread_kick(app->gate);
}

int put_manifest(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_manifest struct manifest m = MANIFEST_INIT;
    cleanup_versions struct versions now = VERSIONS_INIT;
    struct artifacts_named named;
    cleanup_free char *text = NULL;
    size_t size = 0;

    if (artifacts_named(req, &named, e) < 0 || read_text(req, &text, &size, e) < 0 ||
        manifest_read(text, size, &m, e) < 0 || check_names(&m, &named, e) < 0)
        return -1;
    artifacts_go_on_with(req, size);
    const struct published p = { &m, text, size, req->caller.subject };
    const int found = version_announce(req->db, &p, &now, e);
    if (found < 0 || fault_at(FAULT_MANIFEST_ANNOUNCED, e) < 0)
        return -1;
    if (is(&now.row[0], "verifying"))
        kick_gate(req);
    return answer_announced(req, reply, &now.row[0], found == 0, e);
}

/* --- shards --- */

struct upload {
    struct artifacts_named named;
    struct digest digest;
    char hex[DIGEST_HEX_SIZE];
    struct versions version;
    struct shards_at shards;
};

static void upload_free(struct upload *u)
{
    versions_free(&u->version);
    shards_at_free(&u->shards);
}
#define cleanup_upload __attribute__((cleanup(upload_free)))

static int read_digest(const struct web_req *req, struct upload *u, struct err *e)
{
    const char *text = web_param(req, "sha256");
    const char *bare = str_starts(text, "sha256:") ? text + strlen("sha256:") : text;

    if (digest_parse_bare(bare, &u->digest, e) < 0)
        return -1;
    (void)!str_copy(u->hex, sizeof u->hex, bare);
    return 0;
}

/* What the tables say of the shard now: 0 it is wanted, 1 it is there. */
static int look(struct web_req *req, struct upload *u, struct err *e)
{
    upload_free(u);
    if (version_get(req->db, u->named.artifact, u->named.version, &u->version, e) < 0 ||
        shard_places(req->db, u->version.row[0].id, u->hex, &u->shards, e) < 0)
        return -1;
    const struct version_row *v = &u->version.row[0];
    if (is(v, "rejected") || is(v, "dropped"))
        return err_set(e, ERR_CONFLICT, "version %s of %s was %s: put its manifest again",
            v->version, v->artifact, v->state);
    return u->shards.place[0].present || !is(v, "uploading") ? 1 : 0;
}

static int check_body(const struct upload *u, int fd, int64_t size, struct err *e)
{
    const int64_t want = u->shards.place[0].size;
    struct digest got;

    if (size != want)
        return err_set(e, ERR_MISMATCH, "the shard has %lld bytes, and the body %lld",
            (long long)want, (long long)size);
    if (disk_hash(fd, 0, size, NULL, &got, e) < 0)
        return -1;
    if (memcmp(got.byte, u->digest.byte, sizeof got.byte) != 0)
        return err_set(e, ERR_MISMATCH, "the body's sha256 is another");
    return 0;
}

/* Into every place that it has in the version. */
static int place(const struct upload *u, int part, int body, struct err *e)
{
    for (size_t i = 0; i < u->shards.n; i++) {
        const struct shard_at *s = &u->shards.place[i];
        cleanup_fd int to = -1;
        if (disk_part_file(part, s->path, true, &to, e) < 0 ||
            disk_copy(
                (struct file_range){ body, 0 }, (struct file_range){ to, s->at }, s->size, e) < 0)
            return -1;
    }
    return 0;
}

/* The part is locked against the release gate, and then looked at once more: nobody writes into what is being judged. */
static int take_shard(struct web_req *req, struct upload *u, int body, struct err *e)
{
    cleanup_fd int part = -1;
    bool verifying = false;
    const struct version_row *v = &u->version.row[0];
    const struct disk_part p = { req->conf->artifacts_root, u->named.artifact, u->named.version,
        v->part };
    char uuid[UUID_SIZE];

    (void)!str_copy(uuid, sizeof uuid, v->part);
    int there = disk_part_open(&p, false, false, &part, e);
    if (there == 1)
        return err_set(e, ERR_UNAVAILABLE, "the version is being verified");
    artifacts_go_on(req);
    if (there == 0)
        there = look(req, u, e);
    if (there != 0)
        return there;
    if (strcmp(u->version.row[0].part, uuid) != 0)
        return err_set(e, ERR_CONFLICT, "the version was begun anew meanwhile");
    if (fault_at(FAULT_SHARD_CHECKED, e) < 0 || place(u, part, body, e) < 0 ||
        fault_at(FAULT_SHARD_PLACED, e) < 0)
        return -1;
    artifacts_go_on(req);
    if (shard_landed(req->db, u->version.row[0].id, uuid, u->hex, &verifying, e) < 0 ||
        fault_at(FAULT_SHARD_LANDED, e) < 0)
        return -1;
    if (verifying) {
        close(STEAL_FD(part)); /* the gate wants it alone */
        kick_gate(req);
    }
    return 0;
}

static void answer_shard(struct web_reply *reply, const struct upload *u, bool is_new)
{
    json_object *o = jx_object();
    char text[DIGEST_TEXT_SIZE];

    digest_print(&u->digest, text);
    jx_set_str(o, "shard", text);
    if (is_new)
        reply_created(reply, o);
    else
        reply_json(reply, o);
}

int put_shard(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_upload struct upload u = { .version = VERSIONS_INIT, .shards = SHARDS_AT_INIT };
    cleanup_fd int body = -1;
    int64_t size = 0;

    if (artifacts_named(req, &u.named, e) < 0 || read_digest(req, &u, e) < 0)
        return -1;
    int there = look(req, &u, e);
    if (there == 0) {
        if (web_body_spooled(req->fcgi, &body, &size, e) < 0 || check_body(&u, body, size, e) < 0)
            return -1;
        there = take_shard(req, &u, body, e);
    }
    if (there < 0)
        return -1;
    answer_shard(reply, &u, there == 0);
    return 0;
}

/* --- withdrawing --- */

struct withdraw_body {
    const char *reason;
};

static const struct jx_field WITHDRAW_FIELDS[] = {
    JX_TEXT(struct withdraw_body, reason, JX_REQUIRED, REASON_MAX),
};

int post_withdraw(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_versions struct versions now = VERSIONS_INIT;
    struct withdraw_body b = { .reason = NULL };
    struct artifacts_named named;
    json_object *nodes = NULL;

    if (artifacts_named(req, &named, e) < 0 ||
        web_bind(req, WITHDRAW_FIELDS, 1, JX_STRICT, &b, e) < 0)
        return -1;
    if (str_empty(b.reason))
        return err_set(e, ERR_INVALID, "reason: must not be empty");
    if (version_withdraw(req->db, named.artifact, named.version, b.reason, &now, e) < 0 ||
        version_nodes_json(req->db, named.artifact, named.version, &nodes, e) < 0)
        return -1;
    json_object *o = version_json(&now.row[0]);
    jx_set(o, "nodes", nodes);
    reply_json(reply, o);
    return 0;
}
