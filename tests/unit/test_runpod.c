/* SPDX-License-Identifier: Apache-2.0
 * The provisioner runpod against a double of the provider: what it asks for, what it understands of the
 * answers (jobs contract, section 5; reference 1.8). What it has in common with lambdaCloud is in
 * test_lambda_cloud.c and test_fleet.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "json/jx.h"
#include "tests/fake/provider_scene.h"

static int setup(void **state)
{
    static struct provider_scene s;
    scene_open(&s, "fake_runpod.py");
    scene_api(&s, "v1", &s.conf.runpod_url, &s.conf.runpod_key);
    scene_set(&s.conf.runpod_ssh_public_key, "ssh-ed25519 AAAA test");
    scene_start(&s, "runpod");
    scene_want(&s, 1, 1, "NVIDIA A40");
    *state = &s;
    return 0;
}

static int posts(struct provider_scene *s)
{
    return child_server_requests(&s->server, "POST", "/v1/pods");
}

static void a_pod_is_asked_for_as_the_api_has_it(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 2, "NVIDIA A40");
    scene_set(&s->conf.runpod_data_centers, "EU-RO-1, US-TX-1");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    cleanup_free char *body = child_server_body(&s->server, "POST", "/v1/pods");
    const char *start =
        "{\"name\":\"" SCENE_NAME
        "\",\"imageName\":\"vllm/vllm-openai:latest\",\"computeType\":\"GPU\","
        "\"cloudType\":\"SECURE\",\"gpuTypeIds\":[\"NVIDIA A40\"],\"gpuCount\":2,"
        "\"gpuTypePriority\":\"availability\",\"dataCenterIds\":[\"EU-RO-1\",\"US-TX-1\"],"
        "\"ports\":[\"8000/http\",\"22/tcp\"],\"dockerEntrypoint\":[\"/bin/bash\",\"-lc\"],"
        "\"dockerStartCmd\":[\"";
    const char *end =
        "\"],\"supportPublicIp\":true,\"env\":{\"PUBLIC_KEY\":\"ssh-ed25519 AAAA test\","
        "\"SSH_PUBLIC_KEY\":\"ssh-ed25519 AAAA test\"}}";
    assert_memory_equal(body, start, strlen(start));
    assert_string_equal(body + strlen(body) - strlen(end), end);
    assert_non_null(strstr(body, "sshd"));
}

static void types_go_out_by_the_providers_names(void **state)
{
    static const struct {
        const char *wanted;
        const char *sent;
    } TABLE[] = {
        { "A100", "\"gpuTypeIds\":[\"NVIDIA A100 80GB PCIe\",\"NVIDIA A100-SXM4-80GB\"]" },
        { "A100-SXM4", "\"gpuTypeIds\":[\"NVIDIA A100-SXM4-80GB\"]" },
        { "NVIDIA L40", "\"gpuTypeIds\":[\"NVIDIA L40\"]" },
        { "nvidia a100 80gb pcie", "\"gpuTypeIds\":[\"NVIDIA A100 80GB PCIe\"]" },
        { "NVIDIA H100 PCIe", "\"gpuTypeIds\":[\"NVIDIA H100 PCIe\"]" },
        { "RTX 4090", "\"gpuTypeIds\":[\"NVIDIA GeForce RTX 4090\"]" },
    };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        char name[PROVISION_NAME_SIZE];
        scene_want(s, 1, 1, TABLE[i].wanted);
        assert_int_equal(provision_name(SCENE_CLUSTER, SCENE_JOB, (int)i, name, &s->e), 0);
        s->request.name = name;
        scene_provision_ok(s, PROVISION_PROVISIONING);
        cleanup_free char *body = child_server_body(&s->server, "POST", "/v1/pods");
        if (strstr(body, TABLE[i].sent) == NULL)
            fail_msg("%s: %s", TABLE[i].wanted, body);
    }
    /* A name that we do not know is the provider's business. */
    s->request.name = SCENE_NAME "9";
    scene_want(s, 1, 1, "NVIDIA Z9000");
    scene_failed(
        s, scene_provision(s), PROVISION_ERROR_REFUSED, "400 create pod: gpuTypeIds is not valid");
    cleanup_free char *body = child_server_body(&s->server, "POST", "/v1/pods");
    assert_non_null(strstr(body, "\"gpuTypeIds\":[\"NVIDIA Z9000\"]"));
    assert_false(s->note.unsure);
}

static void the_region_of_the_job_goes_first(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.runpod_data_centers, "EU-RO-1");
    (void)snprintf(s->spec.region, sizeof s->spec.region, "US-TX-1");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.region, "US-TX-1");
    (void)snprintf(s->spec.region, sizeof s->spec.region, "MARS-1");
    s->request.name = SCENE_NAME "1";
    scene_failed(s, scene_provision(s), PROVISION_ERROR_REFUSED, "dataCenterIds is not valid");
}

static void without_a_type_nothing_is_asked_for(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_GPU_TYPE, "accelerator.type");
    assert_int_equal(posts(s), 0);
}

static void pods_become_usable(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "NVIDIA A40");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
    assert_string_equal(s->result.machine[0].host, "198.51.100.2");
    assert_string_equal(s->result.machine[0].ssh_user, "root");
    assert_int_equal(s->result.machine[0].ssh_port, 10001);
    assert_string_equal(s->result.machine[0].url, "https://pod00000000001-8000.proxy.runpod.net");
    assert_string_equal(s->result.machine[1].host, "198.51.100.3");
    assert_string_equal(s->result.details,
        "{\"runpod\":{\"pods\":[{\"podId\":\"pod00000000001\",\"gpuTypeId\":\"NVIDIA A40\","
        "\"desiredStatus\":\"RUNNING\",\"publicIp\":\"198.51.100.2\",\"sshUser\":\"root\",\"sshPort\":10001,"
        "\"httpBaseUrl\":\"https://pod00000000001-8000.proxy.runpod.net\",\"dataCenterId\":\"EU-RO-1\","
        "\"portMappings\":{\"22\":10001}},"
        "{\"podId\":\"pod00000000002\",\"gpuTypeId\":\"NVIDIA A40\","
        "\"desiredStatus\":\"RUNNING\",\"publicIp\":\"198.51.100.3\",\"sshUser\":\"root\",\"sshPort\":10002,"
        "\"httpBaseUrl\":\"https://pod00000000002-8000.proxy.runpod.net\",\"dataCenterId\":\"EU-RO-1\","
        "\"portMappings\":{\"22\":10002}}],\"region\":\"EU-RO-1\"}}");
}

/* AIBrix takes it for running, and the job fails for want of a port (reference 1.8, edge). */
static void an_address_without_ssh_is_not_usable_yet(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'no_ssh':true}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    for (int i = 0; i < 4; i++)
        assert_int_equal(scene_status(s), 0);
    assert_int_equal(s->result.status, PROVISION_PROVISIONING);
    assert_string_equal(s->result.machine[0].host, "198.51.100.2");
}

static void status_becomes(struct provider_scene *s, enum provision_status status)
{
    if (scene_status(s) != 0)
        fail_msg("%s", s->e.msg);
    assert_string_equal(provision_status_name(s->result.status), provision_status_name(status));
}

static void states_are_folded(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "NVIDIA A40");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_await(s, PROVISION_RUNNING);
    scene_order_machine(s, 0, "{'status':{'%s':'EXITED'}}");
    status_becomes(s, PROVISION_FAILED);
    scene_order_machine(s, 0, "{'status':{'%s':'RUNNING'}}");
    status_becomes(s, PROVISION_RUNNING);
    scene_order_machine(s, 0, "{'status':{'%s':'TERMINATED'}}");
    status_becomes(s, PROVISION_FAILED);
    scene_order_machine(s, 0, "{'vanish':['%s']}");
    status_becomes(s, PROVISION_FAILED);
    scene_order_machine(s, 1, "{'status':{'%s':'TERMINATED'}}");
    status_becomes(s, PROVISION_RELEASED);
}

static void no_capacity_is_a_500_or_even_a_200(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'capacity':{}}");
    scene_failed(
        s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "no instances currently available");
    assert_false(s->note.unsure); /* nothing was made, for sure */
    assert_false(s->note.may_exist);
    scene_order(s, "{'error_in_200':true}");
    scene_failed(
        s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "no instances currently available");
    assert_false(s->note.may_exist);
    scene_order(s, "{'faults':[{'match':'POST .*','do':'status','status':400,'body':{'error':"
                   "'This machine does not have the resources to deploy your pod.'}}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_CAPACITY, "does not have the resources");
}

static void other_trouble_is_unsure(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'faults':[{'match':'POST .*','do':'status_after','status':500,"
                   "'body':{'error':'something went wrong','status':500}}]}");
    scene_provision_ok(s, PROVISION_RUNNING); /* it was made, and is found */
    assert_int_equal(posts(s), 1);
    assert_int_equal(scene_alive(s), 1);
    s->request.name = SCENE_NAME "1";
    scene_order(
        s, "{'faults':[{'match':'POST .*','do':'status','status':200,'body':{'error':'odd'}}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "200 odd");
    assert_true(s->note.unsure);
}

static void a_wrong_key_is_denied(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'faults':[{'match':'.*','do':'status','status':401,'body':{'error':{}}}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "401");
}

static void a_repeat_adopts_by_name(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 2, 1, "NVIDIA A40");
    scene_order(s, "{'create':{'name':'" SCENE_NAME "'}}");
    scene_order(s, "{'create':{'name':'" SCENE_NAME "1'}}"); /* another attempt */
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(posts(s), 1);
    assert_int_equal(scene_alive(s), 3);
    scene_provision_ok(s, PROVISION_RUNNING);
    assert_int_equal(posts(s), 1);
}

static void a_release_ends_each_pod(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 4, 1, "NVIDIA A40");
    scene_order(s, "{'create':{'name':'wb-other-" SCENE_JOB "-1'}}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    /* One that is gone meanwhile and one that fails keep none of the others. */
    scene_order(s, "{'faults':[{'match':'DELETE .*','do':'status','status':404},"
                   "{'match':'DELETE .*','do':'status','status':500},"
                   "{'match':'DELETE .*','do':'status','status':429}]}");
    scene_failed(s, scene_release(s), PROVISION_ERROR_UNAVAILABLE, "500");
    assert_int_equal(child_server_requests(&s->server, "DELETE", "/v1/pods/"), 4);
    assert_int_equal(scene_alive(s), 4);
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(scene_alive(s), 1);
    assert_int_equal(scene_release(s), 0);
}

static void only_our_pods_are_listed(void **state)
{
    struct provider_scene *s = *state;
    cleanup_provision_list struct provision_list l = PROVISION_LIST_INIT;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, "{'create':{'name':'wb-other-" SCENE_JOB "-1'}}");
    scene_order(s, "{'create':{'name':'notebook'}}");
    assert_int_equal(provisioner_list(s->p, &l, &s->note, &s->e), 0);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.seen[0].name, SCENE_NAME);
}

static void the_api_does_not_tell_what_could_be_had(void **state)
{
    struct provider_scene *s = *state;
    struct provision_catalog c = PROVISION_CATALOG_INIT;
    assert_int_equal(provisioner_catalog(s->p, &c, &s->note, &s->e), 1);
}

static void what_is_missing_is_told_at_the_start(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.runpod_cloud_type, "secure");
    scene_refuses_options(s, "runpod", "[runpod] cloud_type");
    scene_set(&s->conf.runpod_ssh_public_key, "");
    scene_refuses_options(s, "runpod", "[runpod] ssh_public_key");
    scene_set(&s->conf.runpod_key, "");
    scene_refuses_options(s, "runpod", "[runpod] key");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, setup, scene_teardown)
        SCENE(a_pod_is_asked_for_as_the_api_has_it),
        SCENE(types_go_out_by_the_providers_names),
        SCENE(the_region_of_the_job_goes_first),
        SCENE(without_a_type_nothing_is_asked_for),
        SCENE(pods_become_usable),
        SCENE(an_address_without_ssh_is_not_usable_yet),
        SCENE(states_are_folded),
        SCENE(no_capacity_is_a_500_or_even_a_200),
        SCENE(other_trouble_is_unsure),
        SCENE(a_wrong_key_is_denied),
        SCENE(a_repeat_adopts_by_name),
        SCENE(a_release_ends_each_pod),
        SCENE(only_our_pods_are_listed),
        SCENE(the_api_does_not_tell_what_could_be_had),
        SCENE(what_is_missing_is_told_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
