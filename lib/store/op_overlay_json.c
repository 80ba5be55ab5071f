/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "json/jx_write.h"
#include "store/gallery_nodes.h"
#include "store/op_overlay.h"
#include "store/value_json.h"

/* An overlay as it is printed: some of it in another shape. */
struct op_value {
    struct gallery_overlay o;
    const char *status;
    json_object *nodes;
};

#define FIELD(name_, kind_, member_) VALUE_FIELD(struct op_value, name_, VALUE_##kind_, member_)

/* In the order in which they are printed; the nodes come last. */
static const struct value_field FIELDS[] = {
    FIELD("job_id", TEXT, o.op.id),
    FIELD("gallery_element_name", TEXT, o.op.element_name),
    FIELD("cache_key", TEXT, o.op.cache_key),
    FIELD("op_type", TEXT, o.op.op_type),
    FIELD("is_backend_op", BOOL, o.op.is_backend_op),
    FIELD("status", TEXT, status),
    FIELD("progress", REAL, o.op.progress),
    FIELD("phase", TEXT, o.op.phase),
    FIELD("message", TEXT, o.op.message),
    FIELD("error", TEXT, o.op.error),
    FIELD("file_name", TEXT, o.op.file_name),
    FIELD("current_bytes", NUMBER, o.op.current_bytes),
    FIELD("total_bytes", NUMBER, o.op.total_bytes),
    FIELD("cancellable", BOOL, o.op.cancellable),
    FIELD("of_row", BOOL, o.of_row),
    FIELD("stamp", NUMBER, o.stamp_us),
    FIELD("nodes", RAW, nodes),
};
enum { N_FIELDS = sizeof(FIELDS) / sizeof(FIELDS[0]) };

void op_overlay_print(const struct gallery_overlay *o, struct buf *out)
{
    const struct op_value v = { .o = *o, .status = gallery_status_name(o->op.status) };
    buf_putc(out, '{');
    value_print(FIELDS, N_FIELDS, &v, out);
    if (o->op.nodes > 0) {
        buf_puts(out, ",\"nodes\":");
        gallery_nodes_print(o->op.node, o->op.nodes, out);
    }
    buf_putc(out, '}');
}

/* Missing members are "", 0 and false. */
static int read_value(json_object *json, struct op_value *v, struct err *e)
{
    *v = (struct op_value){ .o = { .op = { .id = "",
                                       .element_name = "",
                                       .cache_key = "",
                                       .op_type = "",
                                       .phase = "",
                                       .message = "",
                                       .error = "",
                                       .file_name = "" } },
        .status = "" };
    if (!value_read(json, FIELDS, N_FIELDS, v))
        return err_set(e, ERR_INVALID, "a field of the overlay has the wrong type");
    v->o.op.status = gallery_status_parse(v->status);
    if (v->nodes == NULL)
        return 0;
    return gallery_nodes_read(v->nodes, &v->o.op.node, &v->o.op.nodes, e);
}

int op_overlay_from_json(const char *id, const char *text, size_t size, struct gallery_overlay *out,
    json_object **json, struct err *e)
{
    cleanup_json json_object *root = NULL;
    struct op_value v;
    if (jx_parse(text, size, OP_VALUE_MAX, &root, e) < 0)
        return -1;
    if (!json_object_is_type(root, json_type_object))
        return err_set(e, ERR_INVALID, "the overlay is no object");
    /* The overlay borrows its id from the value, so that both live as long. */
    if (!json_object_object_get_ex(root, "job_id", NULL))
        jx_set_str(root, "job_id", id);
    if (read_value(root, &v, e) < 0)
        return -1;
    if (strcmp(v.o.op.id, id) != 0)
        return err_set(e, ERR_INVALID, "the overlay is of another operation");
    if (!gallery_overlay_is_sane(&v.o))
        return err_set(e, ERR_INVALID, "a field of the overlay is out of range");
    *out = v.o;
    *json = STEAL(root);
    return 0;
}
