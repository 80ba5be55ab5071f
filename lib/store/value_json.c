/* SPDX-License-Identifier: Apache-2.0 */
#include "store/value_json.h"

#include <string.h>

#include "json/jx_write.h"

static void print_one(const struct value_field *f, const void *member, struct buf *out)
{
    switch (f->kind) {
    case VALUE_TEXT:
        jx_write_text(out, *(const char *const *)member);
        break;
    case VALUE_NUMBER:
        jx_write_int(out, *(const int64_t *)member);
        break;
    case VALUE_REAL:
        jx_write_double(out, *(const double *)member);
        break;
    case VALUE_BOOL:
        buf_puts(out, *(const bool *)member ? "true" : "false");
        break;
    case VALUE_RAW:
        break;
    }
}

void value_print(const struct value_field *field, size_t n, const void *value, struct buf *out)
{
    const char *before = "";
    for (const struct value_field *f = field; f < field + n; f++) {
        if (f->kind == VALUE_RAW)
            continue;
        buf_puts(out, before);
        jx_write_text(out, f->name);
        buf_putc(out, ':');
        print_one(f, (const char *)value + f->offset, out);
        before = ",";
    }
}

/* The field of that name, or NULL. Values of our own have all of them in order, so the search begins
 * at the one that is expected. */
static const struct value_field *field_of(
    const struct value_field *field, size_t n, const char *name, size_t expected)
{
    for (size_t i = 0; i < n; i++) {
        const struct value_field *f = &field[(expected + i) % n];
        if (strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

static bool read_one(json_object *json, const struct value_field *f, void *member)
{
    switch (f->kind) {
    case VALUE_TEXT:
        return jx_get_str(json, f->name, member);
    case VALUE_NUMBER:
        return jx_get_int(json, f->name, member);
    case VALUE_REAL:
        return jx_get_double(json, f->name, member);
    case VALUE_BOOL:
        return jx_get_bool(json, f->name, member);
    case VALUE_RAW:
        break;
    }
    return json_object_object_get_ex(json, f->name, member) != 0;
}

bool value_read(json_object *json, const struct value_field *field, size_t n, void *value)
{
    size_t at = 0;
    json_object_object_foreach(json, name, member)
    {
        (void)member;
        const struct value_field *f = field_of(field, n, name, at++);
        if (f != NULL && !read_one(json, f, (char *)value + f->offset))
            return false;
    }
    return true;
}
