/* SPDX-License-Identifier: Apache-2.0
 * The provisioner of who has a machine already: [local] slots replicas may run at once, and they are ready
 * as soon as they are asked for. A slot is a row of Postgres (store/local_slot.h), so that planners agree
 * and a restart forgets none. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "provision/builtin.h"
#include "provision/local.h"

enum { DETAILS_MAX = 64 << 10 };

struct local {
    struct provisioner base;
    struct db *db;
    const struct conf *conf;
    char cluster[PROVISION_CLUSTER_MAX + 1];
};

/* Postgres did not do it: whatever it was, it goes away. */
static int failed(struct provision_note *note, const struct err *why, struct err *e)
{
    note->error = why->code == ERR_TIMEOUT ? PROVISION_ERROR_TIMEOUT : PROVISION_ERROR_UNAVAILABLE;
    return err_set(e, why->code, "%s", why->msg);
}

static json_object *details_of(const int64_t *slot, size_t n)
{
    json_object *slots = jx_array();
    json_object *local = jx_object();
    json_object *o = jx_object();
    for (size_t i = 0; i < n; i++)
        jx_add_int(slots, slot[i]);
    jx_set(local, "slots", slots);
    jx_set(o, "local", local);
    return o;
}

static void fill_result(
    const struct local *l, const int64_t *slot, size_t n, struct provision_result *out)
{
    cleanup_json json_object *details = details_of(slot, n);
    struct buf text = BUF_INIT(DETAILS_MAX);
    struct provision_result r = { .status = PROVISION_RUNNING, .region = "local", .n = n };
    jx_print(details, &text);
    r.details = buf_steal(&text);
    r.machine = mem_calloc(n, sizeof *r.machine);
    for (size_t i = 0; i < n; i++) {
        struct machine *m = &r.machine[i];
        (void)str_format(m->id, sizeof m->id, "%lld", (long long)slot[i]);
        (void)str_copy(m->type, sizeof m->type, "slot");
        (void)str_copy(m->state, sizeof m->state, "taken");
        (void)str_copy(m->url, sizeof m->url, l->conf->local_endpoint);
    }
    *out = r;
}

static int provision(struct provisioner *p, const struct provision_request *r,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    const struct local *l = (const struct local *)p;
    int64_t slot[PROVISION_REPLICAS_MAX];
    struct err why = ERR_INIT;
    size_t n = 0;
    note->may_exist = true; /* a commit whose answer is lost may have happened */
    int taken = local_slot_take(l->db, r->name, r->spec->replicas, l->conf->local_slots, &why);
    if (taken == 1) {
        note->error = PROVISION_ERROR_NO_CAPACITY;
        note->may_exist = false;
        return err_set(e, ERR_UNAVAILABLE, "no %d slots free now", r->spec->replicas);
    }
    if (taken < 0 || local_slot_of(l->db, r->name, slot, PROVISION_REPLICAS_MAX, &n, &why) < 0)
        return failed(note, &why, e);
    fill_result(l, slot, n, out);
    return 0;
}

static int status(struct provisioner *p, const struct provision_request *r, const char *details,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    const struct local *l = (const struct local *)p;
    int64_t slot[PROVISION_REPLICAS_MAX];
    struct err why = ERR_INIT;
    size_t n = 0;
    (void)details; /* the name is enough */
    note->may_exist = true;
    if (local_slot_of(l->db, r->name, slot, PROVISION_REPLICAS_MAX, &n, &why) < 0)
        return failed(note, &why, e);
    fill_result(l, slot, n, out);
    if (n < (size_t)r->spec->replicas) /* somebody gave them back */
        out->status = n == 0 ? PROVISION_RELEASED : PROVISION_FAILED;
    return 0;
}

static int list(
    struct provisioner *p, struct provision_list *out, struct provision_note *note, struct err *e)
{
    const struct local *l = (const struct local *)p;
    cleanup_local_slots struct local_slots all = LOCAL_SLOTS_INIT;
    struct provision_list seen = PROVISION_LIST_INIT;
    struct err why = ERR_INIT;
    char job[PROVISION_JOB_SIZE];
    int attempt = 0;
    if (local_slot_list(l->db, &all, &why) < 0)
        return failed(note, &why, e);
    for (size_t i = 0; i < all.n; i++) {
        if (provision_name_parse(all.at[i].name, l->cluster, job, &attempt))
            provision_list_add(&seen, all.at[i].name, (int)all.at[i].slots);
    }
    *out = seen;
    return 0;
}

static int release(
    struct provisioner *p, const char *name, struct provision_note *note, struct err *e)
{
    const struct local *l = (const struct local *)p;
    struct err why = ERR_INIT;
    note->may_exist = true;
    if (local_slot_free(l->db, name, &why) < 0)
        return failed(note, &why, e);
    note->may_exist = false;
    return 0;
}

static int catalog(struct provisioner *p, struct provision_catalog *out,
    struct provision_note *note, struct err *e)
{
    const struct local *l = (const struct local *)p;
    struct err why = ERR_INIT;
    int64_t taken = 0;
    if (local_slot_taken(l->db, &taken, &why) < 0)
        return failed(note, &why, e);
    struct provision_offer *offer = mem_calloc(1, sizeof *offer);
    (void)str_copy(offer->type, sizeof offer->type, "slot");
    (void)str_copy(offer->regions, sizeof offer->regions, "local");
    offer->any = true;
    offer->free = taken < l->conf->local_slots ? l->conf->local_slots - taken : 0;
    *out = (struct provision_catalog){ .offer = offer, .n = 1 };
    return 0;
}

static int open_local(const struct provisioner_env *env, struct provisioner **out, struct err *e)
{
    if (env->db == NULL)
        return err_set(e, ERR_INVALID, "[db] url is not set: slots lie in Postgres");
    struct local *l = mem_kept(mem_calloc(1, sizeof *l));
    l->db = env->db;
    l->conf = env->conf;
    (void)str_copy(l->cluster, sizeof l->cluster, env->cluster);
    *out = &l->base;
    return 0;
}

static void close_local(struct provisioner *p)
{
    free(p);
}

const struct provisioner_ops PROVISIONER_LOCAL = {
    .type = "local",
    .ready_s = 60,
    .open = open_local,
    .close = close_local,
    .provision = provision,
    .status = status,
    .list = list,
    .release = release,
    .catalog = catalog,
};
