/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/kubernetes_nodes.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "model/gpu_match.h"
#include "provision/kubernetes_read.h"

enum { NODE_NAME_SIZE = 254 };

struct node {
    char name[NODE_NAME_SIZE];
    char gpu_type[KUBERNETES_WORD_SIZE];
    int64_t free;
    bool open; /* takes new pods */
};

struct nodes {
    const struct conf *conf;
    struct node *at;
    size_t n;
};

static void nodes_fini(struct nodes *l)
{
    free(l->at);
}
#define cleanup_nodes __attribute__((cleanup(nodes_fini)))

/* --- nodes ------------------------------------------------------------------------------------ */

static bool is_ready(json_object *node)
{
    json_object *list = jx_get(jx_get(node, "status"), "conditions");
    const size_t n =
        json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *c = json_object_array_get_idx(list, i);
        const char *type = "";
        const char *status = "";
        if (jx_get_str(c, "type", &type) && strcmp(type, "Ready") == 0)
            return jx_get_str(c, "status", &status) && strcmp(status, "True") == 0;
    }
    return false;
}

/* By a taint that our pods do not tolerate. */
static bool is_kept_free(json_object *spec, const char *gpu_resource)
{
    json_object *list = jx_get(spec, "taints");
    const size_t n =
        json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        json_object *taint = json_object_array_get_idx(list, i);
        const char *key = "";
        const char *effect = "";
        (void)jx_get_str(taint, "key", &key);
        (void)jx_get_str(taint, "effect", &effect);
        const bool tolerated = strcmp(key, gpu_resource) == 0 && strcmp(effect, "NoSchedule") == 0;
        if (!tolerated && strcmp(effect, "PreferNoSchedule") != 0)
            return true;
    }
    return false;
}

static void read_node(json_object *o, void *ctx)
{
    struct nodes *l = ctx;
    json_object *meta = jx_get(o, "metadata");
    json_object *spec = jx_get(o, "spec");
    struct node n = { .name = "" };
    bool cordoned = false;
    const char *name = "";

    if (!jx_get_str(meta, "name", &name) || str_copy(n.name, sizeof n.name, name) < 0)
        return;
    fleet_read_text(
        jx_get(meta, "labels"), l->conf->kubernetes_gpu_label, n.gpu_type, sizeof n.gpu_type);
    n.free = kubernetes_count(
        jx_get(jx_get(o, "status"), "allocatable"), l->conf->kubernetes_gpu_resource);
    (void)jx_get_bool(spec, "unschedulable", &cordoned);
    n.open = !cordoned && is_ready(o) && !is_kept_free(spec, l->conf->kubernetes_gpu_resource);
    l->at = mem_resize(l->at, l->n + 1, sizeof *l->at);
    l->at[l->n++] = n;
}

static int get_nodes(struct kubernetes *k, int64_t deadline_ns, struct nodes *out,
    struct provision_note *note, struct err *e)
{
    const struct kubernetes_list l = {
        .path = "api/v1/nodes?", .deadline_ns = deadline_ns, .each = read_node, .ctx = out
    };
    out->conf = k->conf;
    return kubernetes_list(k, &l, note, e);
}

static bool has(json_object *list, const char *text)
{
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        if (strcmp(json_object_get_string(json_object_array_get_idx(list, i)), text) == 0)
            return true;
    }
    return false;
}

int kubernetes_gpu_types(struct kubernetes *k, const char *wanted, int64_t deadline_ns,
    json_object **out, struct provision_note *note, struct err *e)
{
    cleanup_nodes struct nodes l = { .n = 0 };
    cleanup_json json_object *types = jx_array();
    if (wanted[0] == '\0' || str_empty(k->conf->kubernetes_gpu_label))
        return 0;
    if (get_nodes(k, deadline_ns, &l, note, e) < 0)
        return -1;
    for (size_t i = 0; i < l.n; i++) {
        const char *type = l.at[i].gpu_type;
        if (type[0] != '\0' && gpu_match(wanted, type, "") && !has(types, type))
            jx_add_str(types, type);
    }
    if (json_object_array_length(types) == 0) {
        note->error = PROVISION_ERROR_NO_GPU_TYPE;
        return err_set(e, ERR_INVALID, "no node with a \"%s\"", wanted);
    }
    *out = STEAL(types);
    return 0;
}

/* --- what is free ----------------------------------------------------------------------------- */

static int64_t asks_for(json_object *container, const char *resource)
{
    json_object *resources = jx_get(container, "resources");
    const int requested = kubernetes_count(jx_get(resources, "requests"), resource);
    return requested > 0 ? requested : kubernetes_count(jx_get(resources, "limits"), resource);
}

/* Containers run side by side, those of the start one after another before them. */
static int64_t gpus_of(json_object *spec, const char *resource)
{
    json_object *list = jx_get(spec, "containers");
    json_object *first = jx_get(spec, "initContainers");
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += asks_for(json_object_array_get_idx(list, i), resource);
    n = json_object_is_type(first, json_type_array) ? json_object_array_length(first) : 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t one = asks_for(json_object_array_get_idx(first, i), resource);
        sum = one > sum ? one : sum;
    }
    return sum;
}

static void take_pod(json_object *pod, void *ctx)
{
    const struct nodes *l = ctx;
    json_object *spec = jx_get(pod, "spec");
    const char *place = NULL;
    const char *phase = "";

    (void)jx_get_str(jx_get(pod, "status"), "phase", &phase);
    if (!jx_get_str(spec, "nodeName", &place) || strcmp(phase, "Succeeded") == 0 ||
        strcmp(phase, "Failed") == 0)
        return;
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->at[i].name, place) == 0) {
            l->at[i].free -= gpus_of(spec, l->conf->kubernetes_gpu_resource);
            return;
        }
    }
}

static void offer(
    struct provision_catalog *c, const struct kubernetes *k, const char *type, int64_t gpus)
{
    struct provision_offer *o = &c->offer[c->n++];
    (void)str_copy(o->type, sizeof o->type, type[0] != '\0' ? type : "cpu");
    (void)str_copy(o->gpu_type, sizeof o->gpu_type, type);
    (void)str_copy(o->regions, sizeof o->regions, k->region);
    o->gpus = (int)(gpus > 0 ? gpus : 0);
    o->free = o->gpus;
    o->shared = true;
}

int kubernetes_catalog(struct provisioner *p, struct provision_catalog *out,
    struct provision_note *note, struct err *e)
{
    struct kubernetes *k = (struct kubernetes *)p;
    cleanup_nodes struct nodes l = { .n = 0 };
    struct provision_catalog c = PROVISION_CATALOG_INIT;
    const int64_t deadline_ns = clock_deadline(PROVISION_CALL_MS);
    const struct kubernetes_list pods = {
        .path = "api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed",
        .deadline_ns = deadline_ns,
        .each = take_pod,
        .ctx = &l
    };
    if (get_nodes(k, deadline_ns, &l, note, e) < 0 || kubernetes_list(k, &pods, note, e) < 0)
        return -1;
    c.offer = mem_calloc(l.n + 1, sizeof *c.offer);
    bool any = false;
    for (size_t i = 0; i < l.n; i++) {
        if (!l.at[i].open)
            continue;
        any = true;
        if (l.at[i].free > 0 || l.at[i].gpu_type[0] != '\0')
            offer(&c, k, l.at[i].gpu_type, l.at[i].free);
    }
    if (any)
        offer(&c, k, "", 0);
    *out = c;
    return 0;
}
