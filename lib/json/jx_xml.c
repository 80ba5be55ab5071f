/* SPDX-License-Identifier: Apache-2.0 */
#include "json/jx_xml.h"

#include <expat.h>
#include <limits.h>
#include <string.h>

#include "base/str.h"

/* An element that is open. */
struct level {
    char name[JX_XML_NAME_SIZE];
    json_object *children; /* owned; NULL: none so far */
    struct buf text;
};

struct reading {
    XML_Parser parser;
    struct level level[JX_XML_DEPTH_MAX];
    size_t depth;
    json_object *root;   /* owned */
    const char *refused; /* why reading was stopped */
};

static void reading_fini(struct reading *r)
{
    for (size_t i = 0; i < r->depth; i++) {
        json_object_put(r->level[i].children);
        buf_free(&r->level[i].text);
    }
    json_object_put(r->root);
    XML_ParserFree(r->parser);
}
#define cleanup_reading __attribute__((cleanup(reading_fini)))

static void refuse(struct reading *r, const char *why)
{
    r->refused = why;
    (void)XML_StopParser(r->parser, XML_FALSE);
}

static void on_doctype(void *ctx, const XML_Char *name, const XML_Char *system_id,
    const XML_Char *public_id, int has_internal_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_internal_subset;
    refuse(ctx, "it has a document type");
}

static void on_start(void *ctx, const XML_Char *name, const XML_Char **attributes)
{
    struct reading *r = ctx;
    (void)attributes;
    if (r->refused != NULL)
        return;
    if (r->depth == JX_XML_DEPTH_MAX || strlen(name) >= JX_XML_NAME_SIZE) {
        refuse(r, r->depth == JX_XML_DEPTH_MAX ? "it is nested too deep" : "a name is too long");
        return;
    }
    struct level *l = &r->level[r->depth++];
    *l = (struct level){ .text = BUF_INIT(INT_MAX / 2) };
    (void)str_copy(l->name, sizeof l->name, name);
}

static void on_text(void *ctx, const XML_Char *text, int size)
{
    struct reading *r = ctx;
    if (r->refused == NULL && r->depth > 0)
        buf_add(&r->level[r->depth - 1].text, text, (size_t)size);
}

/* Consumes value. */
static void add_child(struct level *parent, const char *name, json_object *value)
{
    const bool is_item = strcmp(name, "item") == 0;
    if (parent->children == NULL)
        parent->children = is_item ? jx_array() : jx_object();
    if (is_item && json_object_is_type(parent->children, json_type_array))
        jx_add(parent->children, value);
    else if (json_object_is_type(parent->children, json_type_array) ||
             json_object_object_get_ex(parent->children, name, NULL) ||
             json_object_object_add(parent->children, name, value) != 0)
        json_object_put(value);
}

static void on_end(void *ctx, const XML_Char *name)
{
    struct reading *r = ctx;
    (void)name;
    if (r->refused != NULL)
        return;
    struct level *l = &r->level[--r->depth];
    const char *text = l->text.data == NULL ? "" : l->text.data;
    json_object *value = l->children != NULL ? STEAL(l->children)
                                             : json_object_new_string_len(text, (int)l->text.len);
    if (value == NULL)
        abort();
    if (r->depth > 0)
        add_child(&r->level[r->depth - 1], l->name, value);
    else
        r->root = value;
    buf_free(&l->text);
}

int jx_parse_xml(const char *text, size_t size, json_object **out, struct err *e)
{
    cleanup_reading struct reading r = { .parser = XML_ParserCreate("UTF-8") };
    if (r.parser == NULL)
        abort();
    if (size > INT_MAX / 2)
        return err_set(e, ERR_TOO_LARGE, "XML text is longer than %d bytes", INT_MAX / 2);
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    const enum XML_Status status = XML_Parse(r.parser, text, (int)size, XML_TRUE);
    if (r.refused != NULL)
        return err_set(e, ERR_INVALID, "XML is refused: %s", r.refused);
    if (status != XML_STATUS_OK || r.root == NULL)
        return err_set(
            e, ERR_INVALID, "malformed XML: %s", XML_ErrorString(XML_GetErrorCode(r.parser)));
    *out = STEAL(r.root);
    return 0;
}
