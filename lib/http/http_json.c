/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_json.h"

enum { REQUEST_MAX = 4 << 20 };

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
    if (a->body.len > 0 && jx_parse(a->body.data, a->body.len, a->body.max, &o, &why) < 0 &&
        http_classify(a->status) == HTTP_CLASS_OK)
        return err_set(e, ERR_INTERNAL, "the answer makes no sense: %s", why.msg);
    *out = STEAL(o);
    return 0;
}
