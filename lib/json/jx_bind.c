/* SPDX-License-Identifier: Apache-2.0 */
#include "json/jx_bind.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"

/* A value of any type that a field may have, checked before anything is stored. */
struct value {
    const char *text;
    int64_t integer;
    double real;
    bool boolean;
    json_object *raw;
};

static int read_text(json_object *o, const struct jx_field *f, struct value *v, struct err *e)
{
    if (!jx_get_str(o, f->name, &v->text))
        return err_set(e, ERR_INVALID, "%s: must be text", f->name);
    if (str_utf8_length(v->text) > (size_t)f->max)
        return err_set(
            e, ERR_INVALID, "%s: must be at most %" PRId64 " characters", f->name, f->max);
    return 0;
}

static int read_int(json_object *o, const struct jx_field *f, struct value *v, struct err *e)
{
    if (!jx_get_int(o, f->name, &v->integer) || v->integer < f->min || v->integer > f->max)
        return err_set(e, ERR_INVALID, "%s: must be a whole number from %" PRId64 " to %" PRId64,
            f->name, f->min, f->max);
    return 0;
}

static int read_double(json_object *o, const struct jx_field *f, struct value *v, struct err *e)
{
    if (!jx_get_double(o, f->name, &v->real) || !(v->real >= (double)f->min) ||
        !(v->real <= (double)f->max))
        return err_set(e, ERR_INVALID, "%s: must be a number from %" PRId64 " to %" PRId64, f->name,
            f->min, f->max);
    return 0;
}

static int read_bool(json_object *o, const struct jx_field *f, struct value *v, struct err *e)
{
    if (!jx_get_bool(o, f->name, &v->boolean))
        return err_set(e, ERR_INVALID, "%s: must be true or false", f->name);
    return 0;
}

/* 0 read, 1 missing, -1 wrong. */
static int read_field(json_object *o, const struct jx_field *f, struct value *v, struct err *e)
{
    if (!json_object_object_get_ex(o, f->name, &v->raw) || v->raw == NULL) {
        if ((f->flags & JX_REQUIRED) != 0)
            return err_set(e, ERR_INVALID, "%s: is required", f->name);
        return 1;
    }
    switch (f->type) {
    case JX_T_TEXT:
        return read_text(o, f, v, e);
    case JX_T_INT:
        return read_int(o, f, v, e);
    case JX_T_DOUBLE:
        return read_double(o, f, v, e);
    case JX_T_BOOL:
        return read_bool(o, f, v, e);
    case JX_T_RAW:
        return 0;
    }
    return err_set(e, ERR_INTERNAL, "%s: unknown type in its table", f->name);
}

static void store_field(const struct jx_field *f, const struct value *v, void *target)
{
    char *at = (char *)target + f->offset;
    const int boolean = v->boolean;
    switch (f->type) {
    case JX_T_TEXT:
        memcpy(at, &v->text, sizeof(v->text));
        break;
    case JX_T_INT:
        memcpy(at, &v->integer, sizeof(v->integer));
        break;
    case JX_T_DOUBLE:
        memcpy(at, &v->real, sizeof(v->real));
        break;
    case JX_T_BOOL:
        memcpy(at, &boolean, sizeof(boolean));
        break;
    case JX_T_RAW:
        memcpy(at, &v->raw, sizeof(v->raw));
        break;
    }
}

static bool is_known(const struct jx_field *fields, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(fields[i].name, name) == 0)
            return true;
    }
    return false;
}

static int check_names(json_object *o, const struct jx_field *fields, size_t n, struct err *e)
{
    json_object_object_foreach(o, name, member)
    {
        (void)member;
        if (!is_known(fields, n, name))
            return err_set(e, ERR_INVALID, "unknown field: %s", name);
    }
    return 0;
}

int jx_bind(json_object *o, const struct jx_field *fields, size_t n, enum jx_mode mode,
    void *target, struct err *e)
{
    struct value v = { 0 };
    if (!json_object_is_type(o, json_type_object))
        return err_set(e, ERR_INVALID, "must be a JSON object");
    if (mode == JX_STRICT && check_names(o, fields, n, e) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (read_field(o, &fields[i], &v, e) < 0)
            return -1;
    }
    /* Nothing can fail any more. */
    for (size_t i = 0; i < n; i++) {
        if (read_field(o, &fields[i], &v, NULL) == 0)
            store_field(&fields[i], &v, target);
    }
    return 0;
}
