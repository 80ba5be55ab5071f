/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/openai_json.h"

#include "base/clock.h"
#include "handlers/job_parts.h"
#include "handlers/json_text.h"
#include "handlers/openai_list.h"
#include "model/job_status.h"

static void set_when(json_object *o, const char *key, int64_t seconds)
{
    if (seconds > 0)
        jx_set_int(o, key, seconds);
    else
        jx_set_null(o, key);
}

static void set_file(json_object *o, const char *key, const char *id)
{
    jx_set_str(o, key, id[0] == '\0' ? NULL : id);
}

/* null for what is empty or not about a line. */
static json_object *errors(const struct job *j, const struct job_parts *p)
{
    cleanup_json json_object *list = job_errors(j, p);
    const size_t n = json_object_array_length(list);
    if (n == 0)
        return NULL;
    json_object *data = jx_array();
    for (size_t i = 0; i < n; i++) {
        json_object *from = json_object_array_get_idx(list, i);
        json_object *o = jx_object();
        int64_t line = 0;
        jx_set_str(o, "code", job_part_text(from, "code"));
        jx_set_str(o, "message", job_part_text(from, "message"));
        set_file(o, "param", job_part_text(from, "param"));
        (void)jx_get_int(from, "line", &line);
        set_when(o, "line", line);
        jx_add(data, o);
    }
    return openai_list(data);
}

static void set_times(json_object *o, const struct job *j, const struct job_parts *p)
{
    /* Here a job of ours that failed for any reason has failed. */
    int64_t failed_s = job_entered_s(j, p, JOB_FAILED);
    if (failed_s == 0 && (j->state == JOB_RESOURCE_FAILED || j->state == JOB_SUBMIT_FAILED))
        failed_s = j->stamp_us[j->state] / US_PER_S;
    jx_set_int(o, "created_at", j->created_us / US_PER_S);
    set_when(o, "in_progress_at", job_entered_s(j, p, JOB_IN_PROGRESS));
    set_when(o, "expires_at", j->expires_us / US_PER_S);
    set_when(o, "finalizing_at", job_entered_s(j, p, JOB_FINALIZING));
    set_when(o, "completed_at", job_entered_s(j, p, JOB_COMPLETED));
    set_when(o, "failed_at", failed_s);
    set_when(o, "expired_at", job_entered_s(j, p, JOB_EXPIRED));
    set_when(o, "cancelling_at", job_entered_s(j, p, JOB_CANCELLING));
    set_when(o, "cancelled_at", job_entered_s(j, p, JOB_CANCELLED));
}

static json_object *usage_json(const struct job_usage *u)
{
    if (!u->known)
        return NULL;
    json_object *in = jx_object();
    json_object *out = jx_object();
    json_object *o = jx_object();
    jx_set_int(in, "cached_tokens", 0);
    jx_set_int(out, "reasoning_tokens", 0);
    jx_set_int(o, "input_tokens", u->input);
    jx_set(o, "input_tokens_details", in);
    jx_set_int(o, "output_tokens", u->output);
    jx_set(o, "output_tokens_details", out);
    jx_set_int(o, "total_tokens", u->total);
    return o;
}

static void set_numbers(
    json_object *o, const struct job_parts *p, const struct job_progress *progress)
{
    struct job_counts counts;
    struct job_usage usage;
    job_numbers(p, progress, &counts, &usage);
    json_object *c = jx_object();
    jx_set_int(c, "total", counts.total);
    jx_set_int(c, "completed", counts.completed);
    jx_set_int(c, "failed", counts.failed);
    jx_set(o, "request_counts", c);
    jx_set(o, "usage", usage_json(&usage));
}

/* The real state, for who wants to know. */
static json_object *ours(const struct job *j)
{
    json_object *o = jx_object();
    jx_set_str(o, "state", job_state_name(j->state));
    json_set_text(o, "name", j->name);
    json_set_text(o, "created_by", j->created_by);
    json_set_text(o, "pool", j->pool);
    jx_set_int(o, "attempts", j->attempts);
    json_set_text(o, "batch_id", j->batch_id);
    json_set_time(o, "next_attempt_at", j->state == JOB_QUEUED ? j->not_before_us : 0);
    return o;
}

json_object *openai_batch(const struct job *j, const struct job_progress *progress)
{
    cleanup_job_parts struct job_parts p = JOB_PARTS_INIT;
    char id[JOB_WIRE_ID_SIZE];
    json_object *o = jx_object();
    job_parts_read(j, &p);
    job_wire_id(j->id, id);
    jx_set_str(o, "id", id);
    jx_set_str(o, "object", "batch");
    json_set_text(o, "endpoint", j->endpoint);
    jx_set(o, "errors", errors(j, &p));
    json_set_text(o, "input_file_id", j->input_file);
    json_set_text(o, "completion_window", j->completion_window);
    jx_set_str(o, "status", job_openai_status(j->state));
    set_file(o, "output_file_id", job_part_text(p.batch, "output_file_id"));
    set_file(o, "error_file_id", job_part_text(p.batch, "error_file_id"));
    set_times(o, j, &p);
    set_numbers(o, &p, progress);
    jx_set(o, "metadata", job_part_copy(p.request, "metadata"));
    set_file(o, "model", j->model);
    jx_set(o, "weighbridge", ours(j));
    return o;
}
