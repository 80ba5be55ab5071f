/* SPDX-License-Identifier: Apache-2.0
 * RunPod, by https://rest.runpod.io/v1: bearer key; a pod is made by one call; errors are
 * {"error":"...","status":n}, "no instances available" among them as a 500, or even in a 200. Facts: reference
 * section 1.8. */
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "provision/builtin.h"
#include "provision/fleet.h"
#include "model/gpu_match.h"

enum { NOT_FOUND = 404, PATH_MAX_BYTES = 512 };

struct runpod {
    struct fleet fleet;
    const struct conf *conf;
};

/* Starts a server for SSH in whatever image, with the key that the pod was made with. */
static const char START_SSHD[] =
    "mkdir -p ~/.ssh /run/sshd && chmod 700 ~/.ssh && "
    "printf '%s\\n' \"$PUBLIC_KEY\" >>~/.ssh/authorized_keys && chmod 600 ~/.ssh/authorized_keys && "
    "{ command -v sshd >/dev/null || { apt-get update -q && "
    "DEBIAN_FRONTEND=noninteractive apt-get install -y -q openssh-server; }; } && "
    "ssh-keygen -A && exec \"$(command -v sshd || echo /usr/sbin/sshd)\" -D -e";

/* Names of its GPU types, so that a template may say "H100". A name that is not here goes out as it is. */
static const char *const GPU_IDS[] = {
    "AMD Instinct MI300X OAM",
    "NVIDIA A100 80GB PCIe",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA A30",
    "NVIDIA A40",
    "NVIDIA B200",
    "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 4090",
    "NVIDIA GeForce RTX 5090",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H100 NVL",
    "NVIDIA H100 PCIe",
    "NVIDIA H200",
    "NVIDIA L4",
    "NVIDIA L40",
    "NVIDIA L40S",
    "NVIDIA RTX 4000 Ada Generation",
    "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA RTX A4000",
    "NVIDIA RTX A5000",
    "NVIDIA RTX A6000",
};

/* --- reading its answers ---------------------------------------------------------------------- */

static enum fleet_state state_of(const struct machine *m)
{
    if (strcmp(m->state, "EXITED") == 0)
        return FLEET_BROKEN;
    if (strcmp(m->state, "TERMINATED") == 0)
        return FLEET_GONE;
    /* RUNNING is what is wanted, not what is; it has an address before SSH is mapped. */
    return strcmp(m->state, "RUNNING") == 0 && m->host[0] != '\0' && m->ssh_port > 0
               ? FLEET_RUNNING
               : FLEET_STARTING;
}

static void read_pod(json_object *o, struct fleet_machine *out)
{
    struct fleet_machine f = { .name = "" };
    struct machine *m = &f.m;
    int64_t port = 0;
    const char *name = "";
    json_object *machine = jx_get(o, "machine");
    fleet_read_text(o, "id", m->id, sizeof m->id);
    fleet_read_text(o, "desiredStatus", m->state, sizeof m->state);
    fleet_read_text(o, "publicIp", m->host, sizeof m->host);
    fleet_read_text(machine, "gpuTypeId", m->type, sizeof m->type);
    fleet_read_text(machine, "dataCenterId", f.region, sizeof f.region);
    if (jx_get_str(o, "name", &name) && str_copy(f.name, sizeof f.name, name) < 0)
        f.name[0] = '\0';
    if (jx_get_int(jx_get(o, "portMappings"), "22", &port) && port > 0 && port <= UINT16_MAX) {
        (void)str_copy(m->ssh_user, sizeof m->ssh_user, "root");
        m->ssh_port = (int)port;
    }
    (void)str_format(m->url, sizeof m->url, "https://%s-8000.proxy.runpod.net", m->id);
    f.state = state_of(m);
    *out = f;
}

static enum provision_error error_of(int status, json_object *answer)
{
    const char *text = NULL;
    if (!jx_get_str(answer, "error", &text))
        return PROVISION_ERROR_NONE;
    if (strcasestr(text, "instances available") != NULL ||
        strcasestr(text, "instances currently available") != NULL ||
        strcasestr(text, "not have the resources") != NULL)
        return PROVISION_ERROR_NO_CAPACITY;
    return http_classify(status) == HTTP_CLASS_OK ? PROVISION_ERROR_UNAVAILABLE
                                                  : PROVISION_ERROR_NONE;
}

/* --- what a fleet wants ----------------------------------------------------------------------- */

static int list(struct fleet *f, const char *name, int64_t deadline_ns, struct fleet_machines *out,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    cleanup_json json_object *o = NULL;
    buf_puts(&path, "pods?includeMachine=true");
    if (name != NULL) {
        buf_puts(&path, "&name=");
        http_url_escape(&path, name);
    }
    const struct fleet_call c = { .method = "GET", .path = path.data, .deadline_ns = deadline_ns };
    if (fleet_ask(f, &c, &o, note, e) < 0)
        return -1;
    if (!json_object_is_type(o, json_type_array))
        return fleet_nonsense(note, e, "the answer is no list of pods");
    for (size_t i = 0; i < json_object_array_length(o); i++) {
        struct fleet_machine m;
        read_pod(json_object_array_get_idx(o, i), &m);
        if (m.m.id[0] != '\0')
            fleet_add(out, &m);
    }
    return 0;
}

static void pod_path(struct buf *path, const char *id, const char *query)
{
    buf_puts(path, "pods/");
    http_url_escape(path, id);
    buf_puts(path, query);
}

static int look(struct fleet *f, const char *id, int64_t deadline_ns, struct fleet_machine *out,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    cleanup_json json_object *o = NULL;
    struct fleet_machine m;
    int status = 0;
    pod_path(&path, id, "?includeMachine=true");
    const struct fleet_call c = {
        .method = "GET", .path = path.data, .deadline_ns = deadline_ns, .status = &status
    };
    if (fleet_ask(f, &c, &o, note, e) < 0)
        return status == NOT_FOUND ? 1 : -1;
    read_pod(o, &m);
    if (strcmp(m.m.id, id) != 0)
        return fleet_nonsense(note, e, "the answer is about another pod");
    *out = m;
    return 0;
}

static int end_one(struct fleet *f, const char *id, int64_t deadline_ns,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    cleanup_json json_object *o = NULL;
    int status = 0;
    pod_path(&path, id, "");
    const struct fleet_call c = {
        .method = "DELETE", .path = path.data, .deadline_ns = deadline_ns, .status = &status
    };
    return fleet_ask(f, &c, &o, note, e) < 0 && status != NOT_FOUND ? -1 : 0;
}

/* Each by itself. One that fails does not keep the others from being ended. */
static int end(struct fleet *f, const struct fleet_machines *l, int64_t deadline_ns,
    struct provision_note *note, struct err *e)
{
    struct provision_note first = PROVISION_NOTE_INIT;
    struct err why = ERR_INIT;
    int result = 0;
    for (size_t i = 0; i < l->n; i++) {
        struct err one = ERR_INIT;
        if (clock_left_ms(deadline_ns) == 0)
            return 1;
        if (end_one(f, l->at[i].m.id, deadline_ns, note, &one) == 0 || result < 0)
            continue;
        result = -1;
        first = *note;
        why = one;
    }
    if (result == 0)
        return 0;
    note->error = first.error;
    note->again_ms = first.again_ms;
    return err_set(e, why.code, "%s", why.msg);
}

/* --- what to launch --------------------------------------------------------------------------- */

static json_object *gpu_ids(const char *wanted)
{
    json_object *ids = jx_array();
    bool exact = false;
    for (size_t i = 0; i < sizeof GPU_IDS / sizeof GPU_IDS[0]; i++)
        exact |= strcasecmp(wanted, GPU_IDS[i]) == 0;
    for (size_t i = 0; i < sizeof GPU_IDS / sizeof GPU_IDS[0]; i++) {
        if (exact ? strcasecmp(wanted, GPU_IDS[i]) == 0 : gpu_match(wanted, GPU_IDS[i], ""))
            jx_add_str(ids, GPU_IDS[i]);
    }
    if (json_object_array_length(ids) == 0)
        jx_add_str(ids, wanted);
    return ids;
}

static json_object *pair(const char *a, const char *b)
{
    json_object *list = jx_array();
    jx_add_str(list, a);
    jx_add_str(list, b);
    return list;
}

static json_object *pod_body(
    const struct conf *conf, const struct provision_request *r, json_object *gpus)
{
    const struct provision_spec *spec = r->spec;
    json_object *o = jx_object();
    json_object *env = jx_object();
    json_object *command = jx_array();
    json_object *centers =
        fleet_words(spec->region[0] != '\0' ? spec->region : conf->runpod_data_centers);
    jx_set_str(o, "name", r->name);
    jx_set_str(o, "imageName", conf->runpod_image);
    jx_set_str(o, "computeType", "GPU");
    jx_set_str(o, "cloudType", conf->runpod_cloud_type);
    jx_set(o, "gpuTypeIds", gpus);
    jx_set_int(o, "gpuCount", spec->gpus_per_replica > 0 ? spec->gpus_per_replica : 1);
    jx_set_str(o, "gpuTypePriority", "availability");
    if (json_object_array_length(centers) > 0)
        jx_set(o, "dataCenterIds", json_object_get(centers));
    json_object_put(centers);
    jx_set(o, "ports", pair("8000/http", "22/tcp"));
    jx_set(o, "dockerEntrypoint", pair("/bin/bash", "-lc"));
    jx_add_str(command, START_SSHD);
    jx_set(o, "dockerStartCmd", command);
    jx_set_bool(o, "supportPublicIp", true);
    jx_set_str(env, "PUBLIC_KEY", conf->runpod_ssh_public_key);
    jx_set_str(env, "SSH_PUBLIC_KEY", conf->runpod_ssh_public_key);
    jx_set(o, "env", env);
    return o;
}

static int launch(struct fleet *f, const struct provision_request *r, struct fleet_choice *choice,
    struct fleet_machine *out, struct provision_note *note, struct err *e)
{
    const struct runpod *p = (const struct runpod *)f;
    (void)choice;
    if (r->spec->gpu_type[0] == '\0') {
        note->error = PROVISION_ERROR_NO_GPU_TYPE;
        return err_set(e, ERR_INVALID, "the job names no accelerator.type");
    }
    cleanup_json json_object *body = pod_body(p->conf, r, gpu_ids(r->spec->gpu_type));
    cleanup_json json_object *o = NULL;
    const struct fleet_call c = { .method = "POST",
        .path = "pods",
        .body = body,
        .deadline_ns = r->deadline_ns,
        .launch = true };
    struct fleet_machine m;
    if (fleet_ask(f, &c, &o, note, e) < 0)
        return -1;
    read_pod(o, &m);
    if (m.m.id[0] == '\0') {
        note->unsure = true;
        return fleet_nonsense(note, e, "the answer names no new pod");
    }
    (void)str_copy(m.name, sizeof m.name, r->name);
    *out = m;
    return 0;
}

/* --- results ---------------------------------------------------------------------------------- */

static json_object *pod_details(const struct fleet_machine *f)
{
    const struct machine *m = &f->m;
    json_object *o = jx_object();
    json_object *ports = jx_object();
    jx_set_str(o, "podId", m->id);
    jx_set_str(o, "gpuTypeId", m->type);
    jx_set_str(o, "desiredStatus", m->state);
    jx_set_some(o, "publicIp", m->host);
    if (m->ssh_port > 0) {
        jx_set_str(o, "sshUser", m->ssh_user);
        jx_set_int(o, "sshPort", m->ssh_port);
        jx_set_int(ports, "22", m->ssh_port);
    }
    jx_set_str(o, "httpBaseUrl", m->url);
    jx_set_some(o, "dataCenterId", f->region);
    jx_set(o, "portMappings", ports);
    return o;
}

static json_object *details(const struct provision_spec *spec, const struct fleet_machines *l)
{
    json_object *pods = jx_array();
    json_object *cloud = jx_object();
    json_object *o = jx_object();
    (void)spec;
    for (size_t i = 0; i < l->n; i++)
        jx_add(pods, pod_details(&l->at[i]));
    jx_set(cloud, "pods", pods);
    jx_set_str(cloud, "region", l->n > 0 ? l->at[0].region : "");
    jx_set(o, "runpod", cloud);
    return o;
}

static json_object *machines_of(json_object *o)
{
    return jx_get(jx_get(o, "runpod"), "pods");
}

/* Its REST API does not tell what could be had. */
static int catalog(struct provisioner *p, struct provision_catalog *out,
    struct provision_note *note, struct err *e)
{
    (void)p;
    (void)out;
    (void)note;
    (void)e;
    return 1;
}

/* --- the type --------------------------------------------------------------------------------- */

static const struct fleet_ops FLEET = {
    .list = list,
    .launch = launch,
    .look = look,
    .end = end,
    .details = details,
    .machines_of = machines_of,
    .id_key = "podId",
    .error_of = error_of,
};

static int open_runpod(const struct provisioner_env *env, struct provisioner **out, struct err *e)
{
    const struct conf *conf = env->conf;
    const struct fleet_options o = {
        .url = conf->runpod_url,
        .key = conf->runpod_key,
        .ca_file = conf->runpod_ca_file,
        .auth = HTTP_AUTH_BEARER,
    };
    if (str_empty(o.key))
        return err_set(e, ERR_INVALID, "[runpod] key is not set");
    if (str_empty(conf->runpod_ssh_public_key))
        return err_set(e, ERR_INVALID, "[runpod] ssh_public_key is not set");
    if (strcmp(conf->runpod_cloud_type, "SECURE") != 0 &&
        strcmp(conf->runpod_cloud_type, "COMMUNITY") != 0)
        return err_set(e, ERR_INVALID, "[runpod] cloud_type must be SECURE or COMMUNITY");
    struct runpod *p = mem_kept(mem_calloc(1, sizeof *p));
    fleet_init(&p->fleet, &FLEET, env, &o);
    p->conf = conf;
    *out = &p->fleet.base;
    return 0;
}

static void close_runpod(struct provisioner *p)
{
    struct runpod *r = (struct runpod *)p;
    fleet_fini(&r->fleet);
    free(r);
}

/* Without a type nothing can be asked for: better said when the job is accepted. */
static int validate_request(const struct hook_job *job, struct err *e)
{
    struct provision_spec spec;
    if (PROVISION_DEFAULT_HOOKS.schedule(job, &spec, e) < 0)
        return -1;
    if (spec.gpu_type[0] == '\0')
        return err_set(e, ERR_INVALID, "accelerator.type: runpod needs one");
    return 0;
}

static int build_runtime(
    const struct hook_job *job, const struct provision_result *r, json_object **out, struct err *e)
{
    return hook_runtime_ssh("RunPod", job, r, out, e);
}

const struct provisioner_ops PROVISIONER_RUNPOD = {
    .type = "runpod",
    .ready_s = 900,
    .late = true,
    .open = open_runpod,
    .close = close_runpod,
    .provision = fleet_provision,
    .status = fleet_status,
    .list = fleet_list,
    .release = fleet_release,
    .catalog = catalog,
    .hooks = { .validate_request = validate_request, .build_runtime = build_runtime },
};
