/* SPDX-License-Identifier: Apache-2.0
 * AWS EC2. A replica is an instance, found by its tags; a launch carries a client token that is made of what is asked
 * for, so that a repeat gets the same instance and never a second one. What was just launched may be unknown for a
 * while: EC2 is consistent eventually. Facts: the EC2 API reference, "Ensuring idempotency" and "Eventual consistency". */
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "provision/aws_api.h"
#include "provision/aws_read.h"
#include "provision/aws_types.h"
#include "provision/builtin.h"

/* How long a new instance may be unknown; how soon an end that found it unknown is tried again; a try of a launch is
 * not begun with less time than this left. */
enum { UNKNOWN_S = 300, AGAIN_MS = 2000, TRY_MS = 5000, PAGE = 200, TOKEN_MAX = 512 };

static struct aws_reading reading(const struct aws *a)
{
    return (struct aws_reading){ .region = a->region,
        .ssh_user = a->conf->aws_ssh_user,
        .private_address = a->conf->aws_private_address };
}

/* --- looking ---------------------------------------------------------------------------------- */

struct found {
    struct aws_reading how;
    struct fleet_machines *machines;
};

static void take_page(json_object *answer, void *ctx)
{
    struct found *found = ctx;
    aws_read_reservations(answer, &found->how, found->machines);
}

static int list(struct fleet *f, const char *name, int64_t deadline_ns, struct fleet_machines *out,
    struct provision_note *note, struct err *e)
{
    struct aws *a = (struct aws *)f;
    cleanup_buf struct buf form = BUF_INIT(AWS_FORM_MAX);
    cleanup_json json_object *cluster = fleet_words(f->cluster);
    cleanup_json json_object *names = fleet_words(name == NULL ? "" : name);
    struct found found = { .how = reading(a), .machines = out };
    const struct aws_pages p = {
        .form = &form, .deadline_ns = deadline_ns, .each = take_page, .ctx = &found
    };
    aws_begin(&form, "DescribeInstances");
    aws_add_filter(&form, 1, "tag:" AWS_TAG_CLUSTER, cluster);
    if (name != NULL)
        aws_add_filter(&form, 2, "tag:Name", names);
    aws_add_number(&form, "MaxResults", PAGE);
    return aws_ask_pages(a, &p, note, e);
}

/* Unknown: just launched and not known everywhere, or gone for an hour. */
static int unknown(struct fleet_machine *m)
{
    if (aws_age_s(m->launched, clock_wall_us()) > UNKNOWN_S)
        return 1;
    m->state = FLEET_STARTING;
    return 0;
}

static int look(struct fleet *f, const char *id, int64_t deadline_ns, struct fleet_machine *out,
    struct provision_note *note, struct err *e)
{
    struct aws *a = (struct aws *)f;
    cleanup_buf struct buf form = BUF_INIT(AWS_FORM_MAX);
    cleanup_fleet struct fleet_machines l = FLEET_MACHINES_INIT;
    struct found found = { .how = reading(a), .machines = &l };
    char code[AWS_CODE_SIZE];
    const struct aws_pages p = {
        .form = &form, .deadline_ns = deadline_ns, .code = code, .each = take_page, .ctx = &found
    };
    aws_begin(&form, "DescribeInstances");
    aws_add_nth(&form, "InstanceId", 1, id);
    if (aws_ask_pages(a, &p, note, e) < 0)
        return strcmp(code, "InvalidInstanceID.NotFound") == 0 ? unknown(out) : -1;
    if (l.n == 0)
        return unknown(out);
    if (strcmp(l.at[0].m.id, id) != 0)
        return fleet_nonsense(note, e, "the answer is about another instance");
    *out = l.at[0];
    return 0;
}

/* --- launching -------------------------------------------------------------------------------- */

/* One try: of which type, in which subnet ("": the default one). */
struct attempt {
    const struct provision_request *r;
    int replica;
    const char *type;
    const char *subnet;
    char code[AWS_CODE_SIZE]; /* of the error */
    struct err full;          /* what the last place without room said; ERR_OK: there was none */
};

/* EC2 takes 64 characters: a digest. Type and subnet are part of it, as what failed for capacity in one place is another
 * request in the next. */
static void add_token(struct buf *form, const struct attempt *t)
{
    cleanup_buf struct buf key = BUF_INIT(TOKEN_MAX);
    char token[DIGEST_HEX_SIZE];
    buf_printf(&key, "%s %d %s %s", t->r->name, t->replica, t->type, t->subnet);
    digest_hex(key.data, key.len, token);
    aws_add(form, "ClientToken", token);
}

static void add_tag(struct buf *form, size_t n, const char *key, const char *value)
{
    buf_printf(form, "&TagSpecification.1.Tag.%zu.Key=", n);
    http_url_escape(form, key);
    buf_printf(form, "&TagSpecification.1.Tag.%zu.Value=", n);
    http_url_escape(form, value);
}

static void add_tags(const struct aws *a, struct buf *form, const struct attempt *t)
{
    char replica[16];
    (void)str_format(replica, sizeof replica, "%d", t->replica);
    aws_add(form, "TagSpecification.1.ResourceType", "instance");
    add_tag(form, 1, "Name", t->r->name);
    add_tag(form, 2, AWS_TAG_CLUSTER, a->fleet.cluster);
    add_tag(form, 3, AWS_TAG_REPLICA, replica);
}

static void add_options(const struct conf *conf, struct buf *form)
{
    cleanup_json json_object *groups = fleet_words(conf->aws_security_group_ids);
    const char *template = conf->aws_launch_template;
    const char *profile = conf->aws_instance_profile;
    aws_add(form,
        str_starts(template, "lt-") ? "LaunchTemplate.LaunchTemplateId"
                                    : "LaunchTemplate.LaunchTemplateName",
        template);
    aws_add(form, "ImageId", conf->aws_image_id);
    aws_add(form, "KeyName", conf->aws_key_name);
    aws_add(form,
        str_starts(profile, "arn:") ? "IamInstanceProfile.Arn" : "IamInstanceProfile.Name",
        profile);
    for (size_t i = 0; i < json_object_array_length(groups); i++)
        aws_add_nth(form, "SecurityGroupId", i + 1,
            json_object_get_string(json_object_array_get_idx(groups, i)));
    if (!str_empty(conf->aws_user_data)) {
        cleanup_free char *text = fleet_base64(conf->aws_user_data, strlen(conf->aws_user_data));
        aws_add(form, "UserData", text);
    }
}

static int run_once(struct aws *a, struct attempt *t, struct fleet_machine *out,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf form = BUF_INIT(AWS_FORM_MAX);
    cleanup_json json_object *o = NULL;
    const struct aws_reading how = reading(a);
    const struct aws_call c = {
        .form = &form, .deadline_ns = t->r->deadline_ns, .launch = true, .code = t->code
    };
    struct fleet_machine m = { .name = "" };
    aws_begin(&form, "RunInstances");
    aws_add_number(&form, "MinCount", 1);
    aws_add_number(&form, "MaxCount", 1);
    aws_add(&form, "InstanceType", t->type);
    aws_add(&form, "InstanceInitiatedShutdownBehavior", "terminate");
    aws_add(&form, "SubnetId", t->subnet);
    add_token(&form, t);
    add_tags(a, &form, t);
    add_options(a->conf, &form);
    if (aws_ask(a, &c, &o, note, e) < 0)
        return -1;
    json_object *set = jx_get(o, "instancesSet");
    if (json_object_is_type(set, json_type_array) && json_object_array_length(set) == 1)
        aws_read_instance(json_object_array_get_idx(set, 0), &how, &m);
    if (m.m.id[0] == '\0') {
        note->unsure = true;
        return fleet_nonsense(note, e, "the answer names no new instance");
    }
    (void)str_copy(m.name, sizeof m.name, t->r->name);
    m.replica = t->replica;
    *out = m;
    return 0;
}

/* A lost answer is asked for once more, by the same token. */
static int run(struct aws *a, struct attempt *t, struct fleet_machine *out,
    struct provision_note *note, struct err *e)
{
    int result = run_once(a, t, out, note, e);
    if (result == 0 || !note->unsure || strcmp(t->code, "IdempotentParameterMismatch") == 0 ||
        note->error == PROVISION_ERROR_STOPPED || clock_left_ms(t->r->deadline_ns) < TRY_MS)
        return result;
    note->unsure = false;
    result = run_once(a, t, out, note, e);
    note->unsure |= result < 0; /* of the first, nothing is known still */
    return result;
}

/* In each subnet until one has room. 0, 1 none of them has, -1. */
static int run_anywhere(struct aws *a, struct attempt *t, struct fleet_machine *out,
    struct provision_note *note, struct err *e)
{
    cleanup_json json_object *subnets = fleet_words(a->conf->aws_subnet_ids);
    const size_t n = json_object_array_length(subnets);
    for (size_t i = 0; i < n || i == 0; i++) {
        t->subnet = n == 0 ? "" : json_object_get_string(json_object_array_get_idx(subnets, i));
        if (i > 0 && clock_left_ms(t->r->deadline_ns) < TRY_MS)
            break;
        if (run(a, t, out, note, e) == 0)
            return 0;
        if (note->error == PROVISION_ERROR_NO_CAPACITY && e != NULL)
            t->full = *e;
        /* A zone that does not have the type at all says Unsupported. */
        if (note->error != PROVISION_ERROR_NO_CAPACITY && strcmp(t->code, "Unsupported") != 0)
            return -1;
    }
    return 1;
}

static int launch(struct fleet *f, const struct provision_request *r, struct fleet_choice *choice,
    struct fleet_machine *out, struct provision_note *note, struct err *e)
{
    struct aws *a = (struct aws *)f;
    cleanup_json json_object *others = fleet_words(choice->others);
    const size_t n = json_object_array_length(others);
    struct attempt t = { .r = r, .replica = out->replica, .type = choice->type };
    for (size_t i = 0; i <= n; i++) {
        if (i > 0)
            t.type = json_object_get_string(json_object_array_get_idx(others, i - 1));
        if (i > 0 && clock_left_ms(r->deadline_ns) < TRY_MS)
            break;
        const int result = run_anywhere(a, &t, out, note, e);
        if (result < 0)
            return -1;
        if (result == 0) {
            (void)str_copy(choice->type, sizeof choice->type, t.type);
            choice->others[0] = '\0';
            return 0;
        }
    }
    if (t.full.code == ERR_OK)
        return -1;
    note->error = PROVISION_ERROR_NO_CAPACITY;
    return err_set(e, t.full.code, "%s", t.full.msg);
}

/* --- ending ----------------------------------------------------------------------------------- */

/* 0, 1 one of them is unknown, which spoils the call for all, -1. */
static int terminate(struct aws *a, const struct fleet_machines *l, int64_t deadline_ns,
    struct provision_note *note, struct err *e)
{
    cleanup_buf struct buf form = BUF_INIT(AWS_FORM_MAX);
    cleanup_json json_object *o = NULL;
    char code[AWS_CODE_SIZE];
    const struct aws_call c = { .form = &form, .deadline_ns = deadline_ns, .code = code };
    aws_begin(&form, "TerminateInstances");
    for (size_t i = 0; i < l->n; i++)
        aws_add_nth(&form, "InstanceId", i + 1, l->at[i].m.id);
    if (aws_ask(a, &c, &o, note, e) == 0)
        return 0;
    return strcmp(code, "InvalidInstanceID.NotFound") == 0 ? 1 : -1;
}

/* They have just been listed: what is unknown now is known in a moment. */
static int end(struct fleet *f, const struct fleet_machines *l, int64_t deadline_ns,
    struct provision_note *note, struct err *e)
{
    struct aws *a = (struct aws *)f;
    int result = terminate(a, l, deadline_ns, note, e);
    if (result != 1)
        return result;
    for (size_t i = 0; i < l->n && l->n > 1; i++) {
        const struct fleet_machines one = { .at = &l->at[i], .n = 1 };
        if (terminate(a, &one, deadline_ns, note, e) < 0)
            return -1;
    }
    note->again_ms = AGAIN_MS;
    return 1;
}

/* --- results ---------------------------------------------------------------------------------- */

static json_object *details(const struct provision_spec *spec, const struct fleet_machines *l)
{
    json_object *instances = jx_array();
    json_object *aws = jx_object();
    json_object *o = jx_object();
    (void)spec;
    for (size_t i = 0; i < l->n; i++)
        jx_add(instances, fleet_instance(&l->at[i]));
    jx_set(aws, "instances", instances);
    jx_set_str(aws, "region", l->n > 0 ? l->at[0].region : "");
    jx_set(o, "aws", aws);
    return o;
}

static json_object *machines_of(json_object *o)
{
    return jx_get(jx_get(o, "aws"), "instances");
}

/* --- the type --------------------------------------------------------------------------------- */

static const struct fleet_ops FLEET = {
    .list = list,
    .choose = aws_choose,
    .launch = launch,
    .look = look,
    .end = end,
    .details = details,
    .machines_of = machines_of,
    .id_key = "instanceId",
    .error_of = aws_error_of,
};

static void close_aws(struct provisioner *p)
{
    struct aws *a = (struct aws *)p;
    aws_disconnect(a);
    free(a);
}

static int open_aws(const struct provisioner_env *env, struct provisioner **out, struct err *e)
{
    if (str_empty(env->conf->aws_launch_template) && str_empty(env->conf->aws_image_id))
        return err_set(e, ERR_INVALID, "[aws] neither launch_template nor image_id is set");
    struct aws *a = mem_kept(mem_calloc(1, sizeof *a));
    if (aws_connect(a, &FLEET, env, e) < 0) {
        close_aws(&a->fleet.base);
        return -1;
    }
    *out = &a->fleet.base;
    return 0;
}

static int build_runtime(
    const struct hook_job *job, const struct provision_result *r, json_object **out, struct err *e)
{
    return hook_runtime_ssh("External", job, r, out, e);
}

const struct provisioner_ops PROVISIONER_AWS = {
    .type = "aws",
    .ready_s = 600,
    .late = true,
    .open = open_aws,
    .close = close_aws,
    .provision = fleet_provision,
    .status = fleet_status,
    .list = fleet_list,
    .release = fleet_release,
    .catalog = aws_catalog,
    .hooks = { .build_runtime = build_runtime },
};
