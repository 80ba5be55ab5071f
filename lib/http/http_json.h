/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_HTTP_JSON_H
#define WB_HTTP_JSON_H

/* Calls with JSON or XML as the answer. */
#include "http/http.h"
#include "json/jx.h"

/* http_call() with body (may be NULL; borrowed) as the request's JSON. *out is the answer's JSON, the
 * caller's, or NULL when the answer is empty or no JSON; a 2xx whose body is no JSON but not empty is
 * ERR_INTERNAL with a->status set. Otherwise as http_call(). */
int http_json(struct http *h, struct http_request *r, json_object *body, struct http_answer *a,
    json_object **out, struct err *e) WARN_UNUSED;

/* http_call() whose answer is XML: *out as jx_parse_xml() makes it, otherwise as http_json(). */
int http_xml(struct http *h, const struct http_request *r, struct http_answer *a, json_object **out,
    struct err *e) WARN_UNUSED;

/* What a foreign error says, of the shapes {"error":{"message"}}, {"error":"…"}, {"message":"…"},
 * {"Errors":{"Error":{"Code","Message"}}} (AWS, out of XML) and
 * {"detail":"…" or [{"loc":[…],"msg"}]}; "" when it says nothing of the kind. As http_quote(). */
void http_error_text(json_object *o, const char *secret, char *out, size_t size);

#endif
