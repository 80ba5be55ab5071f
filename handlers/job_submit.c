/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <string.h>

#include "base/digest.h"
#include "base/str.h"
#include "handlers/job_parts.h"
#include "model/job_window.h"
#include "model/provision.h"
#include "provision/hooks.h"
#include "store/template.h"

enum { REQUEST_MAX = 1 << 20 };

/* The template of a request, if it names one, and what follows from it. */
struct resolved {
    struct templates found;
    json_object *spec; /* owned; NULL without a template */
    const char *model;
    const char *pool;
    const char *gpu_type;
    int64_t gpus;
};

static void resolved_free(struct resolved *r)
{
    templates_free(&r->found);
    json_object_put(r->spec);
}
#define cleanup_resolved __attribute__((cleanup(resolved_free)))

static int wrong(json_object *o, const char *key, enum json_type type)
{
    json_object *member = jx_get(o, key);
    return member != NULL && !json_object_is_type(member, type);
}

/* What the contract takes from the spec: accelerator (check_schedulable() looks at that), model source, pool. */
static int read_spec(struct resolved *r, struct err *e)
{
    const struct template_row *t = &r->found.row[0];
    if (jx_parse(t->spec_json, strlen(t->spec_json), REQUEST_MAX, &r->spec, e) < 0)
        return -1;
    if (!json_object_is_type(r->spec, json_type_object))
        return err_set(e, ERR_INVALID, "the template's spec must be an object");
    json_object *accelerator = job_part(r->spec, "accelerator", json_type_object);
    json_object *source = jx_get(r->spec, "model_source");
    if (wrong(r->spec, "pool", json_type_string))
        return err_set(e, ERR_INVALID, "pool: must be a text");
    if (wrong(r->spec, "model_source", json_type_object))
        return err_set(e, ERR_INVALID, "model_source: must be an object");
    if (wrong(source, "uri", json_type_string))
        return err_set(e, ERR_INVALID, "model_source.uri: must be a text");
    r->gpu_type = job_part_text(accelerator, "type");
    if (accelerator != NULL)
        (void)jx_get_int(accelerator, "count", &r->gpus);
    r->pool = job_part_text(r->spec, "pool");
    r->model = t->serving_name[0] != '\0' ? t->serving_name : job_part_text(source, "uri");
    return 0;
}

static int resolve(
    struct web_req *req, const struct job_body *b, struct resolved *out, struct err *e)
{
    const struct job_request *r = &b->request;
    const char *field = job_field_name(r->dialect, FIELD_TEMPLATE_NAME);
    if (str_empty(r->template_name))
        return 0;
    if (template_resolve(req->db, b->model_id, r->template_name,
            r->template_version == NULL ? "" : r->template_version, &out->found, e) < 0) {
        if (e->code == ERR_NOT_FOUND)
            e->code = ERR_INVALID;
        return e->code == ERR_INVALID ? err_wrap(e, "%s", field) : -1;
    }
    if (read_spec(out, e) < 0)
        return err_wrap(e, "%s", field);
    if (out->gpus < 0 || out->gpus > PROVISION_GPUS_MAX)
        return err_set(e, ERR_INVALID, "%s: the template asks for an absurd number of GPUs", field);
    return 0;
}

/* The client block as the batch service takes it: what was sent and nothing else. */
static json_object *client_json(const struct job_body *b)
{
    const struct job_request *r = &b->request;
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        { "max_concurrency", r->client.max_concurrency },
        { "adaptive_max_factor", r->client.adaptive_max_factor },
        { "adaptive_healthy_window", r->client.adaptive_healthy_window },
        { "adaptive_additive_increase", r->client.adaptive_additive_increase },
        { "request_timeout_seconds", r->client.request_timeout_s },
    };
    json_object *o = jx_object();
    json_object *retry = jx_object();
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].value != JOB_UNSET)
            jx_set_int(o, numbers[i].key, numbers[i].value);
    }
    if (r->client.adaptive_concurrency != JOB_UNSET)
        jx_set_bool(o, "adaptive_concurrency", r->client.adaptive_concurrency != 0);
    if (r->client.max_retries != JOB_UNSET)
        jx_set_int(retry, "max_retries", r->client.max_retries);
    if (!isnan(r->client.base_delay_s))
        jx_set_double(retry, "base_delay_seconds", r->client.base_delay_s);
    if (!isnan(r->client.max_delay_s))
        jx_set_double(retry, "max_delay_seconds", r->client.max_delay_s);
    if (r->client.no_endpoint_max_retries != JOB_UNSET)
        jx_set_int(retry, "no_endpoint_max_retries", r->client.no_endpoint_max_retries);
    if (json_object_object_length(retry) > 0)
        jx_set(o, "retry_policy", retry);
    else
        json_object_put(retry);
    return o;
}

static json_object *template_json(const struct resolved *t)
{
    const struct template_row *row = &t->found.row[0];
    json_object *o = jx_object();
    jx_set_str(o, "name", row->name);
    jx_set_str(o, "version", row->version);
    jx_set_str(o, "model_id", row->model_id);
    jx_set(o, "spec", json_object_get(t->spec));
    return o;
}

static void share(json_object *o, const char *key, json_object *member)
{
    if (member != NULL)
        jx_set(o, key, json_object_get(member));
}

/* All that was asked, so that a restart knows it: model/job.h describes it. */
static void print_request(const struct job_body *b, const struct resolved *t,
    const struct job_terms *terms, bool faults, struct buf *out)
{
    cleanup_json json_object *o = jx_object();
    const struct job_request *r = &b->request;
    if (t->found.n > 0)
        jx_set(o, "model_template", template_json(t));
    json_object *client = client_json(b);
    if (json_object_object_length(client) > 0)
        jx_set(o, "client", client);
    else
        json_object_put(client);
    jx_set_int(o, "replicas", terms->replicas);
    share(o, "metadata", b->metadata);
    share(o, "provider_config", b->provider_config);
    share(o, "injection_config", faults ? b->injection_config : NULL);
    share(o, "extra_body", b->extra_body);
    if (r->request_count_total != JOB_UNSET)
        jx_set_int(o, "request_count_total", r->request_count_total);
    if (r->output_expires_s != JOB_UNSET) {
        json_object *expires = jx_object();
        jx_set_str(expires, "anchor", "created_at");
        jx_set_int(expires, "seconds", r->output_expires_s);
        jx_set(o, "output_expires_after", expires);
    }
    jx_print(o, out);
}

/* The Idempotency-Key and the hash of what it stands for: 1 when there is none. */
static int read_key(struct web_req *req, const struct job_body *b, const char **key,
    char hash[DIGEST_HEX_SIZE], struct err *e)
{
    cleanup_buf struct buf body = BUF_INIT((size_t)4 * REQUEST_BODY_MAX);
    *key = fcgi_env(req->fcgi, "HTTP_IDEMPOTENCY_KEY");
    if (str_empty(*key)) {
        *key = NULL;
        return 1;
    }
    if (!str_utf8_valid(*key, strlen(*key)) || str_utf8_length(*key) > JOB_IDEM_KEY_MAX)
        return err_set(e, ERR_INVALID, "Idempotency-Key: must be UTF-8 of at most %d characters",
            JOB_IDEM_KEY_MAX);
    cleanup_json json_object *sorted = jx_sorted(b->owned);
    jx_print(sorted, &body); /* in one spelling, whichever it was sent in */
    digest_hex(body.data == NULL ? "" : body.data, body.len, hash);
    return 0;
}

/* The job that was made before by the same request under the same key, whatever has become of its template since: 1 when
 * there is none. */
static int made_before(struct web_req *req, const struct job_body *b, const char **key,
    char hash[DIGEST_HEX_SIZE], struct jobs *out, struct err *e)
{
    const int none = read_key(req, b, key, hash, e);

    return none != 0 ? none : job_of_key(req->db, req->caller.subject, *key, hash, out, e);
}

/* What plan/asked.c reads of it. */
struct fault_body {
    int enabled;
    double global_probability;
    json_object *rules;
    const char *point;
    const char *action;
    double probability;
    int64_t delay_ms;
};
static const struct jx_field FAULT_FIELDS[] = {
    JX_BOOL(struct fault_body, enabled, 0),
    JX_DOUBLE(struct fault_body, global_probability, 0, 0, 1),
    JX_RAW(struct fault_body, rules, 0),
};
static const struct jx_field RULE_FIELDS[] = {
    JX_TEXT(struct fault_body, point, JX_REQUIRED, 64),
    JX_TEXT(struct fault_body, action, 0, 64),
    JX_DOUBLE(struct fault_body, probability, 0, 0, 1),
    JX_INT(struct fault_body, delay_ms, 0, 0, INT32_MAX),
};

static int check_rules(json_object *config, struct err *e)
{
    struct fault_body b = { .rules = NULL };
    if (jx_bind(config, FAULT_FIELDS, sizeof(FAULT_FIELDS) / sizeof(FAULT_FIELDS[0]), JX_LENIENT,
            &b, e) < 0)
        return -1;
    if (b.rules != NULL && !json_object_is_type(b.rules, json_type_array))
        return err_set(e, ERR_INVALID, "rules: must be a list");
    for (size_t i = 0; b.rules != NULL && i < json_object_array_length(b.rules); i++) {
        if (jx_bind(json_object_array_get_idx(b.rules, i), RULE_FIELDS,
                sizeof(RULE_FIELDS) / sizeof(RULE_FIELDS[0]), JX_LENIENT, &b, e) < 0)
            return err_wrap(e, "rules");
    }
    return 0;
}

/* Faults end planners: where the configuration lets them be injected at all, an admin may. Elsewhere they are not kept:
 * the original knows them too, and ignores them so. Jobs contract section 5, "Fault injection". */
static int check_faults(const struct web_req *req, const struct job_body *b, struct err *e)
{
    if (b->injection_config == NULL || !req->conf->faults_allow)
        return 0;
    if (req->caller.role != ROLE_ADMIN)
        return err_set(e, ERR_FORBIDDEN, "injection_config: only an admin may inject faults");
    return check_rules(b->injection_config, e) < 0 ? err_wrap(e, "injection_config") : 0;
}

static const char *pool_of(const struct job_body *b, const struct resolved *t, struct web_req *req)
{
    if (!str_empty(b->request.pool))
        return b->request.pool;
    return str_empty(t->pool) ? req->conf->planner_default_pool : t->pool;
}

/* Whose share of its pool the job is; NULL: of who sends it. */
static const char *tenant_of(const struct web_req *req, const struct job_body *b, const char *pool)
{
    static const char METADATA[] = "metadata.";
    const struct conf_pool *conf = conf_pool_find(req->conf, pool);

    if (conf == NULL || !str_starts(conf->tenant, METADATA))
        return NULL;
    return job_part_text(b->metadata, conf->tenant + sizeof METADATA - 1);
}

/* What could never be scheduled is refused now: jobs contract section 3, section 5 "Backend hooks". */
static int check_schedulable(const struct job_body *b, const struct resolved *t,
    const struct job_terms *terms, struct err *e)
{
    const struct hook_job job = { .model = b->request.model,
        .replicas = terms->replicas,
        .spec = t->spec,
        .provider_config = b->provider_config };
    const char *field = job_field_name(b->request.dialect, FIELD_TEMPLATE_NAME);

    if (PROVISION_DEFAULT_HOOKS.validate_request(&job, e) == 0)
        return 0;
    return t->spec == NULL || str_starts(e->msg, "provider_config") ? -1 : err_wrap(e, "%s", field);
}

int jobs_submit(struct web_req *req, const struct job_body *b, struct jobs *out,
    enum job_fate *fate, struct err *e)
{
    cleanup_resolved struct resolved t = { .found = TEMPLATES_INIT, .gpu_type = "" };
    cleanup_buf struct buf request = BUF_INIT(REQUEST_MAX);
    char hash[DIGEST_HEX_SIZE] = "";
    struct job_terms terms;
    enum job_field bad;
    const char *key = NULL;
    const struct job_request *r = &b->request;

    if (job_request_check(r, &terms, &bad, e) < 0 || check_faults(req, b, e) < 0)
        return -1;
    const int none = made_before(req, b, &key, hash, out, e);
    if (none == 0)
        *fate = JOB_FATE_SAME;
    if (none != 1)
        return none;
    if (resolve(req, b, &t, e) < 0 || check_schedulable(b, &t, &terms, e) < 0)
        return -1;
    print_request(b, &t, &terms, req->conf->faults_allow, &request);
    if (request.overflow)
        return err_set(e, ERR_TOO_LARGE, "template and request together are too large");
    const char *pool = pool_of(b, &t, req);
    const struct job_new job = {
        .created_by = req->caller.subject,
        .tenant = tenant_of(req, b, pool),
        .pool = pool,
        .name = r->name,
        .endpoint = r->endpoint,
        .model = str_empty(t.model) ? r->model : t.model,
        .input_file = r->input_file,
        .any_file = req->caller.role == ROLE_ADMIN,
        .completion_window =
            str_empty(r->completion_window) ? JOB_WINDOW_DEFAULT : r->completion_window,
        .window_minutes = terms.window_minutes,
        .queue_deadline_s = req->conf->planner_queue_deadline_s,
        .priority = terms.priority,
        .replicas = terms.replicas,
        .gpus = t.gpus,
        .gpu_type = t.gpu_type,
        .request_json = request.data,
        .idem_key = key,
        .idem_hash = key == NULL ? NULL : hash,
    };
    if (job_enqueue(req->db, &job, out, fate, e) < 0)
        return e->code == ERR_FORBIDDEN
                   ? err_wrap(e, "%s", job_field_name(r->dialect, FIELD_INPUT_FILE))
               : e->code == ERR_INVALID ? err_wrap(e, "%s", job_field_name(r->dialect, FIELD_POOL))
                                        : -1;
    if (*fate == JOB_FATE_NEW)
        jobs_wake(req, "enqueue");
    return 0;
}
