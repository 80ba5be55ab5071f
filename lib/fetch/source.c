/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/source.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "http/http.h"

enum { NOT_USED = 255 };

struct source {
    char name[SOURCE_NAME_SIZE];
    const char *below; /* MANIFEST_URL, or NULL: the manifest's urls */
    enum http_peer peer;
};

struct sources {
    const struct manifest *manifest;
    struct source_rules rules;
    char *manifest_url;
    struct source source[FETCH_SOURCES_MAX];
    size_t n;
    unsigned char **of; /* by file and url: its source, or NOT_USED */
};

/* --- URLs --- */

/* Bytes of "scheme://host:port"; 0: no such URL. */
static size_t origin_size(const char *url)
{
    const char *host = strstr(url, "://");

    if (host == NULL || host == url)
        return 0;
    host += 3;
    const size_t size = strcspn(host, "/?#");
    return size == 0 ? 0 : (size_t)(host - url) + size;
}

/* Spelling that leads elsewhere than it seems to. */
static bool is_crooked(const char *url)
{
    const size_t size = origin_size(url);
    const char *path = url + size;
    const size_t end = strcspn(path, "?#");

    if (size == 0 || memchr(url, '@', size) != NULL || strchr(url, '\\') != NULL)
        return true;
    for (const char *at = path; (at = strchr(at, '/')) != NULL && at < path + end; at++) {
        const size_t n = strcspn(at + 1, "/?#");
        char segment[8];
        if (n <= 6 && str_format(segment, sizeof segment, "%.*s", (int)n, at + 1) == 0 &&
            (strcmp(segment, ".") == 0 || strcmp(segment, "..") == 0 ||
                strcasestr(segment, "%2e") != NULL))
            return true;
    }
    return false;
}

static bool is_below(const char *url, const char *prefix, size_t size)
{
    while (size > 0 && prefix[size - 1] == '/')
        size--;
    return size > 0 && strncmp(url, prefix, size) == 0 &&
           (url[size] == '/' || url[size] == '?' || url[size] == '\0');
}

bool source_url_below(const char *url, const char *prefixes)
{
    if (str_empty(prefixes) || is_crooked(url))
        return false;
    for (const char *at = prefixes; *at != '\0';) {
        const size_t n = strcspn(at, " ");
        if (is_below(url, at, n))
            return true;
        at += n;
        at += strspn(at, " ");
    }
    return false;
}

int source_url_check(const char *url, enum http_peer *peer, struct err *e)
{
    const size_t size = origin_size(url);

    for (const char *p = url; *p != '\0'; p++) {
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return err_set(e, ERR_INVALID, "a URL with a blank or a control character");
    }
    if (size == 0 || size >= SOURCE_NAME_SIZE || strlen(url) > MANIFEST_URL_BYTES)
        return err_set(e, ERR_INVALID, "no URL with a scheme and a host");
    if (memchr(url, '@', size) != NULL)
        return err_set(e, ERR_INVALID, "a URL with a user: use --token-file");
    if (strncasecmp(url, "https://", 8) == 0)
        *peer = HTTP_PEER_ANY;
    else if (strncasecmp(url, "http://", 7) == 0)
        *peer = HTTP_PEER_LOOPBACK;
    else
        return err_set(e, ERR_INVALID, "only https, and http to a loopback address");
    return 0;
}

/* --- making --- */

void sources_free(struct sources *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; s->of != NULL && i < s->manifest->files; i++)
        free(s->of[i]);
    free(s->of);
    free(s->manifest_url);
    free(s);
}

static size_t find_source(struct sources *s, const char *url, size_t size, enum http_peer peer)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct source *c = &s->source[i];
        if (c->below == NULL && c->peer == peer && strlen(c->name) == size &&
            strncasecmp(c->name, url, size) == 0)
            return i;
    }
    if (s->n == FETCH_SOURCES_MAX || size >= SOURCE_NAME_SIZE)
        return NOT_USED;
    struct source *made = &s->source[s->n];
    (void)str_format(made->name, sizeof made->name, "%.*s", (int)size, url);
    made->peer = peer;
    return s->n++;
}

static unsigned char source_of(struct sources *s, const char *url)
{
    enum http_peer peer = HTTP_PEER_ANY;

    if (source_url_check(url, &peer, NULL) < 0 || is_crooked(url))
        return NOT_USED;
    const bool may_be_local = source_url_below(url, s->rules.local_urls);
    if (peer == HTTP_PEER_LOOPBACK && !may_be_local)
        return NOT_USED;
    return (unsigned char)find_source(
        s, url, origin_size(url), may_be_local ? HTTP_PEER_ANY : HTTP_PEER_FAR);
}

static void add_origin(struct sources *s, const char *manifest_url)
{
    struct source *o = &s->source[s->n];

    s->manifest_url = mem_strdup(manifest_url);
    s->manifest_url[strcspn(s->manifest_url, "?#")] = '\0';
    if (source_url_check(manifest_url, &o->peer, NULL) < 0)
        return;
    (void)str_format(o->name, sizeof o->name, "%.*s", (int)origin_size(manifest_url), manifest_url);
    o->below = s->manifest_url;
    s->n++;
}

struct sources *sources_new(
    const struct manifest *m, const char *manifest_url, const struct source_rules *rules)
{
    struct sources *s = mem_calloc(1, sizeof *s);

    s->manifest = m;
    s->rules = *rules;
    s->of = mem_calloc(m->files + 1, sizeof *s->of);
    if (manifest_url != NULL)
        add_origin(s, manifest_url);
    for (size_t i = 0; i < m->files; i++) {
        const struct manifest_file *f = &m->file[i];
        if (f->urls == 0)
            continue;
        s->of[i] = mem_alloc(f->urls);
        for (size_t k = 0; k < f->urls; k++)
            s->of[i][k] = source_of(s, f->url[k]);
    }
    return s;
}

/* --- asking --- */

size_t sources_count(const struct sources *s)
{
    return s->n;
}

const char *sources_name(const struct sources *s, size_t source)
{
    return s->source[source].name;
}

/* The file's url at that source, or NULL. */
static const char *url_at(const struct sources *s, size_t source, size_t file)
{
    const struct manifest_file *f = &s->manifest->file[file];

    for (size_t k = 0; k < f->urls; k++) {
        if (s->of[file][k] == source)
            return f->url[k];
    }
    return NULL;
}

bool sources_has(const struct sources *s, size_t source, size_t file)
{
    return s->source[source].below != NULL || url_at(s, source, file) != NULL;
}

/* MANIFEST_URL/files/<path>, each segment percent-encoded. */
static void add_path(struct buf *url, const char *below, const char *path)
{
    buf_printf(url, "%.*s/files", (int)(strlen(below) - (str_ends(below, "/") ? 1 : 0)), below);
    for (const char *at = path;; at++) {
        char segment[MANIFEST_SEGMENT_MAX + 1];
        const size_t n = strcspn(at, "/");
        (void)str_format(segment, sizeof segment, "%.*s", (int)n, at);
        buf_putc(url, '/');
        http_url_escape(url, segment);
        at += n;
        if (*at == '\0')
            return;
    }
}

void sources_url(const struct sources *s, size_t source, size_t file, struct buf *url,
    const char **token, enum http_peer *peer)
{
    const struct source *o = &s->source[source];

    *peer = o->peer;
    *token = NULL;
    if (o->below != NULL) {
        add_path(url, o->below, s->manifest->file[file].path);
        *token = s->rules.token;
        return;
    }
    const char *at = url_at(s, source, file);
    buf_puts(url, at == NULL ? "" : at);
    if (at != NULL && source_url_below(at, s->rules.token_urls))
        *token = s->rules.token;
}
