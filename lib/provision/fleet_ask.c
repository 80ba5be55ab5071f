/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/http_json.h"
#include "provision/fleet.h"

enum { URL_SIZE = 2048, KEY_MAX = 8192, TEXT_SIZE = 160, NO_TIME = -1 };

enum { UNAUTHORIZED = 401, FORBIDDEN = 403, REQUEST_TIMEOUT = 408, TOO_MANY = 429 };

char *fleet_base64(const char *data, size_t size)
{
    unsigned char *out = mem_calloc(size / 3 + 1, 4 + 1);
    (void)EVP_EncodeBlock(out, (const unsigned char *)data, (int)size);
    return (char *)out;
}

/* The key as it goes out: some providers repeat what they were sent. */
static char *sent_key(const struct fleet *f, const char *key)
{
    cleanup_buf struct buf pair = BUF_INIT(KEY_MAX);
    if (f->auth == HTTP_AUTH_AWS) /* the key itself never does */
        return mem_strdup(f->aws->session_token);
    if (f->auth != HTTP_AUTH_BASIC_USER)
        return mem_strdup(key);
    buf_printf(&pair, "%s:", key);
    char *out = fleet_base64(pair.data, pair.len);
    explicit_bzero(pair.data, pair.len);
    return out;
}

void fleet_init(struct fleet *f, const struct fleet_ops *ops, const struct provisioner_env *env,
    const struct fleet_options *o)
{
    struct http_options http = { .ca_file = o->ca_file, .stop_fd = env->stop_fd };
    f->ops = ops;
    f->http = http_new(&http);
    f->auth = o->auth;
    f->aws = o->aws;
    f->url = mem_strdup(o->url);
    fleet_set_key(f, o->key);
    (void)str_copy(f->cluster, sizeof f->cluster, env->cluster);
}

static void forget(char *key)
{
    if (key != NULL)
        explicit_bzero(key, strlen(key));
    free(key);
}

void fleet_set_key(struct fleet *f, const char *key)
{
    forget(f->key);
    forget(f->sent_key);
    f->key = mem_strdup(key);
    f->sent_key = sent_key(f, key);
}

void fleet_fini(struct fleet *f)
{
    http_close(f->http);
    forget(f->key);
    forget(f->sent_key);
    free(f->url);
}

static enum provision_error error_without_answer(const struct http_answer *a, enum err_code code)
{
    if (a->stopped)
        return PROVISION_ERROR_STOPPED;
    if (code == ERR_TIMEOUT)
        return PROVISION_ERROR_TIMEOUT;
    if (code == ERR_INVALID) /* the URL or the key */
        return PROVISION_ERROR_REFUSED;
    return code == ERR_UNAVAILABLE ? PROVISION_ERROR_UNAVAILABLE : PROVISION_ERROR_NONSENSE;
}

static enum provision_error error_of_status(int status)
{
    if (status == TOO_MANY)
        return PROVISION_ERROR_BUSY;
    if (status == REQUEST_TIMEOUT)
        return PROVISION_ERROR_TIMEOUT;
    if (status == UNAUTHORIZED || status == FORBIDDEN)
        return PROVISION_ERROR_DENIED;
    return http_classify(status) == HTTP_CLASS_RETRY ? PROVISION_ERROR_UNAVAILABLE
                                                     : PROVISION_ERROR_REFUSED;
}

static enum err_code code_of(enum provision_error error)
{
    switch (error) {
    case PROVISION_ERROR_TIMEOUT:
        return ERR_TIMEOUT;
    case PROVISION_ERROR_DENIED:
        return ERR_FORBIDDEN;
    case PROVISION_ERROR_NO_GPU_TYPE:
    case PROVISION_ERROR_REFUSED:
        return ERR_INVALID;
    case PROVISION_ERROR_NONSENSE:
        return ERR_INTERNAL;
    case PROVISION_ERROR_NONE:
    case PROVISION_ERROR_NO_CAPACITY:
    case PROVISION_ERROR_BUSY:
    case PROVISION_ERROR_UNAVAILABLE:
    case PROVISION_ERROR_STOPPED:
    case PROVISION_ERROR__COUNT:
    default:
        return ERR_UNAVAILABLE;
    }
}

/* Of an answer: NONE when it is a good one. */
static enum provision_error judge(struct fleet *f, const struct http_answer *a, json_object *o)
{
    enum provision_error error = f->ops->error_of(a->status, o);
    if (error != PROVISION_ERROR_NONE)
        return error;
    return http_classify(a->status) == HTTP_CLASS_OK ? PROVISION_ERROR_NONE
                                                     : error_of_status(a->status);
}

/* Sends a call and reads its answer. */
static int send_call(struct fleet *f, const struct fleet_call *c, struct http_answer *a,
    json_object **out, struct err *e)
{
    char url[URL_SIZE];
    const int left_ms = clock_left_ms(c->deadline_ns);
    struct http_request r = {
        .method = c->method,
        .url = url,
        .auth = f->auth,
        .aws = f->aws,
        .secret = f->key,
        .once = c->launch,
        .timeout_ms = left_ms == 0                ? NO_TIME
                      : left_ms < HTTP_TIMEOUT_MS ? left_ms
                                                  : HTTP_TIMEOUT_MS,
    };
    if (!http_url(url, sizeof url, f->url, c->path))
        return err_set(e, ERR_INVALID, "the URL is too long");
    if (c->form != NULL) {
        r.content_type = "application/x-www-form-urlencoded";
        r.body = c->form;
        r.body_size = strlen(c->form);
    }
    if (f->auth != HTTP_AUTH_AWS)
        return http_json(f->http, &r, c->body, a, out, e);
    r.accept = "*/*";
    return http_xml(f->http, &r, a, out, e);
}

int fleet_ask(struct fleet *f, const struct fleet_call *c, json_object **out,
    struct provision_note *note, struct err *e)
{
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    cleanup_json json_object *o = NULL;
    char told[TEXT_SIZE];
    char text[TEXT_SIZE];
    struct err why = ERR_INIT;
    int result = send_call(f, c, &a, &o, &why);
    if (c->status != NULL)
        *c->status = a.status;
    note->again_ms = a.retry_after_ms;
    if (result < 0) {
        note->error = error_without_answer(&a, why.code);
        note->unsure |= c->launch && a.sent == HTTP_SENT;
        return err_set(e, why.code, "%s", why.msg);
    }
    note->error = judge(f, &a, o);
    if (note->error == PROVISION_ERROR_NONE) {
        *out = STEAL(o);
        return 0;
    }
    note->unsure |= c->launch && (note->error == PROVISION_ERROR_UNAVAILABLE ||
                                     note->error == PROVISION_ERROR_TIMEOUT);
    http_error_text(o, f->key, told, sizeof told);
    http_quote(text, sizeof text, told, f->sent_key);
    if (c->refusal != NULL)
        *c->refusal = STEAL(o);
    return err_set(e, code_of(note->error), "%d %s", a.status, text);
}

int fleet_nonsense(struct provision_note *note, struct err *e, const char *why)
{
    note->error = PROVISION_ERROR_NONSENSE;
    return err_set(e, ERR_INTERNAL, "%s", why);
}

void fleet_read_text(json_object *o, const char *key, char *out, size_t size)
{
    const char *text = "";
    (void)jx_get_str(o, key, &text);
    http_quote(out, size, text, NULL);
}

json_object *fleet_words(const char *text)
{
    cleanup_free char *copy = mem_strdup(text);
    json_object *list = jx_array();
    char *rest = copy;
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        word += strspn(word, " ");
        size_t size = strlen(word);
        while (size > 0 && word[size - 1] == ' ')
            word[--size] = '\0';
        if (size > 0)
            jx_add_str(list, word);
    }
    return list;
}
