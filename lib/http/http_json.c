/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_json.h"

#include "json/jx_xml.h"

/* Objects of Kubernetes tell who manages which of their fields, as deep as these are and three levels more. */
enum { REQUEST_MAX = 4 << 20, ERROR_MAX = 64 << 10, ANSWER_DEPTH_MAX = 32 };

int http_xml(struct http *h, const struct http_request *r, struct http_answer *a, json_object **out,
    struct err *e)
{
    cleanup_json json_object *o = NULL;
    struct err why = ERR_INIT;
    if (http_call(h, r, a, e) < 0)
        return -1;
    if (a->body.len > 0 && jx_parse_xml(a->body.data, a->body.len, &o, &why) < 0 &&
        http_classify(a->status) == HTTP_CLASS_OK)
        return err_set(e, ERR_INTERNAL, "the answer makes no sense: %s", why.msg);
    *out = STEAL(o);
    return 0;
}

int http_json(struct http *h, struct http_request *r, json_object *body, struct http_answer *a,
    json_object **out, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(REQUEST_MAX);
    cleanup_json json_object *o = NULL;
    struct err why = ERR_INIT;
    if (body != NULL) {
        jx_print(body, &text);
        if (text.overflow)
            return err_set(e, ERR_TOO_LARGE, "the request is larger than %d bytes", REQUEST_MAX);
        r->content_type = "application/json";
        r->body = text.data;
        r->body_size = text.len;
    }
    int result = http_call(h, r, a, e);
    r->body = NULL; /* it was ours */
    if (result < 0)
        return -1;
    if (a->body.len > 0 &&
        jx_parse_deep(a->body.data, a->body.len, a->body.max, ANSWER_DEPTH_MAX, &o, &why) < 0 &&
        http_classify(a->status) == HTTP_CLASS_OK)
        return err_set(e, ERR_INTERNAL, "the answer makes no sense: %s", why.msg);
    *out = STEAL(o);
    return 0;
}

/* FastAPI: the place as "body.aibrix.x", and what is wrong there. Of several the first. */
static void detail_text(json_object *list, struct buf *out)
{
    json_object *first = json_object_array_get_idx(list, 0);
    const char *msg = "";
    if (!jx_get_str(first, "msg", &msg))
        return;
    json_object *loc = jx_get(first, "loc");
    size_t n = json_object_is_type(loc, json_type_array) ? json_object_array_length(loc) : 0;
    for (size_t i = 0; i < n; i++) {
        const char *place = json_object_get_string(json_object_array_get_idx(loc, i));
        buf_printf(out, "%s%s", i > 0 ? "." : "", place == NULL ? "" : place);
    }
    buf_printf(out, "%s%s", n > 0 ? ": " : "", msg);
}

void http_error_text(json_object *o, const char *secret, char *out, size_t size)
{
    cleanup_buf struct buf text = BUF_INIT(ERROR_MAX);
    json_object *inner = jx_get(o, "error") != NULL ? jx_get(o, "error") : jx_get(o, "detail");
    json_object *aws = jx_get(jx_get(o, "Errors"), "Error");
    const char *said = NULL;
    if (json_object_is_type(inner, json_type_array))
        detail_text(inner, &text);
    if (jx_get_str(inner, "message", &said) || jx_get_str(o, "error", &said) ||
        jx_get_str(o, "detail", &said) || jx_get_str(o, "message", &said))
        buf_puts(&text, said);
    else if (jx_get_str(aws, "Code", &said)) {
        buf_printf(&text, "%s: ", said);
        if (jx_get_str(aws, "Message", &said))
            buf_puts(&text, said);
    }
    http_quote(out, size, text.data == NULL ? "" : text.data, secret);
}
