/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/hooks.h"

#include <string.h>

#include "base/str.h"
#include "json/jx.h"
#include "json/jx_bind.h"
#include "provision/provisioner.h"

enum { ARGS_MAX = 64 << 10, MACHINES_MAX = 1 << 20 };

/* A member that may be missing or null, but not of another type: 0, or -1 naming it. */
static int read_text(
    json_object *o, const char *where, const char *key, const char **out, struct err *e)
{
    if (jx_get(o, key) != NULL && !jx_get_str(o, key, out))
        return err_set(e, ERR_INVALID, "%s.%s: must be a text", where, key);
    return 0;
}

static int read_object(json_object *spec, const char *key, json_object **out, struct err *e)
{
    *out = jx_get(spec, key);
    if (*out != NULL && !json_object_is_type(*out, json_type_object))
        return err_set(e, ERR_INVALID, "%s: must be an object", key);
    return 0;
}

static int copy_text(char *dst, size_t size, const char *text, const char *name, struct err *e)
{
    if (strlen(text) >= size)
        return err_set(e, ERR_INVALID, "%s: longer than %zu bytes", name, size - 1);
    (void)str_copy(dst, size, text);
    return 0;
}

static int read_count(json_object *accelerator, int *out, struct err *e)
{
    int64_t n = 0;
    if (jx_get(accelerator, "count") == NULL)
        return 0;
    if (!jx_get_int(accelerator, "count", &n) || n < 0 || n > PROVISION_GPUS_MAX)
        return err_set(e, ERR_INVALID, "accelerator.count: must be a whole number from 0 to %d",
            PROVISION_GPUS_MAX);
    *out = (int)n;
    return 0;
}

static int schedule(const struct hook_job *job, struct provision_spec *out, struct err *e)
{
    struct provision_spec spec = { .replicas = 1 };
    json_object *accelerator = NULL;
    const char *type = "";
    const char *region = "";
    if (job->replicas < 0 || job->replicas > PROVISION_REPLICAS_MAX)
        return err_set(e, ERR_INVALID, "replicas: must be from 1 to %d", PROVISION_REPLICAS_MAX);
    if (job->replicas > 0)
        spec.replicas = (int)job->replicas;
    if (read_object(job->spec, "accelerator", &accelerator, e) < 0 ||
        read_count(accelerator, &spec.gpus_per_replica, e) < 0 ||
        read_text(accelerator, "accelerator", "type", &type, e) < 0 ||
        read_text(job->provider_config, "provider_config", "region", &region, e) < 0 ||
        copy_text(spec.gpu_type, sizeof spec.gpu_type, type, "accelerator.type", e) < 0 ||
        copy_text(spec.region, sizeof spec.region, region, "provider_config.region", e) < 0)
        return -1;
    *out = spec;
    return 0;
}

static bool is_plain_word(const char *text)
{
    return text[0] != '\0' &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "-_=./:,@%+")] == '\0';
}

/* One argument as a shell's word. */
static void add_word(struct buf *out, const char *text)
{
    if (out->len > 0)
        buf_putc(out, ' ');
    if (is_plain_word(text)) {
        buf_puts(out, text);
        return;
    }
    buf_putc(out, '\'');
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            buf_puts(out, "'\\''");
        else
            buf_putc(out, *p);
    }
    buf_putc(out, '\'');
}

static int set_args(json_object *options, json_object *args, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(ARGS_MAX);
    if (args == NULL)
        return 0;
    if (!json_object_is_type(args, json_type_array))
        return err_set(e, ERR_INVALID, "engine.serve_args: must be a list of texts");
    for (size_t i = 0; i < json_object_array_length(args); i++) {
        json_object *arg = json_object_array_get_idx(args, i);
        if (!json_object_is_type(arg, json_type_string))
            return err_set(e, ERR_INVALID, "engine.serve_args: must be a list of texts");
        add_word(&text, json_object_get_string(arg));
    }
    if (text.overflow)
        return err_set(e, ERR_INVALID, "engine.serve_args: longer than %d bytes", ARGS_MAX);
    if (text.len > 0)
        jx_set_str(options, "vllm_args", text.data);
    return 0;
}

/* Where a machine is. Texts all of them. */
static void set_place(json_object *o, const struct machine *m)
{
    char port[16];
    jx_set_some(o, "host", m->host);
    if (m->ssh_port > 0) {
        (void)str_format(port, sizeof port, "%d", m->ssh_port);
        jx_set_str(o, "ssh_port", port);
        jx_set_some(o, "ssh_user", m->ssh_user);
    }
    jx_set_some(o, "http_base_url", m->url);
}

/* All of several, the first included: options are a map of texts, so this is the text of a JSON list. */
static int set_machines(json_object *options, const struct provision_result *r, struct err *e)
{
    cleanup_json json_object *list = jx_array();
    cleanup_buf struct buf text = BUF_INIT(MACHINES_MAX);
    for (size_t i = 0; i < r->n; i++) {
        json_object *one = jx_object();
        set_place(one, &r->machine[i]);
        jx_add(list, one);
    }
    jx_print(list, &text);
    if (text.overflow)
        return err_set(e, ERR_INVALID, "the places of %zu machines: too long", r->n);
    jx_set_str(options, "machines", text.data);
    return 0;
}

static int set_engine(json_object *options, const struct hook_job *job, struct err *e)
{
    json_object *engine = NULL;
    const char *image = "";
    if (read_object(job->spec, "engine", &engine, e) < 0 ||
        read_text(engine, "engine", "image", &image, e) < 0)
        return -1;
    jx_set_some(options, "image", image);
    return set_args(options, jx_get(engine, "serve_args"), e);
}

/* A service that speaks to one machine takes the first, one that knows better takes `machines`. */
static int set_options(json_object *options, const struct hook_job *job,
    const struct provision_result *r, struct err *e)
{
    set_place(options, &r->machine[0]);
    if (r->n > 1 && set_machines(options, r, e) < 0)
        return -1;
    jx_set_some(options, "model", job->model);
    return set_engine(options, job, e);
}

/* What cannot be scheduled, or cannot be run once there are machines, is refused when it is accepted. */
static int validate_request(const struct hook_job *job, struct err *e)
{
    cleanup_json json_object *options = jx_object();
    struct provision_spec spec;
    return schedule(job, &spec, e) < 0 ? -1 : set_engine(options, job, e);
}

static json_object *runtime_of(const char *target, json_object **options)
{
    json_object *runtime = jx_object();
    jx_set_str(runtime, "target", target);
    jx_set(runtime, "options", STEAL(*options));
    return runtime;
}

int hook_runtime_ssh(const char *target, const struct hook_job *job,
    const struct provision_result *r, json_object **out, struct err *e)
{
    cleanup_json json_object *options = jx_object();
    if (r->n == 0)
        return err_set(e, ERR_INVALID, "no machine that can be reached by SSH");
    for (size_t i = 0; i < r->n; i++) {
        if (r->machine[i].host[0] == '\0' || r->machine[i].ssh_port == 0)
            return err_set(
                e, ERR_INVALID, "a machine, %s, that cannot be reached by SSH", r->machine[i].id);
    }
    if (set_options(options, job, r, e) < 0)
        return -1;
    *out = runtime_of(target, &options);
    return 0;
}

int hook_runtime_url(const char *target, const struct hook_job *job,
    const struct provision_result *r, json_object **out, struct err *e)
{
    cleanup_json json_object *options = jx_object();
    *out = NULL;
    if (r->n == 0 || r->machine[0].url[0] == '\0')
        return 0;
    if (set_options(options, job, r, e) < 0)
        return -1;
    *out = runtime_of(target, &options);
    return 0;
}

static int build_runtime(
    const struct hook_job *job, const struct provision_result *r, json_object **out, struct err *e)
{
    return hook_runtime_url("External", job, r, out, e);
}

static int build_resource_allocation(const struct hook_job *job, const struct provision_spec *spec,
    const char *provision_id, json_object **out, struct err *e)
{
    (void)job;
    (void)e;
    json_object *allocation = jx_object();
    json_object *details = jx_array();
    json_object *detail = jx_object();
    jx_set_str(allocation, "provision_id", provision_id);
    jx_set_some(detail, "gpu_type", spec->gpu_type);
    jx_set_int(detail, "replica", spec->replicas);
    jx_add(details, detail);
    jx_set(allocation, "resource_details", details);
    *out = allocation;
    return 0;
}

static int allocation_time_window(const struct hook_job *job, const struct provision_result *r,
    struct provision_window *out, struct err *e)
{
    (void)job;
    (void)e;
    if (r->start_us == 0 && r->end_us == 0)
        return 1;
    *out = (struct provision_window){ .start_us = r->start_us, .end_us = r->end_us };
    return 0;
}

const struct provision_hooks PROVISION_DEFAULT_HOOKS = {
    .validate_request = validate_request,
    .schedule = schedule,
    .build_runtime = build_runtime,
    .build_resource_allocation = build_resource_allocation,
    .allocation_time_window = allocation_time_window,
};

struct provision_hooks provisioner_hooks(const struct provisioner_ops *ops)
{
    struct provision_hooks h = ops->hooks;
    if (h.validate_request == NULL)
        h.validate_request = validate_request;
    if (h.schedule == NULL)
        h.schedule = schedule;
    if (h.build_runtime == NULL)
        h.build_runtime = build_runtime;
    if (h.build_resource_allocation == NULL)
        h.build_resource_allocation = build_resource_allocation;
    if (h.allocation_time_window == NULL)
        h.allocation_time_window = allocation_time_window;
    return h;
}

/* --- a spec in its row ------------------------------------------------------------------------ */

json_object *provision_spec_json(const struct provision_spec *spec)
{
    json_object *o = jx_object();
    jx_set_int(o, "replicas", spec->replicas);
    jx_set_int(o, "gpus_per_replica", spec->gpus_per_replica);
    jx_set_str(o, "gpu_type", spec->gpu_type);
    jx_set_str(o, "region", spec->region);
    return o;
}

struct spec_row {
    int64_t replicas;
    int64_t gpus_per_replica;
    const char *gpu_type;
    const char *region;
};

int provision_spec_read(json_object *o, struct provision_spec *out, struct err *e)
{
    static const struct jx_field FIELDS[] = {
        JX_INT(struct spec_row, replicas, JX_REQUIRED, 1, PROVISION_REPLICAS_MAX),
        JX_INT(struct spec_row, gpus_per_replica, 0, 0, PROVISION_GPUS_MAX),
        JX_TEXT(struct spec_row, gpu_type, 0, PROVISION_TEXT_SIZE - 1),
        JX_TEXT(struct spec_row, region, 0, PROVISION_TEXT_SIZE - 1),
    };
    struct spec_row row = { .gpu_type = "", .region = "" };
    struct provision_spec spec;
    if (jx_bind(o, FIELDS, sizeof FIELDS / sizeof FIELDS[0], JX_LENIENT, &row, e) < 0 ||
        copy_text(spec.gpu_type, sizeof spec.gpu_type, row.gpu_type, "gpu_type", e) < 0 ||
        copy_text(spec.region, sizeof spec.region, row.region, "region", e) < 0)
        return -1;
    spec.replicas = (int)row.replicas;
    spec.gpus_per_replica = (int)row.gpus_per_replica;
    *out = spec;
    return 0;
}
