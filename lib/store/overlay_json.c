/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "json/jx_write.h"
#include "model/load_job.h"
#include "store/staging.h"

enum kind { TEXT, NUMBER, PERCENT };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define FIELD(name_, kind_, member_) \
    { \
        .name = (name_), .kind = (kind_), .offset = offsetof(struct overlay, member_) \
    }

/* In the order in which they are printed. */
static const struct field FIELDS[] = {
    FIELD("model_id", TEXT, key),
    FIELD("node_name", TEXT, node_name),
    FIELD("file_name", TEXT, file_name),
    FIELD("bytes_sent", NUMBER, bytes_sent),
    FIELD("total_bytes", NUMBER, total_bytes),
    FIELD("progress", PERCENT, progress),
    FIELD("speed", TEXT, speed),
    FIELD("file_index", NUMBER, file_index),
    FIELD("total_files", NUMBER, total_files),
    FIELD("message", TEXT, message),
    FIELD("started_at", TEXT, started_at),
    FIELD("claim", TEXT, claim),
    FIELD("session", TEXT, session),
    FIELD("stamp", NUMBER, stamp_us),
};
enum { N_FIELDS = sizeof FIELDS / sizeof FIELDS[0] };

void overlay_print(const struct overlay *o, struct buf *out)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct field *f = &FIELDS[i];
        const void *member = (const char *)o + f->offset;
        buf_putc(out, i == 0 ? '{' : ',');
        jx_write_text(out, f->name);
        buf_putc(out, ':');
        if (f->kind == TEXT)
            jx_write_text(out, *(const char *const *)member);
        else if (f->kind == NUMBER)
            jx_write_int(out, *(const int64_t *)member);
        else
            jx_write_double(out, *(const double *)member);
    }
    buf_putc(out, '}');
}

/* The field of that name, or NULL. Values of our own have all of them in order, so the search begins
 * at the one that is expected. */
static const struct field *field_of(const char *name, size_t expected)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct field *f = &FIELDS[(expected + i) % N_FIELDS];
        if (strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

/* False for another type, null too. Ranges are overlay_is_sane()'s to judge. */
static bool read_field(json_object *json, const struct field *f, struct overlay *o)
{
    void *member = (char *)o + f->offset;
    if (f->kind == TEXT)
        return jx_get_str(json, f->name, member);
    if (f->kind == PERCENT)
        return jx_get_double(json, f->name, member);
    return jx_get_int(json, f->name, member);
}

/* Missing members are "" and 0, progress is computed; those that we do not know are left alone. */
static bool read_fields(json_object *json, struct overlay *o)
{
    *o = (struct overlay){ .key = "",
        .node_name = "",
        .file_name = "",
        .speed = "",
        .message = "",
        .started_at = "",
        .claim = "",
        .session = "" };
    bool has_progress = false;
    size_t at = 0;
    json_object_object_foreach(json, name, value)
    {
        (void)value;
        const struct field *f = field_of(name, at++);
        if (f == NULL)
            continue;
        if (!read_field(json, f, o))
            return false;
        has_progress = has_progress || f->kind == PERCENT;
    }
    if (!has_progress)
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
