/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/operation_json.h"

#include "handlers/json_text.h"

static const char *task_name(enum op_task task)
{
    switch (task) {
    case OP_TASK_STAGING:
        return "staging";
    case OP_TASK_DELETION:
        return "deletion";
    case OP_TASK_INSTALLATION:
        break;
    }
    return "installation";
}

static void set_present(json_object *o, const char *key, const char *text)
{
    if (text)
        json_set_text(o, key, text);
}

static void set_bytes(json_object *o, const char *key, int64_t bytes, enum op_task task)
{
    if (bytes != 0 || task == OP_TASK_STAGING)
        jx_set_int(o, key, bytes);
}

/* The order is part of the contract: the UI compares the text of two polls. */
static json_object *entry_to_json(const struct op_entry *e)
{
    json_object *o = jx_object();
    json_set_text(o, "id", e->id);
    json_set_text(o, "jobID", e->job_id);
    json_set_text(o, "name", e->name);
    json_set_text(o, "fullName", e->full_name);
    jx_set_int(o, "progress", e->progress);
    jx_set_str(o, "taskType", task_name(e->task));
    jx_set_bool(o, "isDeletion", e->is_deletion);
    jx_set_bool(o, "isBackend", e->is_backend);
    jx_set_bool(o, "isQueued", e->is_queued);
    jx_set_bool(o, "cancellable", e->cancellable);
    json_set_text(o, "message", e->message);
    set_present(o, "nodeID", e->node_id);
    set_present(o, "nodeName", e->node_name);
    set_present(o, "phase", e->phase);
    set_bytes(o, "currentBytes", e->current_bytes, e->task);
    set_bytes(o, "totalBytes", e->total_bytes, e->task);
    set_present(o, "error", e->error);
    return o;
}

void operations_print(const struct ops_list *l, struct buf *out)
{
    buf_puts(out, "{\"operations\":[");
    for (size_t i = 0; i < l->n; i++) {
        /* One at a time, so that memory does not grow with the list. */
        cleanup_json json_object *o = entry_to_json(&l->entry[i]);
        if (i > 0)
            buf_putc(out, ',');
        jx_print(o, out);
    }
    buf_puts(out, "]}");
}
