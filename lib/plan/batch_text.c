/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/batch_text.h"

#include "base/str.h"
#include "json/jx.h"

static void set_text(json_object *o, const char *key, const char *text)
{
    if (!str_empty(text))
        jx_set_str(o, key, text);
}

static void set_time(json_object *o, const char *key, int64_t seconds)
{
    if (seconds > 0)
        jx_set_int(o, key, seconds);
}

static void set_times(json_object *o, const struct batch_times *t)
{
    set_time(o, "created_at", t->created_at);
    set_time(o, "in_progress_at", t->in_progress_at);
    set_time(o, "expires_at", t->expires_at);
    set_time(o, "finalizing_at", t->finalizing_at);
    set_time(o, "completed_at", t->completed_at);
    set_time(o, "failed_at", t->failed_at);
    set_time(o, "expired_at", t->expired_at);
    set_time(o, "cancelling_at", t->cancelling_at);
    set_time(o, "cancelled_at", t->cancelled_at);
}

static void set_counts(json_object *o, const struct batch_counts *c)
{
    if (!c->known)
        return;
    json_object *counts = jx_object();
    jx_set_int(counts, "total", c->total);
    jx_set_int(counts, "completed", c->completed);
    jx_set_int(counts, "failed", c->failed);
    jx_set(o, "request_counts", counts);
}

static void set_usage(json_object *o, const struct batch_usage *u)
{
    if (!u->known)
        return;
    json_object *usage = jx_object();
    jx_set_int(usage, "input_tokens", u->input_tokens);
    jx_set_int(usage, "output_tokens", u->output_tokens);
    jx_set_int(usage, "total_tokens", u->total_tokens);
    jx_set_int(usage, "cached_tokens", u->cached_tokens);
    jx_set_int(usage, "reasoning_tokens", u->reasoning_tokens);
    jx_set(o, "usage", usage);
}

static void set_errors(json_object *o, const struct batch *b)
{
    if (b->errors == 0)
        return;
    json_object *errors = jx_array();
    for (size_t i = 0; i < b->errors; i++) {
        json_object *one = jx_object();
        jx_set_str(one, "code", b->error[i].code);
        jx_set_str(one, "message", b->error[i].message);
        set_text(one, "param", b->error[i].param);
        set_time(one, "line", b->error[i].line);
        jx_add(errors, one);
    }
    jx_set(o, "errors", errors);
}

void batch_text(const struct batch *b, struct buf *out)
{
    cleanup_json json_object *o = jx_object();

    jx_set_str(o, "status", b->status_word);
    set_times(o, &b->times);
    set_counts(o, &b->counts);
    set_usage(o, &b->usage);
    set_text(o, "output_file_id", b->output_file_id);
    set_text(o, "error_file_id", b->error_file_id);
    set_errors(o, b);
    jx_print(o, out);
}
