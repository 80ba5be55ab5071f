/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/job_parts.h"

#include <string.h>

#include "base/clock.h"
#include "base/str.h"

enum { STORED_MAX = 4 << 20 };

static json_object *parsed(const char *text)
{
    json_object *o = NULL;
    struct err ignored = ERR_INIT;
    if (!str_empty(text) && jx_parse(text, strlen(text), STORED_MAX, &o, &ignored) == 0) {
        if (json_object_is_type(o, json_type_object))
            return o;
        json_object_put(o);
    }
    return jx_object();
}

void job_parts_read(const struct job *j, struct job_parts *out)
{
    out->request = parsed(j->request_json);
    out->batch = parsed(j->batch_json);
}

void job_parts_free(struct job_parts *p)
{
    json_object_put(p->request);
    json_object_put(p->batch);
    *p = (struct job_parts)JOB_PARTS_INIT;
}

json_object *job_part(json_object *o, const char *key, enum json_type type)
{
    json_object *member = NULL;
    if (o == NULL || !json_object_object_get_ex(o, key, &member))
        return NULL;
    return json_object_is_type(member, type) ? member : NULL;
}

const char *job_part_text(json_object *o, const char *key)
{
    const char *text = "";
    return o != NULL && jx_get_str(o, key, &text) ? text : "";
}

json_object *job_part_copy(json_object *o, const char *key)
{
    json_object *copy = NULL;
    json_object *member = job_part(o, key, json_type_object);
    if (member == NULL || json_object_deep_copy(member, &copy, NULL) != 0)
        return jx_object();
    return copy;
}

/* What the batch service calls the moment in which a state began. */
static const char *batch_stamp(enum job_state s)
{
    static const char *const NAME[JOB_STATE__COUNT] = {
        [JOB_IN_PROGRESS] = "in_progress_at",
        [JOB_FINALIZING] = "finalizing_at",
        [JOB_COMPLETED] = "completed_at",
        [JOB_FAILED] = "failed_at",
        [JOB_EXPIRED] = "expired_at",
        [JOB_CANCELLED] = "cancelled_at",
    };
    return NAME[s];
}

int64_t job_entered_s(const struct job *j, const struct job_parts *p, enum job_state s)
{
    int64_t told_s = 0;
    const char *name = batch_stamp(s);
    if (name != NULL && jx_get_int(p->batch, name, &told_s) && told_s > 0)
        return told_s;
    return j->stamp_us[s] / US_PER_S;
}

static bool read_counts(json_object *batch, struct job_counts *out)
{
    json_object *o = job_part(batch, "request_counts", json_type_object);
    struct job_counts c = { .known = o != NULL };
    if (o == NULL)
        return false;
    (void)jx_get_int(o, "total", &c.total);
    (void)jx_get_int(o, "completed", &c.completed);
    (void)jx_get_int(o, "failed", &c.failed);
    *out = c;
    return true;
}

static bool read_usage(json_object *batch, struct job_usage *out)
{
    json_object *o = job_part(batch, "usage", json_type_object);
    struct job_usage u = { .known = o != NULL };
    if (o == NULL)
        return false;
    (void)jx_get_int(o, "input_tokens", &u.input);
    (void)jx_get_int(o, "output_tokens", &u.output);
    (void)jx_get_int(o, "total_tokens", &u.total);
    *out = u;
    return true;
}

void job_numbers(const struct job_parts *p, const struct job_progress *progress,
    struct job_counts *counts, struct job_usage *usage)
{
    int64_t announced = 0;
    *counts = (struct job_counts){ .known = false };
    *usage = (struct job_usage){ .known = false };
    if (!read_counts(p->batch, counts) &&
        jx_get_int(p->request, "request_count_total", &announced) && announced > 0)
        *counts = (struct job_counts){ .known = true, .total = announced };
    (void)read_usage(p->batch, usage);
    if (progress == NULL || !progress->known)
        return;
    if (progress->completed + progress->failed >= counts->completed + counts->failed)
        *counts =
            (struct job_counts){ true, progress->total, progress->completed, progress->failed };
    if (progress->total_tokens >= usage->total && progress->total_tokens > 0)
        *usage = (struct job_usage){ true, progress->input_tokens, progress->output_tokens,
            progress->total_tokens };
}

static void add_error(
    json_object *to, const char *code, const char *message, const char *param, int64_t line)
{
    json_object *o = jx_object();
    jx_set_str(o, "code", code);
    jx_set_str(o, "message", message);
    jx_set_str(o, "param", param);
    jx_set_int(o, "line", line);
    jx_add(to, o);
}

static bool failed_here(const struct job *j)
{
    return j->state == JOB_RESOURCE_FAILED || j->state == JOB_SUBMIT_FAILED;
}

json_object *job_errors(const struct job *j, const struct job_parts *p)
{
    json_object *out = jx_array();
    json_object *told = job_part(p->batch, "errors", json_type_array);
    const size_t n = told == NULL ? 0 : json_object_array_length(told);
    /* What a client of OpenAI looks at first is the real state. */
    if (failed_here(j))
        add_error(out, job_state_name(j->state), j->error, "", 0);
    else if (n == 0 && j->error_code[0] != '\0')
        add_error(out, j->error_code, j->error, "", 0);
    for (size_t i = 0; i < n; i++) {
        json_object *o = json_object_array_get_idx(told, i);
        int64_t line = 0;
        if (!json_object_is_type(o, json_type_object))
            continue;
        (void)jx_get_int(o, "line", &line);
        add_error(out, job_part_text(o, "code"), job_part_text(o, "message"),
            job_part_text(o, "param"), line > 0 ? line : 0);
    }
    return out;
}
