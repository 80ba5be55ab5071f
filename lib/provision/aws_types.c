/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/aws_types.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "model/gpu_match.h"
#include "provision/aws_read.h"

enum { PAGE = 100, OTHERS_MAX = 7 };

struct types {
    struct aws_type *at;
    size_t n;
};

static void types_fini(struct types *l)
{
    free(l->at);
}
#define cleanup_types __attribute__((cleanup(types_fini)))

static void take_types(json_object *answer, void *ctx)
{
    struct types *l = ctx;
    json_object *set = jx_get(answer, "instanceTypeSet");
    const size_t n = json_object_is_type(set, json_type_array) ? json_object_array_length(set) : 0;
    for (size_t i = 0; i < n; i++) {
        struct aws_type t;
        if (!aws_read_type(json_object_array_get_idx(set, i), &t))
            continue;
        l->at = mem_resize(l->at, l->n + 1, sizeof *l->at);
        l->at[l->n++] = t;
    }
}

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_worth(const void *a, const void *b)
{
    const struct aws_type *x = a;
    const struct aws_type *y = b;
    if (x->rank != y->rank)
        return compare(x->rank, y->rank);
    if (x->gpus != y->gpus)
        return compare(x->gpus, y->gpus);
    if (x->vcpus != y->vcpus)
        return compare(x->vcpus, y->vcpus);
    if (x->memory_mib != y->memory_mib)
        return compare(x->memory_mib, y->memory_mib);
    return strcmp(x->name, y->name);
}

static void sort(struct types *l, json_object *wanted)
{
    for (size_t i = 0; i < l->n; i++) {
        for (size_t j = 0; j < json_object_array_length(wanted); j++) {
            const char *name = json_object_get_string(json_object_array_get_idx(wanted, j));
            if (strcmp(l->at[i].name, name) == 0)
                l->at[i].rank = (int)j;
        }
    }
    if (l->n > 1)
        qsort(l->at, l->n, sizeof *l->at, by_worth);
}

/* The families with GPUs are those that begin with g and p; the answer tells which of them really have some. */
static int get_types(struct aws *a, int64_t deadline_ns, struct types *out,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf form = BUF_INIT(AWS_FORM_MAX);
    cleanup_json json_object *wanted = fleet_words(a->conf->aws_instance_types);
    cleanup_json json_object *families = fleet_words("g*, p*");
    const struct aws_pages p = {
        .form = &form, .deadline_ns = deadline_ns, .each = take_types, .ctx = out
    };
    const bool listed = json_object_array_length(wanted) > 0;
    aws_begin(&form, "DescribeInstanceTypes");
    aws_add_filter(&form, 1, "instance-type", listed ? wanted : families);
    aws_add_number(&form, "MaxResults", PAGE);
    if (aws_ask_pages(a, &p, note, e) < 0)
        return -1;
    sort(out, wanted);
    return 0;
}

int aws_choose(struct fleet *f, const struct provision_request *r, struct fleet_choice *out,
    struct provision_note *note, struct err *e)
{
    struct aws *a = (struct aws *)f;
    const struct provision_spec *spec = r->spec;
    const int wanted = spec->gpus_per_replica > 0 ? spec->gpus_per_replica : 1;
    cleanup_types struct types l = { .n = 0 };
    struct fleet_choice c = { .type = "" };
    struct buf others = BUF_INIT(sizeof c.others - 1);
    size_t n = 0;
    if (spec->region[0] != '\0' && strcmp(spec->region, a->region) != 0) {
        note->error = PROVISION_ERROR_REFUSED;
        return err_set(e, ERR_INVALID, "the region that the job asks for is not %s", a->region);
    }
    if (get_types(a, r->deadline_ns, &l, note, e) < 0)
        return -1;
    for (size_t i = 0; i < l.n && n <= OTHERS_MAX; i++) {
        if (l.at[i].gpus != wanted || !gpu_match(spec->gpu_type, l.at[i].name, l.at[i].gpu))
            continue;
        if (n++ == 0)
            (void)str_copy(c.type, sizeof c.type, l.at[i].name);
        else
            buf_printf(&others, "%s,", l.at[i].name);
    }
    (void)str_copy(c.others, sizeof c.others, others.data == NULL ? "" : others.data);
    buf_free(&others);
    if (n == 0) {
        note->error = PROVISION_ERROR_NO_GPU_TYPE;
        return err_set(e, ERR_INVALID, "no instance type with %d x \"%s\"", wanted, spec->gpu_type);
    }
    *out = c;
    return 0;
}

int aws_catalog(struct provisioner *p, struct provision_catalog *out, struct provision_note *note,
    struct err *e)
{
    struct aws *a = (struct aws *)p;
    cleanup_types struct types l = { .n = 0 };
    struct provision_catalog c = PROVISION_CATALOG_INIT;
    if (get_types(a, clock_deadline(PROVISION_CALL_MS), &l, note, e) < 0)
        return -1;
    c.offer = mem_calloc(l.n + 1, sizeof *c.offer);
    for (size_t i = 0; i < l.n; i++) {
        struct provision_offer *offer = &c.offer[c.n++];
        (void)str_copy(offer->type, sizeof offer->type, l.at[i].name);
        (void)str_copy(offer->gpu_type, sizeof offer->gpu_type, l.at[i].gpu);
        (void)str_copy(offer->regions, sizeof offer->regions, a->region);
        offer->gpus = l.at[i].gpus;
        offer->free = -1;
    }
    *out = c;
    return 0;
}
