/* SPDX-License-Identifier: Apache-2.0 */
#include "depot/receipt.h"

#include "json/jx.h"
#include "model/rfc3339.h"

static json_object *sources_json(const struct receipt *r)
{
    json_object *list = jx_array();

    for (size_t i = 0; i < r->sources; i++) {
        json_object *o = jx_object();
        jx_set_str(o, "source", r->source[i].name);
        jx_set_int(o, "bytes", r->source[i].bytes);
        jx_add(list, o);
    }
    return list;
}

static json_object *retries_json(const struct receipt *r)
{
    json_object *o = jx_object();

    for (size_t i = 1; i < MISHAP__COUNT; i++) {
        if (r->retries[i] > 0)
            jx_set_int(o, mishap_reason_name((enum mishap_reason)i), (int64_t)r->retries[i]);
    }
    return o;
}

void receipt_print(const struct receipt *r, const struct manifest *m, struct buf *out)
{
    char digest[DIGEST_TEXT_SIZE];
    char ended[RFC3339_SIZE];
    cleanup_json json_object *o = jx_object();
    json_object *phases = jx_object();

    digest_print(&r->digest, digest);
    jx_set_int(o, "schema", 1);
    jx_set_str(o, "artifact", m->artifact);
    jx_set_str(o, "version", m->version);
    jx_set_str(o, "digest", digest);
    jx_set_int(o, "total_bytes", r->total_bytes);
    jx_set_int(o, "bytes_fetched", r->bytes_fetched);
    jx_set_int(o, "bytes_avoided", r->bytes_avoided);
    jx_set_int(o, "bytes_resumed", r->bytes_resumed);
    jx_set_int(o, "bytes_read_back", r->bytes_read_back);
    jx_set(o, "per_source", sources_json(r));
    jx_set(o, "retries", retries_json(r));
    jx_set_int(phases, "fetch_ms", r->fetch_ms);
    jx_set_int(phases, "verify_ms", r->verify_ms);
    jx_set(o, "phases", phases);
    rfc3339_us(ended, r->ended_us);
    jx_set_str(o, "ended_at", ended);
    jx_print(o, out);
}

/* --- handing in --- */

static int64_t number_of(json_object *o, const char *key)
{
    int64_t n = 0;

    return jx_get_int(o, key, &n) && n > 0 ? n : 0;
}

/* By the reasons that are counted, which are reasons themselves. */
static json_object *counted_retries(json_object *by_reason)
{
    int64_t counted[MISHAP__COUNT] = { 0 };
    json_object *o = jx_object();

    for (size_t i = 1; i < MISHAP__COUNT; i++) {
        const char *as = mishap_counted_as((enum mishap_reason)i);
        counted[mishap_reason_parse(as)] +=
            number_of(by_reason, mishap_reason_name((enum mishap_reason)i));
    }
    for (size_t i = 1; i < MISHAP__COUNT; i++) {
        if (counted[i] > 0)
            jx_set_int(o, mishap_reason_name((enum mishap_reason)i), counted[i]);
    }
    return o;
}

static json_object *copy_of(json_object *o)
{
    return o == NULL ? jx_object() : json_object_get(o);
}

void receipt_hand_in(const char *text, size_t size, const struct digest *digest, struct buf *out)
{
    cleanup_json json_object *was = NULL;
    cleanup_json json_object *o = jx_object();
    char printed[DIGEST_TEXT_SIZE];

    (void)!jx_parse(text, size, RECEIPT_TEXT_MAX, &was, NULL);
    digest_print(digest, printed);
    jx_set_str(o, "digest", printed);
    jx_set_int(
        o, "bytes_fetched", number_of(was, "bytes_fetched") + number_of(was, "bytes_resumed"));
    jx_set_int(o, "bytes_avoided", number_of(was, "bytes_avoided"));
    jx_set(o, "per_source", copy_of(jx_get(was, "per_source")));
    jx_set(o, "retries", counted_retries(jx_get(was, "retries")));
    jx_set(o, "phases", copy_of(jx_get(was, "phases")));
    jx_print(o, out);
}
