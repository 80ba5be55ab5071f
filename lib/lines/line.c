/* SPDX-License-Identifier: Apache-2.0 */
#include "lines/line.h"

#include <string.h>

#include "base/str.h"
#include "http/http.h"
#include "json/jx_write.h"

enum { TEXT_SIZE = 512 };

#define ID_PREFIX "batch_"

void line_fini(struct line *l)
{
    json_object_put(l->whole);
    l->whole = NULL;
}

static const char *text_of(json_object *o, const char *key)
{
    const char *text = NULL;
    return jx_get_str(o, key, &text) ? text : NULL;
}

/* Texts, lists and objects may be what an endpoint needs; its own server knows better. */
static bool has(json_object *body, const char *key)
{
    json_object *value = key == NULL ? NULL : jx_get(body, key);

    if (key == NULL)
        return true;
    if (json_object_is_type(value, json_type_array))
        return json_object_array_length(value) > 0;
    if (json_object_is_type(value, json_type_object))
        return json_object_object_length(value) > 0;
    return json_object_is_type(value, json_type_string);
}

static bool is_messages(const char *key)
{
    return key != NULL && strcmp(key, "messages") == 0;
}

int line_read(const char *text, size_t size, const struct batch_endpoint *endpoint,
    struct line *out, struct err *e)
{
    json_object *o = NULL;
    bool streams = false;

    if (jx_parse_deep(text, size, size, LINE_DEPTH_MAX, &o, e) < 0)
        return -1;
    if (!json_object_is_type(o, json_type_object)) {
        json_object_put(o);
        return err_set(e, ERR_INVALID, "no object");
    }
    json_object *body = jx_get(o, "body");
    if (!json_object_is_type(body, json_type_object))
        body = NULL;
    (void)jx_get_bool(body, "stream", &streams);
    *out = (struct line){ .whole = o, .body = body };
    out->is = (struct batch_line){
        .custom_id = text_of(o, "custom_id"),
        .method = text_of(o, "method"),
        .url = text_of(o, "url"),
        .model = text_of(body, "model"),
        .has_body = body != NULL,
        .has_input = has(body, endpoint->needs) && has(body, endpoint->needs_2) &&
                     (!is_messages(endpoint->needs) ||
                         json_object_is_type(jx_get(body, "messages"), json_type_array)),
        .streams = streams,
    };
    return 0;
}

/* --- output --- */

static void put_id(struct buf *out, const struct line_of *of)
{
    const char *bare =
        str_starts(of->batch_id, ID_PREFIX) ? of->batch_id + strlen(ID_PREFIX) : of->batch_id;
    buf_printf(out, "\"batch_req_%s_%lld\"", bare, (long long)of->number);
}

static void put_head(struct buf *out, const struct line_of *of)
{
    buf_puts(out, "{\"id\":");
    put_id(out, of);
    buf_puts(out, ",\"custom_id\":");
    jx_write_text(out, of->custom_id);
}

static bool tells(const struct line_answer *a)
{
    return a->secret[0] != '\0' && memmem(a->body, a->size, a->secret, strlen(a->secret)) != NULL;
}

/* As the server wrote it, unless that is no JSON, or more than one line, or tells our token. */
static void put_body(struct buf *out, const struct line_answer *a)
{
    char text[TEXT_SIZE];

    if (a->parsed != NULL && !tells(a)) {
        if (memchr(a->body, '\n', a->size) == NULL && memchr(a->body, '\r', a->size) == NULL)
            buf_add(out, a->body, a->size);
        else
            jx_print(a->parsed, out);
        return;
    }
    http_quote(text, sizeof text, a->body, a->secret);
    buf_puts(out, "{\"error\":{\"message\":");
    jx_write_text(out, text);
    buf_puts(out, "}}");
}

void line_put_answer(struct buf *out, const struct line_of *of, const struct line_answer *a)
{
    put_head(out, of);
    buf_printf(out, ",\"response\":{\"status_code\":%d,\"request_id\":", a->status);
    if (a->request_id[0] != '\0')
        jx_write_text(out, a->request_id);
    else
        put_id(out, of);
    buf_puts(out, ",\"body\":");
    put_body(out, a);
    buf_puts(out, "},\"error\":null}\n");
}

void line_put_error(
    struct buf *out, const struct line_of *of, const char *code, const char *message)
{
    put_head(out, of);
    buf_puts(out, ",\"response\":null,\"error\":{\"code\":");
    jx_write_text(out, code);
    buf_puts(out, ",\"message\":");
    jx_write_text(out, message);
    buf_puts(out, "}}\n");
}

/* The first of two members that is a count. */
static int64_t count_of(json_object *o, const char *key, const char *key_2)
{
    int64_t n = 0;
    if ((jx_get_int(o, key, &n) || jx_get_int(o, key_2, &n)) && n > 0)
        return n;
    return 0;
}

static json_object *either(json_object *o, const char *key, const char *key_2)
{
    json_object *found = jx_get(o, key);
    return found != NULL ? found : jx_get(o, key_2);
}

void line_add_usage(struct batch_usage *u, json_object *answer)
{
    json_object *usage = jx_get(answer, "usage");
    json_object *in = either(usage, "prompt_tokens_details", "input_tokens_details");
    json_object *out = either(usage, "completion_tokens_details", "output_tokens_details");
    const int64_t input = count_of(usage, "prompt_tokens", "input_tokens");
    const int64_t output = count_of(usage, "completion_tokens", "output_tokens");
    const int64_t total = count_of(usage, "total_tokens", "total_tokens");

    u->known = u->known || usage != NULL;
    u->input_tokens += input;
    u->output_tokens += output;
    u->total_tokens += total > 0 ? total : input + output;
    u->cached_tokens += count_of(in, "cached_tokens", "cached_tokens");
    u->reasoning_tokens += count_of(out, "reasoning_tokens", "reasoning_tokens");
}
