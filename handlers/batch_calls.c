/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/batches_app.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "handlers/job_body.h"
#include "handlers/json_text.h"
#include "handlers/openai_list.h"
#include "model/batch_line.h"
#include "store/batch_row.h"
#include "store/job_progress.h"

enum { LIMIT = 20, LIMIT_MAX = 100, PART_MAX = 1 << 16, KEY_SIZE = 160, MINUTE_S = 60 };

/* --- how a batch looks --- */

static void set_when(json_object *o, const char *key, int64_t seconds)
{
    if (seconds > 0)
        jx_set_int(o, key, seconds);
    else
        jx_set_null(o, key);
}

/* Our own row; what makes no sense is left out. */
static json_object *part(const char *text)
{
    json_object *o = NULL;
    struct err ignored = ERR_INIT;

    if (text[0] == '\0' || jx_parse_deep(text, strlen(text), strlen(text), 64, &o, &ignored) < 0)
        return NULL;
    return o;
}

static json_object *errors_json(const char *text)
{
    json_object *data = part(text);

    if (data == NULL)
        return NULL;
    return openai_list(data);
}

static json_object *usage_json(const struct batch_usage *u)
{
    if (!u->known)
        return NULL;
    json_object *o = jx_object();
    json_object *in = jx_object();
    json_object *out = jx_object();
    jx_set_int(in, "cached_tokens", u->cached_tokens);
    jx_set_int(out, "reasoning_tokens", u->reasoning_tokens);
    jx_set_int(o, "input_tokens", u->input_tokens);
    jx_set(o, "input_tokens_details", in);
    jx_set_int(o, "output_tokens", u->output_tokens);
    jx_set(o, "output_tokens_details", out);
    jx_set_int(o, "total_tokens", u->total_tokens);
    return o;
}

static void set_times(json_object *o, const struct batch_times *t)
{
    jx_set_int(o, "created_at", t->created_at);
    set_when(o, "in_progress_at", t->in_progress_at);
    set_when(o, "expires_at", t->expires_at);
    set_when(o, "finalizing_at", t->finalizing_at);
    set_when(o, "completed_at", t->completed_at);
    set_when(o, "failed_at", t->failed_at);
    set_when(o, "expired_at", t->expired_at);
    set_when(o, "cancelling_at", t->cancelling_at);
    set_when(o, "cancelled_at", t->cancelled_at);
}

/* Redis is the fresher, as long as it is not behind. */
static struct batch_counts counts_of(const struct batch_row *b, const struct job_progress *p)
{
    struct batch_counts c = b->counts;

    if (!batch_status_ended(b->status) && p->known && p->total == c.total &&
        p->completed + p->failed > c.completed + c.failed) {
        c.completed = p->completed;
        c.failed = p->failed;
    }
    return c;
}

static const char *some(const char *text)
{
    return text[0] == '\0' ? NULL : text;
}

static json_object *batch_json(const struct batch_row *b, const struct job_progress *p)
{
    const struct batch_counts counts = counts_of(b, p);
    json_object *o = jx_object();
    json_object *c = jx_object();

    jx_set_str(o, "id", b->id);
    jx_set_str(o, "object", "batch");
    jx_set_str(o, "endpoint", b->endpoint);
    jx_set(o, "errors", errors_json(b->errors));
    jx_set_str(o, "input_file_id", b->input_file_id);
    jx_set_str(o, "completion_window", b->completion_window);
    jx_set_str(o, "status", batch_status_name(b->status));
    jx_set_str(o, "output_file_id", some(b->output_file_id));
    jx_set_str(o, "error_file_id", some(b->error_file_id));
    set_times(o, &b->times);
    jx_set_int(c, "total", counts.total);
    jx_set_int(c, "completed", counts.completed);
    jx_set_int(c, "failed", counts.failed);
    jx_set(o, "request_counts", c);
    jx_set(o, "usage", usage_json(&b->usage));
    jx_set(o, "metadata", part(b->metadata));
    json_object *aibrix = part(b->aibrix);
    if (aibrix != NULL)
        jx_set(o, "aibrix", aibrix);
    return o;
}

/* What Redis knows of each; the caller frees it. */
static struct job_progress *progress_of(struct web_req *req, const struct batch_rows *b)
{
    struct job_progress *out = mem_calloc(b->n + 1, sizeof *out);
    char(*key)[KEY_SIZE] = mem_calloc(b->n + 1, sizeof *key);
    cleanup_free char(*owned)[KEY_SIZE] = key;
    const char *name[LIMIT_MAX];
    struct err ignored = ERR_INIT; /* the rows do */

    for (size_t i = 0; i < b->n && i < LIMIT_MAX; i++) {
        (void)!str_format(owned[i], KEY_SIZE, BATCH_PROGRESS_PREFIX "%s", b->row[i].id);
        name[i] = owned[i];
    }
    (void)!progress_get(req->kv, name, b->n, out, &ignored);
    return out;
}

static void reply_batch(struct web_req *req, struct web_reply *reply, const struct batch_rows *b)
{
    cleanup_free struct job_progress *progress = progress_of(req, b);
    reply_json(reply, batch_json(&b->row[0], &progress[0]));
}

/* --- calls --- */

static int check_extension(json_object *aibrix, struct err *e)
{
    static const char *const KNOWN[] = { "job_id", "model", "resource_allocation", "runtime",
        "model_template", "profile", "client" };
    const char *job_id = NULL;

    if (aibrix == NULL)
        return 0;
    if (!json_object_is_type(aibrix, json_type_object))
        return err_set(e, ERR_INVALID, "aibrix: must be an object");
    json_object_object_foreach(aibrix, key, value)
    {
        bool known = false;
        (void)value;
        for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
            known = known || strcmp(KNOWN[i], key) == 0;
        if (!known)
            return err_set(e, ERR_INVALID, "aibrix: there is no %.64s", key);
    }
    if (jx_get(aibrix, "job_id") != NULL &&
        (!jx_get_str(aibrix, "job_id", &job_id) || strlen(job_id) >= BATCH_JOB_ID_SIZE))
        return err_set(e, ERR_INVALID, "aibrix.job_id: must be text of at most %d bytes",
            BATCH_JOB_ID_SIZE - 1);
    return 0;
}

static void print_part(json_object *o, struct buf *out)
{
    if (o != NULL)
        jx_print(o, out);
}

/* The same rules as for jobs: what would be refused there is refused here. */
static int check(const struct job_body *b, struct job_terms *terms, struct err *e)
{
    enum job_field bad;

    if (job_request_check(&b->request, terms, &bad, e) < 0)
        return -1;
    if (batch_endpoint_find(b->request.endpoint) == NULL)
        return err_set(e, ERR_INVALID, "endpoint: %.64s is not served here", b->request.endpoint);
    return 0;
}

int post_batch(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_batch_rows struct batch_rows made = BATCH_ROWS_INIT;
    cleanup_job_body struct job_body body = { .pairs = NULL };
    cleanup_buf struct buf metadata = BUF_INIT(PART_MAX);
    cleanup_buf struct buf aibrix = BUF_INIT(PART_MAX);
    struct job_terms terms;
    const char *job_id = NULL;

    json_object *extension = jx_get(req->body, "aibrix");
    if (job_body_read(DIALECT_OPENAI, req->body, &body, e) < 0 || check(&body, &terms, e) < 0 ||
        check_extension(extension, e) < 0)
        return -1;
    (void)jx_get_str(extension, "job_id", &job_id);
    print_part(jx_get(req->body, "metadata"), &metadata);
    print_part(extension, &aibrix);
    const struct job_request *r = &body.request;
    const struct batch_new new = { .owner = req->caller.subject,
        .admin = req->caller.role == ROLE_ADMIN,
        .job_id = job_id,
        .input_file_id = r->input_file,
        .endpoint = r->endpoint,
        .completion_window = str_empty(r->completion_window) ? "24h" : r->completion_window,
        .window_s = terms.window_minutes * MINUTE_S,
        .metadata = metadata.data,
        .aibrix = aibrix.data,
        .output_expires_s = r->output_expires_s == JOB_UNSET ? 0 : r->output_expires_s };
    const int rc = batch_row_create(req->db, &new, &made, e);
    if (rc < 0) {
        if (e->code == ERR_NOT_FOUND) /* of this request's, not of its address */
            e->code = ERR_INVALID;
        return -1;
    }
    reply_batch(req, reply, &made);
    return 0;
}

int get_batch(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_batch_rows struct batch_rows found = BATCH_ROWS_INIT;

    if (batch_row_get(req->db, web_param(req, "id"), batches_owner(req), &found, e) < 0)
        return -1;
    reply_batch(req, reply, &found);
    return 0;
}

int cancel_batch(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_batch_rows struct batch_rows now = BATCH_ROWS_INIT;
    const int rc = batch_row_cancel(req->db, web_param(req, "id"), batches_owner(req), &now, e);

    if (rc < 0)
        return -1;
    if (rc == 1)
        return err_set(e, ERR_CONFLICT, "Cannot cancel a batch with status '%s'.",
            batch_status_name(now.row[0].status));
    reply_batch(req, reply, &now);
    return 0;
}

int get_batches(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_batch_rows struct batch_rows found = BATCH_ROWS_INIT;
    char room[BATCHES_TEXT_SIZE];
    const char *after = NULL;
    int64_t limit = 0;

    if (batches_limit(req, LIMIT, LIMIT_MAX, &limit, e) < 0 ||
        batches_text(req, "after", room, &after, e) < 0 ||
        batch_row_list(req->db, batches_owner(req), after, limit, &found, e) < 0)
        return -1;
    cleanup_free struct job_progress *progress = progress_of(req, &found);
    json_object *data = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(data, batch_json(&found.row[i], &progress[i]));
    reply_json(reply, openai_page(data, found.more));
    return 0;
}
