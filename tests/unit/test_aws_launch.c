/* SPDX-License-Identifier: Apache-2.0
 * The provisioner aws against a double of EC2's Query API: what is launched, and that a repeat never doubles (jobs
 * contract, section 5). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "json/jx.h"
#include "tests/fake/json_of.h"
#include "tests/fake/provider_scene.h"

static int calls(struct provider_scene *s)
{
    return child_server_requests(&s->server, "POST", "/RunInstances");
}

static int launched(struct provider_scene *s)
{
    return (int)child_server_number(&s->server, "launched");
}

/* A field of the last launch; the caller's, "" when it has none. */
static char *field(struct provider_scene *s, const char *name)
{
    cleanup_free char *body = child_server_body(&s->server, "POST", "/RunInstances");
    cleanup_json json_object *o = json_of(body);
    const char *text = "";
    (void)jx_get_str(o, name, &text);
    return strdup(text);
}

static void field_is(struct provider_scene *s, const char *name, const char *value)
{
    cleanup_free char *text = field(s, name);
    if (strcmp(text, value) != 0)
        fail_msg("%s is %s, not %s", name, text, value);
}

/* --- what is asked for ------------------------------------------------------------------------ */

static void an_instance_is_asked_for_as_the_options_say(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.aws_key_name, "ci");
    scene_set(&s->conf.aws_security_group_ids, "sg-1, sg-2");
    scene_set(&s->conf.aws_instance_profile, "arn:aws:iam::1:instance-profile/x");
    scene_set(&s->conf.aws_launch_template, "lt-0abc");
    scene_set(&s->conf.aws_subnet_ids, "subnet-a,subnet-b");
    scene_set(&s->conf.aws_user_data, "#!/bin/sh\necho \xC3\xA4 & more=+/%\n");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    field_is(s, "InstanceType", "g4dn.xlarge"); /* the smallest with one T4 */
    field_is(s, "ImageId", "ami-0123456789abcdef0");
    field_is(s, "KeyName", "ci");
    field_is(s, "SecurityGroupId.1", "sg-1");
    field_is(s, "SecurityGroupId.2", "sg-2");
    field_is(s, "IamInstanceProfile.Arn", "arn:aws:iam::1:instance-profile/x");
    field_is(s, "LaunchTemplate.LaunchTemplateId", "lt-0abc");
    field_is(s, "SubnetId", "subnet-a");
    field_is(s, "UserData", "IyEvYmluL3NoCmVjaG8gw6QgJiBtb3JlPSsvJQo=");
    field_is(s, "InstanceInitiatedShutdownBehavior", "terminate");
    field_is(s, "TagSpecification.1.ResourceType", "instance");
    field_is(s, "TagSpecification.1.Tag.1.Key", "Name");
    field_is(s, "TagSpecification.1.Tag.1.Value", SCENE_NAME);
    field_is(s, "TagSpecification.1.Tag.2.Key", "weighbridge:cluster");
    field_is(s, "TagSpecification.1.Tag.2.Value", "c1");
    field_is(s, "TagSpecification.1.Tag.3.Key", "weighbridge:replica");
    field_is(s, "TagSpecification.1.Tag.3.Value", "0");
    assert_string_equal(s->result.region, "eu-test-1");
}

static void a_template_alone_will_do(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.aws_image_id, "");
    scene_set(&s->conf.aws_launch_template, "gpu");
    scene_set(&s->conf.aws_instance_profile, "engine");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    field_is(s, "LaunchTemplate.LaunchTemplateName", "gpu");
    field_is(s, "IamInstanceProfile.Name", "engine");
    field_is(s, "ImageId", "");
    field_is(s, "SubnetId", "");
}

static void the_type_is_the_smallest_with_these_gpus(void **state)
{
    static const struct {
        const char *gpu;
        int n;
        const char *type;
    } CASES[] = {
        { "A100", 8, "p4d.24xlarge" }, { "A100-80GB", 8, "p4de.24xlarge" },
        { "L4", 4, "g6.12xlarge" },
        { "L4-24GB", 1, "g6.xlarge" }, /* EC2 says 22888 MiB, which contradicts nothing */
        { "A10G", 1, "g5.xlarge" }, { "", 0, "g4dn.xlarge" }, /* one GPU of any kind */
    };
    struct provider_scene *s = *state;
    scene_order(s, "{'page':2}"); /* the types come in pages */
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char name[PROVISION_NAME_SIZE];
        (void)str_format(name, sizeof name, "wb-c1-" SCENE_JOB "-%zu", i);
        s->request.name = name;
        scene_want(s, 1, CASES[i].n, CASES[i].gpu);
        scene_provision_ok(s, PROVISION_PROVISIONING);
        assert_string_equal(s->result.machine[0].type, CASES[i].type);
    }
}

static void the_order_of_the_options_goes_first(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.aws_instance_types, "g4dn.2xlarge, g4dn.xlarge");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.machine[0].type, "g4dn.2xlarge");
    scene_want(s, 1, 1, "L4"); /* not among them */
    s->request.name = "wb-c1-" SCENE_JOB "-2";
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_GPU_TYPE, "1 x \"L4\"");
}

static void what_there_is_not_ends_the_job(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 2, "T4");
    scene_failed(
        s, scene_provision(s), PROVISION_ERROR_NO_GPU_TYPE, "no instance type with 2 x \"T4\"");
    assert_false(s->note.may_exist);
    (void)str_copy(s->spec.region, sizeof s->spec.region, "us-east-1");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_REFUSED, "is not eu-test-1");
    assert_int_equal(calls(s), 0);
}

/* --- where there is room ---------------------------------------------------------------------- */

static void the_next_subnet_is_tried(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.aws_subnet_ids, "a,b,c");
    scene_order(s, "{'capacity':{'g4dn.xlarge':{'b':0}},'unsupported':{'g4dn.xlarge':['a']}}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    field_is(s, "SubnetId", "c");
    assert_int_equal(calls(s), 3);
    assert_int_equal(launched(s), 1);
}

static void the_next_type_is_tried_for_the_first_alone(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'capacity':{'g4dn.xlarge':{'':0}}}");
    scene_want(s, 2, 1, "T4");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.machine[0].type, "g4dn.2xlarge");
    assert_string_equal(s->result.machine[1].type, "g4dn.2xlarge");
    assert_int_equal(calls(s), 3);
}

/* All replicas are of one type. */
static void half_a_provision_is_told_and_released(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'capacity':{'g4dn.xlarge':{'':1}}}");
    scene_want(s, 2, 1, "T4");
    scene_failed(
        s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "InsufficientInstanceCapacity");
    assert_true(s->note.may_exist);
    assert_int_equal(scene_alive(s), 1);
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(scene_alive(s), 0);
}

static void room_nowhere_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.aws_subnet_ids, "a,b");
    scene_order(s, "{'capacity':{'g4dn.xlarge':{'a':0},'g4dn.2xlarge':{'a':0}},"
                   "'unsupported':{'g4dn.xlarge':['b'],'g4dn.2xlarge':['b']}}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "");
    assert_false(s->note.may_exist);
    assert_false(s->note.unsure);
    assert_int_equal(calls(s), 4);
    scene_order(s, "{'unsupported':{'g4dn.xlarge':['a','b'],'g4dn.2xlarge':['a','b']}}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_REFUSED, "Unsupported"); /* never */
}

/* --- repeats ---------------------------------------------------------------------------------- */

static void a_repeat_adopts_what_is_there(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'stuck':true}");
    scene_want(s, 3, 1, "T4");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(calls(s), 3);
    assert_int_equal(scene_alive(s), 3);
}

/* As after a crash right after the launches: none of them is listed yet, and all are asked for again. */
static void a_repeat_that_sees_nothing_yet_doubles_nothing(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 3, 1, "T4");
    scene_order(s, "{'delay_visible':2}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(calls(s), 6);
    assert_int_equal(launched(s), 3);
    assert_int_equal(s->result.n, 3);
}

static void only_the_missing_replica_is_launched(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "','replica':0}}");
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "','replica':2,'type_name':'g4dn.2xlarge'}}");
    scene_want(s, 3, 1, "T4");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    field_is(s, "TagSpecification.1.Tag.3.Value", "1");
    field_is(s, "InstanceType", "g4dn.xlarge"); /* of the kind that is there */
    assert_int_equal(calls(s), 1);
}

static void a_lost_answer_is_asked_for_by_the_same_token(void **state)
{
    static const char *const FAULTS[] = { "'do':'drop_after'", "'do':'drop'",
        "'do':'status_after','status':500", "'do':'status','status':503" };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof FAULTS / sizeof FAULTS[0]; i++) {
        char order[128];
        char name[PROVISION_NAME_SIZE];
        (void)str_format(name, sizeof name, "wb-c1-" SCENE_JOB "-%zu", i);
        (void)str_format(
            order, sizeof order, "{'faults':[{'match':'.*RunInstances',%s}]}", FAULTS[i]);
        scene_order(s, order);
        s->request.name = name;
        scene_provision_ok(s, PROVISION_PROVISIONING);
        assert_false(s->note.unsure);
        assert_int_equal(launched(s), i + 1);
        assert_int_equal(calls(s), 2 * (i + 1));
    }
}

static void answers_lost_again_and_again_are_unsure(void **state)
{
    struct provider_scene *s = *state;
    scene_order(
        s, "{'delay_visible':2,'faults':[{'match':'.*RunInstances','do':'drop_after','times':2}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "");
    assert_true(s->note.unsure);
    assert_true(s->note.may_exist);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(launched(s), 1);
}

/* Refused the second time, nothing is known of the first: whoever gives up must release the name. */
static void a_refusal_after_a_lost_answer_is_unsure_still(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'delay_visible':9,'faults':[{'match':'.*RunInstances','do':'drop_after'},"
                   "{'match':'.*RunInstances','do':'status','status':403}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "403");
    assert_true(s->note.unsure);
    assert_true(s->note.may_exist);
}

/* The options changed between a launch and its repeat, and the instance is not listed yet. */
static void other_options_do_not_make_another_instance(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'delay_visible':3}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_set(&s->conf.aws_image_id, "ami-0fedcba9876543210");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "IdempotentParameterMismatch");
    assert_true(provision_error_retryable(s->note.error));
    assert_true(s->note.may_exist);
    assert_int_equal(launched(s), 1);
    assert_int_equal(scene_provision(s), 0); /* it is found where it was launched */
    assert_int_equal(launched(s), 1);
    assert_int_equal(scene_alive(s), 1);
}

static void a_limit_in_the_middle_is_waited_out(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "T4");
    scene_order(s,
        "{'stuck':true,'faults':[{'match':'.*RunInstances','skip':1,'do':'status','status':503,'text':"
        "'<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>'}]}");
    assert_int_equal(scene_provision(s), 1);
    assert_int_equal(scene_alive(s), 1);
    assert_false(s->note.unsure);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(launched(s), 2);
}

static void too_many_are_given_back(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "'}}");
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "'}}");
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "','cluster':'c2'}}"); /* another's */
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(scene_alive(s), 2);
    assert_int_equal(calls(s), 0);
}

static void one_that_is_there_already_is_no_new_one(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "','replica':1}}");
    scene_want(s, 2, 1, "T4");
    scene_order(s,
        "{'faults':[{'match':'.*RunInstances','do':'status','status':200,'text':'<R><instancesSet><item>"
        "<instanceId>i-00000000000000001</instanceId></item></instancesSet></R>'}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NONSENSE, "was there already");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, scene_aws, scene_teardown)
        SCENE(an_instance_is_asked_for_as_the_options_say),
        SCENE(a_template_alone_will_do),
        SCENE(the_type_is_the_smallest_with_these_gpus),
        SCENE(the_order_of_the_options_goes_first),
        SCENE(what_there_is_not_ends_the_job),
        SCENE(the_next_subnet_is_tried),
        SCENE(the_next_type_is_tried_for_the_first_alone),
        SCENE(half_a_provision_is_told_and_released),
        SCENE(room_nowhere_is_for_later),
        SCENE(a_repeat_adopts_what_is_there),
        SCENE(a_repeat_that_sees_nothing_yet_doubles_nothing),
        SCENE(only_the_missing_replica_is_launched),
        SCENE(a_lost_answer_is_asked_for_by_the_same_token),
        SCENE(answers_lost_again_and_again_are_unsure),
        SCENE(a_refusal_after_a_lost_answer_is_unsure_still),
        SCENE(other_options_do_not_make_another_instance),
        SCENE(a_limit_in_the_middle_is_waited_out),
        SCENE(too_many_are_given_back),
        SCENE(one_that_is_there_already_is_no_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
