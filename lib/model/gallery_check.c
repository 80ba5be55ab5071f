/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "model/gallery.h"
#include "model/key.h"
#include "model/overlay.h"

/* Text of at most `characters`, each of which takes up to four bytes. */
static bool is_sane_text(const char *text, size_t characters)
{
    size_t size = strnlen(text, 4 * characters + 1);
    return size <= 4 * characters && str_utf8_valid(text, size) &&
           str_utf8_length(text) <= characters;
}

static bool is_sane_bytes(int64_t n)
{
    return n >= 0 && n <= OVERLAY_NUMBER_MAX;
}

static bool is_percentage(double p)
{
    return isfinite(p) && p >= 0.0 && p <= 100.0;
}

bool gallery_node_is_sane(const struct gallery_node *n)
{
    const char *const texts[] = { n->node_id, n->node_name, n->file_name, n->current, n->total,
        n->phase };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!is_sane_text(texts[i], GALLERY_NODE_TEXT_MAX))
            return false;
    }
    return is_sane_text(n->error, GALLERY_NODE_ERROR_MAX) && gallery_node_status_known(n->status) &&
           is_percentage(n->percentage) && (n->node_id[0] || n->node_name[0]);
}

static bool has_sane_nodes(const struct gallery_op *op)
{
    if (op->nodes > GALLERY_NODES_MAX)
        return false;
    for (size_t i = 0; i < op->nodes; i++) {
        if (!gallery_node_is_sane(&op->node[i]))
            return false;
    }
    return true;
}

static bool has_sane_texts(const struct gallery_op *op)
{
    return gallery_id_check(op->id, NULL) == 0 &&
           is_sane_text(op->element_name, GALLERY_NAME_MAX) &&
           is_sane_text(op->cache_key, GALLERY_CACHE_KEY_MAX) &&
           is_sane_text(op->op_type, GALLERY_PHASE_MAX) &&
           is_sane_text(op->phase, GALLERY_PHASE_MAX) &&
           is_sane_text(op->message, GALLERY_TEXT_KEPT) &&
           is_sane_text(op->error, GALLERY_TEXT_KEPT) &&
           is_sane_text(op->file_name, GALLERY_FILE_MAX);
}

bool gallery_overlay_is_sane(const struct gallery_overlay *o)
{
    return gallery_is_active(o->op.status) && is_percentage(o->op.progress) &&
           is_sane_bytes(o->op.current_bytes) && is_sane_bytes(o->op.total_bytes) &&
           is_sane_bytes(o->stamp_us) && has_sane_texts(&o->op) && has_sane_nodes(&o->op);
}

int gallery_id_check(const char *id, struct err *e)
{
    if (key_check_named("id", id, e) < 0)
        return -1;
    if (str_utf8_length(id) > GALLERY_ID_MAX)
        return err_set(e, ERR_INVALID, "id: longer than %d characters", GALLERY_ID_MAX);
    return 0;
}

static bool is_op_type(const char *type)
{
    static const char *const TYPES[] = { "model_install", "model_delete", "backend_install",
        "backend_delete" };
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        if (strcmp(TYPES[i], type) == 0)
            return true;
    }
    return false;
}

int gallery_admission_check(const struct gallery_admission *a, struct err *e)
{
    if (!str_empty(a->id) && gallery_id_check(a->id, e) < 0)
        return -1;
    if (!str_empty(a->id) && str_starts(a->id, "staging:"))
        return err_set(e, ERR_INVALID, "id: must not begin with staging: (that is a copy's)");
    if (str_empty(a->element_name))
        return err_set(e, ERR_INVALID, "gallery_element_name: must not be empty");
    if (str_empty(a->op_type) || !is_op_type(a->op_type))
        return err_set(e, ERR_INVALID,
            "op_type: must be one of model_install, model_delete, backend_install, backend_delete");
    return 0;
}

int gallery_report_check(const struct gallery_report *r, struct err *e)
{
    if (!str_empty(r->status) && gallery_status_parse(r->status) == GALLERY_STATUS__COUNT)
        return err_set(e, ERR_INVALID,
            "status: must be one of pending, downloading, processing, completed, failed, cancelled");
    if (r->progress > 100.0 || isnan(r->progress))
        return err_set(e, ERR_INVALID, "progress: must be a number from 0 to 100");
    return 0;
}
