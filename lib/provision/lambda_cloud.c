/* SPDX-License-Identifier: Apache-2.0
 * Lambda Cloud, by https://cloud.lambda.ai/api/v1: the key is the user of HTTP Basic; answers are
 * {"data":...} or {"error":{"code","message"}}; a launch makes one instance; capacity that went between the
 * look at the types and the launch is a 400. Facts: reference section 1.8. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "provision/builtin.h"
#include "provision/fleet.h"
#include "model/gpu_match.h"

enum { SSH_PORT = 22, NOT_FOUND = 404, PATH_MAX_BYTES = 512 };

struct lambda {
    struct fleet fleet;
    const struct conf *conf;
};

/* --- reading its answers ---------------------------------------------------------------------- */

static enum fleet_state state_of(const struct machine *m)
{
    static const struct {
        const char *word;
        enum fleet_state state;
    } WORDS[] = {
        { "active", FLEET_RUNNING },
        { "unhealthy", FLEET_BROKEN },
        { "terminated", FLEET_GONE },
        { "terminating", FLEET_GONE },
        { "preempted", FLEET_GONE },
    };
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        if (strcmp(m->state, WORDS[i].word) == 0)
            /* It is active before it has an address. */
            return WORDS[i].state == FLEET_RUNNING && m->host[0] == '\0' ? FLEET_STARTING
                                                                         : WORDS[i].state;
    }
    return FLEET_STARTING;
}

static void read_instance(json_object *o, struct fleet_machine *out)
{
    struct fleet_machine f = { .name = "" };
    struct machine *m = &f.m;
    const char *name = "";
    fleet_read_text(o, "id", m->id, sizeof m->id);
    fleet_read_text(o, "status", m->state, sizeof m->state);
    fleet_read_text(o, "ip", m->host, sizeof m->host);
    fleet_read_text(o, "private_ip", m->private_host, sizeof m->private_host);
    fleet_read_text(jx_get(o, "instance_type"), "name", m->type, sizeof m->type);
    fleet_read_text(jx_get(o, "region"), "name", f.region, sizeof f.region);
    if (jx_get_str(o, "name", &name) && str_copy(f.name, sizeof f.name, name) < 0)
        f.name[0] = '\0';
    if (m->host[0] != '\0') {
        (void)str_copy(m->ssh_user, sizeof m->ssh_user, "ubuntu");
        m->ssh_port = SSH_PORT;
        (void)str_format(m->url, sizeof m->url, "http://%s:8000", m->host);
    }
    f.state = state_of(m);
    *out = f;
}

static enum provision_error error_of(int status, json_object *answer)
{
    const char *code = "";
    (void)status;
    (void)jx_get_str(jx_get(answer, "error"), "code", &code);
    /* A quota is free again once other machines of the account have ended. */
    if (str_ends(code, "/insufficient-capacity") || strcmp(code, "global/quota-exceeded") == 0)
        return PROVISION_ERROR_NO_CAPACITY;
    return PROVISION_ERROR_NONE;
}

/* --- what a fleet wants ----------------------------------------------------------------------- */

static int list(struct fleet *f, const char *name, int64_t deadline_ns, struct fleet_machines *out,
    struct provision_note *note, struct err *e)
{
    const struct fleet_call c = {
        .method = "GET", .path = "instances", .deadline_ns = deadline_ns
    };
    cleanup_json json_object *o = NULL;
    (void)name; /* it cannot be asked for */
    if (fleet_ask(f, &c, &o, note, e) < 0)
        return -1;
    json_object *data = jx_get(o, "data");
    if (!json_object_is_type(data, json_type_array))
        return fleet_nonsense(note, e, "the answer is no list of instances");
    for (size_t i = 0; i < json_object_array_length(data); i++) {
        struct fleet_machine m;
        read_instance(json_object_array_get_idx(data, i), &m);
        if (m.m.id[0] != '\0')
            fleet_add(out, &m);
    }
    return 0;
}

static int look(struct fleet *f, const char *id, int64_t deadline_ns, struct fleet_machine *out,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    cleanup_json json_object *o = NULL;
    int status = 0;
    buf_puts(&path, "instances/");
    http_url_escape(&path, id);
    const struct fleet_call c = {
        .method = "GET", .path = path.data, .deadline_ns = deadline_ns, .status = &status
    };
    if (fleet_ask(f, &c, &o, note, e) < 0)
        return status == NOT_FOUND ? 1 : -1;
    struct fleet_machine m;
    read_instance(jx_get(o, "data"), &m);
    if (strcmp(m.m.id, id) != 0)
        return fleet_nonsense(note, e, "the answer is about another instance");
    *out = m;
    return 0;
}

/* Tells instances to end. 1: one of them is unknown, which spoils the call for all. */
static int terminate(struct fleet *f, const struct fleet_machines *l, int64_t deadline_ns,
    struct provision_note *note, struct err *e)
{
    cleanup_json json_object *body = jx_object();
    cleanup_json json_object *o = NULL;
    json_object *ids = jx_array();
    int status = 0;
    const struct fleet_call c = {
        .method = "POST",
        .path = "instance-operations/terminate",
        .body = body,
        .deadline_ns = deadline_ns,
        .status = &status,
    };
    for (size_t i = 0; i < l->n; i++)
        jx_add_str(ids, l->at[i].m.id);
    jx_set(body, "instance_ids", ids);
    if (fleet_ask(f, &c, &o, note, e) == 0)
        return 0;
    return status == NOT_FOUND ? 1 : -1;
}

static int end(struct fleet *f, const struct fleet_machines *l, int64_t deadline_ns,
    struct provision_note *note, struct err *e)
{
    int result = terminate(f, l, deadline_ns, note, e);
    if (result != 1)
        return result;
    for (size_t i = 0; i < l->n; i++) { /* each by itself: what is unknown is gone */
        const struct fleet_machines one = { .at = &l->at[i], .n = 1 };
        if (terminate(f, &one, deadline_ns, note, e) < 0)
            return -1;
    }
    return 0;
}

/* --- what to launch --------------------------------------------------------------------------- */

/* Where an instance type can be had: the wanted region, or the first ("" wanted). False: nowhere there. */
static bool has_region(json_object *entry, const char *wanted, char *out, size_t size)
{
    json_object *regions = jx_get(entry, "regions_with_capacity_available");
    size_t n =
        json_object_is_type(regions, json_type_array) ? json_object_array_length(regions) : 0;
    for (size_t i = 0; i < n; i++) {
        fleet_read_text(json_object_array_get_idx(regions, i), "name", out, size);
        if (out[0] != '\0' && (wanted[0] == '\0' || strcmp(out, wanted) == 0))
            return true;
    }
    return false;
}

static int64_t gpus_of(json_object *type)
{
    int64_t n = 0;
    (void)jx_get_int(jx_get(type, "specs"), "gpus", &n);
    return n;
}

static int64_t price_of(json_object *type)
{
    int64_t cents = INT64_MAX;
    (void)jx_get_int(type, "price_cents_per_hour", &cents);
    return cents;
}

static bool fits(json_object *type, const struct provision_spec *spec)
{
    const int wanted = spec->gpus_per_replica > 0 ? spec->gpus_per_replica : 1;
    const char *name = "";
    const char *gpu = "";
    (void)jx_get_str(type, "name", &name);
    (void)jx_get_str(type, "gpu_description", &gpu);
    return name[0] != '\0' && gpus_of(type) == wanted && gpu_match(spec->gpu_type, name, gpu);
}

static int get_types(struct fleet *f, int64_t deadline_ns, json_object **out, json_object **data,
    struct provision_note *note, struct err *e)
{
    const struct fleet_call c = {
        .method = "GET", .path = "instance-types", .deadline_ns = deadline_ns
    };
    if (fleet_ask(f, &c, out, note, e) < 0)
        return -1;
    *data = jx_get(*out, "data");
    return json_object_is_type(*data, json_type_object)
               ? 0
               : fleet_nonsense(note, e, "the answer is no list of instance types");
}

/* The cheapest that fits and can be had; the first by name among equals. */
static int choose(struct fleet *f, const struct provision_request *r, struct fleet_choice *out,
    struct provision_note *note, struct err *e)
{
    const struct lambda *l = (const struct lambda *)f;
    const struct provision_spec *spec = r->spec;
    const char *wanted = spec->region[0] != '\0' ? spec->region : l->conf->lambda_cloud_region;
    cleanup_json json_object *o = NULL;
    json_object *data = NULL;
    struct fleet_choice best = { .type = "" };
    int64_t best_price = INT64_MAX;
    bool any = false;
    if (get_types(f, r->deadline_ns, &o, &data, note, e) < 0)
        return -1;
    json_object_object_foreach(data, key, entry)
    {
        struct fleet_choice c = { .type = "" };
        json_object *type = jx_get(entry, "instance_type");
        (void)key;
        if (!fits(type, spec))
            continue;
        any = true;
        fleet_read_text(type, "name", c.type, sizeof c.type);
        if (!has_region(entry, wanted, c.region, sizeof c.region))
            continue;
        const int64_t price = price_of(type);
        if (best.type[0] == '\0' || price < best_price ||
            (price == best_price && strcmp(c.type, best.type) < 0)) {
            best = c;
            best_price = price;
        }
    }
    if (best.type[0] != '\0') {
        *out = best;
        return 0;
    }
    note->error = any ? PROVISION_ERROR_NO_CAPACITY : PROVISION_ERROR_NO_GPU_TYPE;
    return any ? err_set(e, ERR_UNAVAILABLE, "no capacity for %d x %s in %s now",
                     spec->gpus_per_replica, spec->gpu_type,
                     wanted[0] != '\0' ? wanted : "any region")
               : err_set(e, ERR_INVALID, "no instance type with %d x \"%s\"",
                     spec->gpus_per_replica, spec->gpu_type);
}

static int launch(struct fleet *f, const struct provision_request *r, struct fleet_choice *choice,
    struct fleet_machine *out, struct provision_note *note, struct err *e)
{
    const struct lambda *l = (const struct lambda *)f;
    cleanup_json json_object *body = jx_object();
    cleanup_json json_object *o = NULL;
    const struct fleet_call c = {
        .method = "POST",
        .path = "instance-operations/launch",
        .body = body,
        .deadline_ns = r->deadline_ns,
        .launch = true,
    };
    jx_set_str(body, "region_name", choice->region);
    jx_set_str(body, "instance_type_name", choice->type);
    jx_set(body, "ssh_key_names", fleet_words(l->conf->lambda_cloud_ssh_keys));
    jx_set_str(body, "name", r->name);
    if (fleet_ask(f, &c, &o, note, e) < 0)
        return -1;
    json_object *ids = jx_get(jx_get(o, "data"), "instance_ids");
    const char *id = NULL;
    if (json_object_is_type(ids, json_type_array) && json_object_array_length(ids) == 1)
        id = json_object_get_string(json_object_array_get_idx(ids, 0));
    if (id == NULL || str_copy(out->m.id, sizeof out->m.id, id) < 0) {
        note->unsure = true;
        return fleet_nonsense(note, e, "the answer names no new instance");
    }
    (void)str_copy(out->m.type, sizeof out->m.type, choice->type);
    (void)str_copy(out->m.state, sizeof out->m.state, "booting");
    (void)str_copy(out->region, sizeof out->region, choice->region);
    return 0;
}

/* --- results ---------------------------------------------------------------------------------- */

static json_object *details(const struct provision_spec *spec, const struct fleet_machines *l)
{
    json_object *instances = jx_array();
    json_object *group = jx_object();
    json_object *groups = jx_array();
    json_object *cloud = jx_object();
    json_object *o = jx_object();
    for (size_t i = 0; i < l->n; i++)
        jx_add(instances, fleet_instance(&l->at[i]));
    jx_set(group, "instances", instances);
    jx_set_int(group, "replicas", spec->replicas);
    jx_set_str(group, "acceleratorType", spec->gpu_type);
    jx_set_int(group, "acceleratorCount", spec->gpus_per_replica);
    jx_add(groups, group);
    jx_set(cloud, "groupResults", groups);
    jx_set_str(cloud, "region", l->n > 0 ? l->at[0].region : "");
    jx_set(o, "lambdaCloud", cloud);
    return o;
}

static json_object *machines_of(json_object *o)
{
    json_object *groups = jx_get(jx_get(o, "lambdaCloud"), "groupResults");
    return json_object_is_type(groups, json_type_array)
               ? jx_get(json_object_array_get_idx(groups, 0), "instances")
               : NULL;
}

/* --- catalog ---------------------------------------------------------------------------------- */

static void add_regions(json_object *entry, char *out, size_t size)
{
    json_object *regions = jx_get(entry, "regions_with_capacity_available");
    size_t n =
        json_object_is_type(regions, json_type_array) ? json_object_array_length(regions) : 0;
    struct buf text = BUF_INIT(size - 1);
    for (size_t i = 0; i < n && !text.overflow; i++) {
        char name[PROVISION_TEXT_SIZE];
        fleet_read_text(json_object_array_get_idx(regions, i), "name", name, sizeof name);
        buf_printf(&text, "%s%s", text.len > 0 ? " " : "", name);
    }
    (void)str_copy(out, size, text.data == NULL ? "" : text.data);
    buf_free(&text);
}

static int catalog(struct provisioner *p, struct provision_catalog *out,
    struct provision_note *note, struct err *e)
{
    struct fleet *f = (struct fleet *)p;
    cleanup_json json_object *o = NULL;
    json_object *data = NULL;
    struct provision_catalog c = PROVISION_CATALOG_INIT;
    if (get_types(f, clock_deadline(PROVISION_CALL_MS), &o, &data, note, e) < 0)
        return -1;
    c.offer = mem_calloc((size_t)json_object_object_length(data), sizeof *c.offer);
    json_object_object_foreach(data, key, entry)
    {
        json_object *type = jx_get(entry, "instance_type");
        struct provision_offer *offer = &c.offer[c.n++];
        (void)key;
        fleet_read_text(type, "name", offer->type, sizeof offer->type);
        fleet_read_text(type, "gpu_description", offer->gpu_type, sizeof offer->gpu_type);
        offer->gpus = (int)gpus_of(type);
        offer->price_cents_per_hour = price_of(type);
        offer->free = -1;
        add_regions(entry, offer->regions, sizeof offer->regions);
    }
    *out = c;
    return 0;
}

/* --- the type --------------------------------------------------------------------------------- */

static const struct fleet_ops FLEET = {
    .list = list,
    .choose = choose,
    .launch = launch,
    .look = look,
    .end = end,
    .details = details,
    .machines_of = machines_of,
    .id_key = "instanceId",
    .error_of = error_of,
};

static int open_lambda(const struct provisioner_env *env, struct provisioner **out, struct err *e)
{
    const struct conf *conf = env->conf;
    const struct fleet_options o = {
        .url = conf->lambda_cloud_url,
        .key = conf->lambda_cloud_key,
        .ca_file = conf->lambda_cloud_ca_file,
        .auth = HTTP_AUTH_BASIC_USER,
    };
    if (str_empty(o.key))
        return err_set(e, ERR_INVALID, "[lambda_cloud] key is not set");
    if (str_empty(conf->lambda_cloud_ssh_keys))
        return err_set(e, ERR_INVALID, "[lambda_cloud] ssh_keys is not set");
    struct lambda *l = mem_kept(mem_calloc(1, sizeof *l));
    fleet_init(&l->fleet, &FLEET, env, &o);
    l->conf = conf;
    *out = &l->fleet.base;
    return 0;
}

static void close_lambda(struct provisioner *p)
{
    struct lambda *l = (struct lambda *)p;
    fleet_fini(&l->fleet);
    free(l);
}

static int build_runtime(
    const struct hook_job *job, const struct provision_result *r, json_object **out, struct err *e)
{
    return hook_runtime_ssh("LambdaCloud", job, r, out, e);
}

const struct provisioner_ops PROVISIONER_LAMBDA_CLOUD = {
    .type = "lambdaCloud",
    .ready_s = 1200,
    .late = true,
    .open = open_lambda,
    .close = close_lambda,
    .provision = fleet_provision,
    .status = fleet_status,
    .list = fleet_list,
    .release = fleet_release,
    .catalog = catalog,
    .hooks = { .build_runtime = build_runtime },
};
