/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "batch/batch_client.h"
#include "http/http.h"
#include "json/jx.h"

#define SECONDS_MAX INT64_C(253402300799) /* the end of the year 9999 */

/* A name of something: all of it, or "" when it is too long or would not print. */
static void read_name(json_object *o, const char *key, char *out, size_t size)
{
    const char *text = NULL;
    out[0] = '\0';
    if (!jx_get_str(o, key, &text))
        return;
    http_quote(out, size, text, NULL);
    if (strcmp(out, text) != 0)
        out[0] = '\0';
}

static void read_text(json_object *o, const char *key, char *out, size_t size)
{
    const char *text = "";
    (void)jx_get_str(o, key, &text);
    http_quote(out, size, text, NULL);
}

static int64_t read_whole(json_object *o, const char *key, int64_t max)
{
    int64_t n = 0;
    return jx_get_int(o, key, &n) && n >= 0 && n <= max ? n : 0;
}

/* Some services tell fractions of seconds. */
static int64_t read_seconds(json_object *o, const char *key)
{
    double n = 0;
    return jx_get_double(o, key, &n) && n > 0 && n <= (double)SECONDS_MAX ? (int64_t)n : 0;
}

static void read_times(json_object *o, struct batch_times *out)
{
    out->created_at = read_seconds(o, "created_at");
    out->in_progress_at = read_seconds(o, "in_progress_at");
    out->expires_at = read_seconds(o, "expires_at");
    out->finalizing_at = read_seconds(o, "finalizing_at");
    out->completed_at = read_seconds(o, "completed_at");
    out->failed_at = read_seconds(o, "failed_at");
    out->expired_at = read_seconds(o, "expired_at");
    out->cancelling_at = read_seconds(o, "cancelling_at");
    out->cancelled_at = read_seconds(o, "cancelled_at");
}

static void read_counts(json_object *o, struct batch_counts *out)
{
    int64_t total = 0;
    out->known = jx_get_int(o, "total", &total) && total >= 0;
    out->total = out->known ? total : 0;
    out->completed = read_whole(o, "completed", INT64_MAX);
    out->failed = read_whole(o, "failed", INT64_MAX);
}

static void read_usage(json_object *o, struct batch_usage *out)
{
    out->known = json_object_is_type(o, json_type_object);
    out->input_tokens = read_whole(o, "input_tokens", INT64_MAX);
    out->output_tokens = read_whole(o, "output_tokens", INT64_MAX);
    out->total_tokens = read_whole(o, "total_tokens", INT64_MAX);
    out->cached_tokens = read_whole(jx_get(o, "input_tokens_details"), "cached_tokens", INT64_MAX);
    out->reasoning_tokens =
        read_whole(jx_get(o, "output_tokens_details"), "reasoning_tokens", INT64_MAX);
}

/* {"object":"list","data":[...]}, or the list alone. */
static void read_errors(json_object *o, struct batch *out)
{
    json_object *data = json_object_is_type(o, json_type_array) ? o : jx_get(o, "data");
    if (!json_object_is_type(data, json_type_array))
        return;
    size_t n = json_object_array_length(data);
    n = n < BATCH_ERRORS_MAX ? n : BATCH_ERRORS_MAX;
    out->error = mem_kept(mem_calloc(n, sizeof *out->error));
    for (size_t i = 0; i < n; i++) {
        json_object *entry = json_object_array_get_idx(data, i);
        struct batch_error *error = &out->error[out->errors];
        if (!json_object_is_type(entry, json_type_object))
            continue;
        read_text(entry, "code", error->code, sizeof error->code);
        read_text(entry, "message", error->message, sizeof error->message);
        read_text(entry, "param", error->param, sizeof error->param);
        error->line = read_whole(entry, "line", INT64_MAX);
        out->errors++;
    }
}

int batch_read(json_object *o, struct batch *out, struct err *e)
{
    struct batch b = BATCH_INIT;
    read_name(o, "id", b.id, sizeof b.id);
    if (b.id[0] == '\0')
        return err_set(e, ERR_INTERNAL, "the answer is about no batch");
    read_name(jx_get(o, "aibrix"), "job_id", b.job_id, sizeof b.job_id);
    read_text(o, "status", b.status_word, sizeof b.status_word);
    b.status = batch_status_parse(b.status_word);
    read_name(o, "input_file_id", b.input_file_id, sizeof b.input_file_id);
    read_name(o, "output_file_id", b.output_file_id, sizeof b.output_file_id);
    read_name(o, "error_file_id", b.error_file_id, sizeof b.error_file_id);
    read_times(o, &b.times);
    read_counts(jx_get(o, "request_counts"), &b.counts);
    read_usage(jx_get(o, "usage"), &b.usage);
    read_errors(jx_get(o, "errors"), &b);
    *out = b;
    return 0;
}
