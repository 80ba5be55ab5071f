/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/provisioner.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "provision/builtin.h"

enum { TYPES_MAX = 16 };

static struct {
    const struct provisioner_ops *ops[TYPES_MAX];
    size_t n;
    bool frozen;
} registry;

static size_t find(const char *type)
{
    size_t i = 0;
    while (i < registry.n && strcmp(registry.ops[i]->type, type) != 0)
        i++;
    return i;
}

void provisioner_register(const struct provisioner_ops *ops)
{
    size_t i = find(ops->type);
    if (registry.frozen || i == TYPES_MAX)
        abort();
    registry.ops[i] = ops;
    if (i == registry.n)
        registry.n++;
}

void provisioner_register_builtin(void)
{
    provisioner_register(&PROVISIONER_LOCAL);
    provisioner_register(&PROVISIONER_AWS);
    provisioner_register(&PROVISIONER_KUBERNETES);
    provisioner_register(&PROVISIONER_LAMBDA_CLOUD);
    provisioner_register(&PROVISIONER_RUNPOD);
}

void provisioner_freeze(void)
{
    registry.frozen = true;
}

const struct provisioner_ops *provisioner_find(const char *type)
{
    size_t i = find(type);
    return i < registry.n ? registry.ops[i] : NULL;
}

void provision_list_add(struct provision_list *l, const char *name, int machines)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->seen[i].name, name) == 0) {
            l->seen[i].machines += machines;
            return;
        }
    }
    l->seen = mem_resize(l->seen, l->n + 1, sizeof *l->seen);
    struct provision_seen *s = &l->seen[l->n++];
    (void)str_copy(s->name, sizeof s->name, name);
    s->machines = machines;
}

void provision_list_fini(struct provision_list *l)
{
    free(l->seen);
    l->seen = NULL;
    l->n = 0;
}

int provisioner_open(
    const char *type, const struct provisioner_env *env, struct provisioner **out, struct err *e)
{
    const struct provisioner_ops *ops = provisioner_find(type);
    if (ops == NULL)
        return err_set(e, ERR_INVALID, "no such provisioner: %s", type);
    if (!provision_cluster_valid(env->cluster))
        return err_set(
            e, ERR_INVALID, "cluster id: must be 1 to %d of a-z and 0-9", PROVISION_CLUSTER_MAX);
    if (ops->open(env, out, e) < 0)
        return err_wrap(e, "provisioner %s", type);
    (*out)->ops = ops;
    return 0;
}

void provisioner_close(struct provisioner *p)
{
    if (p != NULL)
        p->ops->close(p);
}

/* The request with its deadline set. */
static struct provision_request begin(
    const struct provision_request *r, struct provision_note *note)
{
    struct provision_request copy = *r;
    *note = (struct provision_note)PROVISION_NOTE_INIT;
    if (copy.deadline_ns == 0)
        copy.deadline_ns = clock_deadline(PROVISION_CALL_MS);
    return copy;
}

int provisioner_provision(struct provisioner *p, const struct provision_request *r,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    const struct provision_request copy = begin(r, note);
    return p->ops->provision(p, &copy, out, note, e);
}

int provisioner_status(struct provisioner *p, const struct provision_request *r,
    const char *details, struct provision_result *out, struct provision_note *note, struct err *e)
{
    const struct provision_request copy = begin(r, note);
    return p->ops->status(p, &copy, details, out, note, e);
}

int provisioner_list(
    struct provisioner *p, struct provision_list *out, struct provision_note *note, struct err *e)
{
    *note = (struct provision_note)PROVISION_NOTE_INIT;
    return p->ops->list(p, out, note, e);
}

int provisioner_release(
    struct provisioner *p, const char *name, struct provision_note *note, struct err *e)
{
    *note = (struct provision_note)PROVISION_NOTE_INIT;
    return p->ops->release(p, name, note, e);
}

int provisioner_catalog(struct provisioner *p, struct provision_catalog *out,
    struct provision_note *note, struct err *e)
{
    *note = (struct provision_note)PROVISION_NOTE_INIT;
    return p->ops->catalog(p, out, note, e);
}
