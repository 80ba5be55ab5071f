/* SPDX-License-Identifier: Apache-2.0
 * The provisioner aws with the temporary keys of its machine's role, against doubles of EC2 and of the instance metadata
 * service (jobs contract, section 5; the EC2 user guide on IMDSv2). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "tests/fake/provider_scene.h"

#define TOKEN "/latest/api/token"
#define ROLES "/latest/meta-data/iam/security-credentials/"

static struct child_server imds;

/* The metadata service gives keys with that session token from now on, and EC2 takes no others. */
static void role_has(struct provider_scene *s, const char *token, int lasts_s)
{
    char order[256];
    (void)str_format(order, sizeof order,
        "{'keys':{'AccessKeyId':'AKIATEST','SecretAccessKey':'" SCENE_KEY
        "','Token':'%s'},'lasts':%d}",
        token, lasts_s);
    child_server_order(&imds, order);
    (void)str_format(order, sizeof order, "{'token':'%s'}", token);
    scene_order(s, order);
}

static void start_again(struct provider_scene *s)
{
    provisioner_close(s->p);
    s->p = NULL;
    scene_start(s, "aws");
}

static int setup(void **state)
{
    struct provider_scene *s = NULL;
    if (scene_aws(state) != 0)
        return -1;
    s = *state;
    child_server_open(&imds, "fake_imds.py", NULL);
    scene_set(&s->conf.aws_access_key_id, "");
    scene_set(&s->conf.aws_secret_access_key, "");
    scene_set(&s->conf.aws_metadata_url, imds.url);
    s->conf.aws_instance_role = true;
    role_has(s, "session-1", 21600);
    start_again(s);
    return 0;
}

static int teardown(void **state)
{
    child_server_close(&imds);
    return scene_teardown(state);
}

static void keys_are(int times)
{
    assert_int_equal(child_server_requests(&imds, "GET", ROLES "wb-planner"), times);
}

/* One session, one look for the role, one for its keys: for all calls until they are nearly over. */
static void keys_come_from_the_role_and_are_kept(void **state)
{
    struct provider_scene *s = *state;
    assert_int_equal(child_server_requests(&imds, "PUT", TOKEN), 0); /* not before the first call */
    scene_want(s, 2, 1, "T4");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(child_server_requests(&imds, "PUT", TOKEN), 1);
    keys_are(1);
    assert_null(strstr(s->result.details, "session-1"));
}

static void keys_are_renewed_before_they_are_over(void **state)
{
    struct provider_scene *s = *state;
    role_has(s, "session-1", 299);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    role_has(s, "session-2", 21600);
    scene_await(s, PROVISION_RUNNING);
    assert_int_equal(child_server_requests(&imds, "PUT", TOKEN), 1); /* the session goes on */
    const int renewed = child_server_requests(&imds, "GET", ROLES "wb-planner");
    assert_int_equal(scene_release(s), 0);
    keys_are(renewed);
}

static void keys_that_hold_serve_while_there_are_no_others(void **state)
{
    struct provider_scene *s = *state;
    role_has(s, "session-1", 299);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    child_server_order(&imds, "{'faults':[{'match':'GET .*','do':'drop','times':-1}]}");
    scene_await(s, PROVISION_RUNNING);
    const int asked = child_server_requests(&imds, "GET", ROLES);
    assert_int_equal(scene_status(s), 0);
    assert_int_equal(child_server_requests(&imds, "GET", ROLES), asked); /* not at every call */
}

static void without_keys_that_hold_nothing_is_asked(void **state)
{
    struct provider_scene *s = *state;
    role_has(s, "session-1", -1);
    scene_provision_ok(s, PROVISION_PROVISIONING); /* EC2 would know; its double does not look */
    const int asked = child_server_requests(&s->server, "POST", "/");
    child_server_order(&imds, "{'faults':[{'match':'GET .*','do':'drop','times':-1}]}");
    scene_failed(s, scene_status(s), PROVISION_ERROR_UNAVAILABLE, "keys of the instance's role");
    assert_int_equal(child_server_requests(&s->server, "POST", "/"), asked);
    assert_false(s->note.unsure);
}

static void a_session_that_is_over_is_begun_again(void **state)
{
    struct provider_scene *s = *state;
    role_has(s, "session-1", 299);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    child_server_order(&imds, "{'forget':true}");
    role_has(s, "session-2", 21600);
    scene_await(s, PROVISION_RUNNING);
    assert_int_equal(child_server_requests(&imds, "PUT", TOKEN), 2);
}

/* However long they were to hold: a role may be given other rights, or lose its sessions. */
static void keys_that_aws_does_not_take_are_asked_for_again(void **state)
{
    struct provider_scene *s = *state;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    role_has(s, "session-2", 21600);
    scene_failed(s, scene_status(s), PROVISION_ERROR_DENIED, "");
    assert_int_equal(scene_status(s), 0);
    keys_are(2);
    scene_order(s, "{'deny':['DescribeInstances']}"); /* that is not about the keys */
    scene_failed(s, scene_status(s), PROVISION_ERROR_DENIED, "");
    scene_failed(s, scene_status(s), PROVISION_ERROR_DENIED, "");
    keys_are(2);
}

static void a_machine_without_a_role_is_denied(void **state)
{
    struct provider_scene *s = *state;
    child_server_order(&imds, "{'role':null}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "this machine has no role");
    child_server_order(&imds, "{'role':'other/role'}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "has none"); /* no such path */
}

static void answers_that_make_no_sense_are_no_keys(void **state)
{
    static const char *const ORDERS[] = { "{'code':'AssumeRoleUnauthorizedAccess'}", "{'keys':{}}",
        "{'faults':[{'match':'GET .*wb-planner','do':'status','status':200,'text':'x'}]}",
        "{'faults':[{'match':'GET .*wb-planner','do':'status','status':500}]}",
        "{'faults':[{'match':'GET .*wb-planner','do':'status','status':200,'body':"
        "{'Code':'Success','AccessKeyId':'AKIATEST','SecretAccessKey':'x','Token':'y'}}]}",
        "{'faults':[{'match':'PUT .*','do':'status','status':200,'text':''}]}",
        "{'faults':[{'match':'PUT .*','do':'status','status':403}]}" };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof ORDERS / sizeof ORDERS[0]; i++) {
        child_server_order(&imds, "{'code':'Success','forget':true}");
        role_has(s, "session-1", 21600);
        start_again(s);
        child_server_order(&imds, ORDERS[i]);
        scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "the metadata service");
    }
    assert_int_equal(child_server_requests(&s->server, "POST", "/"), 0);
}

/* A hop too many: the answer to the PUT never comes. */
static void a_service_that_does_not_answer_is_told_with_its_usual_reason(void **state)
{
    struct provider_scene *s = *state;
    child_server_order(
        &imds, "{'faults':[{'match':'PUT .*','do':'hold','name':'far','times':-1}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_TIMEOUT, "hop limit");
    child_server_order(&imds, "{'clear':true}");
}

static void proxies_are_passed_by(void **state)
{
    struct provider_scene *s = *state;
    (void)setenv("http_proxy", "http://127.0.0.1:1", 1);
    (void)setenv("no_proxy", "", 1);
    start_again(s);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    (void)unsetenv("http_proxy");
    (void)setenv("no_proxy", "*", 1); /* as the doubles want it */
}

static void what_does_not_fit_together_is_told_at_the_start(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.aws_access_key_id, "AKIATEST");
    scene_refuses_options(s, "aws", "access_key_id is set, and instance_role is on");
    scene_set(&s->conf.aws_access_key_id, "");
    scene_set(&s->conf.aws_metadata_url, "169.254.169.254");
    scene_refuses_options(s, "aws", "[aws] metadata_url");
    s->conf.aws_instance_role = false;
    scene_refuses_options(s, "aws", "instance_role is off");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(keys_come_from_the_role_and_are_kept),
        TEST(keys_are_renewed_before_they_are_over),
        TEST(keys_that_hold_serve_while_there_are_no_others),
        TEST(without_keys_that_hold_nothing_is_asked),
        TEST(a_session_that_is_over_is_begun_again),
        TEST(keys_that_aws_does_not_take_are_asked_for_again),
        TEST(a_machine_without_a_role_is_denied),
        TEST(answers_that_make_no_sense_are_no_keys),
        TEST(a_service_that_does_not_answer_is_told_with_its_usual_reason),
        TEST(proxies_are_passed_by),
        TEST(what_does_not_fit_together_is_told_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
