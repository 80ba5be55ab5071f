/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/load_job.h"
#include "store/staging.h"

json_object *overlay_to_json(const struct overlay *o)
{
    json_object *json = jx_object();
    jx_set_str(json, "model_id", o->key);
    jx_set_str(json, "node_name", o->node_name);
    jx_set_str(json, "file_name", o->file_name);
    jx_set_int(json, "bytes_sent", o->bytes_sent);
    jx_set_int(json, "total_bytes", o->total_bytes);
    jx_set_double(json, "progress", o->progress);
    jx_set_str(json, "speed", o->speed);
    jx_set_int(json, "file_index", o->file_index);
    jx_set_int(json, "total_files", o->total_files);
    jx_set_str(json, "message", o->message);
    jx_set_str(json, "started_at", o->started_at);
    jx_set_str(json, "claim", o->claim);
    jx_set_str(json, "session", o->session);
    jx_set_int(json, "stamp", o->stamp_us);
    return json;
}

/* A missing member is "" and 0; one of another type, null too, is nothing a sender could have meant. */
static bool read_text(json_object *json, const char *name, const char **out)
{
    *out = "";
    return !json_object_object_get_ex(json, name, NULL) || jx_get_str(json, name, out);
}

static bool read_number(json_object *json, const char *name, int64_t *out)
{
    *out = 0;
    if (!json_object_object_get_ex(json, name, NULL))
        return true;
    return jx_get_int(json, name, out) && *out >= 0 && *out <= OVERLAY_NUMBER_MAX;
}

static bool read_texts(json_object *json, struct overlay *o)
{
    return read_text(json, "model_id", &o->key) && read_text(json, "node_name", &o->node_name) &&
           read_text(json, "file_name", &o->file_name) && read_text(json, "speed", &o->speed) &&
           read_text(json, "message", &o->message) &&
           read_text(json, "started_at", &o->started_at) && read_text(json, "claim", &o->claim) &&
           read_text(json, "session", &o->session);
}

static bool read_numbers(json_object *json, struct overlay *o)
{
    if (!read_number(json, "bytes_sent", &o->bytes_sent) ||
        !read_number(json, "total_bytes", &o->total_bytes) ||
        !read_number(json, "file_index", &o->file_index) ||
        !read_number(json, "total_files", &o->total_files) ||
        !read_number(json, "stamp", &o->stamp_us))
        return false;
    if (json_object_object_get_ex(json, "progress", NULL))
        return jx_get_double(json, "progress", &o->progress);
    o->progress = load_progress(o->bytes_sent, o->total_bytes, o->file_index, o->total_files);
    return true;
}

int overlay_from_json(const char *key, const char *text, size_t size, struct overlay *out,
    json_object **json, struct err *e)
{
    cleanup_json json_object *root = NULL;
    struct overlay o = { .key = "", .expires_ns = 0 };
    if (jx_parse(text, size, OVERLAY_VALUE_MAX, &root, e) < 0)
        return -1;
    if (!json_object_is_type(root, json_type_object))
        return err_set(e, ERR_INVALID, "the overlay is no object");
    /* The overlay borrows its key from the value, so that both live as long. */
    if (!json_object_object_get_ex(root, "model_id", NULL))
        jx_set_str(root, "model_id", key);
    if (!read_texts(root, &o) || !read_numbers(root, &o))
        return err_set(e, ERR_INVALID, "a field of the overlay has the wrong type or range");
    if (strcmp(o.key, key) != 0)
        return err_set(e, ERR_INVALID, "the overlay is of another key");
    if (!overlay_is_sane(&o))
        return err_set(e, ERR_INVALID, "a field of the overlay is out of range");
    *out = o;
    *json = STEAL(root);
    return 0;
}
