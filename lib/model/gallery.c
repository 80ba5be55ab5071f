/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gallery.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static const char *const STATUS_NAME[GALLERY_STATUS__COUNT] = {
#define GALLERY_STATUS(id, name, doc) [GALLERY_##id] = (name),
#include "model/gallery_status.def"
#undef GALLERY_STATUS
};

const char *gallery_status_name(enum gallery_status s)
{
    return s < GALLERY_STATUS__COUNT ? STATUS_NAME[s] : "unknown";
}

enum gallery_status gallery_status_parse(const char *name)
{
    unsigned s = 0;
    while (s < GALLERY_STATUS__COUNT && strcmp(STATUS_NAME[s], name) != 0)
        s++;
    return (enum gallery_status)s;
}

bool gallery_is_active(enum gallery_status s)
{
    return s == GALLERY_PENDING || s == GALLERY_DOWNLOADING || s == GALLERY_PROCESSING;
}

bool gallery_is_settled(enum gallery_status s)
{
    return s == GALLERY_COMPLETED || s == GALLERY_CANCELLED;
}

bool gallery_is_final(enum gallery_status s)
{
    return s == GALLERY_FAILED || gallery_is_settled(s);
}

/* --- time --- */

static int64_t not_after(int64_t stamp_us, int64_t now_us)
{
    if (stamp_us <= 0)
        return 0;
    return stamp_us < now_us ? stamp_us : now_us;
}

int64_t gallery_changed_us(const struct gallery_row *r, int64_t now_us)
{
    int64_t updated = not_after(r->updated_us, now_us);
    int64_t created = not_after(r->created_us, now_us);
    return updated > created ? updated : created;
}

enum gallery_class gallery_classify(const struct gallery_row *r, int64_t now_us)
{
    int64_t age_us = now_us - gallery_changed_us(r, now_us);
    if (gallery_is_active(r->op.status))
        return age_us <= GALLERY_ACTIVE_US ? GALLERY_CLASS_ACTIVE : GALLERY_CLASS_STALE;
    if (r->op.status == GALLERY_FAILED)
        return age_us < GALLERY_FAILED_SHOW_US && !r->dismissed ? GALLERY_CLASS_FAILED
                                                                : GALLERY_CLASS_OVER;
    return gallery_is_settled(r->op.status) ? GALLERY_CLASS_OVER : GALLERY_CLASS_UNKNOWN;
}

static bool nodes_differ(const struct gallery_op *a, const struct gallery_op *b)
{
    if (a->nodes != b->nodes)
        return true;
    for (size_t i = 0; i < a->nodes; i++) {
        const struct gallery_node *x = &a->node[i];
        const struct gallery_node *y = &b->node[i];
        const char *const texts[][2] = { { x->node_id, y->node_id }, { x->node_name, y->node_name },
            { x->status, y->status }, { x->file_name, y->file_name }, { x->current, y->current },
            { x->total, y->total }, { x->phase, y->phase }, { x->error, y->error } };
        if (x->percentage < y->percentage || x->percentage > y->percentage)
            return true;
        for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++)
            if (strcmp(texts[t][0], texts[t][1]) != 0)
                return true;
    }
    return false;
}

/* In anything that an overlay supplies. */
static bool shows_another(const struct gallery_op *a, const struct gallery_op *b)
{
    if (a->progress < b->progress || a->progress > b->progress)
        return true;
    if (a->current_bytes != b->current_bytes || a->total_bytes != b->total_bytes)
        return true;
    return strcmp(a->phase, b->phase) != 0 || strcmp(a->message, b->message) != 0 ||
           strcmp(a->file_name, b->file_name) != 0 || nodes_differ(a, b);
}

bool gallery_is_behind(const struct gallery_row *r, const struct gallery_overlay *o, int64_t now_us)
{
    return o->of_row && gallery_is_active(r->op.status) && o->stamp_us > r->updated_us &&
           now_us - o->stamp_us > GALLERY_SILENT_US && shows_another(&r->op, &o->op);
}

int64_t gallery_started_us(const struct gallery_row *r)
{
    return r->created_us > 0 ? r->created_us : r->updated_us;
}

int64_t gallery_finished_us(const struct gallery_row *r)
{
    return r->updated_us > 0 ? r->updated_us : r->created_us;
}

/* --- names --- */

#define NODE_PREFIX "node:"

struct gallery_names gallery_names(const struct gallery_op *op)
{
    struct gallery_names n = { .id = op->cache_key[0] ? op->cache_key : op->element_name };
    if (n.id[0] == '\0')
        n.id = op->id;
    if (str_starts(n.id, NODE_PREFIX)) {
        const char *node = n.id + sizeof(NODE_PREFIX) - 1;
        const char *colon = strchr(node, ':');
        if (colon && colon > node && colon[1]) {
            n.node_id = node;
            n.node_size = (size_t)(colon - node);
            n.id = colon + 1;
        }
    }
    const char *at = strchr(n.id, '@');
    n.name = at && at[1] ? at + 1 : n.id;
    return n;
}

bool gallery_is_deletion(const struct gallery_op *op)
{
    return str_ends(op->op_type, "_delete");
}

bool gallery_is_backend(const struct gallery_op *op)
{
    return op->is_backend_op || str_starts(op->op_type, "backend_");
}

bool gallery_is_queued(const struct gallery_op *op)
{
    if (op->status != GALLERY_PENDING)
        return false;
    return op->phase[0] ? strcmp(op->phase, "queued") == 0 : !(op->progress > 0.0);
}

/* --- nodes --- */

static int by_name_then_id(const void *a, const void *b)
{
    const struct gallery_node *x = a;
    const struct gallery_node *y = b;
    int order = strcmp(x->node_name, y->node_name);
    return order ? order : strcmp(x->node_id, y->node_id);
}

void gallery_nodes_sort(struct gallery_node *node, size_t n)
{
    if (n > 1)
        qsort(node, n, sizeof(*node), by_name_then_id);
}

bool gallery_node_status_known(const char *status)
{
    static const char *const KNOWN[] = { "queued", "running_on_worker", "downloading", "success",
        "error" };
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        if (strcmp(KNOWN[i], status) == 0)
            return true;
    }
    return false;
}

/* --- reports --- */

static const char *pick_text(const char *given, const char *stored)
{
    return str_empty(given) ? stored : given;
}

void gallery_apply(
    const struct gallery_op *old, const struct gallery_report *r, struct gallery_op *out)
{
    struct gallery_op o = *old;
    if (!str_empty(r->status))
        o.status = gallery_status_parse(r->status);
    if (r->progress >= 0.0)
        o.progress = r->progress;
    o.phase = pick_text(r->phase, o.phase);
    o.message = pick_text(r->message, o.message);
    o.file_name = pick_text(r->file_name, o.file_name);
    if (r->current_bytes >= 0)
        o.current_bytes = r->current_bytes;
    if (r->total_bytes >= 0)
        o.total_bytes = r->total_bytes;
    if (r->cancellable >= 0)
        o.cancellable = r->cancellable != 0;
    if (!str_empty(r->status) && gallery_is_final(o.status))
        o.cancellable = false;
    if (!str_empty(r->status) && gallery_is_settled(o.status))
        o.error = "";
    o.error = pick_text(r->error, o.error);
    if (r->has_nodes) {
        o.node = r->node;
        o.nodes = r->nodes;
    }
    *out = o;
}

static bool fill_text(const char **stored, const char *given)
{
    if ((*stored)[0] != '\0' || str_empty(given))
        return false;
    *stored = given;
    return true;
}

static bool fill_number(int64_t *stored, int64_t given)
{
    if (*stored != 0 || given <= 0)
        return false;
    *stored = given;
    return true;
}

bool gallery_apply_late(
    const struct gallery_op *old, const struct gallery_report *r, struct gallery_op *out)
{
    struct gallery_op o = *old;
    bool filled = fill_text(&o.phase, r->phase);
    filled |= fill_text(&o.message, r->message);
    filled |= fill_text(&o.file_name, r->file_name);
    filled |= fill_text(&o.error, r->error);
    filled |= fill_number(&o.current_bytes, r->current_bytes);
    filled |= fill_number(&o.total_bytes, r->total_bytes);
    if (o.nodes == 0 && r->nodes > 0) {
        o.node = r->node;
        o.nodes = r->nodes;
        filled = true;
    }
    *out = o;
    return filled;
}
