/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/fleet.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"

/* A launch is not begun with less time than this left; how long to pause when the provider says "not so
 * fast" and does not say how long; how long for the rest of a release. */
enum { LAUNCH_MS = 5000, PAUSE_MS = 12000, DETAILS_MAX = 1 << 20 };

void fleet_machines_fini(struct fleet_machines *l)
{
    free(l->at);
    l->at = NULL;
    l->n = 0;
}

void fleet_add(struct fleet_machines *l, const struct fleet_machine *m)
{
    l->at = mem_resize(l->at, l->n + 1, sizeof *l->at);
    l->at[l->n++] = *m;
}

enum provision_status fleet_fold(const struct fleet_machines *l)
{
    size_t count[FLEET_GONE + 1] = { 0 };
    for (size_t i = 0; i < l->n; i++)
        count[l->at[i].state]++;
    if (count[FLEET_GONE] == l->n)
        return PROVISION_RELEASED;
    if (count[FLEET_GONE] + count[FLEET_BROKEN] > 0)
        return PROVISION_FAILED;
    return count[FLEET_RUNNING] == l->n ? PROVISION_RUNNING : PROVISION_PROVISIONING;
}

json_object *fleet_instance(const struct fleet_machine *f)
{
    const struct machine *m = &f->m;
    json_object *o = jx_object();
    jx_set_str(o, "instanceId", m->id);
    jx_set_str(o, "instanceType", m->type);
    jx_set_str(o, "status", m->state);
    jx_set_some(o, "privateIp", m->private_host);
    jx_set_some(o, "publicIp", m->host);
    if (m->ssh_port > 0) {
        jx_set_str(o, "sshUser", m->ssh_user);
        jx_set_int(o, "sshPort", m->ssh_port);
    }
    jx_set_some(o, "httpBaseUrl", m->url);
    jx_set_some(o, "launchTime", f->launched);
    return o;
}

static void fill_result(struct fleet *f, const struct provision_spec *spec,
    const struct fleet_machines *l, struct provision_result *out)
{
    cleanup_json json_object *details = f->ops->details(spec, l);
    struct buf text = BUF_INIT(DETAILS_MAX);
    struct provision_result r = PROVISION_RESULT_INIT;
    jx_print(details, &text);
    r.details = buf_steal(&text);
    r.status = fleet_fold(l);
    r.n = l->n;
    r.machine = mem_calloc(l->n, sizeof *r.machine);
    for (size_t i = 0; i < l->n; i++) {
        r.machine[i] = l->at[i].m;
        if (r.region[0] == '\0')
            (void)str_copy(r.region, sizeof r.region, l->at[i].region);
    }
    *out = r;
}

/* The machines of a name that are not gone. */
static int list_alive(struct fleet *f, const char *name, int64_t deadline_ns,
    struct fleet_machines *out, struct provision_note *note, struct err *e)
{
    cleanup_fleet struct fleet_machines all = FLEET_MACHINES_INIT;
    if (f->ops->list(f, name, deadline_ns, &all, note, e) < 0)
        return -1;
    for (size_t i = 0; i < all.n; i++) {
        if (all.at[i].state != FLEET_GONE && strcmp(all.at[i].name, name) == 0)
            fleet_add(out, &all.at[i]);
    }
    return 0;
}

/* --- provision -------------------------------------------------------------------------------- */

/* The ones worth keeping first; among equals always in the same order. */
static int by_worth(const void *a, const void *b)
{
    static const int WORTH[] = {
        [FLEET_RUNNING] = 0, [FLEET_STARTING] = 1, [FLEET_BROKEN] = 2, [FLEET_GONE] = 3
    };
    const struct fleet_machine *x = a;
    const struct fleet_machine *y = b;
    int d = WORTH[x->state] - WORTH[y->state];
    return d != 0 ? d : strcmp(x->m.id, y->m.id);
}

/* Ends what is more than wanted: a launch whose answer was lost had worked after all. */
static int trim(struct fleet *f, const struct provision_request *r, struct fleet_machines *l,
    struct provision_note *note, struct err *e)
{
    const size_t wanted = (size_t)r->spec->replicas;
    if (l->n <= wanted)
        return 0;
    assert(l->at != NULL);
    qsort(l->at, l->n, sizeof *l->at, by_worth);
    const struct fleet_machines surplus = { .at = l->at + wanted, .n = l->n - wanted };
    int result = f->ops->end(f, &surplus, r->deadline_ns, note, e);
    if (result == 0)
        l->n = wanted;
    return result;
}

/* The answer to a launch was lost. 0: the machine is there, *l is anew what there is; -1: it is not
 * (yet), the error is that of the launch. */
static int look_for_lost(struct fleet *f, const struct provision_request *r,
    struct fleet_machines *l, struct provision_note *note)
{
    cleanup_fleet struct fleet_machines now = FLEET_MACHINES_INIT;
    struct provision_note ignored = PROVISION_NOTE_INIT;
    if (list_alive(f, r->name, r->deadline_ns, &now, &ignored, NULL) < 0 || now.n <= l->n)
        return -1;
    fleet_machines_fini(l);
    *l = now;
    now.at = NULL;
    *note = (struct provision_note){ .may_exist = true };
    return 0;
}

static bool has_replica(const struct fleet_machines *l, int replica)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->at[i].replica == replica)
            return true;
    }
    return false;
}

/* The lowest number that none of them has. */
static int first_missing(const struct fleet_machines *l)
{
    int replica = 0;
    while (has_replica(l, replica))
        replica++;
    return replica;
}

static bool is_known(const struct fleet_machines *l, const char *id)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->at[i].m.id, id) == 0)
            return true;
    }
    return false;
}

/* One more. 0: there is one more; 1: later; -1. */
static int launch_one(struct fleet *f, const struct provision_request *r,
    struct fleet_choice *choice, struct fleet_machines *l, struct provision_note *note,
    struct err *e)
{
    struct fleet_machine m = { .state = FLEET_STARTING };
    if (clock_left_ms(r->deadline_ns) < LAUNCH_MS)
        return 1;
    (void)str_copy(m.name, sizeof m.name, r->name);
    m.replica = first_missing(l);
    note->unsure = false;
    if (f->ops->launch(f, r, choice, &m, note, e) == 0) {
        note->may_exist = true;
        if (is_known(l, m.m.id))
            return fleet_nonsense(note, e, "the new machine is one that was there already");
        fleet_add(l, &m);
        return 0;
    }
    note->may_exist |= note->unsure;
    if (note->unsure && look_for_lost(f, r, l, note) == 0)
        return 0;
    if (note->error != PROVISION_ERROR_BUSY || l->n == 0)
        return -1;
    if (note->again_ms == 0)
        note->again_ms = PAUSE_MS;
    return 1;
}

/* What the machines that are there are of, or what the provider offers best. */
static int choose(struct fleet *f, const struct provision_request *r,
    const struct fleet_machines *l, struct fleet_choice *out, struct provision_note *note,
    struct err *e)
{
    if (f->ops->choose == NULL)
        return 0;
    if (l->n == 0)
        return f->ops->choose(f, r, out, note, e);
    (void)str_copy(out->type, sizeof out->type, l->at[0].m.type);
    (void)str_copy(out->region, sizeof out->region, l->at[0].region);
    return 0;
}

static int fill_up(struct fleet *f, const struct provision_request *r, struct fleet_machines *l,
    struct provision_note *note, struct err *e)
{
    struct fleet_choice choice = { .type = "" };
    if (l->n >= (size_t)r->spec->replicas)
        return trim(f, r, l, note, e);
    int result = choose(f, r, l, &choice, note, e);
    while (result == 0 && l->n < (size_t)r->spec->replicas)
        result = launch_one(f, r, &choice, l, note, e);
    return result;
}

int fleet_provision(struct provisioner *p, const struct provision_request *r,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    struct fleet *f = (struct fleet *)p;
    struct err why = ERR_INIT;
    cleanup_fleet struct fleet_machines l = FLEET_MACHINES_INIT;
    note->may_exist = true; /* while it is not known */
    int result = list_alive(f, r->name, r->deadline_ns, &l, note, &why);
    if (result == 0) {
        note->may_exist = l.n > 0;
        result = fill_up(f, r, &l, note, &why);
    }
    if (result < 0)
        return err_set(e, why.code, "%s", why.msg);
    if (result == 0) {
        note->error = PROVISION_ERROR_NONE;
        fill_result(f, r->spec, &l, out);
    }
    return result;
}

/* --- status ----------------------------------------------------------------------------------- */

/* The ids that the details tell of; none when they make no sense. */
static void known_ids(struct fleet *f, const char *details, struct fleet_machines *out)
{
    cleanup_json json_object *o = NULL;
    if (str_empty(details) || jx_parse(details, strlen(details), DETAILS_MAX, &o, NULL) < 0)
        return;
    json_object *list = f->ops->machines_of(o);
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        struct fleet_machine m = { .state = FLEET_GONE };
        const char *id = NULL;
        json_object *known = json_object_array_get_idx(list, i);
        fleet_read_text(known, "launchTime", m.launched, sizeof m.launched);
        if (jx_get_str(known, f->ops->id_key, &id) && str_copy(m.m.id, sizeof m.m.id, id) == 0)
            fleet_add(out, &m);
    }
}

/* Sets each to what the list tells of it. How many it tells nothing of: their ids stay, as gone. */
static size_t take_seen(struct fleet_machines *l, const struct fleet_machines *seen)
{
    size_t unseen = l->n;
    for (size_t i = 0; i < l->n; i++) {
        for (size_t j = 0; j < seen->n; j++) {
            if (strcmp(l->at[i].m.id, seen->at[j].m.id) != 0)
                continue;
            l->at[i] = seen->at[j];
            unseen--;
            break;
        }
    }
    return unseen;
}

/* A list may be late to tell of a machine, so what it leaves out is looked at by itself, up to the first
 * that is gone: one decides already. */
static int look_at_unseen(struct fleet *f, const struct provision_request *r,
    struct fleet_machines *l, struct provision_note *note, struct err *e)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->at[i].state != FLEET_GONE || l->at[i].name[0] != '\0')
            continue;
        int result = f->ops->look(f, l->at[i].m.id, r->deadline_ns, &l->at[i], note, e);
        if (result != 0)
            return result < 0 ? -1 : 0;
    }
    return 0;
}

int fleet_status(struct provisioner *p, const struct provision_request *r, const char *details,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    struct fleet *f = (struct fleet *)p;
    cleanup_fleet struct fleet_machines l = FLEET_MACHINES_INIT;
    cleanup_fleet struct fleet_machines seen = FLEET_MACHINES_INIT;
    note->may_exist = true;
    known_ids(f, details, &l);
    if (l.n == 0)
        return fleet_nonsense(note, e, "the row does not tell which machines it has");
    if (f->ops->list(f, r->name, r->deadline_ns, &seen, note, e) < 0 ||
        (take_seen(&l, &seen) > 0 && look_at_unseen(f, r, &l, note, e) < 0))
        return -1;
    for (size_t i = 0; i < l.n; i++) {
        if (l.at[i].no_room) {
            note->error = PROVISION_ERROR_NO_CAPACITY;
            return err_set(e, ERR_UNAVAILABLE, "%s ended at once: no capacity", l.at[i].m.id);
        }
    }
    note->error = PROVISION_ERROR_NONE;
    fill_result(f, r->spec, &l, out);
    return 0;
}

/* --- list, release ---------------------------------------------------------------------------- */

int fleet_list(
    struct provisioner *p, struct provision_list *out, struct provision_note *note, struct err *e)
{
    struct fleet *f = (struct fleet *)p;
    cleanup_fleet struct fleet_machines all = FLEET_MACHINES_INIT;
    struct provision_list l = PROVISION_LIST_INIT;
    if (f->ops->list(f, NULL, clock_deadline(PROVISION_CALL_MS), &all, note, e) < 0)
        return -1;
    for (size_t i = 0; i < all.n; i++) {
        char job[PROVISION_JOB_SIZE];
        int attempt = 0;
        if (all.at[i].state != FLEET_GONE &&
            provision_name_parse(all.at[i].name, f->cluster, job, &attempt))
            provision_list_add(&l, all.at[i].name, 1);
    }
    *out = l;
    return 0;
}

int fleet_release(
    struct provisioner *p, const char *name, struct provision_note *note, struct err *e)
{
    struct fleet *f = (struct fleet *)p;
    cleanup_fleet struct fleet_machines l = FLEET_MACHINES_INIT;
    const int64_t deadline_ns = clock_deadline(PROVISION_CALL_MS);
    char job[PROVISION_JOB_SIZE];
    int attempt = 0;
    if (!provision_name_parse(name, f->cluster, job, &attempt)) {
        note->error = PROVISION_ERROR_REFUSED;
        return err_set(e, ERR_INVALID, "%s: no machines of this installation", name);
    }
    note->may_exist = true;
    if (list_alive(f, name, deadline_ns, &l, note, e) < 0)
        return -1;
    int result = l.n == 0 ? 0 : f->ops->end(f, &l, deadline_ns, note, e);
    if (result >= 0)
        note->error = PROVISION_ERROR_NONE;
    note->may_exist = result != 0;
    return result;
}
