/* SPDX-License-Identifier: Apache-2.0 */
#include "web/route.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"

enum { SEGMENTS_MAX = 16 };

/* A path, split and decoded. */
struct path {
    size_t n; /* may pass SEGMENTS_MAX: then it matches nothing */
    const char *segment[SEGMENTS_MAX];
    char text[ROUTE_PATH_MAX + 1];
};

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The byte that %XX at text stands for, or -1; left is what there is from the '%' on. */
static int escaped_byte(const char *text, size_t left)
{
    if (left < 3)
        return -1;
    int high = hex_value(text[1]);
    int low = hex_value(text[2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int percent_decode(
    const char *text, size_t size, bool plus, char *dst, size_t dst_size, struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            c = escaped_byte(text + i, size - i);
            if (c < 0)
                return err_set(e, ERR_INVALID, "bad percent-encoding in the address");
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        if (c == 0)
            return err_set(e, ERR_INVALID, "U+0000 in the address");
        if (n + 1 >= dst_size)
            return err_set(e, ERR_INVALID, "a part of the address is too long");
        dst[n++] = (char)c;
    }
    if (n >= dst_size)
        return err_set(e, ERR_INVALID, "a part of the address is too long");
    dst[n] = '\0';
    if (!str_utf8_valid(dst, n))
        return err_set(e, ERR_INVALID, "the address is not UTF-8");
    return 0;
}

/* True when a decoded segment is "." or ".." or has such a part between slashes of its own. */
static bool has_dots(const char *segment)
{
    for (const char *part = segment;;) {
        size_t n = strcspn(part, "/");
        if ((n == 1 || n == 2) && strncmp(part, "..", n) == 0)
            return true;
        /* Decoding ends the text; the analyzer does not see that through str_utf8_valid(). */
        if (part[n] == '\0') /* NOLINT(clang-analyzer-core.UndefinedBinaryOperatorResult) */
            return false;
        part += n + 1;
    }
}

/* What a proxy may send: http://host/path. */
static const char *skip_authority(const char *uri)
{
    size_t scheme = 0;
    if (strncasecmp(uri, "http://", 7) == 0)
        scheme = 7;
    else if (strncasecmp(uri, "https://", 8) == 0)
        scheme = 8;
    if (scheme == 0)
        return uri;
    const char *rest = uri + scheme + strcspn(uri + scheme, "/?#");
    return *rest == '\0' ? "/" : rest;
}

static int split(const char *uri, struct path *p, struct err *e)
{
    const char *at = skip_authority(uri);
    const size_t size = strcspn(at, "?#");
    const char *end = at + size;
    char *dst = p->text;

    if (*at != '/')
        return err_set(e, ERR_INVALID, "the path must start with '/'");
    if (size > ROUTE_PATH_MAX)
        return err_set(e, ERR_INVALID, "the path is longer than %d bytes", ROUTE_PATH_MAX);
    while (at < end) {
        at++; /* the slash */
        size_t n = strcspn(at, "/?#");
        size_t room = (size_t)(p->text + sizeof(p->text) - dst);
        if (percent_decode(at, n, false, dst, room, e) < 0)
            return -1;
        if (has_dots(dst))
            return err_set(e, ERR_INVALID, "\".\" and \"..\" are not allowed in the path");
        if (p->n < SEGMENTS_MAX)
            p->segment[p->n] = dst;
        p->n++;
        dst += strlen(dst) + 1;
        at += n;
    }
    return 0;
}

/* {x*}: whatever is left of the path, a segment at least. */
static bool takes_rest(const char *pattern, size_t size)
{
    return size > 3 && pattern[0] == '{' && pattern[size - 2] == '*';
}

static bool none_empty(const struct path *p, size_t from)
{
    for (size_t i = from; i < p->n; i++) {
        if (p->segment[i][0] == '\0')
            return false;
    }
    return from < p->n;
}

/* One segment of a pattern, without its slash. */
static bool segment_matches(const char *pattern, size_t size, const char *segment)
{
    if (segment[0] == '\0')
        return false;
    if (pattern[0] == '{')
        return true;
    return strlen(segment) == size && memcmp(pattern, segment, size) == 0;
}

static bool pattern_matches(const char *pattern, const struct path *p)
{
    size_t i = 0;
    if (p->n > SEGMENTS_MAX)
        return false;
    for (; *pattern == '/'; i++) {
        size_t size = strcspn(++pattern, "/");
        if (takes_rest(pattern, size))
            return none_empty(p, i);
        if (i == p->n || !segment_matches(pattern, size, p->segment[i]))
            return false;
        pattern += size;
    }
    return i == p->n;
}

static bool method_matches(const char *route, const char *method)
{
    return strcmp(route, method) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(route, "GET") == 0);
}

/* Segment i, or all from i on with slashes between, behind what m->text has. */
static int keep(
    const struct path *p, size_t i, bool rest, struct route_match *m, size_t *used, struct err *e)
{
    const size_t end = rest ? p->n : i + 1;
    for (; i < end; i++) {
        const size_t length = strlen(p->segment[i]) + 1;
        if (length > sizeof(m->text) - *used)
            return err_set(e, ERR_INVALID, "the path is too long");
        memcpy(m->text + *used, p->segment[i], length);
        *used += length;
        if (i + 1 < end)
            m->text[*used - 1] = '/';
    }
    return 0;
}

/* Keeps the decoded parameters of a path that matched. */
static int take_params(
    const struct web_route *route, const struct path *p, struct route_match *m, struct err *e)
{
    size_t used = 0;
    size_t params = 0;
    const char *pattern = route->pattern;
    for (size_t i = 0; i < p->n && *pattern == '/'; i++) {
        size_t size = strcspn(++pattern, "/");
        if (pattern[0] == '{') {
            const bool rest = takes_rest(pattern, size);
            if (params == ROUTE_PARAMS_MAX)
                return err_set(e, ERR_INVALID, "the path is too long");
            m->name[params] = pattern + 1;
            m->name_size[params] = size - (rest ? 3 : 2);
            m->value[params++] = m->text + used;
            if (keep(p, i, rest, m, &used, e) < 0)
                return -1;
            if (rest)
                break;
        }
        pattern += size;
    }
    m->params = params;
    m->route = route;
    return 0;
}

static bool is_listed(const char *list, const char *method)
{
    const size_t n = strlen(method);
    for (const char *at = list; *at != '\0';) {
        size_t size = strcspn(at, ",");
        if (size == n && memcmp(at, method, n) == 0)
            return true;
        at += size;
        at += strspn(at, ", ");
    }
    return false;
}

static void allow(char *list, size_t size, const char *method)
{
    const size_t at = strlen(list);
    if (!is_listed(list, method))
        (void)str_format(list + at, size - at, "%s%s", at == 0 ? "" : ", ", method);
}

int route_find(const struct web_route *routes, size_t n, const char *method, const char *uri,
    struct route_match *m, struct err *e)
{
    struct path p;
    p.n = 0;
    m->allow[0] = '\0';
    if (split(uri, &p, e) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!pattern_matches(routes[i].pattern, &p))
            continue;
        if (method_matches(routes[i].method, method))
            return take_params(&routes[i], &p, m, e);
        allow(m->allow, sizeof(m->allow), routes[i].method);
        if (strcmp(routes[i].method, "GET") == 0)
            allow(m->allow, sizeof(m->allow), "HEAD");
    }
    if (m->allow[0] == '\0')
        return err_set(e, ERR_NOT_FOUND, "there is nothing at this address");
    return err_set(e, ERR_METHOD, "this address takes only %s", m->allow);
}
