/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/batch_client.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/http_json.h"

/* However long the service would like to be left alone: what it says about one call must not park jobs. */
enum { AGAIN_MAX_MS = 5 * 60 * 1000 };

enum { PATH_SIZE = 1024, URL_SIZE = 2400, CLOCKS_DIFFER_S = 60, PAGES_MAX = 1000, TEXT_SIZE = 200 };

enum {
    UNAUTHORIZED = 401,
    FORBIDDEN = 403,
    NOT_FOUND = 404,
    NO_METHOD = 405,
    REQUEST_TIMEOUT = 408,
    CONFLICT = 409,
    TOO_EARLY = 425,
    TOO_MANY = 429
};

/* What a call is to the service: whether it changes something, and whether it is about one batch. */
enum kind { CREATE, GET, CANCEL, LIST };

struct batch_client {
    struct http *http;
    char *url;   /* ends before /v1 */
    char *token; /* "" none */
};

static const char *const OUTCOMES[BATCH_OUTCOME__COUNT] = {
    [BATCH_DONE] = "done",
    [BATCH_REFUSED] = "refused",
    [BATCH_NOT_FOUND] = "not_found",
    [BATCH_CONFLICT] = "conflict",
    [BATCH_DENIED] = "denied",
    [BATCH_BUSY] = "busy",
    [BATCH_UNREACHABLE] = "unreachable",
    [BATCH_UNSURE] = "unsure",
    [BATCH_STOPPED] = "stopped",
};

const char *batch_outcome_name(enum batch_outcome o)
{
    return OUTCOMES[o];
}

void batch_window_text(int64_t minutes, char out[BATCH_WINDOW_SIZE])
{
    (void)str_format(out, BATCH_WINDOW_SIZE, "%lldm", (long long)minutes);
}

int batch_client_open(
    const struct batch_client_options *o, struct batch_client **out, struct err *e)
{
    if (str_empty(o->url))
        return err_set(e, ERR_INVALID, "[batch] url is not set");
    if (!str_starts(o->url, "http://") && !str_starts(o->url, "https://"))
        return err_set(e, ERR_INVALID, "[batch] url must begin with http:// or https://");
    struct http_options http = {
        .ca_file = o->ca_file,
        .timeout_ms = o->timeout_ms,
        .stop_fd = o->stop_fd,
    };
    struct batch_client *c = mem_calloc(1, sizeof *c);
    c->http = http_new(&http);
    c->url = mem_strdup(o->url);
    c->token = mem_strdup(o->token == NULL ? "" : o->token);
    size_t size = strlen(c->url);
    while (size > 0 && c->url[size - 1] == '/')
        c->url[--size] = '\0';
    if (str_ends(c->url, "/v1")) /* as other clients of such services want it */
        c->url[size - 3] = '\0';
    *out = c;
    return 0;
}

int batch_client_open_conf(
    const struct conf *conf, int stop_fd, struct batch_client **out, struct err *e)
{
    struct batch_client_options o = {
        .url = conf->batch_url,
        .token = conf->batch_token,
        .ca_file = conf->batch_ca_file,
        .timeout_ms = conf->batch_timeout_ms,
        .stop_fd = stop_fd,
    };
    return batch_client_open(&o, out, e);
}

void batch_client_close(struct batch_client *c)
{
    if (c == NULL)
        return;
    http_close(c->http);
    explicit_bzero(c->token, strlen(c->token));
    free(c->token);
    free(c->url);
    free(c);
}

/* --- what came of a call ---------------------------------------------------------------------- */

static bool changes(enum kind kind)
{
    return kind == CREATE || kind == CANCEL;
}

static enum batch_outcome outcome_of(enum kind kind, int status)
{
    switch (status) {
    case UNAUTHORIZED:
    case FORBIDDEN:
        return BATCH_DENIED;
    case NOT_FOUND:
        return kind == GET || kind == CANCEL ? BATCH_NOT_FOUND : BATCH_DENIED;
    case NO_METHOD:
        return BATCH_DENIED;
    case CONFLICT:
        return BATCH_CONFLICT;
    case TOO_EARLY:
    case TOO_MANY:
        return BATCH_BUSY;
    default:
        break;
    }
    switch (http_classify(status)) {
    case HTTP_CLASS_OK:
        return BATCH_DONE;
    case HTTP_CLASS_RETRY:
        return changes(kind) ? BATCH_UNSURE : BATCH_UNREACHABLE;
    case HTTP_CLASS_REFUSED:
    default:
        /* 3xx: the URL leads elsewhere. */
        return status < 400 ? BATCH_DENIED : BATCH_REFUSED;
    }
}

static enum err_code code_of(enum batch_outcome o)
{
    static const enum err_code CODES[BATCH_OUTCOME__COUNT] = {
        [BATCH_DONE] = ERR_OK,
        [BATCH_REFUSED] = ERR_INVALID,
        [BATCH_NOT_FOUND] = ERR_NOT_FOUND,
        [BATCH_CONFLICT] = ERR_CONFLICT,
        [BATCH_DENIED] = ERR_FORBIDDEN,
        [BATCH_BUSY] = ERR_UNAVAILABLE,
        [BATCH_UNREACHABLE] = ERR_UNAVAILABLE,
        [BATCH_UNSURE] = ERR_UNAVAILABLE,
        [BATCH_STOPPED] = ERR_UNAVAILABLE,
    };
    return CODES[o];
}

static enum batch_outcome outcome_without_answer(enum kind kind, const struct http_answer *a)
{
    if (a->stopped)
        return BATCH_STOPPED;
    return changes(kind) && a->sent == HTTP_SENT ? BATCH_UNSURE : BATCH_UNREACHABLE;
}

/* What is asked, and what the answer must be about ("": whatever). */
struct question {
    enum kind kind;
    const char *path;
    json_object *body;
    const char *id;
    const char *job_id;
};

/* One call. 0 with the answer's JSON (may be NULL); -1 with note and e. */
static int call(struct batch_client *c, const struct question *q, json_object **out,
    struct batch_note *note, struct err *e)
{
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    cleanup_json json_object *o = NULL;
    char url[URL_SIZE];
    char text[TEXT_SIZE];
    struct http_request r = {
        .method = changes(q->kind) ? "POST" : "GET",
        .url = url,
        .auth = c->token[0] == '\0' ? HTTP_AUTH_NONE : HTTP_AUTH_BEARER,
        .secret = c->token,
        .once = q->kind == CREATE,
    };
    *note = (struct batch_note)BATCH_NOTE_INIT;
    note->outcome = BATCH_UNREACHABLE;
    if (!http_url(url, sizeof url, c->url, q->path))
        return err_set(e, ERR_INVALID, "batch service: the URL is too long");
    int result = http_json(c->http, &r, q->body, &a, &o, e);
    note->status = a.status;
    note->again_ms = a.retry_after_ms < AGAIN_MAX_MS ? a.retry_after_ms : AGAIN_MAX_MS;
    (void)str_copy(note->request_id, sizeof note->request_id, a.request_id);
    if (result < 0) {
        note->outcome = outcome_without_answer(q->kind, &a);
        return err_wrap(e, "batch service");
    }
    note->outcome = outcome_of(q->kind, a.status);
    if (note->outcome == BATCH_DONE) {
        *out = STEAL(o);
        return 0;
    }
    http_error_text(o, c->token, text, sizeof text);
    return err_set(e, code_of(note->outcome), "batch service: %d %s", a.status, text);
}

/* An answer that makes no sense: what the call was for may have been done. */
static int nonsense(enum kind kind, const char *why, struct batch_note *note, struct err *e)
{
    note->outcome = changes(kind) ? BATCH_UNSURE : BATCH_UNREACHABLE;
    return err_set(e, ERR_INTERNAL, "batch service: %s", why);
}

static bool differs(const char *wanted, const char *told)
{
    return wanted[0] != '\0' && told[0] != '\0' && strcmp(wanted, told) != 0;
}

/* A call whose answer is a batch. */
static int call_for_batch(struct batch_client *c, const struct question *q, struct batch *out,
    struct batch_note *note, struct err *e)
{
    cleanup_json json_object *o = NULL;
    cleanup_batch struct batch b = BATCH_INIT;
    if (call(c, q, &o, note, e) < 0)
        return -1;
    if (batch_read(o, &b, NULL) < 0)
        return nonsense(q->kind, "the answer is about no batch", note, e);
    if (differs(q->id, b.id) || differs(q->job_id, b.job_id))
        return nonsense(q->kind, "the answer is about another batch", note, e);
    *out = b;
    b.error = NULL;
    return 0;
}

/* --- verbs ------------------------------------------------------------------------------------ */

/* Borrowed parts are counted once more; empty ones are left out. */
static void set_part(json_object *o, const char *key, json_object *part)
{
    if (part != NULL && json_object_object_length(part) > 0)
        jx_set(o, key, json_object_get(part));
}

static json_object *template_of(const struct batch_create *r)
{
    json_object *o = jx_object();
    jx_set_some(o, "name", r->template_name);
    jx_set_some(o, "version", r->template_version);
    set_part(o, "spec", r->template_spec);
    return o;
}

static json_object *extension_of(const struct batch_create *r)
{
    cleanup_json json_object *template = template_of(r);
    json_object *o = jx_object();
    jx_set_some(o, "job_id", r->job_id);
    set_part(o, "runtime", r->runtime);
    set_part(o, "resource_allocation", r->resource_allocation);
    set_part(o, "model_template", template);
    set_part(o, "profile", r->profile);
    jx_set_some(o, "model", r->model);
    set_part(o, "client", r->client);
    return o;
}

int batch_client_create(struct batch_client *c, const struct batch_create *r, struct batch *out,
    struct batch_note *note, struct err *e)
{
    cleanup_json json_object *body = jx_object();
    cleanup_json json_object *extension = extension_of(r);
    const struct question q = {
        .kind = CREATE, .path = "v1/batches", .body = body, .id = "", .job_id = r->job_id
    };
    jx_set_str(body, "input_file_id", r->input_file_id);
    jx_set_str(body, "endpoint", r->endpoint);
    jx_set_some(body, "completion_window", r->completion_window);
    set_part(body, "metadata", r->metadata);
    set_part(body, "output_expires_after", r->output_expires_after);
    set_part(body, "aibrix", extension);
    return call_for_batch(c, &q, out, note, e);
}

/* v1/batches/{id} and what follows it. */
static void one_path(struct buf *path, const char *id, const char *suffix)
{
    buf_puts(path, "v1/batches/");
    http_url_escape(path, id);
    buf_puts(path, suffix);
}

int batch_client_get(struct batch_client *c, const char *id, struct batch *out,
    struct batch_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_SIZE);
    one_path(&path, id, "");
    const struct question q = { .kind = GET, .path = path.data, .id = id, .job_id = "" };
    return call_for_batch(c, &q, out, note, e);
}

int batch_client_cancel(struct batch_client *c, const char *id, struct batch *out,
    struct batch_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_SIZE);
    one_path(&path, id, "/cancel");
    const struct question q = { .kind = CANCEL, .path = path.data, .id = id, .job_id = "" };
    return call_for_batch(c, &q, out, note, e);
}

/* --- search ----------------------------------------------------------------------------------- */

void batch_search_fini(struct batch_search *s)
{
    for (size_t i = 0; i < s->n; i++)
        batch_fini(&s->batch[i]);
    free(s->batch);
    s->batch = NULL;
    s->n = 0;
}

/* Takes what is the job's. True once the search is over: a batch is older than it looks for. */
static bool take_page(json_object *data, struct batch_search *s, char last[BATCH_ID_SIZE])
{
    size_t n = json_object_array_length(data);
    bool old = false;
    for (size_t i = 0; i < n; i++) {
        cleanup_batch struct batch b = BATCH_INIT;
        if (batch_read(json_object_array_get_idx(data, i), &b, NULL) < 0)
            continue; /* what makes no sense is no batch of ours */
        (void)str_copy(last, BATCH_ID_SIZE, b.id);
        old |= b.times.created_at > 0 && b.times.created_at < s->since - CLOCKS_DIFFER_S;
        if (b.job_id[0] == '\0' || (s->job_id != NULL && strcmp(b.job_id, s->job_id) != 0))
            continue;
        s->batch = mem_resize(s->batch, s->n + 1, sizeof *s->batch);
        s->batch[s->n++] = b;
        b.error = NULL;
    }
    return old;
}

/* The page after the one that ended with `last`: 1 there is one, 0 there is none. */
static int turn_page(
    json_object *o, struct batch_search *s, char last[BATCH_ID_SIZE], const char **why)
{
    const char *told = NULL;
    bool more = false;
    (void)jx_get_bool(o, "has_more", &more);
    if (!more)
        return 0;
    if (jx_get_str(o, "last_id", &told) && strlen(told) < BATCH_ID_SIZE)
        (void)str_copy(last, BATCH_ID_SIZE, told); /* also past entries that make no sense */
    if (last[0] == '\0' || strcmp(last, s->after) == 0 || s->pages + 1 >= PAGES_MAX) {
        *why = "the list of batches has no end";
        return -1;
    }
    s->pages++;
    (void)str_copy(s->after, sizeof s->after, last);
    return 1;
}

int batch_client_find(
    struct batch_client *c, struct batch_search *s, struct batch_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_SIZE);
    cleanup_json json_object *o = NULL;
    char last[BATCH_ID_SIZE] = "";
    const char *why = NULL;
    const size_t had = s->n;
    buf_puts(&path, "v1/batches?limit=100");
    if (s->after[0] != '\0') {
        buf_puts(&path, "&after=");
        http_url_escape(&path, s->after);
    }
    const struct question q = { .kind = LIST, .path = path.data, .id = "", .job_id = "" };
    if (call(c, &q, &o, note, e) < 0)
        return -1;
    json_object *data = jx_get(o, "data");
    if (!json_object_is_type(data, json_type_array))
        return nonsense(LIST, "the answer is no list of batches", note, e);
    if (take_page(data, s, last) || json_object_array_length(data) == 0)
        return 0;
    int more = turn_page(o, s, last, &why);
    if (more >= 0)
        return more;
    while (s->n > had)
        batch_fini(&s->batch[--s->n]);
    return nonsense(LIST, why, note, e);
}

int batch_client_files(struct batch_client *c, const char *query, json_object **out,
    struct batch_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_SIZE);
    cleanup_json json_object *o = NULL;
    buf_puts(&path, "v1/files");
    if (!str_empty(query))
        buf_printf(&path, "?%s", query);
    const struct question q = { .kind = LIST, .path = path.data, .id = "", .job_id = "" };
    if (path.overflow)
        return err_set(e, ERR_INVALID, "the query is too long");
    if (call(c, &q, &o, note, e) < 0)
        return -1;
    if (!json_object_is_type(jx_get(o, "data"), json_type_array))
        return nonsense(LIST, "the answer is no list of files", note, e);
    *out = STEAL(o);
    return 0;
}
