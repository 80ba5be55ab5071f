/* SPDX-License-Identifier: Apache-2.0
 * The provisioner aws against a double of EC2's Query API: how instances stand, giving them back, signatures, errors,
 * the catalog (jobs contract, section 5). What is launched is in test_aws_launch.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "json/jx.h"
#include "tests/fake/json_of.h"
#include "tests/fake/provider_scene.h"

static void status_is(struct provider_scene *s, enum provision_status status)
{
    if (scene_status(s) != 0)
        fail_msg("%s", s->e.msg);
    assert_string_equal(provision_status_name(s->result.status), provision_status_name(status));
}

/* --- how they stand --------------------------------------------------------------------------- */

static void instances_become_usable(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "T4");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
    const struct machine *m = &s->result.machine[1];
    assert_string_equal(m->host, "192.0.2.2");
    assert_string_equal(m->private_host, "10.0.0.2");
    assert_string_equal(m->ssh_user, "ubuntu");
    assert_int_equal(m->ssh_port, 22);
    assert_string_equal(m->url, "http://192.0.2.2:8000");
    cleanup_json json_object *details = json_of(s->result.details);
    json_object *aws = jx_get(details, "aws");
    const char *text = "";
    assert_true(jx_get_str(aws, "region", &text));
    assert_string_equal(text, "eu-test-1");
    json_object *second = json_object_array_get_idx(jx_get(aws, "instances"), 1);
    assert_true(jx_get_str(second, "instanceId", &text));
    assert_string_equal(text, "i-00000000000000002");
    assert_true(jx_get_str(second, "launchTime", &text));
    assert_int_equal(strlen(text), strlen("2026-01-01T00:00:00.000Z"));
}

static void the_private_address_is_taken_where_it_should_be(void **state)
{
    struct provider_scene *s = *state;
    s->conf.aws_private_address = true;
    scene_set(&s->conf.aws_ssh_user, "ec2-user");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
    assert_string_equal(s->result.machine[0].host, "10.0.0.1");
    assert_string_equal(s->result.machine[0].ssh_user, "ec2-user");
    s->conf.aws_private_address = false;
    scene_order(s, "{'public':false}"); /* a subnet without public addresses */
    status_is(s, PROVISION_RUNNING);
    assert_string_equal(s->result.machine[0].host, "10.0.0.1");
}

static void words_of_states_are_understood(void **state)
{
    static const struct {
        const char *word;
        enum provision_status status;
    } CASES[] = {
        { "pending", PROVISION_PROVISIONING },
        { "running", PROVISION_RUNNING },
        { "rebooting", PROVISION_PROVISIONING }, /* not known to us */
        { "stopping", PROVISION_FAILED },
        { "stopped", PROVISION_FAILED },
        { "shutting-down", PROVISION_RELEASED },
        { "terminated", PROVISION_RELEASED },
    };
    struct provider_scene *s = *state;
    scene_order(s, "{'stuck':true}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char order[96];
        (void)str_format(order, sizeof order, "{'state':{'%%s':'%s'}}", CASES[i].word);
        scene_order_machine(s, 0, order);
        status_is(s, CASES[i].status);
    }
}

/* A launch that was accepted may end for want of capacity a moment later: no fault of the job. */
static void capacity_may_be_found_wanting_after_the_launch(void **state)
{
    struct provider_scene *s = *state;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order_machine(s, 0,
        "{'state':{'%s':'terminated'},'reason':{'i-00000000000000001':'Server.InsufficientInstanceCapacity'}}");
    scene_failed(s, scene_status(s), PROVISION_ERROR_NO_CAPACITY, "i-00000000000000001");
    scene_order(s, "{'reason':{'i-00000000000000001':'Client.UserInitiatedShutdown'}}");
    status_is(s, PROVISION_RELEASED);
}

/* Eventual consistency: what was just launched is unknown for a while, in lists and by its id. */
static void a_new_instance_may_be_unknown_and_is_not_gone(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'delay_visible':5}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    status_is(s, PROVISION_PROVISIONING);
    status_is(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
}

static void two_running_for(struct provider_scene *s, const char *age)
{
    scene_want(s, 2, 1, "T4");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, age);
    scene_await(s, PROVISION_RUNNING);
}

static void an_old_instance_that_is_unknown_is_gone(void **state)
{
    struct provider_scene *s = *state;
    two_running_for(s, "{'age':280}");
    scene_order_machine(s, 0, "{'vanish':['%s']}");
    status_is(s, PROVISION_PROVISIONING); /* it may turn up again */
    s->request.name = "wb-c1-" SCENE_JOB "-2";
    two_running_for(s, "{'age':310}");
    scene_order_machine(s, 0, "{'vanish':['%s']}");
    status_is(s, PROVISION_FAILED);
    scene_order_machine(s, 1, "{'vanish':['%s']}");
    status_is(s, PROVISION_RELEASED);
}

/* --- ours, and giving back -------------------------------------------------------------------- */

static void ours_are_listed_page_by_page(void **state)
{
    struct provider_scene *s = *state;
    cleanup_provision_list struct provision_list l = PROVISION_LIST_INIT;
    for (int i = 0; i < 5; i++)
        scene_order(s, "{'launch':{'name':'" SCENE_NAME "','replica':1}}");
    scene_order(s, "{'launch':{'name':'wb-c1-" SCENE_JOB "-2'}}");
    scene_order(s, "{'launch':{'name':'renamed'}}"); /* to be kept */
    scene_order(s, "{'launch':{'name':'wb-c2-" SCENE_JOB "-2','cluster':'c2'},'page':2}");
    assert_int_equal(provisioner_list(s->p, &l, &s->note, &s->e), 0);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.seen[0].name, SCENE_NAME);
    assert_int_equal(l.seen[0].machines, 5);
    assert_int_equal(child_server_requests(&s->server, "POST", "/DescribeInstances"), 4);
}

static void all_of_a_name_are_given_back(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "T4");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, "{'launch':{'name':'wb-c1-" SCENE_JOB "-2'}}");
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(scene_alive(s), 1);
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(child_server_requests(&s->server, "POST", "/TerminateInstances"), 1);
}

/* Listed by one server and unknown to the next: not gone, told to end in a moment. */
static void what_is_unknown_at_its_end_is_tried_again(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "T4");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s,
        "{'faults':[{'match':'.*TerminateInstances','times':2,'do':'status','status':400,'text':"
        "'<Response><Errors><Error><Code>InvalidInstanceID.NotFound</Code></Error></Errors></Response>'}]}");
    assert_int_equal(scene_release(s), 1);
    assert_true(s->note.may_exist);
    assert_int_equal(s->note.again_ms, 2000);
    assert_int_equal(scene_alive(s), 1); /* one that is unknown does not keep the others */
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(scene_alive(s), 0);
}

static void a_release_that_is_refused_says_so(void **state)
{
    struct provider_scene *s = *state;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, "{'deny':['TerminateInstances']}");
    scene_failed(s, scene_release(s), PROVISION_ERROR_DENIED, "UnauthorizedOperation");
    assert_true(s->note.may_exist);
}

/* --- signatures ------------------------------------------------------------------------------- */

static void again(struct provider_scene *s)
{
    provisioner_close(s->p);
    scene_start(s, "aws");
}

static void wrong_keys_are_denied_and_not_told(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.aws_secret_access_key, "another-secret");
    again(s);
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "403 SignatureDoesNotMatch");
    assert_null(strstr(s->e.msg, "another-secret"));
    assert_false(provision_error_retryable(s->note.error));
    scene_set(&s->conf.aws_secret_access_key, SCENE_KEY);
    scene_set(&s->conf.aws_access_key_id, "AKIAOTHER");
    again(s);
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "401 AuthFailure");
    scene_set(&s->conf.aws_access_key_id, "AKIATEST");
    scene_set(&s->conf.aws_region, "us-east-1");
    again(s);
    scene_failed(
        s, scene_provision(s), PROVISION_ERROR_DENIED, "should be scoped to a valid region");
}

static void a_wrong_clock_is_told(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'clock':400}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "400 RequestExpired");
    scene_order(s, "{'clock':-200}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
}

static void temporary_keys_have_a_token(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'token':'session/token+=='}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "AuthFailure");
    scene_set(&s->conf.aws_session_token, "session/token+==");
    again(s);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s,
        "{'faults':[{'match':'.*','do':'status','status':400,'text':"
        "'<Response><Errors><Error><Code>X</Code><Message>token session/token+== is bad</Message></Error></Errors></Response>'}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_REFUSED, "X: token *** is bad");
}

static void keys_may_come_from_the_environment(void **state)
{
    static const char *const NAMES[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION" };
    struct provider_scene *s = *state;
    (void)setenv("AWS_ACCESS_KEY_ID", "AKIATEST", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", SCENE_KEY, 1);
    (void)setenv("AWS_SESSION_TOKEN", "t", 1);
    (void)setenv("AWS_DEFAULT_REGION", "eu-test-1", 1);
    scene_set(&s->conf.aws_access_key_id, "");
    scene_set(&s->conf.aws_secret_access_key, "");
    scene_set(&s->conf.aws_region, "");
    scene_order(s, "{'token':'t'}");
    again(s);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        (void)unsetenv(NAMES[i]);
}

/* --- errors ----------------------------------------------------------------------------------- */

static void errors_are_told_apart(void **state)
{
    static const struct {
        int status;
        const char *code;
        enum provision_error error;
    } CASES[] = {
        { 503, "RequestLimitExceeded", PROVISION_ERROR_BUSY },
        { 400, "Throttling", PROVISION_ERROR_BUSY },
        { 403, "UnauthorizedOperation", PROVISION_ERROR_DENIED },
        { 401, "AuthFailure", PROVISION_ERROR_DENIED },
        { 400, "RequestExpired", PROVISION_ERROR_DENIED },
        { 500, "InternalError", PROVISION_ERROR_UNAVAILABLE },
        { 503, "Unavailable", PROVISION_ERROR_UNAVAILABLE },
        { 400, "InvalidParameterValue", PROVISION_ERROR_REFUSED },
        { 400, "VcpuLimitExceeded", PROVISION_ERROR_NO_CAPACITY },
    };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char order[256];
        (void)str_format(order, sizeof order,
            "{'faults':[{'match':'.*DescribeInstances','do':'status','status':%d,'text':"
            "'<Response><Errors><Error><Code>%s</Code><Message>why</Message></Error></Errors></Response>'}]}",
            CASES[i].status, CASES[i].code);
        scene_order(s, order);
        scene_failed(s, scene_provision(s), CASES[i].error, CASES[i].code);
        assert_non_null(strstr(s->e.msg, ": why"));
        assert_true(s->note.may_exist); /* as it was not even looked */
    }
}

static void answers_that_make_no_sense_are_for_later(void **state)
{
    static const char *const TEXTS[] = { "what", "", "<R>", "{}", "<!DOCTYPE R><R/>" };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        char order[160];
        (void)str_format(order, sizeof order,
            "{'faults':[{'match':'.*DescribeInstances','do':'status','status':200,'text':'%s'}]}",
            TEXTS[i]);
        scene_order(s, order);
        scene_failed(s, scene_provision(s), PROVISION_ERROR_NONSENSE, "");
    }
    scene_order(s,
        "{'faults':[{'match':'.*RunInstances','do':'status','status':200,'text':'<R/>','times':2}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NONSENSE, "names no new instance");
    assert_true(s->note.unsure);
}

static void no_answer_in_time_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'faults':[{'match':'.*DescribeInstances','do':'hold','name':'g'}]}");
    s->request.deadline_ns = clock_deadline(300);
    scene_failed(s, scene_provision(s), PROVISION_ERROR_TIMEOUT, "");
    scene_order(s, "{'clear':true}");
}

/* --- the catalog, the runtime, opening -------------------------------------------------------- */

static void the_catalog_is_the_types_with_gpus(void **state)
{
    struct provider_scene *s = *state;
    cleanup_provision_catalog struct provision_catalog c = PROVISION_CATALOG_INIT;
    scene_order(s, "{'page':3}");
    assert_int_equal(provisioner_catalog(s->p, &c, &s->note, &s->e), 0);
    assert_int_equal(c.n, 9);
    assert_string_equal(c.offer[0].type, "g4dn.xlarge");
    assert_string_equal(c.offer[0].gpu_type, "NVIDIA T4 (16 GB)");
    assert_int_equal(c.offer[0].gpus, 1);
    assert_int_equal(c.offer[0].free, -1); /* EC2 does not tell */
    assert_false(c.offer[0].shared);
    assert_string_equal(c.offer[0].regions, "eu-test-1");
}

static void the_batch_service_gets_in_by_ssh(void **state)
{
    struct provider_scene *s = *state;
    const struct provision_hooks hooks = provisioner_hooks(provisioner_find("aws"));
    const struct hook_job job = { .model = "m" };
    json_object *runtime = NULL;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
    assert_int_equal(hooks.build_runtime(&job, &s->result, &runtime, &s->e), 0);
    cleanup_json json_object *got = runtime;
    cleanup_json json_object *wanted = json_of(
        "{\"target\":\"External\",\"options\":{\"host\":\"192.0.2.1\",\"ssh_port\":\"22\",\"ssh_user\":"
        "\"ubuntu\",\"http_base_url\":\"http://192.0.2.1:8000\",\"model\":\"m\"}}");
    assert_true(json_object_equal(got, wanted));
}

static void what_is_missing_is_told_at_the_start(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.aws_url, "http://127.0.0.1:1");
    scene_refuses_options(s, "aws", "[aws] url must begin with https://");
    scene_set(&s->conf.aws_secret_access_key, "");
    scene_refuses_options(s, "aws", "[aws] access_key_id and secret_access_key");
    scene_set(&s->conf.aws_region, "eu/../x");
    scene_refuses_options(s, "aws", "[aws] region: only");
    scene_set(&s->conf.aws_region, "");
    scene_refuses_options(s, "aws", "[aws] region is not set");
    scene_set(&s->conf.aws_image_id, "");
    scene_refuses_options(s, "aws", "[aws] neither launch_template nor image_id");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, scene_aws, scene_teardown)
        SCENE(instances_become_usable),
        SCENE(the_private_address_is_taken_where_it_should_be),
        SCENE(words_of_states_are_understood),
        SCENE(capacity_may_be_found_wanting_after_the_launch),
        SCENE(a_new_instance_may_be_unknown_and_is_not_gone),
        SCENE(an_old_instance_that_is_unknown_is_gone),
        SCENE(ours_are_listed_page_by_page),
        SCENE(all_of_a_name_are_given_back),
        SCENE(what_is_unknown_at_its_end_is_tried_again),
        SCENE(a_release_that_is_refused_says_so),
        SCENE(wrong_keys_are_denied_and_not_told),
        SCENE(a_wrong_clock_is_told),
        SCENE(temporary_keys_have_a_token),
        SCENE(keys_may_come_from_the_environment),
        SCENE(errors_are_told_apart),
        SCENE(answers_that_make_no_sense_are_for_later),
        SCENE(no_answer_in_time_is_for_later),
        SCENE(the_catalog_is_the_types_with_gpus),
        SCENE(the_batch_service_gets_in_by_ssh),
        SCENE(what_is_missing_is_told_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
