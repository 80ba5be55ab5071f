/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/kubernetes_api.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"

enum {
    PATH_MAX_BYTES = 4096,
    URL_MAX_BYTES = 1024,
    TOKEN_MAX_BYTES = 8000,
    PAGE = 100, /* a node may be 20 kB, a page must fit into HTTP_BODY_MAX */
    FORBIDDEN = 403,
    GONE = 410
};

/* --- where it is ------------------------------------------------------------------------------ */

static void close_file(FILE **file)
{
    if (*file != NULL)
        (void)fclose(*file);
}
#define cleanup_file __attribute__((cleanup(close_file)))

/* The first line of a file; false: there is none that fits. */
static bool read_line(const char *path, char *out, size_t size)
{
    cleanup_file FILE *file = fopen(path, "re");
    if (file == NULL || fgets(out, (int)size, file) == NULL)
        return false;
    const bool whole = strchr(out, '\n') != NULL || feof(file);
    out[strcspn(out, "\r\n")] = '\0';
    return whole && out[0] != '\0';
}

/* What the cluster gives each of its pods. */
static int own_url(char out[URL_MAX_BYTES], struct err *e)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    if (host == NULL || port == NULL || host[0] == '\0')
        return err_set(e, ERR_INVALID, "[kubernetes] url is not set, and this is no pod");
    const bool bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
    if (str_format(
            out, URL_MAX_BYTES, bare_ipv6 ? "https://[%s]:%s" : "https://%s:%s", host, port) < 0)
        return err_set(e, ERR_INVALID, "KUBERNETES_SERVICE_HOST is too long");
    return 0;
}

static char *account_file(const struct conf *conf, const char *name)
{
    struct buf path = BUF_INIT(PATH_MAX_BYTES);
    buf_printf(&path, "%s/%s", conf->kubernetes_account_dir, name);
    return buf_steal(&path);
}

static bool is_word(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.")] == '\0';
}

static int take_names(struct kubernetes *k, struct err *e)
{
    cleanup_free char *path = account_file(k->conf, "namespace");
    if (!str_empty(k->conf->kubernetes_namespace))
        (void)str_copy(k->namespace, sizeof k->namespace, k->conf->kubernetes_namespace);
    else if (!str_empty(k->conf->kubernetes_url) ||
             !read_line(path, k->namespace, sizeof k->namespace))
        (void)str_copy(k->namespace, sizeof k->namespace, "default");
    const char *region =
        str_empty(k->conf->kubernetes_cluster) ? k->namespace : k->conf->kubernetes_cluster;
    (void)str_copy(k->region, sizeof k->region, region);
    if (!is_word(k->namespace) || !is_word(k->region))
        return err_set(
            e, ERR_INVALID, "[kubernetes] namespace and cluster: only a-z, 0-9, - and .");
    return 0;
}

static int take_token(struct kubernetes *k, struct err *e)
{
    const struct conf *conf = k->conf;
    if (!str_empty(conf->kubernetes_token_path))
        k->token_path = mem_strdup(conf->kubernetes_token_path);
    else if (str_empty(conf->kubernetes_token) && str_empty(conf->kubernetes_url))
        k->token_path = account_file(conf, "token");
    else if (str_empty(conf->kubernetes_token))
        return err_set(e, ERR_INVALID, "[kubernetes] neither token nor token_path is set");
    return 0;
}

/* An answer that tells more than its status does. */
static enum provision_error error_of(int status, json_object *answer)
{
    const char *message = "";
    (void)jx_get_str(answer, "message", &message);
    if (status == FORBIDDEN && strstr(message, "exceeded quota") != NULL)
        return PROVISION_ERROR_NO_CAPACITY; /* free again once others have ended */
    if (status == GONE)                     /* the list is too old to go on with */
        return PROVISION_ERROR_UNAVAILABLE;
    return PROVISION_ERROR_NONE;
}

static const struct fleet_ops CALLS = { .error_of = error_of };

int kubernetes_connect(struct kubernetes *k, const struct provisioner_env *env, struct err *e)
{
    const struct conf *conf = env->conf;
    const bool inside = str_empty(conf->kubernetes_url);
    cleanup_free char *account_ca = account_file(conf, "ca.crt");
    char url[URL_MAX_BYTES];

    k->conf = conf;
    if (inside ? own_url(url, e) < 0 : str_copy(url, sizeof url, conf->kubernetes_url) < 0)
        return -1;
    if (!str_starts(url, "https://"))
        return err_set(e, ERR_INVALID, "[kubernetes] url must begin with https://");
    if (take_names(k, e) < 0 || take_token(k, e) < 0)
        return -1;
    k->ca_file = mem_strdup(
        inside && str_empty(conf->kubernetes_ca_file) ? account_ca : conf->kubernetes_ca_file);
    fleet_init(&k->fleet, &CALLS, env,
        &(struct fleet_options){ .url = url,
            .key = conf->kubernetes_token,
            .ca_file = k->ca_file,
            .auth = HTTP_AUTH_BEARER });
    return 0;
}

void kubernetes_disconnect(struct kubernetes *k)
{
    fleet_fini(&k->fleet);
    free(k->token_path);
    free(k->ca_file);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Read for each call: the file is small and a token that was replaced holds for minutes only. */
static int renew_token(struct kubernetes *k, struct provision_note *note, struct err *e)
{
    char token[TOKEN_MAX_BYTES];
    if (k->token_path == NULL)
        return 0;
    if (!read_line(k->token_path, token, sizeof token)) {
        note->error = PROVISION_ERROR_UNAVAILABLE;
        return err_set(e, ERR_UNAVAILABLE, "the token cannot be read from its file");
    }
    fleet_set_key(&k->fleet, token);
    explicit_bzero(token, sizeof token);
    return 0;
}

int kubernetes_ask(struct kubernetes *k, const struct fleet_call *c, json_object **out,
    struct provision_note *note, struct err *e)
{
    return renew_token(k, note, e) < 0 ? -1 : fleet_ask(&k->fleet, c, out, note, e);
}

static int one_page(struct kubernetes *k, const struct kubernetes_list *l, struct buf *next,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf path = BUF_INIT(PATH_MAX_BYTES);
    cleanup_json json_object *o = NULL;
    const char *more = "";
    buf_printf(&path, "%s&limit=%d", l->path, PAGE);
    if (next->len > 0) {
        buf_puts(&path, "&continue=");
        http_url_escape(&path, next->data);
    }
    const struct fleet_call c = {
        .method = "GET", .path = path.data, .deadline_ns = l->deadline_ns
    };
    if (kubernetes_ask(k, &c, &o, note, e) < 0)
        return -1;
    json_object *items = jx_get(o, "items");
    if (!json_object_is_type(items, json_type_array))
        return fleet_nonsense(note, e, "the answer is no list");
    for (size_t i = 0; i < json_object_array_length(items); i++)
        l->each(json_object_array_get_idx(items, i), l->ctx);
    (void)jx_get_str(jx_get(o, "metadata"), "continue", &more);
    buf_clear(next);
    buf_puts(next, more);
    return 0;
}

int kubernetes_list(struct kubernetes *k, const struct kubernetes_list *l,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf next = BUF_INIT(PATH_MAX_BYTES / 2);
    do {
        if (one_page(k, l, &next, note, e) < 0)
            return -1;
        if (next.overflow)
            return fleet_nonsense(note, e, "where the list goes on is too long a text");
    } while (next.len > 0);
    return 0;
}
