/* SPDX-License-Identifier: Apache-2.0 */
#include "store/gallery_nodes.h"

#include "base/mem.h"
#include "json/jx_bind.h"
#include "json/jx_write.h"

struct node_body {
    const char *node_id;
    const char *node_name;
    const char *status;
    double percentage;
    const char *file_name;
    json_object *current;
    json_object *total;
    const char *phase;
    const char *error;
};

static const struct jx_field FIELDS[] = {
    JX_TEXT(struct node_body, node_id, 0, GALLERY_NODE_TEXT_MAX),
    JX_TEXT(struct node_body, node_name, 0, GALLERY_NODE_TEXT_MAX),
    JX_TEXT(struct node_body, status, JX_REQUIRED, GALLERY_NODE_TEXT_MAX),
    JX_DOUBLE(struct node_body, percentage, 0, 0, 100),
    JX_TEXT(struct node_body, file_name, 0, GALLERY_NODE_TEXT_MAX),
    JX_RAW(struct node_body, current, 0),
    JX_RAW(struct node_body, total, 0),
    JX_TEXT(struct node_body, phase, 0, GALLERY_NODE_TEXT_MAX),
    JX_TEXT(struct node_body, error, 0, GALLERY_NODE_ERROR_MAX),
};

/* An amount as text. NULL: it is neither text nor a whole number. */
static const char *amount(json_object *o)
{
    if (o == NULL)
        return "";
    if (json_object_is_type(o, json_type_string) || json_object_is_type(o, json_type_int))
        return json_object_get_string(o);
    return NULL;
}

static int node_read(json_object *o, struct gallery_node *out, struct err *e)
{
    struct node_body b = {
        .node_id = "", .node_name = "", .file_name = "", .phase = "", .error = ""
    };
    if (jx_bind(o, FIELDS, sizeof(FIELDS) / sizeof(FIELDS[0]), JX_LENIENT, &b, e) < 0)
        return -1;
    const struct gallery_node n = { .node_id = b.node_id,
        .node_name = b.node_name,
        .status = b.status,
        .percentage = b.percentage,
        .file_name = b.file_name,
        .current = amount(b.current),
        .total = amount(b.total),
        .phase = b.phase,
        .error = b.error };
    if (n.current == NULL || n.total == NULL)
        return err_set(
            e, ERR_INVALID, "%s: must be text or a whole number", n.current ? "total" : "current");
    if (n.node_id[0] == '\0' && n.node_name[0] == '\0')
        return err_set(e, ERR_INVALID, "node_id: must not be empty without a node_name");
    if (!gallery_node_status_known(n.status))
        return err_set(e, ERR_INVALID,
            "status: must be one of queued, running_on_worker, downloading, success, error");
    if (!gallery_node_is_sane(&n))
        return err_set(e, ERR_INVALID, "a text is too long");
    *out = n;
    return 0;
}

static void nodes_free(json_object *array, void *nodes)
{
    (void)array;
    free(nodes);
}

int gallery_nodes_read(
    json_object *array, const struct gallery_node **out, size_t *n, struct err *e)
{
    if (!json_object_is_type(array, json_type_array))
        return err_set(e, ERR_INVALID, "nodes: must be an array");
    const size_t count = json_object_array_length(array);
    if (count > GALLERY_NODES_MAX)
        return err_set(e, ERR_INVALID, "nodes: more than %d", GALLERY_NODES_MAX);
    cleanup_free struct gallery_node *nodes = mem_calloc(count + 1, sizeof(*nodes));
    for (size_t i = 0; i < count; i++) {
        if (node_read(json_object_array_get_idx(array, i), &nodes[i], e) < 0)
            return err_wrap(e, "nodes[%zu]", i);
    }
    gallery_nodes_sort(nodes, count);
    *out = nodes;
    *n = count;
    json_object_set_userdata(array, STEAL(nodes), nodes_free);
    return 0;
}

static void put_text(struct buf *out, const char *name, const char *text)
{
    buf_putc(out, ',');
    jx_write_text(out, name);
    buf_putc(out, ':');
    jx_write_text(out, text);
}

static void put_filled(struct buf *out, const char *name, const char *text)
{
    if (text[0] != '\0')
        put_text(out, name, text);
}

static void node_print(const struct gallery_node *n, struct buf *out)
{
    buf_puts(out, "{\"node_id\":");
    jx_write_text(out, n->node_id);
    put_text(out, "node_name", n->node_name);
    put_text(out, "status", n->status);
    buf_puts(out, ",\"percentage\":");
    jx_write_double(out, n->percentage);
    put_filled(out, "file_name", n->file_name);
    put_filled(out, "current", n->current);
    put_filled(out, "total", n->total);
    put_filled(out, "phase", n->phase);
    put_filled(out, "error", n->error);
    buf_putc(out, '}');
}

void gallery_nodes_print(const struct gallery_node *node, size_t n, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        node_print(&node[i], out);
    }
    buf_putc(out, ']');
}
