/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "json/jx.h"

/* Beyond this not every whole number is a double. */
static const double WHOLE_MAX = 9007199254740992.0;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static json_object *sorted_object(json_object *o)
{
    const size_t n = (size_t)json_object_object_length(o);
    cleanup_free const char **names = mem_calloc(n + 1, sizeof(names[0]));
    json_object *out = jx_object();
    size_t at = 0;
    json_object_object_foreach(o, name, member)
    {
        (void)member;
        names[at++] = name;
    }
    qsort(names, n, sizeof(names[0]), by_name);
    for (size_t i = 0; i < n; i++)
        json_object_object_add(out, names[i], jx_sorted(jx_get(o, names[i])));
    return out;
}

static json_object *sorted_array(json_object *o)
{
    json_object *out = jx_array();
    for (size_t i = 0; i < json_object_array_length(o); i++)
        jx_add(out, jx_sorted(json_object_array_get_idx(o, i)));
    return out;
}

static json_object *spelled(double number)
{
    if (number == trunc(number) && fabs(number) <= WHOLE_MAX)
        return json_object_new_int64((int64_t)number);
    return json_object_new_double(number);
}

json_object *jx_sorted(json_object *o)
{
    if (json_object_is_type(o, json_type_object))
        return sorted_object(o);
    if (json_object_is_type(o, json_type_array))
        return sorted_array(o);
    if (json_object_is_type(o, json_type_double))
        return spelled(json_object_get_double(o));
    return json_object_get(o);
}
