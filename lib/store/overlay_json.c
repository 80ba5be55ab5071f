/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "model/load_job.h"
#include "store/staging.h"
#include "store/value_json.h"

#define FIELD(name_, kind_, member_) VALUE_FIELD(struct overlay, name_, VALUE_##kind_, member_)

/* In the order in which they are printed. */
static const struct value_field FIELDS[] = {
    FIELD("model_id", TEXT, key),
    FIELD("node_name", TEXT, node_name),
    FIELD("file_name", TEXT, file_name),
    FIELD("bytes_sent", NUMBER, bytes_sent),
    FIELD("total_bytes", NUMBER, total_bytes),
    FIELD("progress", REAL, progress),
    FIELD("speed", TEXT, speed),
    FIELD("file_index", NUMBER, file_index),
    FIELD("total_files", NUMBER, total_files),
    FIELD("message", TEXT, message),
    FIELD("started_at", TEXT, started_at),
    FIELD("claim", TEXT, claim),
    FIELD("session", TEXT, session),
    FIELD("stamp", NUMBER, stamp_us),
};
enum { N_FIELDS = sizeof(FIELDS) / sizeof(FIELDS[0]) };

void overlay_print(const struct overlay *o, struct buf *out)
{
    buf_putc(out, '{');
    value_print(FIELDS, N_FIELDS, o, out);
    buf_putc(out, '}');
}

/* Missing members are "" and 0, progress is computed. */
static bool read_fields(json_object *json, struct overlay *o)
{
    *o = (struct overlay){ .key = "",
        .node_name = "",
        .file_name = "",
        .speed = "",
        .message = "",
        .started_at = "",
        .claim = "",
        .session = "",
        .progress = NAN }; /* which no JSON holds */
    if (!value_read(json, FIELDS, N_FIELDS, o))
        return false;
    if (isnan(o->progress))
        o->progress = load_progress(o->bytes_sent, o->total_bytes, o->file_index, o->total_files);
    return true;
}

int overlay_from_json(const char *key, const char *text, size_t size, struct overlay *out,
    json_object **json, struct err *e)
{
    cleanup_json json_object *root = NULL;
    struct overlay o;
    if (jx_parse(text, size, OVERLAY_VALUE_MAX, &root, e) < 0)
        return -1;
    if (!json_object_is_type(root, json_type_object))
        return err_set(e, ERR_INVALID, "the overlay is no object");
    /* The overlay borrows its key from the value, so that both live as long. */
    if (!json_object_object_get_ex(root, "model_id", NULL))
        jx_set_str(root, "model_id", key);
    if (!read_fields(root, &o))
        return err_set(e, ERR_INVALID, "a field of the overlay has the wrong type");
    if (strcmp(o.key, key) != 0)
        return err_set(e, ERR_INVALID, "the overlay is of another key");
    if (!overlay_is_sane(&o))
        return err_set(e, ERR_INVALID, "a field of the overlay is out of range");
    *out = o;
    *json = STEAL(root);
    return 0;
}
