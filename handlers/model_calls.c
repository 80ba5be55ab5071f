/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "handlers/console_json.h"
#include "handlers/job_parts.h"
#include "handlers/json_text.h"
#include "store/template.h"

/* The catalog of models and their deployment templates, which the wizard of the Console reads. Jobs contract
 * section 3; reference 1.3 and 1.6. */

enum { TEXT_MAX = 256, STORED_MAX = 1 << 20 };

static json_object *parsed(const char *text)
{
    json_object *o = NULL;
    struct err ignored = ERR_INIT;
    if (str_empty(text) || jx_parse(text, strlen(text), STORED_MAX, &o, &ignored) < 0)
        return jx_object();
    return o;
}

/* What was sent about a model comes back, under the names that are the row's own. */
static json_object *model_json(const struct model_row *m)
{
    cleanup_json json_object *info = parsed(m->info_json);
    json_object *o = jx_object();
    json_set_text(o, "id", m->id);
    json_set_text(o, "name", m->name);
    json_set_text(o, "servingName", m->serving_name);
    console_set_int64(o, "createdAt", m->created_us / US_PER_S);
    cleanup_json json_object *shown = job_camel_case(info);
    if (!json_object_is_type(shown, json_type_object))
        return o;
    json_object_object_foreach(shown, key, value)
    {
        if (!json_object_object_get_ex(o, key, NULL))
            json_object_object_add(o, key, json_object_get(value));
    }
    return o;
}

static json_object *template_json(const struct template_row *t)
{
    cleanup_json json_object *spec = parsed(t->spec_json);
    json_object *o = jx_object();
    json_set_text(o, "id", t->id);
    json_set_text(o, "name", t->name);
    json_set_text(o, "version", t->version);
    json_set_text(o, "status", t->status);
    json_set_text(o, "modelId", t->model_id);
    jx_set(o, "spec", job_camel_case(spec));
    console_set_int64(o, "createdAt", t->created_us / US_PER_S);
    console_set_int64(o, "updatedAt", t->updated_us / US_PER_S);
    return o;
}

static int query_text(
    const struct web_req *req, const char *name, char out[TEXT_MAX], struct err *e)
{
    const int absent = web_query(req, name, out, TEXT_MAX, e);
    if (absent == 1)
        out[0] = '\0';
    return absent < 0 ? -1 : 0;
}

int console_list_models(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_models struct models found = MODELS_INIT;
    char search[TEXT_MAX];
    char category[TEXT_MAX];
    if (query_text(req, "search", search, e) < 0 || query_text(req, "category", category, e) < 0 ||
        model_list(req->db, search, category, &found, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(list, model_json(&found.model[i]));
    json_object *o = jx_object();
    jx_set(o, "models", list);
    reply_json(reply, o);
    return 0;
}

int console_get_model(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_models struct models found = MODELS_INIT;
    if (model_get(req->db, web_param(req, "id"), &found, e) < 0)
        return -1;
    reply_json(reply, model_json(&found.model[0]));
    return 0;
}

struct model_body {
    const char *id;
    const char *name;
    const char *serving_name;
};

static const struct jx_field MODEL_FIELDS[] = {
    JX_TEXT(struct model_body, id, 0, TEXT_MAX - 1),
    JX_TEXT(struct model_body, name, JX_REQUIRED, TEXT_MAX - 1),
    JX_TEXT(struct model_body, serving_name, 0, TEXT_MAX - 1),
};

static int empty_field(const char *name, struct err *e)
{
    return err_set(e, ERR_INVALID, "%s: must not be empty", name);
}

int console_create_model(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_models struct models made = MODELS_INIT;
    cleanup_json json_object *body = job_snake_case(req->body);
    cleanup_buf struct buf info = BUF_INIT(STORED_MAX);
    struct model_body b = { .id = NULL };
    if (jx_bind(body, MODEL_FIELDS, sizeof(MODEL_FIELDS) / sizeof(MODEL_FIELDS[0]), JX_LENIENT, &b,
            e) < 0)
        return -1;
    if (b.name[0] == '\0')
        return empty_field("name", e);
    jx_print(body, &info);
    const struct model_row m = {
        .id = str_empty(b.id) ? b.name : b.id,
        .name = b.name,
        .serving_name = b.serving_name == NULL ? "" : b.serving_name,
        .info_json = info.data,
    };
    if (model_create(req->db, &m, &made, e) < 0)
        return -1;
    reply_json(reply, model_json(&made.model[0]));
    return 0;
}

/* --- templates --- */

static void reply_template(struct web_reply *reply, const struct templates *t)
{
    reply_json(reply, template_json(&t->row[0]));
}

int console_list_templates(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_templates struct templates found = TEMPLATES_INIT;
    char status[TEXT_MAX];
    char name[TEXT_MAX];
    if (query_text(req, "status", status, e) < 0 || query_text(req, "name", name, e) < 0 ||
        template_list(req->db, web_param(req, "id"), status, name, &found, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(list, template_json(&found.row[i]));
    json_object *o = jx_object();
    jx_set(o, "templates", list);
    reply_json(reply, o);
    return 0;
}

int console_get_template(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_templates struct templates found = TEMPLATES_INIT;
    if (template_get(req->db, web_param(req, "id"), web_param(req, "template"), &found, e) < 0)
        return -1;
    reply_template(reply, &found);
    return 0;
}

int console_resolve_template(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_templates struct templates found = TEMPLATES_INIT;
    char version[TEXT_MAX];
    if (query_text(req, "version", version, e) < 0 ||
        template_resolve(
            req->db, web_param(req, "id"), web_param(req, "name"), version, &found, e) < 0)
        return -1;
    reply_template(reply, &found);
    return 0;
}

struct template_body {
    const char *name;
    const char *version;
    const char *status;
    json_object *spec;
};

static const struct jx_field TEMPLATE_FIELDS[] = {
    JX_TEXT(struct template_body, name, 0, TEXT_MAX - 1),
    JX_TEXT(struct template_body, version, 0, 63),
    JX_TEXT(struct template_body, status, 0, 31),
    JX_RAW(struct template_body, spec, 0),
};

/* *out borrows from body and spec. */
static int read_template(const struct web_req *req, json_object *body, struct buf *spec,
    struct template_row *out, struct err *e)
{
    struct template_body b = { .name = NULL };
    if (jx_bind(body, TEMPLATE_FIELDS, sizeof(TEMPLATE_FIELDS) / sizeof(TEMPLATE_FIELDS[0]),
            JX_LENIENT, &b, e) < 0)
        return -1;
    if (b.spec != NULL && !json_object_is_type(b.spec, json_type_object))
        return err_set(e, ERR_INVALID, "spec: must be an object");
    if (b.spec != NULL)
        jx_print(b.spec, spec);
    *out = (struct template_row){
        .model_id = web_param(req, "id"),
        .name = b.name,
        .version = b.version,
        .status = b.status,
        .spec_json = b.spec == NULL ? NULL : spec->data,
    };
    return 0;
}

int console_create_template(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_templates struct templates made = TEMPLATES_INIT;
    cleanup_json json_object *body = job_snake_case(req->body);
    cleanup_buf struct buf spec = BUF_INIT(STORED_MAX);
    struct template_row t;
    if (read_template(req, body, &spec, &t, e) < 0)
        return -1;
    if (str_empty(t.name))
        return empty_field("name", e);
    if (t.spec_json == NULL)
        return err_set(e, ERR_INVALID, "spec: is required");
    if (t.version == NULL)
        t.version = "";
    if (t.status == NULL)
        t.status = "";
    if (template_create(req->db, &t, &made, e) < 0)
        return -1;
    reply_template(reply, &made);
    return 0;
}

int console_update_template(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_templates struct templates made = TEMPLATES_INIT;
    cleanup_json json_object *body = job_snake_case(req->body);
    cleanup_buf struct buf spec = BUF_INIT(STORED_MAX);
    struct template_row t;
    if (read_template(req, body, &spec, &t, e) < 0)
        return -1;
    if (t.name != NULL && str_empty(t.name))
        return empty_field("name", e);
    if (t.version != NULL && str_empty(t.version))
        return empty_field("version", e);
    t.id = web_param(req, "template");
    if (template_update(req->db, &t, &made, e) < 0)
        return -1;
    reply_template(reply, &made);
    return 0;
}

int console_delete_template(struct web_req *req, struct web_reply *reply, struct err *e)
{
    if (template_delete(req->db, web_param(req, "id"), web_param(req, "template"), e) < 0)
        return -1;
    reply_json(reply, jx_object());
    return 0;
}
