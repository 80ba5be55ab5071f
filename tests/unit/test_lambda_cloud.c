/* SPDX-License-Identifier: Apache-2.0
 * The provisioner lambdaCloud against a double of the provider: what is launched, adopted, given back, and
 * what its failures are (jobs contract, section 5; reference 1.8). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "json/jx.h"
#include "tests/fake/provider_scene.h"

#define LAUNCH "/api/v1/instance-operations/launch"

static int launches(struct provider_scene *s)
{
    return child_server_requests(&s->server, "POST", LAUNCH);
}

/* --- what is launched ------------------------------------------------------------------------- */

static void the_cheapest_that_fits_is_launched_by_name(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "NVIDIA-A100");
    scene_order(s, "{'capacity':{'gpu_1x_a100_sxm4':{'us-east-1':1},'gpu_1x_a10':{'us-east-1':1},"
                   "'gpu_1x_a100':{'us-west-1':2,'us-east-1':1}}}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    cleanup_free char *body = child_server_body(&s->server, "POST", LAUNCH);
    assert_string_equal(body,
        "{\"region_name\":\"us-west-1\",\"instance_type_name\":\"gpu_1x_a100\","
        "\"ssh_key_names\":[\"ci\"],\"name\":\"" SCENE_NAME "\"}");
    assert_true(s->note.may_exist);
    assert_string_equal(s->result.region, "us-west-1");
    assert_string_equal(s->result.machine[0].type, "gpu_1x_a100");
}

static void dear_ones_are_taken_when_cheap_ones_are_out(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "H100");
    scene_order(
        s, "{'capacity':{'gpu_1x_h100_pcie':{'us-west-1':0},'gpu_1x_h100_sxm5':{'us-west-1':1}}}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.machine[0].type, "gpu_1x_h100_sxm5");
}

static void the_number_of_gpus_is_exact(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 2, "H100");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.machine[0].type, "gpu_2x_h100_sxm5");
    scene_want(s, 1, 4, "A100"); /* there are 1 and 8 */
    s->request.name = "wb-c1-" SCENE_JOB "-2";
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_GPU_TYPE, "4 x \"A100\"");
    assert_false(provision_error_retryable(s->note.error));
    assert_false(s->note.may_exist);
}

/* A job without a template: one GPU of any kind. */
static void nothing_wanted_is_one_gpu(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 0, "");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.machine[0].type, "gpu_1x_rtx6000");
}

static void the_region_is_the_jobs_else_the_configured_else_any(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(
        s, "{'capacity':{'gpu_1x_a10':{'us-west-1':1,'us-east-1':2,'europe-central-1':1}}}");
    scene_set(&s->conf.lambda_cloud_region, "us-east-1");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.region, "us-east-1");
    (void)snprintf(s->spec.region, sizeof s->spec.region, "europe-central-1");
    s->request.name = "wb-c1-" SCENE_JOB "-2";
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.region, "europe-central-1");
    s->request.name = "wb-c1-" SCENE_JOB "-3";
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "europe-central-1");
}

static void machines_become_usable(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "A10");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
    assert_int_equal(s->result.n, 2);
    assert_string_equal(s->result.machine[0].host, "192.0.2.2");
    assert_string_equal(s->result.machine[0].private_host, "10.0.0.2");
    assert_string_equal(s->result.machine[0].ssh_user, "ubuntu");
    assert_int_equal(s->result.machine[0].ssh_port, 22);
    assert_string_equal(s->result.machine[0].url, "http://192.0.2.2:8000");
    assert_string_equal(s->result.machine[1].host, "192.0.2.3");
    assert_int_equal(s->result.start_us, 0); /* no window is told */
    assert_int_equal(s->result.end_us, 0);
    assert_string_equal(s->result.details,
        "{\"lambdaCloud\":{\"groupResults\":[{\"instances\":["
        "{\"instanceId\":\"00000000000000000000000000000001\",\"instanceType\":\"gpu_1x_a10\",\"status\":\"active\","
        "\"privateIp\":\"10.0.0.2\",\"publicIp\":\"192.0.2.2\",\"sshUser\":\"ubuntu\",\"sshPort\":22,"
        "\"httpBaseUrl\":\"http://192.0.2.2:8000\"},"
        "{\"instanceId\":\"00000000000000000000000000000002\",\"instanceType\":\"gpu_1x_a10\",\"status\":\"active\","
        "\"privateIp\":\"10.0.0.3\",\"publicIp\":\"192.0.2.3\",\"sshUser\":\"ubuntu\",\"sshPort\":22,"
        "\"httpBaseUrl\":\"http://192.0.2.3:8000\"}],"
        "\"replicas\":2,\"acceleratorType\":\"A10\",\"acceleratorCount\":1}],\"region\":\"us-west-1\"}}");
}

/* --- repeats ---------------------------------------------------------------------------------- */

static void a_repeat_adopts_what_is_there(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "A10");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
    scene_provision_ok(s, PROVISION_RUNNING);
    assert_int_equal(scene_alive(s), 2);
    assert_int_equal(launches(s), 2);
}

/* As after a crash between two launches. What is there decides what the others are. */
static void a_repeat_launches_what_is_missing_of_the_same_kind(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 3, 1, "A100");
    scene_order(s,
        "{'launch':{'name':'" SCENE_NAME "','type_name':'gpu_1x_a100_sxm4','region':'us-east-1'}}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(scene_alive(s), 3);
    assert_int_equal(launches(s), 2);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(s->result.machine[i].type, "gpu_1x_a100_sxm4");
    cleanup_free char *body = child_server_body(&s->server, "POST", LAUNCH);
    assert_non_null(strstr(body, "us-east-1"));
}

static void a_launch_whose_reply_is_lost_is_found_by_name(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "A10");
    scene_order(s, "{'faults':[{'match':'POST .*launch','do':'drop_after'}]}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(scene_alive(s), 2);
    assert_int_equal(launches(s), 2);
    assert_false(s->note.unsure);
}

/* It shows only later: whoever gives up must know, and whoever repeats must find it. */
static void a_launch_that_shows_late_is_not_doubled(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'delay_visible':1,'faults':[{'match':'POST .*launch','do':'drop_after'}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "");
    assert_true(s->note.unsure);
    assert_true(s->note.may_exist);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(scene_alive(s), 1);
    assert_int_equal(launches(s), 1);
}

static void a_reply_lost_before_the_launch_is_unsure_too(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'faults':[{'match':'POST .*launch','do':'drop'}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "");
    assert_true(s->note.unsure);
    assert_int_equal(launches(s), 1); /* nothing in here tries again */
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(scene_alive(s), 1);
}

static void too_many_are_given_back_but_those_that_run(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'stuck':true,'launch':{'name':'" SCENE_NAME "'}}");
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "','status':'unhealthy'}}");
    scene_order(s, "{'stuck':false,'boot_polls':0,'launch':{'name':'" SCENE_NAME "'}}");
    scene_order(s, "{'launch':{'name':'wb-c1-" SCENE_JOB "-2'}}");
    scene_provision_ok(s, PROVISION_RUNNING);
    assert_int_equal(scene_alive(s), 2); /* and the other attempt's */
    assert_int_equal(launches(s), 0);
}

/* It was gone before it could be ended: as good as ended. */
static void one_too_many_that_is_gone_is_none(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'boot_polls':0,'launch':{'name':'" SCENE_NAME "'}}");
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "'}}");
    scene_order(
        s, "{'faults':[{'match':'POST .*terminate','do':'status_after','status':404,'times':2}]}");
    scene_provision_ok(s, PROVISION_RUNNING);
    assert_int_equal(scene_alive(s), 1);
}

static void machines_that_ended_are_not_adopted(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "','status':'terminating'}}");
    scene_order(s, "{'launch':{'name':'" SCENE_NAME "','status':'preempted'}}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(launches(s), 1);
}

/* --- chunks ----------------------------------------------------------------------------------- */

static void no_launch_is_begun_without_time_for_it(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 3, 1, "A10");
    s->request.deadline_ns = clock_deadline(4900);
    assert_int_equal(scene_provision(s), 1);
    assert_int_equal(launches(s), 0);
    assert_int_equal(s->result.n, 0); /* untouched */
    s->request.deadline_ns = 0;
    scene_provision_ok(s, PROVISION_PROVISIONING);
}

static void a_limit_in_the_middle_is_waited_out(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "A10");
    scene_order(s, "{'faults':[{'match':'POST .*launch','do':'status','status':429,'skip':1,"
                   "'headers':{'Retry-After':'3'}}]}");
    assert_int_equal(scene_provision(s), 1);
    assert_int_equal(s->note.again_ms, 3000);
    assert_int_equal(scene_alive(s), 1);
    scene_order(s, "{'faults':[{'match':'POST .*launch','do':'status','status':429}]}");
    assert_int_equal(scene_provision(s), 1);
    assert_int_equal(s->note.again_ms, 12000); /* not told: the provider's own pace of launches */
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(scene_alive(s), 2);
}

/* --- failures --------------------------------------------------------------------------------- */

static void no_capacity_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'capacity':{'gpu_1x_a10':{'us-west-1':0}}}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "no capacity for 1 x A10");
    assert_true(provision_error_retryable(s->note.error));
    assert_false(s->note.may_exist);
    assert_int_equal(launches(s), 0);
}

/* Another was faster, or a quota is used up: both 400. */
static void capacity_may_go_before_the_launch(void **state)
{
    static const char *const CODES[] = { "instance-operations/launch/insufficient-capacity",
        "global/quota-exceeded" };
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    for (size_t i = 0; i < 2; i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
            "{'faults':[{'match':'POST .*launch','do':'status','status':400,"
            "'body':{'error':{'code':'%s','message':'Not enough.'}}}]}",
            CODES[i]);
        scene_order(s, text);
        scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "400 Not enough.");
        assert_false(s->note.unsure);
        assert_false(s->note.may_exist);
    }
}

/* All replicas or none: the caller gives back what was launched. */
static void half_a_provision_is_told_and_released(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "A10");
    scene_order(s, "{'capacity':{'gpu_1x_a10':{'us-west-1':1}}}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "");
    assert_true(s->note.may_exist);
    assert_int_equal(scene_alive(s), 1);
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(scene_alive(s), 0);
}

static void a_limit_at_once_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(
        s, "{'faults':[{'match':'.*','do':'status','status':429,'headers':{'Retry-After':'9'}}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_BUSY, "429");
    assert_int_equal(s->note.again_ms, 9000);
    assert_true(s->note.may_exist); /* as it was not even looked */
    scene_order(s, "{'faults':[{'match':'POST .*launch','do':'status','status':429}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_BUSY, "429");
    assert_false(s->note.may_exist);
}

static void trouble_of_the_provider_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'faults':[{'match':'GET .*instance-types','do':'status','status':503}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "503");
    assert_false(s->note.may_exist);
    scene_order(s, "{'faults':[{'match':'POST .*launch','do':'status','status':500}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "500");
    assert_true(s->note.unsure); /* it may have launched and then failed */
    scene_order(s, "{'faults':[{'match':'GET .*','do':'status','status':200,'body':'what'}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NONSENSE, "no list of instances");
    assert_true(provision_error_retryable(s->note.error));
    scene_order(s, "{'faults':[{'match':'POST .*launch','do':'status','status':200,'body':{}}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NONSENSE, "names no new instance");
    assert_true(s->note.unsure);
}

static void no_answer_in_time_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'faults':[{'match':'GET .*','do':'hold','name':'g'}]}");
    s->request.deadline_ns = clock_deadline(300);
    scene_failed(s, scene_provision(s), PROVISION_ERROR_TIMEOUT, "");
    scene_order(s, "{'clear':true}");
}

static void a_wrong_key_is_denied_and_not_told(void **state)
{
    struct provider_scene *s = *state;
    provisioner_close(s->p);
    scene_set(&s->conf.lambda_cloud_key, "wrong-key-98765");
    scene_start(s, "lambdaCloud");
    scene_failed(
        s, scene_provision(s), PROVISION_ERROR_DENIED, "401 API key Basic *** was invalid");
    assert_false(provision_error_retryable(s->note.error));
    assert_null(strstr(s->e.msg, "wrong"));
}

static void what_is_refused_is_final(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "A10");
    scene_order(s, "{'keys':['other']}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_REFUSED, "400 No such SSH key.");
    assert_false(provision_error_retryable(s->note.error));
    assert_false(s->note.unsure);
    assert_false(s->note.may_exist);
}

static void the_catalog_tells_what_could_be_had(void **state)
{
    struct provider_scene *s = *state;
    cleanup_provision_catalog struct provision_catalog c = PROVISION_CATALOG_INIT;
    scene_order(s, "{'capacity':{'gpu_1x_a10':{'us-west-1':1,'us-east-1':2}}}");
    assert_int_equal(provisioner_catalog(s->p, &c, &s->note, &s->e), 0);
    assert_int_equal(c.n, 12);
    assert_string_equal(c.offer[0].type, "gpu_1x_a10");
    assert_string_equal(c.offer[0].gpu_type, "A10 (24 GB PCIe)");
    assert_int_equal(c.offer[0].gpus, 1);
    assert_int_equal(c.offer[0].price_cents_per_hour, 75);
    assert_string_equal(c.offer[0].regions, "us-west-1 us-east-1");
    assert_int_equal(c.offer[0].free, -1);
    assert_string_equal(c.offer[1].regions, "");
}

/* --- opening ---------------------------------------------------------------------------------- */

static void what_is_missing_is_told_at_the_start(void **state)
{
    struct provider_scene *s = *state;
    scene_refuses_in(s, "lambdaCloud", "No", "cluster id");
    scene_set(&s->conf.lambda_cloud_ssh_keys, "");
    scene_refuses_options(s, "lambdaCloud", "[lambda_cloud] ssh_keys");
    scene_set(&s->conf.lambda_cloud_key, "");
    scene_refuses_options(s, "lambdaCloud", "[lambda_cloud] key");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, scene_lambda, scene_teardown)
        SCENE(the_cheapest_that_fits_is_launched_by_name),
        SCENE(dear_ones_are_taken_when_cheap_ones_are_out),
        SCENE(the_number_of_gpus_is_exact),
        SCENE(nothing_wanted_is_one_gpu),
        SCENE(the_region_is_the_jobs_else_the_configured_else_any),
        SCENE(machines_become_usable),
        SCENE(a_repeat_adopts_what_is_there),
        SCENE(a_repeat_launches_what_is_missing_of_the_same_kind),
        SCENE(a_launch_whose_reply_is_lost_is_found_by_name),
        SCENE(a_launch_that_shows_late_is_not_doubled),
        SCENE(a_reply_lost_before_the_launch_is_unsure_too),
        SCENE(too_many_are_given_back_but_those_that_run),
        SCENE(one_too_many_that_is_gone_is_none),
        SCENE(machines_that_ended_are_not_adopted),
        SCENE(no_launch_is_begun_without_time_for_it),
        SCENE(a_limit_in_the_middle_is_waited_out),
        SCENE(no_capacity_is_for_later),
        SCENE(capacity_may_go_before_the_launch),
        SCENE(half_a_provision_is_told_and_released),
        SCENE(a_limit_at_once_is_for_later),
        SCENE(trouble_of_the_provider_is_for_later),
        SCENE(no_answer_in_time_is_for_later),
        SCENE(a_wrong_key_is_denied_and_not_told),
        SCENE(what_is_refused_is_final),
        SCENE(the_catalog_tells_what_could_be_had),
        SCENE(what_is_missing_is_told_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
