/* SPDX-License-Identifier: Apache-2.0 */
#include "store/manifest_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"

enum { SCHEMA = 1, MODE_BITS = 0777, REGULAR = 0100000, EXECUTE_BITS = 0111, OCTAL = 8 };

/* --- before json-c --- */

/* The deepest nesting of a text that is JSON; of any other text, some number. */
static int check_depth(const char *text, size_t size, struct err *e)
{
    bool quoted = false;
    int depth = 0;

    for (size_t i = 0; i < size; i++) {
        const char c = text[i];
        if (quoted) {
            if (c == '\\')
                i++;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MANIFEST_DEPTH_MAX)
                return err_set(e, ERR_INVALID, "nested deeper than %d", MANIFEST_DEPTH_MAX);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return 0;
}

/* --- reading --- */

static int need_text(json_object *o, const char *key, const char **out, struct err *e)
{
    if (!jx_get_str(o, key, out))
        return err_set(e, ERR_INVALID, "%s: a text is missing", key);
    return 0;
}

static int need_number(json_object *o, const char *key, int64_t *out, struct err *e)
{
    if (!jx_get_int(o, key, out))
        return err_set(e, ERR_INVALID, "%s: a whole number is missing", key);
    return 0;
}

static json_object *array_of(json_object *o, const char *key)
{
    json_object *a = jx_get(o, key);
    return json_object_is_type(a, json_type_array) ? a : NULL;
}

static int read_name(json_object *o, const char *key, char *out, size_t size, struct err *e)
{
    const char *text = "";

    if (need_text(o, key, &text, e) < 0)
        return -1;
    return str_copy(out, size, text) < 0 ? err_set(e, ERR_INVALID, "%s: too long", key) : 0;
}

static int read_head(json_object *o, struct manifest *m, struct err *e)
{
    const char *kind = "";
    int64_t schema = 0;

    if (need_number(o, "schema", &schema, e) < 0)
        return -1;
    if (schema != SCHEMA)
        return err_set(e, ERR_INVALID, "schema: %lld is not known, 1 is", (long long)schema);
    if (read_name(o, "artifact", m->artifact, sizeof m->artifact, e) < 0 ||
        read_name(o, "version", m->version, sizeof m->version, e) < 0 ||
        need_text(o, "kind", &kind, e) < 0 ||
        need_number(o, "total_bytes", &m->total_bytes, e) < 0 ||
        need_number(o, "shard_bytes", &m->shard_bytes, e) < 0)
        return -1;
    if (!artifact_kind_parse(kind, &m->kind))
        return err_set(e, ERR_INVALID, "kind: weights or image");
    return 0;
}

/* A number, or an octal text such as "0644". Links and special files have other bits. */
static int read_mode(json_object *o, bool *executable, struct err *e)
{
    const char *text = "";
    int64_t mode = -1;

    if (!jx_get_str(o, "mode", &text))
        (void)jx_get_int(o, "mode", &mode);
    else if (*text != '\0' && strspn(text, "01234567") == strlen(text))
        mode = strtol(text, NULL, OCTAL);
    if (mode < 0 || (mode & ~(int64_t)(MODE_BITS | REGULAR)) != 0)
        return err_set(e, ERR_INVALID, "mode: of a plain file, 0 to 0777");
    *executable = (mode & EXECUTE_BITS) != 0;
    return 0;
}

static int read_file_digest(json_object *o, struct digest *out, struct err *e)
{
    const char *text = "";

    if (need_text(o, "sha256", &text, e) < 0)
        return -1;
    const int rc =
        str_starts(text, "sha256:") ? digest_parse(text, out, e) : digest_parse_bare(text, out, e);
    return rc < 0 ? err_wrap(e, "sha256") : 0;
}

static int read_shards(json_object *o, struct manifest *m, struct manifest_file *f, struct err *e)
{
    json_object *list = array_of(o, "shards");

    if (list == NULL)
        return err_set(e, ERR_INVALID, "shards: a list is missing");
    f->first_shard = m->shards;
    f->shards = json_object_array_length(list);
    if (f->shards == 0)
        return 0;
    m->shard = mem_resize(m->shard, m->shards + f->shards, sizeof *m->shard);
    for (size_t i = 0; i < f->shards; i++) {
        json_object *item = json_object_array_get_idx(list, i);
        if (!json_object_is_type(item, json_type_string))
            return err_set(e, ERR_INVALID, "shards[%zu]: no text", i);
        if (digest_parse(json_object_get_string(item), &m->shard[m->shards], e) < 0)
            return err_wrap(e, "shards[%zu]", i);
        m->shards++;
    }
    return 0;
}

static int read_urls(json_object *o, struct manifest_file *f, struct err *e)
{
    json_object *list = jx_get(o, "urls");
    const size_t n =
        json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;

    if (list != NULL && (n == 0 || n > MANIFEST_URLS_MAX))
        return err_set(e, ERR_INVALID, "urls: a list of 1 to %d", MANIFEST_URLS_MAX);
    if (n == 0)
        return 0;
    f->url = mem_calloc(n, sizeof *f->url);
    for (size_t i = 0; i < n; i++) {
        json_object *item = json_object_array_get_idx(list, i);
        const char *text =
            json_object_is_type(item, json_type_string) ? json_object_get_string(item) : "";
        if (*text == '\0' || strlen(text) > MANIFEST_URL_BYTES)
            return err_set(
                e, ERR_INVALID, "urls[%zu]: a text of 1 to %d bytes", i, MANIFEST_URL_BYTES);
        f->url[f->urls++] = mem_strdup(text);
    }
    return 0;
}

static int read_file(json_object *o, struct manifest *m, struct err *e)
{
    struct manifest_file *f = &m->file[m->files++];
    const char *path = "";

    f->path = mem_kept(mem_strdup(""));
    if (!json_object_is_type(o, json_type_object))
        return err_set(e, ERR_INVALID, "no object");
    if (need_text(o, "path", &path, e) < 0)
        return -1;
    mem_replace(&f->path, path);
    if (need_number(o, "size", &f->size, e) < 0 || read_mode(o, &f->executable, e) < 0 ||
        read_file_digest(o, &f->sha256, e) < 0 || read_shards(o, m, f, e) < 0)
        return -1;
    return read_urls(o, f, e);
}

static int read_files(json_object *o, struct manifest *m, struct err *e)
{
    json_object *list = array_of(o, "files");

    if (list == NULL)
        return err_set(e, ERR_INVALID, "files: a list is missing");
    const size_t n = json_object_array_length(list);
    m->file = mem_calloc(n + 1, sizeof *m->file);
    for (size_t i = 0; i < n; i++) {
        if (read_file(json_object_array_get_idx(list, i), m, e) < 0)
            return err_wrap(e, "files[%zu]", i);
    }
    return 0;
}

int manifest_read(const char *text, size_t size, struct manifest *out, struct err *e)
{
    cleanup_json json_object *o = NULL;
    cleanup_manifest struct manifest m = MANIFEST_INIT;

    if (size > MANIFEST_BYTES_MAX)
        return err_set(e, ERR_TOO_LARGE, "a manifest has at most %d bytes", MANIFEST_BYTES_MAX);
    if (check_depth(text, size, e) < 0 || jx_parse(text, size, MANIFEST_BYTES_MAX, &o, e) < 0)
        return -1;
    if (!json_object_is_type(o, json_type_object))
        return err_set(e, ERR_INVALID, "a manifest is an object");
    if (read_head(o, &m, e) < 0 || read_files(o, &m, e) < 0 || manifest_check(&m, e) < 0)
        return -1;
    HAND_OVER(out, &m, ((struct manifest)MANIFEST_INIT));
    return 0;
}

struct digest manifest_digest(const char *text, size_t size)
{
    struct digest d = { .byte = { 0 } };
    digest_bytes(text, size, d.byte);
    return d;
}

/* --- printing --- */

static json_object *file_json(const struct manifest *m, const struct manifest_file *f)
{
    char text[DIGEST_TEXT_SIZE];
    json_object *o = jx_object();
    json_object *shards = jx_array();

    jx_set_str(o, "path", f->path);
    jx_set_int(o, "size", f->size);
    jx_set_str(o, "mode", f->executable ? "0555" : "0444");
    digest_print(&f->sha256, text);
    jx_set_str(o, "sha256", text + sizeof "sha256:" - 1);
    for (size_t i = 0; i < f->shards; i++) {
        digest_print(&m->shard[f->first_shard + i], text);
        jx_add_str(shards, text);
    }
    jx_set(o, "shards", shards);
    if (f->urls > 0) {
        json_object *urls = jx_array();
        for (size_t i = 0; i < f->urls; i++)
            jx_add_str(urls, f->url[i]);
        jx_set(o, "urls", urls);
    }
    return o;
}

void manifest_print(const struct manifest *m, const char *annotations, struct buf *out)
{
    cleanup_json json_object *o = jx_object();
    json_object *files = jx_array();
    json_object *notes = NULL;
    struct err ignored = ERR_INIT;

    jx_set_int(o, "schema", SCHEMA);
    jx_set_str(o, "artifact", m->artifact);
    jx_set_str(o, "version", m->version);
    jx_set_str(o, "kind", artifact_kind_name(m->kind));
    jx_set_int(o, "total_bytes", m->total_bytes);
    jx_set_int(o, "shard_bytes", m->shard_bytes);
    for (size_t i = 0; i < m->files; i++)
        jx_add(files, file_json(m, &m->file[i]));
    jx_set(o, "files", files);
    if (annotations == NULL ||
        jx_parse(annotations, strlen(annotations), MANIFEST_BYTES_MAX, &notes, &ignored) < 0)
        notes = jx_object();
    jx_set(o, "annotations", notes);
    jx_print(o, out);
}
