/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/batches_app.h"

#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "handlers/json_text.h"
#include "handlers/openai_list.h"
#include "lines/content.h"
#include "store/batch_file.h"
#include "web/multipart.h"
#include "web/web_body.h"

enum {
    LIST_MAX = 10000,
    FIELD_SIZE = 64,
    EXPIRES_MIN_S = 3600,
    EXPIRES_MAX_S = 30 * 24 * 3600,
    PARTS_MAX = 16
};

static void set_file(json_object *o, const struct batch_file_row *f)
{
    jx_set_str(o, "id", f->id);
    jx_set_str(o, "object", "file");
    jx_set_int(o, "bytes", f->bytes);
    jx_set_int(o, "created_at", f->created_us / US_PER_S);
    if (f->expires_us > 0)
        jx_set_int(o, "expires_at", f->expires_us / US_PER_S);
    json_set_text(o, "filename", f->filename);
    jx_set_str(o, "purpose", f->purpose);
    jx_set_str(o, "status", "processed");
}

static json_object *file_json(const struct batch_file_row *f)
{
    json_object *o = jx_object();
    set_file(o, f);
    return o;
}

/* --- upload --- */

/* What the form says. */
struct form {
    struct multipart_part file;
    bool has_file;
    char purpose[FIELD_SIZE];
    char anchor[FIELD_SIZE];
    char seconds[FIELD_SIZE];
};

static int read_field(
    int body, const struct multipart_part *p, char room[FIELD_SIZE], struct err *e)
{
    if (p->size >= FIELD_SIZE)
        return err_set(e, ERR_INVALID, "%s: too long", p->name);
    memset(room, 0, FIELD_SIZE);
    if (file_read_at(body, room, (size_t)p->size, p->offset) < 0)
        return err_errno(e, ERR_UNAVAILABLE, "the body cannot be read");
    return 0;
}

static int take_part(int body, const struct multipart_part *p, struct form *f, struct err *e)
{
    const struct {
        const char *name;
        char *room;
    } fields[] = { { "purpose", f->purpose }, { "expires_after[anchor]", f->anchor },
        { "expires_after[seconds]", f->seconds } };

    if (strcmp(p->name, "file") == 0) {
        f->file = *p;
        f->has_file = true;
        return 0;
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(p->name, fields[i].name) == 0)
            return read_field(body, p, fields[i].room, e);
    }
    return 0; /* of no interest here */
}

static int read_form(struct web_req *req, int body, int64_t size, struct form *f, struct err *e)
{
    struct multipart m;
    struct multipart_part part;

    if (multipart_open(&m, body, size, fcgi_env(req->fcgi, "CONTENT_TYPE"), e) < 0)
        return -1;
    for (int n = 0; n < PARTS_MAX; n++) {
        const int end = multipart_next(&m, &part, e);
        if (end != 0)
            return end < 0 ? -1 : 0;
        if (take_part(body, &part, f, e) < 0)
            return -1;
    }
    return err_set(e, ERR_INVALID, "the form has too many parts");
}

/* A name, and nothing of a path. */
static const char *plain_name(const char *sent)
{
    const char *slash = strrchr(sent, '/');
    const char *name = slash == NULL ? sent : slash + 1;
    const char *back = strrchr(name, '\\');
    return back == NULL ? name : back + 1;
}

static bool is_plain(const char *name)
{
    if (name[0] == '\0' || !str_utf8_valid(name, strlen(name)) ||
        str_utf8_length(name) > BATCH_FILE_NAME_MAX)
        return false;
    for (const char *at = name; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    }
    return true;
}

static int check_expiry(const struct form *f, int64_t *seconds, struct err *e)
{
    *seconds = 0;
    if (f->anchor[0] == '\0' && f->seconds[0] == '\0')
        return 0;
    if (strcmp(f->anchor, "created_at") != 0)
        return err_set(e, ERR_INVALID, "expires_after.anchor: must be created_at");
    if (str_to_i64(f->seconds, EXPIRES_MIN_S, EXPIRES_MAX_S, seconds) < 0)
        return err_set(e, ERR_INVALID, "expires_after.seconds: must be from %d to %d",
            EXPIRES_MIN_S, EXPIRES_MAX_S);
    return 0;
}

static int check_form(
    const struct web_req *req, const struct form *f, struct batch_file_new *new, struct err *e)
{
    if (!f->has_file)
        return err_set(e, ERR_INVALID, "file: is missing");
    if (strcmp(f->purpose, "batch") != 0)
        return err_set(e, ERR_INVALID, "purpose: must be batch");
    new->filename = plain_name(f->file.filename);
    if (!is_plain(new->filename))
        return err_set(e, ERR_INVALID, "file: has no name, or one that cannot be kept");
    if (!str_ends(new->filename, ".jsonl") && !str_ends(new->filename, ".json"))
        return err_set(e, ERR_INVALID, "file: Invalid file format, must be .jsonl or .json");
    if (f->file.size > req->conf->batch_max_file_bytes)
        return err_set(e, ERR_TOO_LARGE, "file: larger than %lld bytes",
            (long long)req->conf->batch_max_file_bytes);
    new->bytes = f->file.size;
    return check_expiry(f, &new->expires_s, e);
}

static int keep(
    const char *root, const char *id, int body, const struct multipart_part *p, struct err *e)
{
    cleanup_fd int fd = -1;

    if (content_create(root, id, &fd, e) < 0)
        return -1;
    const int rc =
        file_copy((struct file_range){ body, p->offset }, (struct file_range){ fd, 0 }, p->size);
    if (rc < 0)
        return content_failed(e, "content of a file");
    if (rc > 0)
        return err_set(e, ERR_UNAVAILABLE, "the body cannot be read");
    return content_land(root, id, fd, e);
}

/* The row last: a file that has one is there. */
static int add(struct web_req *req, const struct batch_file_new *new, int body,
    const struct multipart_part *p, struct batch_files *out, struct err *e)
{
    const char *root = req->conf->batch_root;
    struct err ignored = ERR_INIT; /* housekeeping finds what is left */

    if (keep(root, new->id, body, p, e) < 0) {
        (void)!content_remove(root, new->id, &ignored);
        return -1;
    }
    req->deadline_ns = clock_deadline(req->conf->db_timeout_ms);
    db_set_deadline(req->db, req->deadline_ns);
    return batch_file_add(req->db, new, out, e);
}

int post_file(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_batch_files struct batch_files made = BATCH_FILES_INIT;
    cleanup_fd int body = -1;
    int64_t size = 0;
    struct form form = { .has_file = false };
    char id[CONTENT_ID_SIZE];
    struct batch_file_new new = { .id = id, .owner = req->caller.subject, .purpose = "batch" };

    if (web_body_spooled(req->fcgi, &body, &size, e) < 0 ||
        read_form(req, body, size, &form, e) < 0 || check_form(req, &form, &new, e) < 0)
        return -1;
    content_new_id(id);
    if (add(req, &new, body, &form.file, &made, e) < 0)
        return -1;
    reply_json(reply, file_json(&made.row[0]));
    return 0;
}

/* --- reading --- */

static int find(struct web_req *req, struct batch_files *out, struct err *e)
{
    return batch_file_get(req->db, web_param(req, "id"), batches_owner(req), out, e);
}

int get_batch_file(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_batch_files struct batch_files found = BATCH_FILES_INIT;

    if (find(req, &found, e) < 0)
        return -1;
    reply_json(reply, file_json(&found.row[0]));
    return 0;
}

int get_file_content(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_batch_files struct batch_files found = BATCH_FILES_INIT;
    char path[CONTENT_PATH_SIZE];
    char to[CONTENT_PATH_SIZE + FIELD_SIZE];

    if (find(req, &found, e) < 0)
        return -1;
    if (!content_id_valid(found.row[0].id))
        return err_set(e, ERR_INTERNAL, "the id of a file is none");
    content_path(found.row[0].id, path);
    (void)!str_format(to, sizeof to, "/_wb_batch_bytes/%s", path);
    reply->type = "application/octet-stream";
    reply_line(reply, "X-Accel-Redirect", to);
    return 0;
}

int get_files(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_batch_files struct batch_files found = BATCH_FILES_INIT;
    struct batch_file_list l = { .owner = batches_owner(req) };
    char purpose[BATCHES_TEXT_SIZE];
    char after[BATCHES_TEXT_SIZE];
    char order[BATCHES_TEXT_SIZE];
    const char *asked = NULL;

    if (batches_limit(req, LIST_MAX, LIST_MAX, &l.limit, e) < 0 ||
        batches_text(req, "purpose", purpose, &l.purpose, e) < 0 ||
        batches_text(req, "after", after, &l.after, e) < 0 ||
        batches_text(req, "order", order, &asked, e) < 0)
        return -1;
    if (asked != NULL && strcmp(asked, "asc") != 0 && strcmp(asked, "desc") != 0)
        return err_set(e, ERR_INVALID, "order: must be asc or desc");
    l.oldest_first = asked != NULL && strcmp(asked, "asc") == 0;
    if (batch_file_list(req->db, &l, &found, e) < 0)
        return -1;
    json_object *data = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(data, file_json(&found.row[i]));
    reply_json(reply, openai_page(data, found.more));
    return 0;
}

int delete_file(struct web_req *req, struct web_reply *reply, struct err *e)
{
    const char *id = web_param(req, "id");
    struct err ignored = ERR_INIT; /* without its row nobody reads it, and housekeeping finds it */

    if (batch_file_delete(req->db, id, batches_owner(req), e) < 0)
        return -1;
    (void)!content_remove(req->conf->batch_root, id, &ignored);
    json_object *o = jx_object();
    jx_set_str(o, "id", id);
    jx_set_str(o, "object", "file");
    jx_set_bool(o, "deleted", true);
    reply_json(reply, o);
    return 0;
}
