/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/console_json.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "handlers/job_parts.h"
#include "handlers/json_text.h"
#include "model/job_status.h"

void console_set_int64(json_object *o, const char *key, int64_t n)
{
    char digits[24];
    (void)str_format(digits, sizeof(digits), "%" PRId64, n);
    jx_set_str(o, key, digits);
}

static void set_seconds(json_object *o, const char *key, int64_t us)
{
    console_set_int64(o, key, us / US_PER_S);
}

static void set_json_text(json_object *o, const char *key, json_object *value)
{
    cleanup_buf struct buf text = BUF_INIT(4 << 20);
    jx_print(value, &text);
    jx_set_str(o, key, text.data);
}

static void set_states(json_object *o, const struct job *j, const struct job_parts *p)
{
    static const struct {
        const char *key;
        enum job_state state;
    } STATES[] = {
        { "finalizingAt", JOB_FINALIZING },
        { "completedAt", JOB_COMPLETED },
        { "failedAt", JOB_FAILED },
        { "expiredAt", JOB_EXPIRED },
        { "cancellingAt", JOB_CANCELLING },
        { "cancelledAt", JOB_CANCELLED },
    };
    set_seconds(o, "createdAt", j->created_us);
    console_set_int64(o, "inProgressAt", job_entered_s(j, p, JOB_IN_PROGRESS));
    set_seconds(o, "expiresAt", j->expires_us);
    for (size_t i = 0; i < sizeof(STATES) / sizeof(STATES[0]); i++)
        console_set_int64(o, STATES[i].key, job_entered_s(j, p, STATES[i].state));
}

static void set_numbers(
    json_object *o, const struct job_parts *p, const struct job_progress *progress)
{
    struct job_counts counts;
    struct job_usage usage;
    job_numbers(p, progress, &counts, &usage);
    json_object *c = counts.known ? jx_object() : NULL;
    json_object *u = usage.known ? jx_object() : NULL;
    if (c != NULL) {
        jx_set_int(c, "total", counts.total);
        jx_set_int(c, "completed", counts.completed);
        jx_set_int(c, "failed", counts.failed);
    }
    if (u != NULL) {
        console_set_int64(u, "inputTokens", usage.input);
        console_set_int64(u, "outputTokens", usage.output);
        console_set_int64(u, "totalTokens", usage.total);
    }
    jx_set(o, "requestCounts", c);
    jx_set(o, "usage", u);
}

/* Namespace to compact JSON text. */
static json_object *extra_body(json_object *request)
{
    json_object *out = jx_object();
    json_object *extra = job_part(request, "extra_body", json_type_object);
    if (extra == NULL)
        return out;
    json_object_object_foreach(extra, name, value)
    {
        cleanup_buf struct buf text = BUF_INIT(1 << 20);
        jx_print(value, &text);
        json_object_object_add(out, name, json_object_new_string(text.data));
    }
    return out;
}

static json_object *errors(const struct job *j, const struct job_parts *p)
{
    json_object *list = job_errors(j, p);
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        json_object *o = json_object_array_get_idx(list, i);
        char digits[24];
        int64_t line = 0;
        (void)jx_get_int(o, "line", &line);
        (void)str_format(digits, sizeof(digits), "%" PRId64, line);
        json_object_object_add(o, "line", json_object_new_string(digits)); /* replaces the number */
    }
    return list;
}

static json_object *template_ref(json_object *request)
{
    json_object *t = job_part(request, "model_template", json_type_object);
    if (t == NULL)
        return NULL;
    json_object *o = jx_object();
    jx_set_str(o, "name", job_part_text(t, "name"));
    jx_set_str(o, "version", job_part_text(t, "version"));
    set_json_text(o, "rawJson", t);
    return o;
}

static json_object *details_of(const struct provision *p)
{
    json_object *o = NULL;
    struct err ignored = ERR_INIT;
    if (str_empty(p->details_json) ||
        jx_parse(p->details_json, strlen(p->details_json), 4 << 20, &o, &ignored) < 0)
        return jx_object();
    return o;
}

/* One line for each kind of machine: what the UI shows as GPUs. */
static json_object *resource_details(const struct provision *p)
{
    json_object *out = jx_array();
    cleanup_json json_object *spec = NULL;
    struct err ignored = ERR_INIT;
    int64_t replicas = 1;
    if (str_empty(p->spec_json) ||
        jx_parse(p->spec_json, strlen(p->spec_json), 4 << 20, &spec, &ignored) < 0)
        return out;
    (void)jx_get_int(spec, "replicas", &replicas);
    json_object *o = jx_object();
    json_set_text(o, "endpointCluster", p->region);
    jx_set_str(o, "gpuType", job_part_text(spec, "gpu_type"));
    jx_set_int(o, "replica", replicas);
    jx_set(o, "extra", jx_object());
    jx_add(out, o);
    return out;
}

static json_object *allocation(const struct provision *p)
{
    if (p == NULL || p->starts_us == 0)
        return NULL;
    cleanup_json json_object *details = details_of(p);
    json_object *o = jx_object();
    json_set_text(o, "provisionId", p->id);
    set_seconds(o, "provisionResourceDeadline", p->ends_us);
    jx_set(o, "resourceDetails", resource_details(p));
    set_json_text(o, "rawJson", details);
    return o;
}

json_object *console_provision(const struct provision *p)
{
    cleanup_json json_object *details = details_of(p);
    char job[JOB_WIRE_ID_SIZE];
    json_object *o = jx_object();
    job_wire_id(p->job_id, job);
    json_set_text(o, "provisionId", p->id);
    json_set_text(o, "provider", p->provider);
    json_set_text(o, "idempotencyKey", p->key);
    json_set_text(o, "status", p->status);
    json_set_text(o, "region", p->region);
    json_set_text(o, "errorMessage", p->error);
    set_seconds(o, "createdAt", p->created_us);
    set_seconds(o, "updatedAt", p->updated_us);
    set_json_text(o, "rawJson", details);
    jx_set_str(o, "jobId", job);
    json_set_text(o, "pool", p->pool);
    return o;
}

/* The trail in the shape that the UI's time line reads. */
static json_object *time_line(const struct job_history *h)
{
    json_object *out = jx_array();
    for (size_t i = 0; h != NULL && i < h->n; i++) {
        const struct job_happening *step = &h->happening[i];
        const char *status = job_console_status(step->to);
        const bool theirs = job_category(step->to) == JOB_RUNNING || step->to == JOB_COMPLETED;
        char id[48];
        json_object *o = jx_object();
        (void)str_format(id, sizeof(id), "%s-%zu", job_state_name(step->to), i);
        jx_set_str(o, "id", id);
        jx_set_str(o, "label", job_state_name(step->to));
        jx_set_str(o, "status", status);
        jx_set_str(o, "source", theirs ? "mds" : "planner");
        set_seconds(o, "at", step->at_us);
        jx_set_str(o, "message", job_event_name(step->event));
        jx_add(out, o);
    }
    return out;
}

static void set_outcome(
    json_object *o, const struct job *j, const struct job_parts *p, const struct console_extras *x)
{
    json_object *t = job_part(p->request, "model_template", json_type_object);
    jx_set(o, "metadata", job_part_copy(p->request, "metadata"));
    jx_set(o, "extraBody", extra_body(p->request));
    jx_set(o, "errors", errors(j, p));
    jx_set_null(o, "runtime");
    jx_set(o, "resourceAllocation", allocation(x->provision));
    jx_set(o, "modelTemplateRef", template_ref(p->request));
    jx_set_null(o, "profile");
    json_set_text(o, "name", j->name);
    json_set_text(o, "createdBy", j->created_by);
    jx_set_str(o, "modelTemplateName", job_part_text(t, "name"));
    jx_set_str(o, "modelTemplateVersion", job_part_text(t, "version"));
    json_set_text(o, "batchId", j->batch_id);
    json_set_text(o, "provisionId", x->provision == NULL ? "" : x->provision->id);
    json_set_text(o, "errorMessage", j->error);
}

static void set_planning(json_object *o, const struct job *j, const struct console_extras *x)
{
    set_seconds(o, "queuedAt", j->stamp_us[JOB_QUEUED]);
    set_seconds(o, "resourcePreparingAt", j->stamp_us[JOB_RESOURCE_PREPARING]);
    set_seconds(o, "submittingAt", j->stamp_us[JOB_SUBMITTING]);
    set_seconds(o, "resourceFailedAt", j->stamp_us[JOB_RESOURCE_FAILED]);
    set_seconds(o, "submitFailedAt", j->stamp_us[JOB_SUBMIT_FAILED]);
    set_seconds(o, "cancelRequestedAt", j->cancel_requested_us);
    jx_set(o, "provision", x->provision == NULL ? NULL : console_provision(x->provision));
    jx_set(o, "events", time_line(x->history));
    set_seconds(o, "plannedAt", j->stamp_us[JOB_PLANNED]);
    jx_set_int(o, "attempts", j->attempts);
    jx_set_int(o, "queuePosition", x->queue_position);
    set_seconds(o, "nextAttemptAt", j->state == JOB_QUEUED ? j->not_before_us : 0);
}

json_object *console_job(const struct job *j, const struct console_extras *x)
{
    cleanup_job_parts struct job_parts p = JOB_PARTS_INIT;
    char id[JOB_WIRE_ID_SIZE];
    json_object *o = jx_object();
    job_parts_read(j, &p);
    job_wire_id(j->id, id);
    jx_set_str(o, "id", id);
    jx_set_str(o, "object", "batch");
    json_set_text(o, "endpoint", j->endpoint);
    json_set_text(o, "model", j->model);
    json_set_text(o, "inputDataset", j->input_file);
    json_set_text(o, "completionWindow", j->completion_window);
    jx_set_str(o, "status", job_console_status(j->state));
    jx_set_str(o, "outputDataset", job_part_text(p.batch, "output_file_id"));
    jx_set_str(o, "errorDataset", job_part_text(p.batch, "error_file_id"));
    set_states(o, j, &p);
    set_numbers(o, &p, x->progress);
    set_outcome(o, j, &p, x);
    set_planning(o, j, x);
    return o;
}

json_object *console_history(const struct job_history *h)
{
    json_object *list = jx_array();
    for (size_t i = 0; i < h->n; i++) {
        const struct job_happening *step = &h->happening[i];
        json_object *detail = NULL;
        struct err ignored = ERR_INIT;
        if (!str_empty(step->detail_json))
            (void)!jx_parse(
                step->detail_json, strlen(step->detail_json), 1 << 20, &detail, &ignored);
        json_object *o = jx_object();
        jx_set_str(o, "from", job_state_name(step->from));
        jx_set_str(o, "to", job_state_name(step->to));
        jx_set_str(o, "event", job_event_name(step->event));
        json_set_time(o, "at", step->at_us);
        json_set_text(o, "actor", step->actor);
        console_set_int64(o, "epoch", step->epoch);
        jx_set(o, "detail", detail == NULL ? jx_object() : detail);
        jx_add(list, o);
    }
    json_object *o = jx_object();
    jx_set(o, "events", list);
    return o;
}
