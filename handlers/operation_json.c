/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/operation_json.h"

#include "handlers/json_text.h"
#include "json/jx_write.h"
#include "store/gallery_nodes.h"

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

/* A member's name with what stands before and after it. */
struct label {
    const char *text;
    size_t size;
};
#define LABEL(text) ((struct label){ (text), sizeof(text) - 1 })

/* The list is printed five times a second with up to thousands of entries: so names and values are
 * written directly. NULL text leaves the member out. */
static void put_text(struct buf *out, struct label label, const char *text)
{
    if (!text)
        return;
    cleanup_buf struct buf room = BUF_INIT(0);
    buf_add(out, label.text, label.size);
    jx_write_text(out, json_text(text, &room));
}

static void put_bool(struct buf *out, struct label label, bool b)
{
    buf_add(out, label.text, label.size);
    buf_puts(out, b ? "true" : "false");
}

static void put_int(struct buf *out, struct label label, int64_t n)
{
    buf_add(out, label.text, label.size);
    jx_write_int(out, n);
}

static void put_bytes(struct buf *out, struct label label, int64_t bytes, enum op_task task)
{
    if (bytes != 0 || task == OP_TASK_STAGING)
        put_int(out, label, bytes);
}

static void put_nodes(struct buf *out, struct label label, const struct op_entry *e)
{
    if (e->nodes == 0)
        return;
    buf_add(out, label.text, label.size);
    gallery_nodes_print(e->node, e->nodes, out);
}

/* The order is part of the contract: the UI compares the text of two polls. */
static void put_entry(struct buf *out, const struct op_entry *e)
{
    put_text(out, LABEL("{\"id\":"), e->id);
    put_text(out, LABEL(",\"jobID\":"), e->job_id);
    put_text(out, LABEL(",\"name\":"), e->name);
    put_text(out, LABEL(",\"fullName\":"), e->full_name);
    put_int(out, LABEL(",\"progress\":"), e->progress);
    put_text(out, LABEL(",\"taskType\":"), task_name(e->task));
    put_bool(out, LABEL(",\"isDeletion\":"), e->is_deletion);
    put_bool(out, LABEL(",\"isBackend\":"), e->is_backend);
    put_bool(out, LABEL(",\"isQueued\":"), e->is_queued);
    put_bool(out, LABEL(",\"cancellable\":"), e->cancellable);
    put_text(out, LABEL(",\"message\":"), e->message);
    put_text(out, LABEL(",\"nodeID\":"), e->node_id);
    put_text(out, LABEL(",\"nodeName\":"), e->node_name);
    put_text(out, LABEL(",\"phase\":"), e->phase);
    put_bytes(out, LABEL(",\"currentBytes\":"), e->current_bytes, e->task);
    put_bytes(out, LABEL(",\"totalBytes\":"), e->total_bytes, e->task);
    put_text(out, LABEL(",\"error\":"), e->error);
    put_nodes(out, LABEL(",\"nodes\":"), e);
    buf_putc(out, '}');
}

void operations_print(const struct ops_list *l, struct buf *out)
{
    buf_puts(out, "{\"operations\":[");
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_entry(out, &l->entry[i]);
    }
    buf_puts(out, "]}");
}
