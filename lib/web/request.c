/* SPDX-License-Identifier: Apache-2.0 */
#include "web/request.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/digest.h"
#include "base/str.h"

enum { QUERY_NAME_MAX = 64, MADE_ID_LENGTH = 32 };

const char *web_param(const struct web_req *r, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < r->match.params; i++) {
        if (r->match.name_size[i] == n && memcmp(r->match.name[i], name, n) == 0)
            return r->match.value[i];
    }
    assert(!"the pattern has no such parameter");
    return NULL;
}

/* 0 when the encoded name is this one, 1 when not. */
static int name_is(const char *text, size_t size, const char *name, struct err *e)
{
    char decoded[3 * QUERY_NAME_MAX + 1];
    if (size >= sizeof(decoded))
        return 1;
    if (percent_decode(text, size, true, decoded, sizeof(decoded), e) < 0)
        return -1;
    return strcmp(decoded, name) == 0 ? 0 : 1;
}

int web_query(const struct web_req *r, const char *name, char *dst, size_t size, struct err *e)
{
    return web_query_nth(r, name, 0, dst, size, e);
}

int web_query_nth(
    const struct web_req *r, const char *name, unsigned nth, char *dst, size_t size, struct err *e)
{
    for (const char *at = r->query; *at != '\0';) {
        const size_t pair = strcspn(at, "&");
        const size_t key = strcspn(at, "&=");
        const int other = name_is(at, key, name, e);
        if (other < 0)
            return -1;
        if (other == 0 && nth-- == 0) {
            size_t skip = key < pair ? key + 1 : key;
            if (percent_decode(at + skip, pair - skip, true, dst, size, e) < 0)
                return err_wrap(e, "%s", name);
            return 0;
        }
        at += pair;
        at += *at == '&' ? 1 : 0;
    }
    return 1;
}

int web_bind(const struct web_req *r, const struct jx_field *fields, size_t n, enum jx_mode mode,
    void *target, struct err *e)
{
    cleanup_json json_object *none = r->body == NULL ? jx_object() : NULL;
    return jx_bind(r->body == NULL ? none : r->body, fields, n, mode, target, e);
}

/* Without branches: no processor predicts where in an id there are digits. */
static bool is_taken_in_id(char c)
{
    const unsigned u = (unsigned char)c;
    const unsigned lower = u | 0x20; /* makes letters small, and a letter of nothing else */
    return ((lower - 'a' < 26) | (u - '0' < 10) | (u == '.') | (u == '_') | (u == '-')) != 0;
}

static bool id_is_good(const char *id)
{
    size_t n = 0;
    if (id == NULL)
        return false;
    while (n < REQUEST_ID_SIZE && is_taken_in_id(id[n]))
        n++;
    return id[n] == '\0' && n >= 8 && n < REQUEST_ID_SIZE;
}

void request_id_choose(const char *client, const char *server, char out[REQUEST_ID_SIZE])
{
    char made[TOKEN_HEX_SIZE];
    const char *id = id_is_good(client) ? client : server;
    if (!id_is_good(id)) {
        digest_token(made);
        made[MADE_ID_LENGTH] = '\0';
        id = made;
    }
    (void)str_copy(out, REQUEST_ID_SIZE, id);
}

static bool is_safe(const char *method)
{
    static const char *const SAFE[] = { "GET", "HEAD", "OPTIONS", "TRACE" };
    for (size_t i = 0; i < sizeof(SAFE) / sizeof(SAFE[0]); i++) {
        if (strcmp(method, SAFE[i]) == 0)
            return true;
    }
    return false;
}

/* Length of host[:port] without the scheme's default port. */
static size_t host_length(const char *host, const char *default_port)
{
    const size_t n = strlen(host);
    return str_ends(host, default_port) ? n - strlen(default_port) : n;
}

static bool origin_is_host(const char *origin, const char *host)
{
    const char *port = ":80";
    const char *at = origin;
    if (strncasecmp(origin, "https://", 8) == 0) {
        port = ":443";
        at += 8;
    } else if (strncasecmp(origin, "http://", 7) == 0) {
        at += 7;
    } else {
        return false;
    }
    const size_t n = host_length(at, port);
    return n > 0 && n == host_length(host, port) && strncasecmp(at, host, n) == 0;
}

int request_check_origin(const char *method, const char *origin, const char *host,
    const char *sec_fetch_site, struct err *e)
{
    if (is_safe(method))
        return 0;
    if (!str_empty(sec_fetch_site) && strcmp(sec_fetch_site, "same-origin") != 0 &&
        strcmp(sec_fetch_site, "none") != 0)
        return err_set(e, ERR_FORBIDDEN, "calls from other sites are refused (Sec-Fetch-Site)");
    if (!str_empty(origin) && (str_empty(host) || !origin_is_host(origin, host)))
        return err_set(e, ERR_FORBIDDEN, "calls from other sites are refused (Origin)");
    return 0;
}
