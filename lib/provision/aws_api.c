/* SPDX-License-Identifier: Apache-2.0 */
#include "provision/aws_api.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"

enum { URL_SIZE = 1088 };

/* The version of the API that all of this is of. */
#define VERSION "2016-11-15"

/* --- who, where ------------------------------------------------------------------------------- */

static const char *of_environment(const char *a, const char *b)
{
    const char *text = getenv(a);
    if (text == NULL && b != NULL)
        text = getenv(b);
    return text == NULL ? "" : text;
}

static int take_region(struct aws *a, struct err *e)
{
    const char *region = a->conf->aws_region;
    if (str_empty(region))
        region = of_environment("AWS_REGION", "AWS_DEFAULT_REGION");
    if (region[0] == '\0')
        return err_set(e, ERR_INVALID, "[aws] region is not set");
    if (region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0' ||
        str_copy(a->region, sizeof a->region, region) < 0)
        return err_set(e, ERR_INVALID, "[aws] region: only a-z, 0-9 and -");
    return 0;
}

static struct http_aws signer_of(const struct aws *a, const char *key_id, const char *session_token)
{
    return (struct http_aws){
        .key_id = key_id, .session_token = session_token, .region = a->region, .service = "ec2"
    };
}

/* The keys come with the first call. */
static int take_role(struct aws *a, const struct provisioner_env *env, struct err *e)
{
    if (!str_empty(a->conf->aws_access_key_id))
        return err_set(e, ERR_INVALID, "[aws] access_key_id is set, and instance_role is on");
    a->signer = signer_of(a, "", "");
    return aws_role_open(&a->role, env, e);
}

/* All of one place: a key of the one and a token of the other do not fit together. */
static int take_keys(
    struct aws *a, const struct provisioner_env *env, const char **secret, struct err *e)
{
    const struct conf *conf = a->conf;
    if (conf->aws_instance_role)
        return take_role(a, env, e);
    const bool own = !str_empty(conf->aws_access_key_id);
    a->signer =
        signer_of(a, own ? conf->aws_access_key_id : of_environment("AWS_ACCESS_KEY_ID", NULL),
            own ? conf->aws_session_token : of_environment("AWS_SESSION_TOKEN", NULL));
    *secret = own ? conf->aws_secret_access_key : of_environment("AWS_SECRET_ACCESS_KEY", NULL);
    if (a->signer.key_id[0] == '\0' || (*secret)[0] == '\0')
        return err_set(e, ERR_INVALID,
            "[aws] access_key_id and secret_access_key are not set, and instance_role is off");
    return 0;
}

int aws_connect(
    struct aws *a, const struct fleet_ops *ops, const struct provisioner_env *env, struct err *e)
{
    const char *secret = "";
    char url[URL_SIZE];
    a->conf = env->conf;
    if (take_region(a, e) < 0 || take_keys(a, env, &secret, e) < 0)
        return -1;
    if (str_empty(env->conf->aws_url))
        (void)str_format(url, sizeof url, "https://ec2.%s.amazonaws.com", a->region);
    else
        (void)str_copy(url, sizeof url, env->conf->aws_url);
    if (!str_starts(url, "https://"))
        return err_set(e, ERR_INVALID, "[aws] url must begin with https://");
    fleet_init(&a->fleet, ops, env,
        &(struct fleet_options){ .url = url,
            .key = secret,
            .ca_file = env->conf->aws_ca_file,
            .auth = HTTP_AUTH_AWS,
            .aws = &a->signer });
    return 0;
}

void aws_disconnect(struct aws *a)
{
    fleet_fini(&a->fleet);
    aws_role_close(&a->role);
}

/* --- forms ------------------------------------------------------------------------------------ */

void aws_begin(struct buf *form, const char *action)
{
    buf_printf(form, "Action=%s&Version=" VERSION, action);
}

void aws_add(struct buf *form, const char *name, const char *value)
{
    if (str_empty(value))
        return;
    buf_printf(form, "&%s=", name);
    http_url_escape(form, value);
}

void aws_add_number(struct buf *form, const char *name, int64_t value)
{
    buf_printf(form, "&%s=%lld", name, (long long)value);
}

void aws_add_nth(struct buf *form, const char *name, size_t n, const char *value)
{
    buf_printf(form, "&%s.%zu=", name, n);
    http_url_escape(form, value);
}

void aws_add_filter(struct buf *form, size_t n, const char *name, json_object *values)
{
    buf_printf(form, "&Filter.%zu.Name=", n);
    http_url_escape(form, name);
    for (size_t i = 0; i < json_object_array_length(values); i++) {
        buf_printf(form, "&Filter.%zu.Value.%zu=", n, i + 1);
        http_url_escape(form, json_object_get_string(json_object_array_get_idx(values, i)));
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

static const char *code_of(json_object *answer)
{
    const char *code = "";
    (void)jx_get_str(jx_get(jx_get(answer, "Errors"), "Error"), "Code", &code);
    return code;
}

enum provision_error aws_error_of(int status, json_object *answer)
{
    static const struct {
        const char *code;
        enum provision_error error;
    } CODES[] = {
        { "InsufficientInstanceCapacity", PROVISION_ERROR_NO_CAPACITY },
        { "InsufficientHostCapacity", PROVISION_ERROR_NO_CAPACITY },
        { "InsufficientReservedInstanceCapacity", PROVISION_ERROR_NO_CAPACITY },
        { "InsufficientFreeAddressesInSubnet", PROVISION_ERROR_NO_CAPACITY },
        { "InstanceLimitExceeded", PROVISION_ERROR_NO_CAPACITY }, /* free once others have ended */
        { "VcpuLimitExceeded", PROVISION_ERROR_NO_CAPACITY },
        { "RequestLimitExceeded", PROVISION_ERROR_BUSY },
        { "Throttling", PROVISION_ERROR_BUSY },
        { "ThrottlingException", PROVISION_ERROR_BUSY },
        { "UnauthorizedOperation", PROVISION_ERROR_DENIED },
        { "AuthFailure", PROVISION_ERROR_DENIED },
        { "SignatureDoesNotMatch", PROVISION_ERROR_DENIED },
        { "InvalidClientTokenId", PROVISION_ERROR_DENIED },
        { "MissingAuthenticationToken", PROVISION_ERROR_DENIED },
        { "ExpiredToken", PROVISION_ERROR_DENIED },
        { "RequestExpired",
            PROVISION_ERROR_DENIED }, /* our clock is wrong, or temporary keys are over */
        { "OptInRequired", PROVISION_ERROR_DENIED },
        { "PendingVerification", PROVISION_ERROR_DENIED },
        /* Launched before, when the options were others: it is looked for, or released by its name. */
        { "IdempotentParameterMismatch", PROVISION_ERROR_UNAVAILABLE },
    };
    const char *code = code_of(answer);
    (void)status;
    for (size_t i = 0; i < sizeof CODES / sizeof CODES[0]; i++) {
        if (strcmp(code, CODES[i].code) == 0)
            return CODES[i].error;
    }
    return PROVISION_ERROR_NONE;
}

static int refresh(struct aws *a, int64_t deadline_ns, struct provision_note *note, struct err *e)
{
    if (a->role.http == NULL)
        return 0;
    const int rc = aws_role_refresh(&a->role, deadline_ns, note, e);
    if (rc == 1) {
        a->signer = signer_of(a, a->role.key_id, a->role.session_token);
        fleet_set_key(&a->fleet, a->role.secret);
    }
    return rc < 0 ? -1 : 0;
}

/* Not about what they may do. */
static bool is_about_keys(const char *code)
{
    static const char *const CODES[] = { "AuthFailure", "InvalidClientTokenId", "ExpiredToken",
        "RequestExpired" };
    for (size_t i = 0; i < sizeof CODES / sizeof CODES[0]; i++) {
        if (strcmp(code, CODES[i]) == 0)
            return true;
    }
    return false;
}

int aws_ask(struct aws *a, const struct aws_call *c, json_object **out, struct provision_note *note,
    struct err *e)
{
    cleanup_json json_object *refusal = NULL;
    const struct fleet_call call = {
        .method = "POST",
        .path = "",
        .form = c->form->data,
        .deadline_ns = c->deadline_ns,
        .launch = c->launch,
        .refusal = &refusal,
    };
    if (c->code != NULL)
        c->code[0] = '\0';
    if (c->form->overflow)
        return err_set(e, ERR_INVALID, "the request is longer than %d bytes", AWS_FORM_MAX);
    if (refresh(a, c->deadline_ns, note, e) < 0)
        return -1;
    if (fleet_ask(&a->fleet, &call, out, note, e) == 0)
        return *out == NULL ? fleet_nonsense(note, e, "the answer is empty") : 0;
    if (is_about_keys(code_of(refusal)))
        aws_role_forget(&a->role);
    if (c->code != NULL)
        (void)str_copy(c->code, AWS_CODE_SIZE, code_of(refusal));
    return -1;
}

int aws_ask_pages(
    struct aws *a, const struct aws_pages *p, struct provision_note *note, struct err *e)
{
    const size_t first = p->form->len;
    const struct aws_call c = { .form = p->form, .deadline_ns = p->deadline_ns, .code = p->code };
    for (;;) {
        cleanup_json json_object *o = NULL;
        const char *next = "";
        if (aws_ask(a, &c, &o, note, e) < 0)
            return -1;
        p->each(o, p->ctx);
        (void)jx_get_str(o, "nextToken", &next);
        if (next[0] == '\0')
            return 0;
        p->form->len = first;
        p->form->data[first] = '\0';
        aws_add(p->form, "NextToken", next);
    }
}
