/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/kubernetes_objects.h"

#include <string.h>

#include "base/str.h"
#include "json/jx.h"

enum { PROBE_S = 5 };

/* --- the template's engine -------------------------------------------------------------------- */

static int read_text(json_object *engine, const char *key, const char **out, struct err *e)
{
    if (jx_get(engine, key) != NULL && !jx_get_str(engine, key, out))
        return err_set(e, ERR_INVALID, "engine.%s: must be a text", key);
    return 0;
}

static int read_args(json_object *engine, struct kubernetes_engine *out, struct err *e)
{
    json_object *args = jx_get(engine, "serve_args");
    const size_t n =
        json_object_is_type(args, json_type_array) ? json_object_array_length(args) : 0;
    bool ok = args == NULL || json_object_is_type(args, json_type_array);
    for (size_t i = 0; i < n; i++) {
        json_object *arg = json_object_array_get_idx(args, i);
        ok = ok && json_object_is_type(arg, json_type_string);
        if (ok && (str_starts(json_object_get_string(arg), "--model=") ||
                      strcmp(json_object_get_string(arg), "--model") == 0))
            out->default_model = "";
    }
    if (!ok)
        return err_set(e, ERR_INVALID, "engine.serve_args: must be a list of texts");
    out->args = args;
    return 0;
}

int kubernetes_engine_read(const struct hook_job *job, struct kubernetes_engine *out, struct err *e)
{
    struct kubernetes_engine r = { .image = "", .health = "/health", .default_model = "" };
    json_object *engine = job == NULL ? NULL : jx_get(job->spec, "engine");
    const char *type = "";
    if (read_text(engine, "image", &r.image, e) < 0 || read_text(engine, "type", &type, e) < 0 ||
        read_text(engine, "health_endpoint", &r.health, e) < 0)
        return -1;
    if (r.health[0] != '/')
        return err_set(e, ERR_INVALID, "engine.health_endpoint: must begin with /");
    if (job != NULL && strcmp(type, "vllm") == 0 && !str_empty(job->model))
        r.default_model = job->model;
    if (read_args(engine, &r, e) < 0)
        return -1;
    *out = r;
    return 0;
}

/* --- objects ---------------------------------------------------------------------------------- */

int kubernetes_gpus(const struct provision_spec *spec)
{
    return spec->gpus_per_replica == 0 && spec->gpu_type[0] != '\0' ? 1 : spec->gpus_per_replica;
}

static json_object *list_of(json_object *only)
{
    json_object *list = jx_array();
    jx_add(list, only);
    return list;
}

static json_object *pair(const char *key, const char *text)
{
    json_object *o = jx_object();
    jx_set_str(o, key, text);
    return o;
}

static json_object *labels(const struct kubernetes_made *m)
{
    json_object *o = pair(KUBERNETES_MANAGED_BY, KUBERNETES_MANAGER);
    jx_set_str(o, KUBERNETES_INSTANCE, m->name);
    jx_set_str(o, KUBERNETES_LABEL_CLUSTER, m->cluster);
    jx_set_str(o, KUBERNETES_LABEL_JOB, m->job);
    return o;
}

static json_object *metadata(const struct kubernetes_made *m)
{
    json_object *o = pair("name", m->name);
    jx_set(o, "labels", labels(m));
    return o;
}

static json_object *args(const struct kubernetes_engine *engine)
{
    json_object *list = jx_array();
    if (engine->default_model[0] != '\0') {
        jx_add_str(list, "--model");
        jx_add_str(list, engine->default_model);
    }
    for (size_t i = 0; engine->args != NULL && i < json_object_array_length(engine->args); i++)
        jx_add(list, json_object_get(json_object_array_get_idx(engine->args, i)));
    return list;
}

static json_object *probe(const char *path)
{
    json_object *get = pair("path", path);
    json_object *o = jx_object();
    jx_set_int(get, "port", KUBERNETES_PORT);
    jx_set(o, "httpGet", get);
    jx_set_int(o, "periodSeconds", PROBE_S);
    return o;
}

static json_object *resources(const struct kubernetes_made *m)
{
    json_object *o = jx_object();
    json_object *limits = jx_object();
    char count[16];
    (void)str_format(count, sizeof count, "%d", kubernetes_gpus(m->spec));
    jx_set_str(limits, m->conf->kubernetes_gpu_resource, count);
    jx_set(o, "limits", limits);
    return o;
}

static json_object *container(const struct kubernetes_made *m)
{
    const struct conf *conf = m->conf;
    json_object *o = pair("name", "engine");
    json_object *port = pair("name", "http");
    json_object *shm = pair("name", "shm");
    jx_set_str(o, "image", m->engine->image[0] != '\0' ? m->engine->image : conf->kubernetes_image);
    jx_set(o, "args", args(m->engine));
    jx_set_int(port, "containerPort", KUBERNETES_PORT);
    jx_set(o, "ports", list_of(port));
    if (kubernetes_gpus(m->spec) > 0)
        jx_set(o, "resources", resources(m));
    jx_set(o, "readinessProbe", probe(m->engine->health));
    jx_set_str(shm, "mountPath", "/dev/shm");
    jx_set(o, "volumeMounts", list_of(shm));
    if (!str_empty(conf->kubernetes_env_secret)) {
        json_object *from = jx_object();
        jx_set(from, "secretRef", pair("name", conf->kubernetes_env_secret));
        jx_set(o, "envFrom", list_of(from));
    }
    return o;
}

/* Engines share memory among the processes of several GPUs, and the default of /dev/shm is 64 MB. */
static json_object *shared_memory(void)
{
    json_object *volume = pair("name", "shm");
    jx_set(volume, "emptyDir", pair("medium", "Memory"));
    return list_of(volume);
}

/* Nodes with GPUs are often kept free of whatever needs none, by a taint with the name of the resource. */
static json_object *tolerations(const struct conf *conf)
{
    json_object *o = pair("key", conf->kubernetes_gpu_resource);
    jx_set_str(o, "operator", "Exists");
    jx_set_str(o, "effect", "NoSchedule");
    return list_of(o);
}

static json_object *affinity(const struct kubernetes_made *m)
{
    json_object *expression = pair("key", m->conf->kubernetes_gpu_label);
    json_object *term = jx_object();
    json_object *required = jx_object();
    json_object *node = jx_object();
    json_object *o = jx_object();
    jx_set_str(expression, "operator", "In");
    jx_set(expression, "values", json_object_get(m->gpu_types));
    jx_set(term, "matchExpressions", list_of(expression));
    jx_set(required, "nodeSelectorTerms", list_of(term));
    jx_set(node, "requiredDuringSchedulingIgnoredDuringExecution", required);
    jx_set(o, "nodeAffinity", node);
    return o;
}

static json_object *pod(const struct kubernetes_made *m)
{
    json_object *meta = jx_object();
    json_object *spec = jx_object();
    json_object *o = jx_object();
    jx_set(meta, "labels", labels(m));
    jx_set(o, "metadata", meta);
    jx_set(spec, "containers", list_of(container(m)));
    jx_set(spec, "volumes", shared_memory());
    jx_set_bool(spec, "automountServiceAccountToken", false);
    if (kubernetes_gpus(m->spec) > 0)
        jx_set(spec, "tolerations", tolerations(m->conf));
    if (m->gpu_types != NULL)
        jx_set(spec, "affinity", affinity(m));
    if (!str_empty(m->conf->kubernetes_pull_secret))
        jx_set(spec, "imagePullSecrets", list_of(pair("name", m->conf->kubernetes_pull_secret)));
    jx_set(o, "spec", spec);
    return o;
}

json_object *kubernetes_deployment(const struct kubernetes_made *m)
{
    json_object *o = pair("apiVersion", "apps/v1");
    json_object *spec = jx_object();
    json_object *selector = jx_object();
    jx_set_str(o, "kind", "Deployment");
    jx_set(o, "metadata", metadata(m));
    jx_set_int(spec, "replicas", m->spec->replicas);
    jx_set_int(spec, "progressDeadlineSeconds", m->conf->kubernetes_progress_s);
    jx_set_int(spec, "revisionHistoryLimit", 0);
    jx_set(selector, "matchLabels", pair(KUBERNETES_INSTANCE, m->name));
    jx_set(spec, "selector", selector);
    jx_set(spec, "template", pod(m));
    jx_set(o, "spec", spec);
    return o;
}

json_object *kubernetes_service(const struct kubernetes_made *m, const char *deployment_uid)
{
    json_object *o = pair("apiVersion", "v1");
    json_object *meta = metadata(m);
    json_object *owner = pair("apiVersion", "apps/v1");
    json_object *spec = jx_object();
    json_object *port = pair("name", "http");
    jx_set_str(owner, "kind", "Deployment");
    jx_set_str(owner, "name", m->name);
    jx_set_str(owner, "uid", deployment_uid);
    jx_set(meta, "ownerReferences", list_of(owner));
    jx_set_str(o, "kind", "Service");
    jx_set(o, "metadata", meta);
    jx_set(spec, "selector", pair(KUBERNETES_INSTANCE, m->name));
    jx_set_int(port, "port", KUBERNETES_PORT);
    jx_set_int(port, "targetPort", KUBERNETES_PORT);
    jx_set(spec, "ports", list_of(port));
    jx_set(o, "spec", spec);
    return o;
}
