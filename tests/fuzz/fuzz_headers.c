/* SPDX-License-Identifier: Apache-2.0 */
/* Input: what clients put into headers, a line each: X-Request-Id, the id of the server, method, Origin, Host,
 * Sec-Fetch-Site, Authorization, If-None-Match. */
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/str.h"
#include "tests/fuzz/fuzz.h"
#include "web/auth.h"
#include "web/reply.h"
#include "web/request.h"

enum { TELLING = 24 }; /* longer than what a message says by itself */

static const char ETAG[] = "0123456789abcdef";

/* Contract, section 7: [A-Za-z0-9._-]{8,64}, whoever it is from. */
static void check_request_id(const char *client, const char *server)
{
    static const char TAKEN[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    char id[REQUEST_ID_SIZE];
    request_id_choose(client, server, id);
    size_t n = strnlen(id, sizeof(id));
    assert(n >= 8 && n <= 64 && strspn(id, TAKEN) == n);
    n = strlen(client);
    if (n >= 8 && n <= 64 && strspn(client, TAKEN) == n)
        assert(strcmp(id, client) == 0);
}

/* An unsafe method with an Origin is let through only when the Origin ends in the host's name. */
static void check_origin(
    const char *method, const char *origin, const char *host, const char *sec_fetch_site)
{
    struct err e = ERR_INIT;
    static const char *const SAFE[] = { "GET", "HEAD", "OPTIONS", "TRACE" };
    int safe = 0;
    for (size_t i = 0; i < sizeof(SAFE) / sizeof(SAFE[0]); i++)
        safe = safe || strcmp(method, SAFE[i]) == 0;
    if (request_check_origin(method, origin, host, sec_fetch_site, &e) < 0) {
        assert(!safe && e.code == ERR_FORBIDDEN && e.msg[0] != '\0');
        return;
    }
    if (safe || origin[0] == '\0')
        return;
    assert(str_starts(origin, "http") || str_starts(origin, "HTTP") || (origin[0] | 0x20) == 'h');
    size_t n = strcspn(host, ":");
    const char *at = strstr(origin, "://");
    assert(n > 0 && at != NULL && strncasecmp(at + 3, host, n) == 0);
}

/* No header is somebody unless it is the token. */
static void check_authorization(const char *authorization)
{
    static struct auth *auth;
    struct auth_caller caller;
    struct err e = ERR_INIT;
    static char token[TOKEN_HEX_SIZE];
    if (auth == NULL) {
        char path[] = "/tmp/wb-fuzz-XXXXXX";
        char hash[DIGEST_HEX_SIZE];
        char line[DIGEST_HEX_SIZE + 16];
        digest_token(token);
        digest_hex(token, strlen(token), hash);
        assert(str_format(line, sizeof(line), "%s admin root\n", hash) == 0);
        int fd = mkstemp(path);
        assert(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line) && close(fd) == 0);
        struct conf conf = { .auth_mode = (char[]){ "tokens" },
            .auth_token_file = path,
            .auth_anonymous = (char[]){ "none" },
            .auth_remote_user_role = (char[]){ "" },
            .auth_remote_admins = (char[]){ "" } };
        assert(auth_load(&conf, &auth, &e) == 0 && unlink(path) == 0);
    }
    if (auth_check(auth, authorization, NULL, &caller, &e) < 0)
        assert(e.code == ERR_UNAUTHENTICATED &&
               (strlen(authorization) < TELLING || strstr(e.msg, authorization) == NULL));
    else
        assert(caller.role == ROLE_NONE && authorization[0] == '\0');
}

static bool matches(const char *before, const char *header, const char *after)
{
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    buf_puts(&text, before);
    buf_puts(&text, header);
    buf_puts(&text, after);
    assert(!text.overflow);
    return reply_etag_matches(text.data ? text.data : "", ETAG);
}

/* RFC 9110, 13.1.2: what matches has the tag in it, and matches with another one before or behind it. */
static void check_if_none_match(const char *header)
{
    cleanup_free char *quoted = mem_alloc(sizeof(ETAG) + 2);
    assert(str_format(quoted, sizeof(ETAG) + 2, "\"%s\"", ETAG) == 0);
    assert(!reply_etag_matches(header, ""));
    if (!matches("", header, ""))
        return;
    if (header[strspn(header, " \t")] == '*')
        return;
    assert(strstr(header, quoted) != NULL);
    assert(matches("W/\"other\", ", header, ""));
    assert(matches("", header, ", \"other\""));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_free char *text = mem_dup(data, size);
    char *at = text;
    const char *id = next_line(&at);
    const char *server_id = next_line(&at);
    const char *method = next_line(&at);
    const char *origin = next_line(&at);
    const char *host = next_line(&at);
    const char *sec_fetch_site = next_line(&at);
    const char *authorization = next_line(&at);
    const char *if_none_match = next_line(&at);
    check_request_id(id, server_id);
    check_origin(method, origin, host, sec_fetch_site);
    check_authorization(authorization);
    check_if_none_match(if_none_match);
    return 0;
}
