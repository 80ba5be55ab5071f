/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/openai_list.h"

json_object *openai_list(json_object *data)
{
    json_object *o = jx_object();
    jx_set_str(o, "object", "list");
    jx_set(o, "data", data);
    return o;
}

static void set_id(json_object *o, const char *key, json_object *of)
{
    json_object *id = NULL;
    (void)json_object_object_get_ex(of, "id", &id);
    jx_set(o, key, json_object_get(id));
}

json_object *openai_page(json_object *data, bool more)
{
    const size_t n = json_object_array_length(data);
    json_object *o = openai_list(data);
    set_id(o, "first_id", n > 0 ? json_object_array_get_idx(data, 0) : NULL);
    set_id(o, "last_id", n > 0 ? json_object_array_get_idx(data, n - 1) : NULL);
    jx_set_bool(o, "has_more", more);
    return o;
}
