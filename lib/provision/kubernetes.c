/* SPDX-License-Identifier: Apache-2.0
 * A Kubernetes cluster: a job's machines are the pods of one Deployment, which has the name of the attempt, so the
 * cluster itself keeps them from being made twice. The engine is started by it, and has one address, that of a
 * Service that the Deployment owns. Facts: the Kubernetes API of 1.25 and later; reference section 1.8. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "provision/builtin.h"
#include "provision/kubernetes_api.h"
#include "provision/kubernetes_nodes.h"
#include "provision/kubernetes_read.h"

enum {
    NOT_FOUND = 404,
    CONFLICT = 409,
    PATH_MAX_BYTES = 1024,
    DETAILS_MAX = 4096,
    AGAIN_MS = 1000
};

/* Unknown fields are refused, not dropped: what this asks for is what is made. */
#define STRICT "?fieldValidation=Strict&fieldManager=weighbridge"

static void path_of(const struct kubernetes *k, const char *kind, const char *rest, struct buf *out)
{
    const char *group = str_starts(kind, "deployments") ? "apis/apps/v1" : "api/v1";
    buf_printf(out, "%s/namespaces/%s/%s%s", group, k->namespace, kind, rest);
}

/* --- the Deployment of a name ----------------------------------------------------------------- */

/* 0 there is one, 1 none, -1. */
static int look(struct kubernetes *k, const char *name, int64_t deadline_ns,
    struct kubernetes_deployment_state *out, struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    cleanup_json json_object *o = NULL;
    int status = 0;
    path_of(k, "deployments/", name, &path);
    const struct fleet_call c = {
        .method = "GET", .path = path.data, .deadline_ns = deadline_ns, .status = &status
    };
    if (kubernetes_ask(k, &c, &o, note, e) < 0)
        return status == NOT_FOUND ? 1 : -1;
    struct err why = ERR_INIT;
    if (kubernetes_read_deployment(o, out, &why) < 0)
        return fleet_nonsense(note, e, why.msg);
    if (strcmp(out->name, name) != 0)
        return fleet_nonsense(note, e, "the answer is about another Deployment");
    return 0;
}

struct object {
    const char *kind;
    json_object *body;
    int64_t deadline_ns;
};

/* Makes an object. 0 it is made, 1 there is one of that name, -1. */
static int make(struct kubernetes *k, const struct object *object, json_object **out,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    int status = 0;
    path_of(k, object->kind, STRICT, &path);
    const struct fleet_call c = {
        .method = "POST",
        .path = path.data,
        .body = object->body,
        .deadline_ns = object->deadline_ns,
        .launch = true,
        .status = &status,
    };
    if (kubernetes_ask(k, &c, out, note, e) < 0)
        return status == CONFLICT ? 1 : -1;
    return 0;
}

static int make_deployment(struct kubernetes *k, const struct provision_request *r,
    const struct kubernetes_made *m, struct kubernetes_deployment_state *out,
    struct provision_note *note, struct err *e)
{
    cleanup_json json_object *body = kubernetes_deployment(m);
    cleanup_json json_object *o = NULL;
    struct err why = ERR_INIT;
    const struct object object = { "deployments", body, r->deadline_ns };
    int result = make(k, &object, &o, note, e);
    if (result == 0 && kubernetes_read_deployment(o, out, &why) == 0)
        return 0;
    if (result < 0 && !note->unsure)
        return -1;
    /* Another was faster, or it may have been made: the cluster knows. */
    const struct provision_note before = *note;
    const int found = look(k, r->name, r->deadline_ns, out, note, &why);
    if (found == 0) {
        note->unsure = false;
        return 0;
    }
    *note = before;
    if (result < 0)
        return -1; /* e is of the call */
    return found == 1 ? fleet_nonsense(note, e, "the Deployment is there, and is not")
                      : err_set(e, why.code, "%s", why.msg);
}

/* The Deployment of the request, made if there is none. */
static int find_or_make(struct kubernetes *k, const struct provision_request *r,
    struct kubernetes_made *m, struct kubernetes_deployment_state *out, struct provision_note *note,
    struct err *e)
{
    cleanup_json json_object *types = NULL;
    int result = look(k, r->name, r->deadline_ns, out, note, e);
    if (result != 1)
        return result;
    note->may_exist = false;
    if (kubernetes_gpu_types(k, r->spec->gpu_type, r->deadline_ns, &types, note, e) < 0)
        return -1;
    m->gpu_types = types;
    result = make_deployment(k, r, m, out, note, e);
    note->may_exist = result == 0 || note->unsure;
    return result;
}

/* --- results ---------------------------------------------------------------------------------- */

static void url_of(const struct kubernetes *k, const char *name, char out[PROVISION_URL_SIZE])
{
    (void)str_format(
        out, PROVISION_URL_SIZE, "http://%s.%s.svc:%d", name, k->namespace, KUBERNETES_PORT);
}

/* One machine, the Service: however many replicas there are, they have one address. */
static void fill_result(const struct kubernetes *k, const struct provision_request *r,
    const struct kubernetes_deployment_state *d, enum provision_status status,
    struct provision_result *out)
{
    cleanup_json json_object *details = jx_object();
    struct buf text = BUF_INIT(DETAILS_MAX);
    json_object *o = jx_object();
    struct provision_result result = { .status = status, .n = 1 };
    struct machine *m = mem_calloc(1, sizeof *m);

    (void)str_copy(result.region, sizeof result.region, k->region);
    (void)str_copy(m->id, sizeof m->id, r->name);
    (void)str_copy(m->type, sizeof m->type, r->spec->gpu_type);
    (void)str_format(m->state, sizeof m->state, "%lld of %lld ready", (long long)d->ready,
        (long long)d->replicas);
    url_of(k, r->name, m->url);
    jx_set_str(o, "namespace", k->namespace);
    jx_set_str(o, "deployment", r->name);
    jx_set_str(o, "service", r->name);
    jx_set_int(o, "replicas", d->replicas);
    jx_set_int(o, "readyReplicas", d->ready);
    jx_set_str(o, "httpBaseUrl", m->url);
    jx_set_str(o, "region", k->region);
    jx_set(details, "kubernetes", o);
    jx_print(details, &text);
    result.details = buf_steal(&text);
    result.machine = m;
    *out = result;
}

static bool is_ready(const struct provision_request *r, const struct kubernetes_deployment_state *d)
{
    return d->ready >= r->spec->replicas;
}

/* --- verbs ------------------------------------------------------------------------------------ */

static int refuse(struct provision_note *note, struct err *e, const char *why)
{
    note->error = PROVISION_ERROR_REFUSED;
    note->may_exist = false;
    return err_set(e, ERR_INVALID, "%s", why);
}

/* 0, or 1 when there is one already. */
static int make_service(struct kubernetes *k, const struct provision_request *r,
    const struct kubernetes_made *m, const char *uid, struct provision_note *note, struct err *e)
{
    cleanup_json json_object *body = kubernetes_service(m, uid);
    cleanup_json json_object *o = NULL;
    const struct object object = { "services", body, r->deadline_ns };
    return make(k, &object, &o, note, e);
}

static int provision(struct provisioner *p, const struct provision_request *r,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    struct kubernetes *k = (struct kubernetes *)p;
    struct kubernetes_engine engine;
    struct kubernetes_deployment_state d = { .name = "" };
    char job[PROVISION_JOB_SIZE];
    int attempt = 0;
    struct err why = ERR_INIT;
    struct kubernetes_made made = { .conf = k->conf,
        .name = r->name,
        .cluster = k->fleet.cluster,
        .job = job,
        .spec = r->spec,
        .engine = &engine };

    if (!provision_name_parse(r->name, k->fleet.cluster, job, &attempt))
        return refuse(note, e, "the name is not of this installation");
    if (kubernetes_engine_read(r->job, &engine, &why) < 0)
        return refuse(note, e, why.msg);
    if (r->spec->region[0] != '\0' && strcmp(r->spec->region, k->region) != 0)
        return refuse(note, e, "the region that the job asks for is not this cluster");
    note->may_exist = true; /* while it is not known */
    if (find_or_make(k, r, &made, &d, note, e) < 0)
        return -1;
    if (!d.ours)
        return refuse(note, e, "there is a Deployment of that name which is not ours");
    if (d.ending) {
        note->error = PROVISION_ERROR_UNAVAILABLE;
        return err_set(e, ERR_UNAVAILABLE, "the Deployment of that name is being deleted");
    }
    if (make_service(k, r, &made, d.uid, note, &why) < 0)
        return err_set(e, why.code, "the Service: %s", why.msg);
    *note = (struct provision_note){ .may_exist = true };
    fill_result(k, r, &d, is_ready(r, &d) ? PROVISION_RUNNING : PROVISION_PROVISIONING, out);
    return 0;
}

static int fail(
    struct provision_note *note, enum provision_error error, const char *why, struct err *e)
{
    const bool later = error == PROVISION_ERROR_NO_CAPACITY;
    note->error = error;
    return err_set(e, later ? ERR_UNAVAILABLE : ERR_INVALID, "%s", why);
}

/* Why are they not ready? 0: it takes its time. */
static int look_at_pods(struct kubernetes *k, const struct provision_request *r,
    const struct kubernetes_deployment_state *d, struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    struct kubernetes_trouble t = { .unschedulable = 0 };
    path_of(k, "pods", "?labelSelector=", &path);
    http_url_escape(&path, KUBERNETES_INSTANCE "=");
    buf_puts(&path, r->name);
    const struct kubernetes_list l = {
        .path = path.data, .deadline_ns = r->deadline_ns, .each = kubernetes_read_pod, .ctx = &t
    };
    if (d->over_quota)
        return fail(note, PROVISION_ERROR_NO_CAPACITY, d->text, e);
    if (kubernetes_list(k, &l, note, e) < 0)
        return -1;
    if (t.hopeless)
        return fail(note, PROVISION_ERROR_REFUSED, t.text, e);
    if (d->stalled && t.unschedulable > 0)
        return fail(note, PROVISION_ERROR_NO_CAPACITY, t.text, e);
    return 0;
}

static int status(struct provisioner *p, const struct provision_request *r, const char *details,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    struct kubernetes *k = (struct kubernetes *)p;
    struct kubernetes_deployment_state d = { .name = "" };
    enum provision_status s = PROVISION_RELEASED;
    (void)details; /* the name is enough */
    note->may_exist = true;
    const int found = look(k, r->name, r->deadline_ns, &d, note, e);
    if (found < 0)
        return -1;
    if (found == 0 && !d.ending && d.ours) {
        s = is_ready(r, &d) ? PROVISION_RUNNING : PROVISION_PROVISIONING;
        if (s == PROVISION_PROVISIONING && look_at_pods(k, r, &d, note, e) < 0)
            return -1;
    }
    note->error = PROVISION_ERROR_NONE;
    fill_result(k, r, &d, s, out);
    return 0;
}

struct seen {
    const struct kubernetes *k;
    struct provision_list list;
};

static void take_deployment(json_object *o, void *ctx)
{
    struct seen *seen = ctx;
    struct kubernetes_deployment_state d;
    char job[PROVISION_JOB_SIZE];
    int attempt = 0;
    if (kubernetes_read_deployment(o, &d, NULL) == 0 && d.ours && !d.ending &&
        provision_name_parse(d.name, seen->k->fleet.cluster, job, &attempt))
        provision_list_add(&seen->list, d.name, d.replicas > 0 ? (int)d.replicas : 1);
}

static int list(
    struct provisioner *p, struct provision_list *out, struct provision_note *note, struct err *e)
{
    struct kubernetes *k = (struct kubernetes *)p;
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    struct seen seen = { .k = k, .list = PROVISION_LIST_INIT };
    path_of(k, "deployments", "?labelSelector=", &path);
    http_url_escape(
        &path, KUBERNETES_MANAGED_BY "=" KUBERNETES_MANAGER "," KUBERNETES_LABEL_CLUSTER "=");
    buf_puts(&path, k->fleet.cluster);
    const struct kubernetes_list l = {
        .path = path.data,
        .deadline_ns = clock_deadline(PROVISION_CALL_MS),
        .each = take_deployment,
        .ctx = &seen,
    };
    if (kubernetes_list(k, &l, note, e) < 0) {
        provision_list_fini(&seen.list);
        return -1;
    }
    *out = seen.list;
    return 0;
}

/* The very one that was looked at, and its pods before it. 0 it is told to end or gone, 1 again, -1. */
static int end(struct kubernetes *k, const char *name, const char *uid, int64_t deadline_ns,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    cleanup_json json_object *body = jx_object();
    cleanup_json json_object *o = NULL;
    json_object *conditions = jx_object();
    int status = 0;
    jx_set_str(body, "apiVersion", "v1");
    jx_set_str(body, "kind", "DeleteOptions");
    jx_set_str(body, "propagationPolicy", "Foreground");
    jx_set_str(conditions, "uid", uid);
    jx_set(body, "preconditions", conditions);
    path_of(k, "deployments/", name, &path);
    const struct fleet_call c = {
        .method = "DELETE",
        .path = path.data,
        .body = body,
        .deadline_ns = deadline_ns,
        .status = &status,
    };
    if (kubernetes_ask(k, &c, &o, note, e) == 0 || status == NOT_FOUND)
        return 0;
    if (status != CONFLICT)
        return -1;
    note->again_ms = AGAIN_MS;
    return 1;
}

static int release(
    struct provisioner *p, const char *name, struct provision_note *note, struct err *e)
{
    struct kubernetes *k = (struct kubernetes *)p;
    struct kubernetes_deployment_state d;
    const int64_t deadline_ns = clock_deadline(PROVISION_CALL_MS);
    char job[PROVISION_JOB_SIZE];
    int attempt = 0;
    if (!provision_name_parse(name, k->fleet.cluster, job, &attempt))
        return refuse(note, e, "no machines of this installation");
    note->may_exist = true;
    int result = look(k, name, deadline_ns, &d, note, e);
    if (result == 0 && d.ours && !d.ending)
        result = end(k, name, d.uid, deadline_ns, note, e);
    else if (result > 0)
        result = 0;
    if (result >= 0)
        note->error = PROVISION_ERROR_NONE;
    note->may_exist = result != 0;
    return result;
}

/* --- the type --------------------------------------------------------------------------------- */

static void close_kubernetes(struct provisioner *p)
{
    struct kubernetes *k = (struct kubernetes *)p;
    kubernetes_disconnect(k);
    free(k);
}

static int open_kubernetes(
    const struct provisioner_env *env, struct provisioner **out, struct err *e)
{
    struct kubernetes *k = mem_kept(mem_calloc(1, sizeof *k));
    if (kubernetes_connect(k, env, e) < 0) {
        close_kubernetes(&k->fleet.base);
        return -1;
    }
    *out = &k->fleet.base;
    return 0;
}

/* What cannot be started is refused when it is accepted. */
static int validate_request(const struct hook_job *job, struct err *e)
{
    struct kubernetes_engine engine;
    return kubernetes_engine_read(job, &engine, e) < 0
               ? -1
               : PROVISION_DEFAULT_HOOKS.validate_request(job, e);
}

static int build_runtime(
    const struct hook_job *job, const struct provision_result *r, json_object **out, struct err *e)
{
    return hook_runtime_url("Kubernetes", job, r, out, e);
}

const struct provisioner_ops PROVISIONER_KUBERNETES = {
    .type = "kubernetes",
    .ready_s = 900,
    .late = true, /* a call whose answer was lost may still be on its way */
    .wants_job = true,
    .open = open_kubernetes,
    .close = close_kubernetes,
    .provision = provision,
    .status = status,
    .list = list,
    .release = release,
    .catalog = kubernetes_catalog,
    .hooks = { .validate_request = validate_request, .build_runtime = build_runtime },
};
