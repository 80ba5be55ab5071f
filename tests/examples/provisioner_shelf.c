/* SPDX-License-Identifier: Apache-2.0 */
/* An example of a provisioner (docs/providers.md): machines that stand on a shelf. Each is a file in the folder that
 * $SHELF names; it is called by the machine's address while it is free, and address@name while a provision has it.
 * rename() takes a machine for one or for the other, never for both: the shelf itself is the truth, and this keeps nothing. */
#include "tests/examples/examples.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum { PATH_SIZE = 1024, DETAILS_SIZE = 256 };

struct shelf {
    struct provisioner base;
    char *folder;
    char cluster[PROVISION_CLUSTER_MAX + 1];
};

/* --- the shelf -------------------------------------------------------------------------------- */

struct files {
    struct dirent **at;
    int n;
};

static void files_fini(struct files *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->at[i]);
    free(l->at);
}
#define cleanup_files __attribute__((cleanup(files_fini)))

static int is_machine(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

/* Whatever a verb cannot do is told by note->error; note->may_exist is set as long as nothing is known. */
static int look(
    const struct shelf *s, struct files *out, struct provision_note *note, struct err *e)
{
    note->may_exist = true;
    out->n = scandir(s->folder, &out->at, is_machine, alphasort);
    if (out->n >= 0)
        return 0;
    out->n = 0;
    note->error = PROVISION_ERROR_UNAVAILABLE;
    return err_errno(e, ERR_UNAVAILABLE, "the shelf");
}

/* The name of the provision that has it, or "" while it is free. */
static const char *holder(const struct dirent *d)
{
    const char *at = strchr(d->d_name, '@');
    return at == NULL ? "" : at + 1;
}

/* From one name in the folder to another: 0, or 1 when somebody else was faster. */
static int move(const struct shelf *s, const char *from, const char *to)
{
    char old[PATH_SIZE];
    char new[PATH_SIZE];
    (void)str_format(old, sizeof old, "%s/%s", s->folder, from);
    (void)str_format(new, sizeof new, "%s/%s", s->folder, to);
    return rename(old, new) == 0 ? 0 : 1;
}

/* --- results ---------------------------------------------------------------------------------- */

/* The machines of a name, all running: they stand there ready. */
static int fill(const struct shelf *s, const struct provision_request *r,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    cleanup_files struct files l = { .n = 0 };
    struct provision_result result = { .status = PROVISION_RUNNING, .region = "shelf" };
    struct buf details = BUF_INIT(DETAILS_SIZE);
    if (look(s, &l, note, e) < 0)
        return -1;
    result.machine = mem_calloc((size_t)l.n + 1, sizeof *result.machine);
    for (int i = 0; i < l.n; i++) {
        if (strcmp(holder(l.at[i]), r->name) != 0)
            continue;
        struct machine *m = &result.machine[result.n++];
        (void)str_format(
            m->host, sizeof m->host, "%.*s", (int)strcspn(l.at[i]->d_name, "@"), l.at[i]->d_name);
        (void)str_copy(m->id, sizeof m->id, m->host);
        (void)str_format(m->url, sizeof m->url, "http://%s:8000", m->host);
    }
    if (result.n < (size_t)r->spec->replicas)
        result.status = result.n == 0 ? PROVISION_RELEASED : PROVISION_FAILED;
    buf_printf(&details, "{\"shelf\":{\"machines\":%zu}}", result.n);
    result.details = buf_steal(&details);
    *out = result;
    return 0;
}

/* --- verbs ------------------------------------------------------------------------------------ */

static int provision(struct provisioner *p, const struct provision_request *r,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    const struct shelf *s = (const struct shelf *)p;
    cleanup_files struct files l = { .n = 0 };
    int have = 0;
    if (look(s, &l, note, e) < 0)
        return -1;
    for (int i = 0; i < l.n; i++) /* what is there already is adopted */
        have += strcmp(holder(l.at[i]), r->name) == 0;
    for (int i = 0; i < l.n && have < r->spec->replicas; i++) {
        char taken[PATH_SIZE];
        (void)str_format(taken, sizeof taken, "%s@%s", l.at[i]->d_name, r->name);
        if (holder(l.at[i])[0] == '\0' && move(s, l.at[i]->d_name, taken) == 0)
            have++;
    }
    if (have < r->spec->replicas) {
        note->error = PROVISION_ERROR_NO_CAPACITY;
        note->may_exist = have > 0; /* the planner gives these back, and tries again later */
        return err_set(e, ERR_UNAVAILABLE, "the shelf has no %d machines now", r->spec->replicas);
    }
    return fill(s, r, out, note, e);
}

static int status(struct provisioner *p, const struct provision_request *r, const char *details,
    struct provision_result *out, struct provision_note *note, struct err *e)
{
    (void)details;
    return fill((const struct shelf *)p, r, out, note, e);
}

/* Those of this installation, whether or not a job still wants them: the planner finds strays by this. */
static int list(
    struct provisioner *p, struct provision_list *out, struct provision_note *note, struct err *e)
{
    const struct shelf *s = (const struct shelf *)p;
    cleanup_files struct files l = { .n = 0 };
    struct provision_list seen = PROVISION_LIST_INIT;
    char job[PROVISION_JOB_SIZE];
    int attempt = 0;
    if (look(s, &l, note, e) < 0)
        return -1;
    for (int i = 0; i < l.n; i++) {
        if (provision_name_parse(holder(l.at[i]), s->cluster, job, &attempt))
            provision_list_add(&seen, holder(l.at[i]), 1);
    }
    *out = seen;
    return 0;
}

static int release(
    struct provisioner *p, const char *name, struct provision_note *note, struct err *e)
{
    const struct shelf *s = (const struct shelf *)p;
    cleanup_files struct files l = { .n = 0 };
    if (look(s, &l, note, e) < 0)
        return -1;
    for (int i = 0; i < l.n; i++) {
        char host[PATH_SIZE];
        (void)str_format(
            host, sizeof host, "%.*s", (int)strcspn(l.at[i]->d_name, "@"), l.at[i]->d_name);
        if (strcmp(holder(l.at[i]), name) == 0)
            (void)move(s, l.at[i]->d_name, host);
    }
    note->may_exist = false;
    return 0;
}

/* For the policy capacity: one kind of machine, which serves any job. */
static int catalog(struct provisioner *p, struct provision_catalog *out,
    struct provision_note *note, struct err *e)
{
    cleanup_files struct files l = { .n = 0 };
    if (look((const struct shelf *)p, &l, note, e) < 0)
        return -1;
    struct provision_offer *offer = mem_calloc(1, sizeof *offer);
    *offer = (struct provision_offer){ .type = "machine", .regions = "shelf", .any = true };
    for (int i = 0; i < l.n; i++)
        offer->free += holder(l.at[i])[0] == '\0';
    *out = (struct provision_catalog){ .offer = offer, .n = 1 };
    return 0;
}

/* --- the type --------------------------------------------------------------------------------- */

static int open_shelf(const struct provisioner_env *env, struct provisioner **out, struct err *e)
{
    const char *folder = getenv("SHELF");
    if (str_empty(folder))
        return err_set(e, ERR_INVALID, "$SHELF is not set");
    struct shelf *s = mem_kept(mem_calloc(1, sizeof *s));
    s->folder = mem_strdup(folder);
    (void)str_copy(s->cluster, sizeof s->cluster, env->cluster);
    *out = &s->base;
    return 0;
}

static void close_shelf(struct provisioner *p)
{
    struct shelf *s = (struct shelf *)p;
    free(s->folder);
    free(s);
}

const struct provisioner_ops PROVISIONER_SHELF = {
    .type = "shelf",
    .ready_s = 60,
    .open = open_shelf,
    .close = close_shelf,
    .provision = provision,
    .status = status,
    .list = list,
    .release = release,
    .catalog = catalog,
};
