/* SPDX-License-Identifier: Apache-2.0 */
#include "json/jx.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "json/jx_check.h"
#include "json/jx_write.h"

/* json-c says "out of memory" by NULL, which is also JSON null: it must not pass for one. */
static json_object *must(json_object *o)
{
    if (o == NULL)
        abort();
    return o;
}

static void tokener_free_p(json_tokener **t)
{
    if (*t != NULL)
        json_tokener_free(*t);
}
#define cleanup_tokener __attribute__((cleanup(tokener_free_p)))

/* Counts the members of all objects in o, and numbers that are not finite. Depth is bounded by the
 * parser. */
static void survey(json_object *o, size_t *members, size_t *not_finite)
{
    if (json_object_is_type(o, json_type_double) && !isfinite(json_object_get_double(o)))
        (*not_finite)++;
    if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++)
            survey(json_object_array_get_idx(o, i), members, not_finite);
    }
    if (json_object_is_type(o, json_type_object)) {
        json_object_object_foreach(o, key, value)
        {
            (void)key;
            (*members)++;
            survey(value, members, not_finite);
        }
    }
}

static int tokenize(const char *text, size_t size, int depth_max, json_object **out, struct err *e)
{
    /* json-c counts the scalars at the bottom as a level. */
    cleanup_tokener json_tokener *t = json_tokener_new_ex(depth_max + 1);
    if (t == NULL)
        abort();
    json_tokener_set_flags(t, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    cleanup_json json_object *o = json_tokener_parse_ex(t, text, (int)size);
    if (json_tokener_get_error(t) == json_tokener_continue) /* a bare number may go on */
        o = json_tokener_parse_ex(t, "", 1);
    enum json_tokener_error err = json_tokener_get_error(t);
    if (err != json_tokener_success)
        return err_set(e, ERR_INVALID, "malformed JSON: %s", json_tokener_error_desc(err));
    *out = STEAL(o);
    return 0;
}

int jx_parse_deep(
    const char *text, size_t size, size_t max, int depth_max, json_object **out, struct err *e)
{
    size_t told = 0;
    size_t kept = 0;
    size_t not_finite = 0;
    cleanup_json json_object *o = NULL;

    if (size > max || size > INT_MAX / 2)
        return err_set(e, ERR_TOO_LARGE, "JSON text is longer than %zu bytes", max);
    if (size == 0)
        return err_set(e, ERR_INVALID, "malformed JSON: empty");
    if (jx_check(text, size, (size_t)depth_max, &told, e) < 0 ||
        tokenize(text, size, depth_max, &o, e) < 0)
        return -1;
    survey(o, &kept, &not_finite);
    if (not_finite > 0)
        return err_set(e, ERR_INVALID, "malformed JSON: a number is too large");
    if (told != kept) /* json-c kept only the last of each name */
        return err_set(e, ERR_INVALID, "malformed JSON: the same name twice in one object");
    *out = STEAL(o);
    return 0;
}

int jx_parse(const char *text, size_t size, size_t max, json_object **out, struct err *e)
{
    return jx_parse_deep(text, size, max, JX_DEPTH_MAX, out, e);
}

void jx_set(json_object *o, const char *key, json_object *child)
{
    const unsigned flags = JSON_C_OBJECT_ADD_KEY_IS_NEW | JSON_C_OBJECT_KEY_IS_CONSTANT;
    if (json_object_object_add_ex(o, key, child, flags) != 0)
        abort();
}

void jx_set_str(json_object *o, const char *key, const char *text)
{
    jx_set(o, key, text == NULL ? NULL : must(json_object_new_string(text)));
}

void jx_set_int(json_object *o, const char *key, int64_t n)
{
    jx_set(o, key, must(json_object_new_int64(n)));
}

void jx_set_bool(json_object *o, const char *key, bool b)
{
    jx_set(o, key, must(json_object_new_boolean(b)));
}

void jx_set_double(json_object *o, const char *key, double n)
{
    char text[JX_DOUBLE_SIZE];
    jx_double_text(text, n);
    jx_set(o, key, must(json_object_new_double_s(n, text)));
}

void jx_set_null(json_object *o, const char *key)
{
    jx_set(o, key, NULL);
}

void jx_set_some(json_object *o, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0')
        jx_set_str(o, key, text);
}

json_object *jx_object(void)
{
    return must(json_object_new_object());
}

json_object *jx_array(void)
{
    return must(json_object_new_array());
}

void jx_add(json_object *array, json_object *child)
{
    if (json_object_array_add(array, child) != 0)
        abort();
}

void jx_add_str(json_object *array, const char *text)
{
    jx_add(array, must(json_object_new_string(text)));
}

void jx_add_int(json_object *array, int64_t n)
{
    jx_add(array, must(json_object_new_int64(n)));
}

void jx_print(json_object *o, struct buf *out)
{
    size_t size = 0;
    const char *text = json_object_to_json_string_length(
        o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &size);
    if (text == NULL)
        abort();
    buf_add(out, text, size);
}

json_object *jx_get(json_object *o, const char *key)
{
    json_object *v = NULL;
    if (json_object_is_type(o, json_type_object))
        (void)json_object_object_get_ex(o, key, &v);
    return v;
}

static json_object *member(json_object *o, const char *key, enum json_type type)
{
    json_object *v = jx_get(o, key);
    return json_object_is_type(v, type) ? v : NULL;
}

bool jx_get_str(json_object *o, const char *key, const char **out)
{
    json_object *v = member(o, key, json_type_string);
    if (v == NULL)
        return false;
    *out = json_object_get_string(v);
    return true;
}

/* json-c saturates integers that do not fit: its extremes may stand for anything beyond them. */
static bool saturated(json_object *v)
{
    return json_object_get_int64(v) == INT64_MIN || json_object_get_uint64(v) == UINT64_MAX;
}

bool jx_get_int(json_object *o, const char *key, int64_t *out)
{
    json_object *v = member(o, key, json_type_int);
    if (v != NULL) {
        if (saturated(v) || json_object_get_uint64(v) > INT64_MAX)
            return false;
        *out = json_object_get_int64(v);
        return true;
    }
    v = member(o, key, json_type_double);
    if (v == NULL)
        return false;
    double d = json_object_get_double(v);
    /* 2^63 itself does not fit. */
    if (!(d > -9223372036854775808.0 && d < 9223372036854775808.0) || islessgreater(d, trunc(d)))
        return false;
    *out = (int64_t)d;
    return true;
}

bool jx_get_double(json_object *o, const char *key, double *out)
{
    json_object *v = member(o, key, json_type_double);
    if (v == NULL) {
        v = member(o, key, json_type_int);
        if (v == NULL || saturated(v))
            return false;
    }
    *out = json_object_get_double(v);
    return true;
}

bool jx_get_bool(json_object *o, const char *key, bool *out)
{
    json_object *v = member(o, key, json_type_boolean);
    if (v == NULL)
        return false;
    *out = json_object_get_boolean(v) != 0;
    return true;
}
