/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/job_body.h"

#include <ctype.h>
#include <string.h>

#include "base/buf.h"

enum { NAME_MAX_BYTES = 4096, DEPTH_MAX = 24 };

typedef void rename_fn(const char *name, struct buf *out);

static void to_snake(const char *name, struct buf *out)
{
    for (const char *c = name; *c != '\0'; c++) {
        if (*c >= 'A' && *c <= 'Z') {
            buf_putc(out, '_');
            buf_putc(out, (char)(*c - 'A' + 'a'));
        } else {
            buf_putc(out, *c);
        }
    }
}

static void to_camel(const char *name, struct buf *out)
{
    for (const char *c = name; *c != '\0'; c++) {
        if (*c == '_' && c != name && c[1] >= 'a' && c[1] <= 'z') {
            c++;
            buf_putc(out, (char)(*c - 'a' + 'A'));
        } else {
            buf_putc(out, *c);
        }
    }
}

/* Maps: their keys are data. */
static bool keeps_keys(const char *snake)
{
    static const char *const KEEP[] = { "metadata", "provider_config", "engine_args", "extra_body",
        "options", "extra", "raw_json" };
    for (size_t i = 0; i < sizeof(KEEP) / sizeof(KEEP[0]); i++) {
        if (strcmp(KEEP[i], snake) == 0)
            return true;
    }
    return false;
}

static json_object *renamed(json_object *o, rename_fn *rename, int depth);

static json_object *renamed_object(json_object *o, rename_fn *rename, int depth)
{
    json_object *out = jx_object();
    json_object_object_foreach(o, name, member)
    {
        cleanup_buf struct buf snake = BUF_INIT((size_t)2 * NAME_MAX_BYTES);
        cleanup_buf struct buf made = BUF_INIT((size_t)2 * NAME_MAX_BYTES);
        to_snake(name, &snake);
        rename(name, &made);
        const char *key = made.data == NULL || made.overflow ? name : made.data;
        /* The first of two spellings of one name counts. */
        if (json_object_object_get_ex(out, key, NULL))
            continue;
        const bool keep = snake.data != NULL && keeps_keys(snake.data);
        json_object_object_add(
            out, key, keep ? json_object_get(member) : renamed(member, rename, depth + 1));
    }
    return out;
}

static json_object *renamed(json_object *o, rename_fn *rename, int depth)
{
    if (depth < DEPTH_MAX && json_object_is_type(o, json_type_object))
        return renamed_object(o, rename, depth);
    if (depth < DEPTH_MAX && json_object_is_type(o, json_type_array)) {
        json_object *out = jx_array();
        for (size_t i = 0; i < json_object_array_length(o); i++)
            jx_add(out, renamed(json_object_array_get_idx(o, i), rename, depth + 1));
        return out;
    }
    return json_object_get(o);
}

json_object *job_snake_case(json_object *o)
{
    return renamed(o, to_snake, 0);
}

json_object *job_camel_case(json_object *o)
{
    return renamed(o, to_camel, 0);
}
