/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/aws_role.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/http_json.h"
#include "provision/aws_read.h"

#define TOKEN_PATH  "latest/api/token"
#define ROLES_PATH  "latest/meta-data/iam/security-credentials/"
#define TOKEN_TTL_S "21600"

enum {
    CALL_MS = 2000, /* the service is on this very machine */
    BODY_MAX = 16 << 10,
    BEFORE_S = 300,
    AGAIN_MS = 10000,
    ROLE_SIZE = 128,
    URL_SIZE = 1300
};

enum { OK = 200, UNAUTHORIZED = 401, NOT_FOUND = 404 };

static const char NO_ANSWER[] =
    "the instance metadata service does not answer (in a container the hop limit of the instance must be 2)";

int aws_role_open(struct aws_role *r, const struct provisioner_env *env, struct err *e)
{
    const char *url = env->conf->aws_metadata_url;
    const struct http_options o = {
        .timeout_ms = CALL_MS, .connect_ms = CALL_MS, .stop_fd = env->stop_fd, .direct = true
    };
    if (!str_starts(url, "http://") && !str_starts(url, "https://"))
        return err_set(e, ERR_INVALID, "[aws] metadata_url must begin with http:// or https://");
    r->http = http_new(&o);
    r->url = mem_strdup(url);
    return 0;
}

static void wipe(char **text)
{
    if (*text != NULL)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void aws_role_close(struct aws_role *r)
{
    http_close(r->http);
    free(r->url);
    wipe(&r->secret);
    wipe(&r->session_token);
    explicit_bzero(r->token, sizeof r->token);
}

void aws_role_forget(struct aws_role *r)
{
    r->expires_us = 0;
    r->again_ns = 0;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* One round of calls for new keys. */
struct round {
    struct aws_role *r;
    int64_t deadline_ns;
    struct provision_note *note;
    struct http_answer a;
};

static int fail(struct round *c, enum provision_error error, struct err *e, const char *why)
{
    c->note->error = error;
    return err_set(e, error == PROVISION_ERROR_DENIED ? ERR_FORBIDDEN : ERR_UNAVAILABLE,
        "keys of the instance's role: %s", why);
}

/* An answer, of whatever status. */
static int ask(struct round *c, const char *method, const char *path, const char *header,
    const char *value, struct err *e)
{
    struct err why = ERR_INIT;
    char url[URL_SIZE];
    const int left_ms = clock_left_ms(c->deadline_ns);
    const struct http_request q = {
        .method = method,
        .url = url,
        .accept = "*/*",
        .header = header,
        .header_value = value,
        .timeout_ms = left_ms == 0        ? -1
                      : left_ms < CALL_MS ? left_ms
                                          : CALL_MS,
        .body_max = BODY_MAX,
    };
    if (!http_url(url, sizeof url, c->r->url, path))
        return fail(c, PROVISION_ERROR_UNAVAILABLE, e, "the URL is too long");
    if (http_call(c->r->http, &q, &c->a, &why) == 0)
        return 0;
    if (c->a.stopped)
        return fail(c, PROVISION_ERROR_STOPPED, e, "stopped");
    return fail(c, why.code == ERR_TIMEOUT ? PROVISION_ERROR_TIMEOUT : PROVISION_ERROR_UNAVAILABLE,
        e, why.code == ERR_TIMEOUT ? NO_ANSWER : why.msg);
}

/* The first line of the answer. */
static bool first_line(const struct http_answer *a, char *out, size_t size)
{
    const char *text = a->body.data == NULL ? "" : a->body.data;
    const size_t n = strcspn(text, "\r\n");
    return n > 0 && str_format(out, size, "%.*s", (int)n, text) == 0;
}

static int new_token(struct round *c, struct err *e)
{
    struct aws_role *r = c->r;
    r->token[0] = '\0';
    if (ask(c, "PUT", TOKEN_PATH, "X-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL_S, e) < 0)
        return -1;
    if (c->a.status != OK || !first_line(&c->a, r->token, sizeof r->token))
        return fail(c, PROVISION_ERROR_UNAVAILABLE, e, "the metadata service gives no token");
    return 0;
}

/* Asks with the session's token; with a new one when there is none, or it is over. */
static int get(struct round *c, const char *path, struct err *e)
{
    struct aws_role *r = c->r;
    for (int i = 0; i < 2; i++) {
        if (r->token[0] == '\0' && new_token(c, e) < 0)
            return -1;
        if (ask(c, "GET", path, "X-aws-ec2-metadata-token", r->token, e) < 0)
            return -1;
        if (c->a.status != UNAUTHORIZED)
            return 0;
        r->token[0] = '\0';
    }
    return fail(c, PROVISION_ERROR_UNAVAILABLE, e, "the metadata service refuses its own token");
}

static int find_role(struct round *c, char role[ROLE_SIZE], struct err *e)
{
    if (get(c, ROLES_PATH, e) < 0)
        return -1;
    if (c->a.status == NOT_FOUND)
        return fail(c, PROVISION_ERROR_DENIED, e, "this machine has no role");
    if (c->a.status != OK || !first_line(&c->a, role, ROLE_SIZE))
        return fail(c, PROVISION_ERROR_UNAVAILABLE, e, "the metadata service names no role");
    return 0;
}

static int take_keys(struct round *c, json_object *o, struct err *e)
{
    struct aws_role *r = c->r;
    const char *code = "";
    const char *id = "";
    const char *secret = "";
    const char *token = "";
    const char *until = "";
    (void)jx_get_str(o, "Code", &code);
    (void)jx_get_str(o, "AccessKeyId", &id);
    (void)jx_get_str(o, "SecretAccessKey", &secret);
    (void)jx_get_str(o, "Token", &token);
    (void)jx_get_str(o, "Expiration", &until);
    const int64_t over_s = aws_age_s(until, 0); /* minus the seconds since 1970 */
    if (strcmp(code, "Success") != 0 || id[0] == '\0' || secret[0] == '\0' || token[0] == '\0' ||
        over_s > 0 || str_copy(r->key_id, sizeof r->key_id, id) < 0)
        return fail(c, PROVISION_ERROR_UNAVAILABLE, e, "the metadata service has none");
    wipe(&r->secret);
    wipe(&r->session_token);
    r->secret = mem_strdup(secret);
    r->session_token = mem_strdup(token);
    r->expires_us = -over_s * US_PER_S;
    return 0;
}

static int fetch(struct round *c, struct err *e)
{
    cleanup_json json_object *o = NULL;
    cleanup_buf struct buf path = BUF_INIT(URL_SIZE);
    struct err ignored = ERR_INIT;
    char role[ROLE_SIZE];
    if (find_role(c, role, e) < 0)
        return -1;
    buf_puts(&path, ROLES_PATH);
    http_url_escape(&path, role);
    if (get(c, path.data, e) < 0)
        return -1;
    if (c->a.status != OK || jx_parse(c->a.body.data, c->a.body.len, BODY_MAX, &o, &ignored) < 0)
        return fail(c, PROVISION_ERROR_UNAVAILABLE, e, "the metadata service has none");
    const int rc = take_keys(c, o, e);
    explicit_bzero(c->a.body.data, c->a.body.len);
    return rc;
}

int aws_role_refresh(
    struct aws_role *r, int64_t deadline_ns, struct provision_note *note, struct err *e)
{
    const int64_t left_us = r->expires_us - clock_wall_us();
    struct round c = { .r = r, .deadline_ns = deadline_ns, .note = note, .a = HTTP_ANSWER_INIT };
    if (left_us > BEFORE_S * US_PER_S || (left_us > 0 && clock_mono_ns() < r->again_ns))
        return 0;
    const int rc = fetch(&c, e);
    http_answer_fini(&c.a);
    if (rc == 0)
        return 1;
    r->again_ns = clock_deadline(AGAIN_MS);
    return r->expires_us > clock_wall_us() ? 0 : -1;
}
