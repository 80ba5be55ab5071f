/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/job_body.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum kind { TEXT, INT, DOUBLE, BOOL };

/* Where in the request a field goes; where it comes from is its name. */
#define REQ(member) offsetof(struct job_request, member)
static const struct {
    enum job_field field;
    enum kind kind;
    size_t at;
} FIELDS[] = {
    { FIELD_INPUT_FILE, TEXT, REQ(input_file) },
    { FIELD_ENDPOINT, TEXT, REQ(endpoint) },
    { FIELD_COMPLETION_WINDOW, TEXT, REQ(completion_window) },
    { FIELD_MODEL, TEXT, REQ(model) },
    { FIELD_TEMPLATE_NAME, TEXT, REQ(template_name) },
    { FIELD_TEMPLATE_VERSION, TEXT, REQ(template_version) },
    { FIELD_POOL, TEXT, REQ(pool) },
    { FIELD_REQUEST_COUNT_TOTAL, INT, REQ(request_count_total) },
    { FIELD_REPLICAS, INT, REQ(replicas) },
    { FIELD_PRIORITY, INT, REQ(priority) },
    { FIELD_OUTPUT_ANCHOR, TEXT, REQ(output_anchor) },
    { FIELD_OUTPUT_EXPIRES, INT, REQ(output_expires_s) },
    { FIELD_MAX_CONCURRENCY, INT, REQ(client.max_concurrency) },
    { FIELD_ADAPTIVE_CONCURRENCY, BOOL, REQ(client.adaptive_concurrency) },
    { FIELD_ADAPTIVE_MAX_FACTOR, INT, REQ(client.adaptive_max_factor) },
    { FIELD_ADAPTIVE_HEALTHY_WINDOW, INT, REQ(client.adaptive_healthy_window) },
    { FIELD_ADAPTIVE_ADDITIVE_INCREASE, INT, REQ(client.adaptive_additive_increase) },
    { FIELD_REQUEST_TIMEOUT, INT, REQ(client.request_timeout_s) },
    { FIELD_MAX_RETRIES, INT, REQ(client.max_retries) },
    { FIELD_BASE_DELAY, DOUBLE, REQ(client.base_delay_s) },
    { FIELD_MAX_DELAY, DOUBLE, REQ(client.max_delay_s) },
    { FIELD_NO_ENDPOINT_MAX_RETRIES, INT, REQ(client.no_endpoint_max_retries) },
};

void job_body_free(struct job_body *b)
{
    free(b->pairs);
    json_object_put(b->owned);
    b->pairs = NULL;
    b->owned = NULL;
}

/* The member that a dotted path names: 0; 1 when it or something above it is missing; -1 when something above
 * it is no object. */
static int find(json_object *o, const char *path, json_object **out, struct err *e)
{
    for (const char *at = path; *at != '\0';) {
        const size_t n = strcspn(at, ".");
        char name[64];
        if (o == NULL)
            return 1;
        if (!json_object_is_type(o, json_type_object))
            return err_set(e, ERR_INVALID, "%.*s: must be an object", (int)(at - path - 1), path);
        (void)str_format(name, sizeof(name), "%.*s", (int)n, at);
        if (!json_object_object_get_ex(o, name, &o))
            return 1;
        at += n + (at[n] == '.' ? 1 : 0);
    }
    *out = o;
    return o == NULL ? 1 : 0;
}

/* As the JSON of protobuf has it, a number may come as text. */
static bool read_number(json_object *value, double *out)
{
    if (json_object_is_type(value, json_type_string))
        return str_to_double(json_object_get_string(value), out) == 0;
    if (!json_object_is_type(value, json_type_int) && !json_object_is_type(value, json_type_double))
        return false;
    *out = json_object_get_double(value);
    return true;
}

static int store(json_object *value, enum kind kind, const char *name, void *to, struct err *e)
{
    double number = 0;
    if (kind == TEXT) {
        if (!json_object_is_type(value, json_type_string))
            return err_set(e, ERR_INVALID, "%s: must be text", name);
        *(const char **)to = json_object_get_string(value);
        return 0;
    }
    if (kind == BOOL) {
        if (!json_object_is_type(value, json_type_boolean))
            return err_set(e, ERR_INVALID, "%s: must be true or false", name);
        *(int64_t *)to = json_object_get_boolean(value);
        return 0;
    }
    if (!read_number(value, &number))
        return err_set(e, ERR_INVALID, "%s: must be a number", name);
    if (kind == DOUBLE) {
        *(double *)to = number;
        return 0;
    }
    if (number != floor(number) || fabs(number) > (double)INT32_MAX)
        return err_set(e, ERR_INVALID, "%s: must be a whole number of 32 bits", name);
    *(int64_t *)to = (int64_t)number;
    return 0;
}

static int read_fields(json_object *o, struct job_request *r, struct err *e)
{
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(FIELDS[0]); i++) {
        const char *name = job_field_name(r->dialect, FIELDS[i].field);
        json_object *value = NULL;
        const int missing = find(o, name, &value, e);
        if (missing < 0)
            return -1;
        if (missing == 0 && store(value, FIELDS[i].kind, name, (char *)r + FIELDS[i].at, e) < 0)
            return -1;
    }
    return 0;
}

static int read_text(json_object *o, const char *path, const char **out, struct err *e)
{
    json_object *value = NULL;
    const int missing = find(o, path, &value, e);
    return missing != 0 ? (missing < 0 ? -1 : 0) : store(value, TEXT, path, out, e);
}

static int read_object(json_object *o, const char *path, json_object **out, struct err *e)
{
    json_object *value = NULL;
    const int missing = find(o, path, &value, e);
    if (missing != 0)
        return missing < 0 ? -1 : 0;
    if (!json_object_is_type(value, json_type_object))
        return err_set(e, ERR_INVALID, "%s: must be an object", path);
    *out = value;
    return 0;
}

static int read_metadata(json_object *o, struct job_body *b, struct err *e)
{
    size_t n = 0;
    if (read_object(o, "metadata", &b->metadata, e) < 0)
        return -1;
    if (b->metadata == NULL)
        return 0;
    b->pairs = mem_calloc((size_t)json_object_object_length(b->metadata) + 1, sizeof(b->pairs[0]));
    json_object_object_foreach(b->metadata, key, value)
    {
        if (!json_object_is_type(value, json_type_string))
            return err_set(e, ERR_INVALID, "metadata: the value of %.64s must be text", key);
        b->pairs[n++] = (struct job_pair){ .key = key, .value = json_object_get_string(value) };
    }
    b->request.metadata = b->pairs;
    b->request.n_metadata = n;
    return 0;
}

static int read_console(json_object *o, struct job_body *b, struct err *e)
{
    if (read_text(o, "name", &b->request.name, e) < 0 ||
        read_object(o, "resource_request.provider_config", &b->provider_config, e) < 0 ||
        read_object(o, "injection_config", &b->injection_config, e) < 0 ||
        read_object(o, "extra_body", &b->extra_body, e) < 0)
        return -1;
    b->model_id = b->request.model == NULL ? "" : b->request.model;
    return 0;
}

/* The display name of a job lies in the metadata here. */
static const char *display_name(const struct job_body *b)
{
    static const char *const KEYS[] = { "aibrix.console.display_name", "display_name" };
    for (size_t k = 0; k < sizeof(KEYS) / sizeof(KEYS[0]); k++) {
        for (size_t i = 0; i < b->request.n_metadata; i++) {
            if (strcmp(b->pairs[i].key, KEYS[k]) == 0)
                return b->pairs[i].value;
        }
    }
    return NULL;
}

static int read_openai(json_object *o, struct job_body *b, struct err *e)
{
    if (read_object(o, "aibrix.resource_request.provider_config", &b->provider_config, e) < 0 ||
        read_object(o, "aibrix.injection_config", &b->injection_config, e) < 0)
        return -1;
    if (b->request.model == NULL && read_text(o, "model", &b->request.model, e) < 0)
        return -1;
    b->request.name = display_name(b);
    b->model_id = "";
    return 0;
}

int job_body_read(enum job_dialect dialect, json_object *body, struct job_body *out, struct err *e)
{
    *out = (struct job_body){ .request = JOB_REQUEST_INIT(dialect), .model_id = "" };
    out->owned = body == NULL ? jx_object() : job_snake_case(body);
    if (!json_object_is_type(out->owned, json_type_object))
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    if (read_fields(out->owned, &out->request, e) < 0 || read_metadata(out->owned, out, e) < 0)
        return -1;
    return dialect == DIALECT_CONSOLE ? read_console(out->owned, out, e)
                                      : read_openai(out->owned, out, e);
}
