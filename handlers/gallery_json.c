/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/gallery_json.h"

#include "base/mem.h"
#include "handlers/json_text.h"

static void set_node_id(json_object *o, const struct gallery_names *names)
{
    if (names->node_size == 0)
        return;
    cleanup_free char *node = mem_dup(names->node_id, names->node_size);
    json_set_text(o, "nodeID", node);
}

/* The members come in the contract's order. */
static json_object *ended_json(const struct gallery_row *r)
{
    const struct gallery_names names = gallery_names(&r->op);
    json_object *o = jx_object();
    json_set_text(o, "id", names.id);
    json_set_text(o, "name", names.name);
    json_set_text(o, "jobID", r->op.id);
    jx_set_bool(o, "isBackend", gallery_is_backend(&r->op));
    set_node_id(o, &names);
    jx_set_str(o, "taskType", gallery_is_deletion(&r->op) ? "deletion" : "installation");
    jx_set_str(o, "outcome", gallery_status_name(r->op.status));
    if (r->op.error[0] != '\0')
        json_set_text(o, "error", r->op.error);
    json_set_time(o, "startedAt", gallery_started_us(r));
    json_set_time(o, "finishedAt", gallery_finished_us(r));
    return o;
}

json_object *gallery_history_json(const struct gallery_rows *ended)
{
    json_object *list = jx_array();
    for (size_t i = 0; i < ended->n; i++)
        jx_add(list, ended_json(&ended->row[i]));
    json_object *answer = jx_object();
    jx_set(answer, "operations", list);
    return answer;
}

json_object *gallery_row_json(const struct gallery_row *r)
{
    json_object *o = jx_object();
    json_set_text(o, "id", r->op.id);
    json_set_text(o, "gallery_element_name", r->op.element_name);
    json_set_text(o, "cache_key", r->op.cache_key);
    jx_set_bool(o, "is_backend_op", r->op.is_backend_op);
    json_set_text(o, "op_type", r->op.op_type);
    jx_set_str(o, "status", gallery_status_name(r->op.status));
    jx_set_bool(o, "settled", gallery_is_settled(r->op.status));
    jx_set_bool(o, "cancellable", r->op.cancellable);
    json_set_time(o, "created_at", r->created_us);
    json_set_time(o, "updated_at", r->updated_us);
    return o;
}
