/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/kv_url.h"

#include <ctype.h>
#include <string.h>
#include <sys/un.h>

#include "base/mem.h"
#include "base/str.h"
#include "kv/kv.h"

void kv_url_free(struct kv_url *u)
{
    if (u->password != NULL)
        explicit_bzero(u->password, strlen(u->password));
    free(u->path);
    free(u->host);
    free(u->password);
    *u = (struct kv_url)KV_URL_INIT;
}

static int parse_unix(const char *path, struct kv_url *u, struct err *e)
{
    if (path[0] != '/')
        return err_set(e, ERR_INVALID, "redis url: the path after unix: must begin with /");
    if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        return err_set(e, ERR_INVALID, "redis url: the path of the socket is too long");
    u->path = mem_strdup(path);
    return 0;
}

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

/* Percent-decodes in place. -1 for a malformed sequence and for %00. */
static int decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = hex_value(from[1]);
        int low = high < 0 ? -1 : hex_value(from[2]);
        if (low < 0 || high + low == 0)
            return -1;
        *to++ = (char)(high * 16 + low);
        from += 2;
    }
    *to = '\0';
    return 0;
}

/* ":password" before the '@'. */
static int parse_userinfo(const char *text, size_t size, struct kv_url *u, struct err *e)
{
    if (size == 0 || text[0] != ':')
        return err_set(e, ERR_INVALID, "redis url: only :password@ is allowed before the host");
    u->password = mem_dup(text + 1, size - 1);
    if (decode(u->password) < 0)
        return err_set(e, ERR_INVALID,
            "redis url: a %% in the password is not followed by two hex "
            "digits");
    if (u->password[0] == '\0')
        return err_set(e, ERR_INVALID, "redis url: the password is empty");
    return 0;
}

static bool host_is_sane(const char *host)
{
    for (const char *p = host; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr(".-_:%", *p) == NULL)
            return false;
    return host[0] != '\0';
}

/* host:port, host, [v6]:port or [v6]. The port is needed when default_port is 0. */
static int parse_host(const char *text, int64_t default_port, struct kv_url *u, struct err *e)
{
    bool bracket = text[0] == '[';
    const char *end = bracket ? strchr(text, ']') : strrchr(text, ':');
    if (bracket && end == NULL)
        return err_set(e, ERR_INVALID, "redis url: a [ without its ]");
    if (end == NULL)
        end = text + strlen(text);
    const char *start = bracket ? text + 1 : text;
    u->host = mem_dup(start, (size_t)(end - start));
    const char *port = bracket ? end + 1 : end;
    if (!host_is_sane(u->host) || (!bracket && strchr(u->host, ':') != NULL))
        return err_set(e, ERR_INVALID, "redis url: that is no host name or address");
    u->port = default_port;
    if (port[0] == '\0' && default_port != 0)
        return 0;
    if (port[0] != ':' || str_to_i64(port + 1, 1, UINT16_MAX, &u->port) < 0)
        return err_set(e, ERR_INVALID, "redis url: the port must be a number from 1 to 65535");
    return 0;
}

/* What follows redis:// */
static int parse_authority(const char *text, struct kv_url *u, struct err *e)
{
    size_t size = strcspn(text, "/");
    const char *db = text + size;
    cleanup_free char *authority = mem_dup(text, size);
    const char *host = authority;
    const char *at = strrchr(authority, '@');
    int rc = 0;
    if (at != NULL) {
        rc = parse_userinfo(authority, (size_t)(at - authority), u, e);
        host = at + 1;
    }
    if (rc == 0)
        rc = parse_host(host, KV_PORT, u, e);
    explicit_bzero(authority, size);
    if (rc == 0 && db[0] != '\0' && db[1] != '\0' && str_to_i64(db + 1, 0, KV_DB_MAX, &u->db) < 0)
        return err_set(e, ERR_INVALID, "redis url: the database after / must be a number");
    return rc;
}

int kv_url_parse(const char *url, struct kv_url *out, struct err *e)
{
    cleanup_kv_url struct kv_url u = KV_URL_INIT;
    int rc;
    if (str_starts(url, "unix:"))
        rc = parse_unix(url + strlen("unix:"), &u, e);
    else if (str_starts(url, "redis://"))
        rc = parse_authority(url + strlen("redis://"), &u, e);
    else if (strchr(url, '/') != NULL || strchr(url, '@') != NULL)
        rc = err_set(e, ERR_INVALID,
            "redis url: must be unix:/path, host:port or redis://[:password@]host:port[/db]");
    else
        rc = parse_host(url, 0, &u, e);
    if (rc < 0)
        return -1;
    *out = u;
    u = (struct kv_url)KV_URL_INIT;
    return 0;
}

int kv_url_check(const char *url, struct err *e)
{
    cleanup_kv_url struct kv_url u = KV_URL_INIT;
    return kv_url_parse(url, &u, e);
}
