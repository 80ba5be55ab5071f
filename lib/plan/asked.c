/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/asked.h"

#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "json/jx.h"

enum { REQUEST_MAX = 1 << 20, FAULTS_MAX = 4096 };

void asked_fini(struct asked *a)
{
    json_object_put(a->request);
    jobs_free(&a->jobs);
}

json_object *asked_object(json_object *o, const char *key)
{
    json_object *member = NULL;
    if (!json_object_object_get_ex(o, key, &member) ||
        !json_object_is_type(member, json_type_object))
        return NULL;
    return member;
}

void asked_hook(json_object *request, const char *model, struct hook_job *out)
{
    json_object *template = asked_object(request, "model_template");

    *out = (struct hook_job){
        .model = model,
        .spec = template == NULL ? NULL : asked_object(template, "spec"),
        .provider_config = asked_object(request, "provider_config"),
    };
    (void)jx_get_int(request, "replicas", &out->replicas);
}

int asked_get(struct hand *h, const char *id, struct asked *out, struct err *e)
{
    cleanup_asked struct asked a = ASKED_INIT;

    if (job_get(h->db, id, &a.jobs, e) < 0)
        return -1;
    a.job = &a.jobs.job[0];
    if (jx_parse(a.job->request_json, strlen(a.job->request_json), REQUEST_MAX, &a.request, e) < 0)
        return err_set(e, ERR_INTERNAL, "the stored request cannot be read");
    asked_hook(a.request, a.job->model, &a.hook);
    HAND_OVER(out, &a, ((struct asked)ASKED_INIT));
    return 0;
}

static const char *text_of(json_object *o, const char *key)
{
    const char *text = "";
    if (o != NULL)
        (void)jx_get_str(o, key, &text);
    return text;
}

void asked_batch(const struct asked *a, struct batch_create *out)
{
    json_object *template = asked_object(a->request, "model_template");

    *out = (struct batch_create){
        .job_id = a->job->id,
        .input_file_id = a->job->input_file,
        .endpoint = a->job->endpoint,
        .metadata = asked_object(a->request, "metadata"),
        .output_expires_after = asked_object(a->request, "output_expires_after"),
        .model = a->job->model,
        .template_name = text_of(template, "name"),
        .template_version = text_of(template, "version"),
        .template_spec = a->hook.spec,
        .client = asked_object(a->request, "client"),
    };
}

/* A name and nothing that the language of faults gives another meaning. */
static bool is_plain(const char *word)
{
    return word[strspn(word, "abcdefghijklmnopqrstuvwxyz._*")] == '\0';
}

/* A rule {"point","action","delay_ms","probability"} as a word of a set of faults. */
static void put_rule(json_object *rule, double probability, struct buf *out)
{
    const char *action = text_of(rule, "action");
    const char *point = text_of(rule, "point");
    int64_t delay_ms = 0;

    if (!is_plain(point) || !is_plain(action)) {
        log_warn(LOG_MSG("a fault of the job makes no sense"), LOG_S("point", point));
        return;
    }
    (void)jx_get_double(rule, "probability", &probability);
    buf_printf(out, "%s=%s", point, *action ? action : "fail");
    if (jx_get_int(rule, "delay_ms", &delay_ms))
        buf_printf(out, ":%lld", (long long)delay_ms);
    buf_printf(out, "@%.6f ", probability);
}

static void put_rules(json_object *config, struct buf *out)
{
    json_object *rules = NULL;
    bool enabled = false;
    double probability = 1;

    (void)jx_get_bool(config, "enabled", &enabled);
    (void)jx_get_double(config, "global_probability", &probability);
    (void)json_object_object_get_ex(config, "rules", &rules);
    if (!enabled || !json_object_is_type(rules, json_type_array))
        return;
    for (size_t i = 0; i < json_object_array_length(rules); i++)
        put_rule(json_object_array_get_idx(rules, i), probability, out);
}

void asked_faults(struct task *t, struct hand *h)
{
    cleanup_asked struct asked a = ASKED_INIT;
    cleanup_buf struct buf text = BUF_INIT(FAULTS_MAX);
    struct err e = ERR_INIT;

    if (asked_get(h, t->c.run.id, &a, &e) < 0)
        return;
    json_object *config = asked_object(a.request, "injection_config");
    if (config == NULL)
        return;
    put_rules(config, &text);
    if (text.len > 0 && faults_parse(text.data, &t->faults, &e) < 0)
        log_warn(LOG_MSG("the job's faults make no sense"), LOG_S("error", e.msg));
}
