/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job_progress.h"

#include <string.h>

#include "base/buf.h"
#include "base/metrics.h"
#include "base/str.h"
#include "json/jx.h"

enum { NAME_SIZE = 64, VALUE_MAX = 1024 };

#define VALUE_PREFIX "wb:1:job:"
#define WAKE_MARK    "wb:1:planner:woken"
#define TTL_S        "60"
#define DEBOUNCE_MS  "100"

_Static_assert(JOB_PROGRESS_TTL_S == 60, "TTL_S says the same");

/* Publishes once in a while: the mark is there while the last hint is fresh. */
static struct kv_script wake_script = {
    .text = "if redis.call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[2]) then\n"
            "  redis.call('PUBLISH', KEYS[2], ARGV[1])\n"
            "  return 1\n"
            "end\n"
            "return 0\n",
};

static int value_name(const char *id, char out[NAME_SIZE], struct err *e)
{
    if (!job_uuid_valid(id))
        return err_set(e, ERR_INTERNAL, "'%s' is no id of a job", id);
    return str_format(out, NAME_SIZE, "%s%s", VALUE_PREFIX, id);
}

int progress_put(struct kv *kv, const char *name, const struct job_progress *p, struct err *e)
{
    cleanup_reply redisReply *reply = NULL;
    cleanup_buf struct buf text = BUF_INIT(VALUE_MAX);
    cleanup_json json_object *o = jx_object();
    jx_set_int(o, "total", p->total);
    jx_set_int(o, "completed", p->completed);
    jx_set_int(o, "failed", p->failed);
    jx_set_int(o, "input_tokens", p->input_tokens);
    jx_set_int(o, "output_tokens", p->output_tokens);
    jx_set_int(o, "total_tokens", p->total_tokens);
    jx_print(o, &text);
    struct kv_arg value = { .data = text.data, .size = text.len };
    return kv_command(kv,
        KV_ARGS(kv_text("SET"), kv_text(name), value, kv_text("EX"), kv_text(TTL_S)), &reply, e);
}

static bool read_count(json_object *o, const char *key, int64_t *out)
{
    return jx_get_int(o, key, out) && *out >= 0;
}

int job_progress_put(struct kv *kv, const char *id, const struct job_progress *p, struct err *e)
{
    char name[NAME_SIZE];
    return value_name(id, name, e) < 0 ? -1 : progress_put(kv, name, p, e);
}

/* What makes no sense is absent, and counted. */
static void read_value(const redisReply *r, struct job_progress *out)
{
    struct job_progress p = { .known = true };
    cleanup_json json_object *o = NULL;
    if (r->type != REDIS_REPLY_STRING)
        return;
    if (jx_parse(r->str, r->len, VALUE_MAX, &o, NULL) == 0 && read_count(o, "total", &p.total) &&
        read_count(o, "completed", &p.completed) && read_count(o, "failed", &p.failed) &&
        read_count(o, "input_tokens", &p.input_tokens) &&
        read_count(o, "output_tokens", &p.output_tokens) &&
        read_count(o, "total_tokens", &p.total_tokens))
        *out = p;
    else
        metric_add(METRIC_OVERLAY_MALFORMED, 1);
}

int progress_get(
    struct kv *kv, const char *const *names, size_t n, struct job_progress *out, struct err *e)
{
    struct kv_arg arg[JOB_PROGRESS_BATCH + 1];
    cleanup_reply redisReply *reply = NULL;
    if (n > JOB_PROGRESS_BATCH)
        return err_set(e, ERR_INTERNAL, "%zu values are asked for at once", n);
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct job_progress){ .known = false };
        arg[i + 1] = kv_text(names[i]);
    }
    if (n == 0)
        return 0;
    arg[0] = kv_text("MGET");
    if (kv_command(kv, (struct kv_args){ arg, n + 1 }, &reply, e) < 0)
        return -1;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != n)
        return err_set(e, ERR_INTERNAL, "redis answered MGET with something else");
    for (size_t i = 0; i < n; i++)
        read_value(reply->element[i], &out[i]);
    return 0;
}

int job_progress_get(
    struct kv *kv, const char *const *ids, size_t n, struct job_progress *out, struct err *e)
{
    char name[JOB_PROGRESS_BATCH][NAME_SIZE];
    const char *names[JOB_PROGRESS_BATCH];
    for (size_t i = 0; i < n && i < JOB_PROGRESS_BATCH; i++) {
        if (value_name(ids[i], name[i], e) < 0)
            return -1;
        names[i] = name[i];
    }
    return progress_get(kv, names, n, out, e);
}

int planner_wake(struct kv *kv, const char *reason, struct err *e)
{
    cleanup_reply redisReply *reply = NULL;
    return kv_script_run(kv, &wake_script, KV_ARGS(kv_text(WAKE_MARK), kv_text(PLANNER_CHANNEL)),
        KV_ARGS(kv_text(reason), kv_text(DEBOUNCE_MS)), &reply, e);
}
