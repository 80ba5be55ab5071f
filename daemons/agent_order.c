/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_order.h"

#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "daemons/agent_pull.h"
#include "depot/depot.h"
#include "fetch/source.h"
#include "json/jx_bind.h"
#include "model/job.h"
#include "store/manifest_json.h"

/* --- reading --- */

struct order_body {
    const char *id;
    const char *artifact;
    const char *version;
    const char *digest;
    json_object *sources;
    int64_t total_bytes;
    int64_t attempts_left;
};

static const struct jx_field ORDER_FIELDS[] = {
    JX_TEXT(struct order_body, id, JX_REQUIRED, ORDER_ID_SIZE - 1),
    JX_TEXT(struct order_body, artifact, JX_REQUIRED, ARTIFACT_NAME_MAX),
    JX_TEXT(struct order_body, version, JX_REQUIRED, VERSION_NAME_MAX),
    JX_TEXT(struct order_body, digest, JX_REQUIRED, DIGEST_TEXT_SIZE),
    JX_RAW(struct order_body, sources, JX_REQUIRED),
    JX_INT(struct order_body, total_bytes, 0, 0, ARTIFACT_BYTES_MAX),
    JX_INT(struct order_body, attempts_left, 0, 0, INT32_MAX),
};

struct source_body {
    const char *url;
    int64_t max_concurrency;
};

static const struct jx_field SOURCE_FIELDS[] = {
    JX_TEXT(struct source_body, url, JX_REQUIRED, ORDER_URL_SIZE - 1),
    JX_INT(struct source_body, max_concurrency, 0, 0, INT32_MAX),
};

/* Bytes of "scheme://host:port". */
static size_t root_size(const char *url)
{
    const char *host = strstr(url, "://");

    return host == NULL ? 0 : (size_t)(host - url) + 3 + strcspn(host + 3, "/?#");
}

static int read_source(json_object *list, const char *service_url, struct order *o, struct err *e)
{
    struct source_body b = { .url = NULL };
    enum http_peer peer = HTTP_PEER_ANY;

    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return err_set(e, ERR_INVALID, "sources: none");
    if (jx_bind(json_object_array_get_idx(list, 0), SOURCE_FIELDS, 2, JX_LENIENT, &b, e) < 0)
        return err_wrap(e, "sources");
    const size_t root = b.url[0] == '/' ? root_size(service_url) : 0;
    if (str_format(
            o->manifest_url, sizeof o->manifest_url, "%.*s%s", (int)root, service_url, b.url) < 0)
        return err_set(e, ERR_INVALID, "sources: a URL that is too long");
    o->per_source = b.max_concurrency;
    return source_url_check(o->manifest_url, &peer, e) < 0 ? err_wrap(e, "sources") : 0;
}

static int read_order(json_object *from, const char *service_url, struct order *o, struct err *e)
{
    struct order_body b = { .attempts_left = 0 };

    if (jx_bind(from, ORDER_FIELDS, sizeof ORDER_FIELDS / sizeof ORDER_FIELDS[0], JX_LENIENT, &b,
            e) < 0)
        return -1;
    if (!job_uuid_valid(b.id))
        return err_set(e, ERR_INVALID, "id: no UUID");
    if (artifact_name_check("artifact", b.artifact, ARTIFACT_NAME_MAX, e) < 0 ||
        artifact_name_check("version", b.version, VERSION_NAME_MAX, e) < 0)
        return -1;
    if (digest_parse(b.digest, &o->digest, e) < 0)
        return err_wrap(e, "digest");
    (void)str_copy(o->id, sizeof o->id, b.id);
    (void)str_copy(o->artifact, sizeof o->artifact, b.artifact);
    (void)str_copy(o->version, sizeof o->version, b.version);
    o->total_bytes = b.total_bytes;
    o->attempts_left = b.attempts_left;
    return read_source(b.sources, service_url, o, e);
}

size_t orders_read(json_object *list, const char *service_url, struct order out[ORDERS_MAX])
{
    const size_t n =
        json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    size_t got = 0;

    for (size_t i = 0; i < n && got < ORDERS_MAX; i++) {
        struct err e = ERR_INIT;
        struct order o = { .id = "" };
        if (read_order(json_object_array_get_idx(list, i), service_url, &o, &e) == 0)
            out[got++] = o;
        else
            log_warn(LOG_MSG("an assignment makes no sense"), LOG_S("error", e.msg));
    }
    return got;
}

/* --- carrying out --- */

static const char *token_for(const struct settings *s, const char *url)
{
    char root[ORDER_URL_SIZE];

    (void)str_format(
        root, sizeof root, "%.*s", (int)root_size(s->conf.agent_url), s->conf.agent_url);
    return source_url_below(url, root) || source_url_below(url, s->conf.agent_token_urls) ? s->token
                                                                                          : NULL;
}

/* 0: it is not here. 1: it is, and its receipt is appended. */
static int read_receipt(
    const struct settings *s, const struct order *o, struct buf *receipt, struct mishap *m)
{
    cleanup_depot struct depot d = DEPOT_INIT;
    cleanup_landed struct landed v = LANDED_INIT;
    struct mishap ignored = MISHAP_INIT;
    cleanup_free char *text = NULL;
    size_t size = 0;

    if (depot_open(&d, s->root, o->artifact, true, m) < 0)
        return -1;
    const int rc = pull_is_landed(&d, o->version, &o->digest, m);
    if (rc <= 0)
        return rc;
    if (landed_open(&d, o->version, &v, m) != 0)
        return -1;
    (void)!depot_read_text(v.folder, DEPOT_RECEIPT, RECEIPT_TEXT_MAX, &text, &size, &ignored);
    receipt_hand_in(text == NULL ? "" : text, size, &o->digest, receipt);
    return 1;
}

/* Is it the manifest of that version, by its digest before all else? */
static int check_manifest(
    const struct order *o, const struct buf *text, struct manifest *out, struct mishap *m)
{
    const struct digest got = manifest_digest(text->data == NULL ? "" : text->data, text->len);
    struct err e = ERR_INIT;

    if (!digest_equal(&got, &o->digest, sizeof got))
        return mishap_set(
            m, MISHAP_MANIFEST_MISMATCH, "the manifest does not have the digest of the assignment");
    if (manifest_read(text->data, text->len, out, &e) < 0)
        return mishap_err(m, MISHAP_MANIFEST_MISMATCH, &e);
    if (strcmp(out->artifact, o->artifact) != 0 || strcmp(out->version, o->version) != 0)
        return mishap_set(
            m, MISHAP_MANIFEST_MISMATCH, "the manifest is of %s@%s", out->artifact, out->version);
    return 0;
}

static int land(const struct settings *s, const struct order *o, struct watch *w, struct mishap *m)
{
    cleanup_manifest struct manifest manifest = MANIFEST_INIT;
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    struct receipt ignored = { .sources = 0 };
    enum http_peer peer = HTTP_PEER_ANY;
    struct err e = ERR_INIT;
    struct pull p = { .conf = &s->conf,
        .root = s->root,
        .token = token_for(s, o->manifest_url),
        .manifest_url = o->manifest_url,
        .manifest = &manifest,
        .per_source = (unsigned)o->per_source,
        .watch = w };

    if (source_url_check(o->manifest_url, &peer, &e) < 0)
        return mishap_err(m, MISHAP_BAD_URL, &e);
    if (pull_manifest(&p, peer, &text, m) < 0 || check_manifest(o, &text, &manifest, m) < 0)
        return -1;
    p.text = text.data;
    p.size = text.len;
    return pull_version(&p, &ignored, m) < 0 ? -1 : 0;
}

int order_carry_out(const struct settings *s, const struct order *o, struct watch *w,
    struct buf *receipt, struct mishap *m)
{
    int rc = read_receipt(s, o, receipt, m);

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (land(s, o, w, m) < 0)
        return -1;
    rc = read_receipt(s, o, receipt, m);
    return rc == 0 ? mishap_set(m, MISHAP_DISK_READ, "the version vanished") : rc < 0 ? -1 : 0;
}
