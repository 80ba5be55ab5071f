/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "handlers/openai_error.h"

/* What both dialects do alike, and how each says that something failed. */

enum { NUMBER_SIZE = 24, ID_SIZE = 128, REFUSAL_SIZE = 1024 };

int jobs_path_id(const struct web_req *req, char uuid[UUID_SIZE], struct err *e)
{
    const char *id = web_param(req, "id");
    if (!job_wire_id_parse(id, uuid))
        return err_set(e, ERR_NOT_FOUND, "there is no job %.64s", id);
    return 0;
}

int jobs_may_act(const struct web_req *req, const struct job *j, struct err *e)
{
    if (req->caller.role == ROLE_ADMIN || j->created_by[0] == '\0' ||
        strcmp(j->created_by, req->caller.subject) == 0)
        return 0;
    return err_set(e, ERR_FORBIDDEN, "only the job owner can cancel this batch");
}

struct job_progress *jobs_progress(const struct web_req *req, const struct jobs *j)
{
    struct job_progress *out = mem_calloc(j->n + 1, sizeof(*out));
    const char *ids[JOB_PROGRESS_BATCH];
    struct job_progress found[JOB_PROGRESS_BATCH];
    size_t at[JOB_PROGRESS_BATCH];
    size_t n = 0;
    struct err ignored = ERR_INIT;
    for (size_t i = 0; i < j->n && n < JOB_PROGRESS_BATCH; i++) {
        if (job_is_terminal(j->job[i].state) || j->job[i].batch_id[0] == '\0')
            continue; /* the end of a job is in its row */
        at[n] = i;
        ids[n++] = j->job[i].id;
    }
    if (n == 0 || job_progress_get(req->kv, ids, n, found, &ignored) < 0)
        return out;
    for (size_t i = 0; i < n; i++)
        out[at[i]] = found[i];
    return out;
}

int jobs_query_int(
    const struct web_req *req, const char *name, int64_t dflt, int64_t *out, struct err *e)
{
    char text[NUMBER_SIZE];
    const int absent = web_query(req, name, text, sizeof(text), e);
    if (absent < 0)
        return -1;
    *out = dflt;
    if (absent == 1 || text[0] == '\0')
        return 0;
    if (str_to_i64(text, INT32_MIN, INT32_MAX, out) < 0)
        return err_set(e, ERR_INVALID, "%s: must be a whole number", name);
    return 0;
}

int jobs_query_after(const struct web_req *req, char uuid[UUID_SIZE], struct err *e)
{
    char text[ID_SIZE];
    const int absent = web_query(req, "after", text, sizeof(text), e);
    if (absent != 0)
        return absent;
    if (text[0] == '\0')
        return 1;
    if (!job_wire_id_parse(text, uuid))
        return err_set(e, ERR_INVALID, "after: there is no job %.64s", text);
    return 0;
}

void jobs_wake(struct web_req *req, const char *reason)
{
    struct err ignored = ERR_INIT; /* a hint: the planners look by themselves too */
    (void)!planner_wake(req->kv, reason, &ignored);
}

/* --- failures --- */

/* google.rpc.Code */
static int grpc_code(enum err_code code)
{
    static const int CODE[ERR__COUNT] = {
        [ERR_OK] = 13,
        [ERR_INVALID] = 3,
        [ERR_UNAUTHENTICATED] = 16,
        [ERR_FORBIDDEN] = 7,
        [ERR_NOT_FOUND] = 5,
        [ERR_METHOD] = 12,
        [ERR_CONFLICT] = 10,
        [ERR_NO_LENGTH] = 3,
        [ERR_TOO_LARGE] = 3,
        [ERR_MEDIA_TYPE] = 3,
        [ERR_TIMEOUT] = 14,
        [ERR_UNAVAILABLE] = 14,
        [ERR_MISMATCH] = 3,
        [ERR_NO_ROOM] = 8,
        [ERR_NOT_DONE] = 13,
        [ERR_INTERNAL] = 13,
    };
    return CODE[code];
}

static json_object *console_error(const struct err *e)
{
    json_object *o = jx_object();
    jx_set_int(o, "code", grpc_code(e->code));
    jx_set_str(o, "message", reply_error_text(e));
    jx_set(o, "details", jx_array());
    return o;
}

/* Of what the guard of files answers nginx passes on only headers. */
static void repeat_in_header(struct web_reply *reply)
{
    size_t size = 0;
    const char *body = reply_bytes(reply, &size);
    char line[REFUSAL_SIZE];
    if (size >= sizeof(line))
        return; /* nginx has words of its own */
    for (size_t i = 0; i < size; i++) {
        if (body[i] < ' ' || body[i] > '~')
            return;
    }
    (void)str_format(line, sizeof(line), "%.*s", (int)size, body);
    reply_line(reply, "WB-Refusal", line);
}

static const char *dialect_of(const struct web_req *req)
{
    if (str_starts(req->uri, "/internal/")) {
        const char *named = fcgi_env(req->fcgi, "WB_DIALECT");
        return named == NULL ? "" : named;
    }
    return str_starts(req->uri, "/v1/")       ? "openai"
           : str_starts(req->uri, "/api/v1/") ? "console"
                                              : "";
}

void jobs_fail(const struct web_req *req, struct web_reply *reply, const struct err *e)
{
    const char *dialect = dialect_of(req);
    if (strcmp(dialect, "openai") == 0) {
        /* What stands against a request does so the second time too. */
        reply->final = e->code == ERR_CONFLICT;
        reply_failure(reply, e->code, openai_error(e));
    } else if (strcmp(dialect, "console") == 0) {
        reply_failure(reply, e->code, console_error(e));
    } else {
        reply_error(reply, e, req->request_id);
    }
    if (str_starts(req->uri, "/internal/"))
        repeat_in_header(reply);
}
