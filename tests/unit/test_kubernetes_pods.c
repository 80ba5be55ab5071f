/* SPDX-License-Identifier: Apache-2.0
 * The provisioner kubernetes against a double of an API server: whether pods become ready, what keeps them from it, and
 * what the nodes have to give (jobs contract, section 5). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/str.h"
#include "json/jx.h"
#include "tests/fake/json_of.h"
#include "tests/fake/provider_scene.h"

static void provisioned(struct provider_scene *s)
{
    if (scene_provision(s) != 0)
        fail_msg("%s", s->e.msg);
    assert_int_equal(s->result.status, PROVISION_PROVISIONING);
}

static void status_is(struct provider_scene *s, enum provision_status status)
{
    if (scene_status(s) != 0)
        fail_msg("%s", s->e.msg);
    assert_string_equal(provision_status_name(s->result.status), provision_status_name(status));
}

/* --- readiness -------------------------------------------------------------------------------- */

static void all_replicas_ready_is_running_at_one_address(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 3, 1, "A100");
    provisioned(s);
    scene_await(s, PROVISION_RUNNING);
    assert_int_equal(s->result.n, 1);
    assert_string_equal(s->result.machine[0].url, "http://" SCENE_NAME ".default.svc:8000");
    assert_string_equal(s->result.details,
        "{\"kubernetes\":{\"namespace\":\"default\",\"deployment\":\"" SCENE_NAME
        "\",\"service\":\"" SCENE_NAME
        "\",\"replicas\":3,\"readyReplicas\":3,\"httpBaseUrl\":\"http://" SCENE_NAME
        ".default.svc:8000\",\"region\":\"default\"}}");
}

/* Gang-wise: a part of them serves nobody (jobs contract, section 5). */
static void some_replicas_ready_is_not_running(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'nodes':{'n1':{'gpu':'NVIDIA-A100-SXM4-80GB','gpus':2}},'boot_polls':0}");
    scene_want(s, 3, 1, "A100");
    provisioned(s);
    status_is(s, PROVISION_PROVISIONING);
    status_is(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.machine[0].state, "2 of 3 ready");
    scene_order(s, "{'nodes':{'n1':{'gpu':'NVIDIA-A100-SXM4-80GB','gpus':3}}}"); /* a node came */
    scene_await(s, PROVISION_RUNNING);
}

/* What was counted before the controller saw this version of it counts for nothing. */
static void an_old_count_is_no_count(void **state)
{
    struct provider_scene *s = *state;
    provisioned(s);
    scene_order(s,
        "{'faults':[{'match':'GET .*deployments/.*','do':'status','status':200,'body':{'metadata':{'name':'" SCENE_NAME
        "','uid':'u','generation':2,'labels':{'app.kubernetes.io/managed-by':'weighbridge'}},'spec':{'replicas':1},"
        "'status':{'observedGeneration':1,'readyReplicas':1}}}]}");
    status_is(s, PROVISION_PROVISIONING);
}

static void one_that_is_gone_is_released(void **state)
{
    struct provider_scene *s = *state;
    provisioned(s);
    scene_order(s, "{'delete_polls':0}");
    assert_int_equal(scene_release(s), 0);
    status_is(s, PROVISION_RELEASED);
    status_is(s, PROVISION_RELEASED);
}

static void answers_of_another_shape_make_no_sense(void **state)
{
    static const char *const BODIES[] = { "[]",
        "{'metadata':{'name':'other','uid':'u'},'spec':{'replicas':1}}",
        "{'metadata':{'name':'" SCENE_NAME "','uid':7},'spec':{'replicas':1}}",
        "{'metadata':{'name':'" SCENE_NAME "','uid':'u'},'spec':{'replicas':'1'}}",
        "{'metadata':{'name':'" SCENE_NAME
        "','uid':'u'},'spec':{'replicas':1},'status':{'readyReplicas':-1}}",
        "{'metadata':{'name':'" SCENE_NAME "','uid':'u'},'spec':{'replicas':1},'status':[]}" };
    struct provider_scene *s = *state;
    provisioned(s);
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        char order[512];
        (void)str_format(order, sizeof order,
            "{'faults':[{'match':'GET .*','do':'status','status':200,'body':%s}]}", BODIES[i]);
        scene_order(s, order);
        scene_failed(s, scene_status(s), PROVISION_ERROR_NONSENSE, "");
    }
}

/* --- trouble ---------------------------------------------------------------------------------- */

/* For a while a node may still come, made by an autoscaler; then the job gives its place to others. */
static void pods_without_a_node_are_no_capacity_in_the_end(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'pod':{'node':'n1','gpus':8}}");
    provisioned(s);
    status_is(s, PROVISION_PROVISIONING);
    scene_order(s, "{'advance':299}");
    status_is(s, PROVISION_PROVISIONING);
    scene_order(s, "{'advance':1}");
    scene_failed(s, scene_status(s), PROVISION_ERROR_NO_CAPACITY, "2 Insufficient nvidia.com/gpu");
    assert_true(provision_error_retryable(s->note.error));
    assert_true(s->note.may_exist);
}

/* A large model takes its time: the pool's time-out ends that, not the cluster's. */
static void slow_pods_are_waited_for(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'stuck':true}");
    provisioned(s);
    scene_order(s, "{'advance':100000}");
    status_is(s, PROVISION_PROVISIONING);
    scene_order(s, "{'stuck':false}");
    scene_await(s, PROVISION_RUNNING);
}

static void a_quota_that_is_used_up_is_no_capacity_at_once(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'quota':1}");
    scene_want(s, 2, 1, "A100");
    provisioned(s);
    scene_failed(s, scene_status(s), PROVISION_ERROR_NO_CAPACITY, "exceeded quota");
}

static void an_engine_that_cannot_start_ends_the_job(void **state)
{
    static const struct {
        const char *reason;
        const char *piece;
    } CASES[] = {
        { "ImagePullBackOff", "ImagePullBackOff: Back-off: ImagePullBackOff" },
        { "CrashLoopBackOff", "CrashLoopBackOff: the engine ended with 1 (Error)" },
        { "CreateContainerConfigError", "CreateContainerConfigError" },
        { "InvalidImageName", "InvalidImageName" },
    };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char order[128];
        char name[PROVISION_NAME_SIZE];
        (void)str_format(
            order, sizeof order, "{'images':{'vllm/vllm-openai:latest':'%s'}}", CASES[i].reason);
        (void)str_format(name, sizeof name, "wb-c1-" SCENE_JOB "-%zu", i);
        scene_order(s, order);
        s->request.name = name;
        provisioned(s);
        scene_failed(s, scene_status(s), PROVISION_ERROR_REFUSED, CASES[i].piece);
        assert_false(provision_error_retryable(s->note.error));
    }
}

/* One failed pull may be the registry's moment: it is tried again before it is a back-off. */
static void a_first_failed_pull_is_waited_for(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'images':{'vllm/vllm-openai:latest':'ErrImagePull'}}");
    provisioned(s);
    status_is(s, PROVISION_PROVISIONING);
}

static void pods_that_cannot_be_listed_are_an_error(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'stuck':true,'deny':['pods']}");
    provisioned(s);
    scene_failed(s, scene_status(s), PROVISION_ERROR_DENIED, "pods is forbidden");
}

/* --- the catalog ------------------------------------------------------------------------------ */

static const struct provision_offer *offer_of(const struct provision_catalog *c, const char *type)
{
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->offer[i].type, type) == 0)
            return &c->offer[i];
    }
    fail_msg("%s is not offered", type);
    return NULL;
}

static void the_catalog_is_what_the_nodes_have_left(void **state)
{
    struct provider_scene *s = *state;
    cleanup_provision_catalog struct provision_catalog c = PROVISION_CATALOG_INIT;
    scene_order(s,
        "{'nodes':{'n1':{'gpu':'NVIDIA-A100-SXM4-80GB','gpus':8},'n2':{'gpu':'NVIDIA-L4','gpus':1,'taints':['nvidia.com/gpu']},"
        "'n3':{'gpu':'NVIDIA-H100-NVL','gpus':2,'cordoned':true},'n4':{'gpu':'NVIDIA-A30','gpus':2,'ready':false},"
        "'n5':{'gpu':'NVIDIA-H200','gpus':2,'taints':['other']},'n6':{}},'pod':{'node':'n1','gpus':3}}");
    scene_order(s, "{'pod':{'node':'n1','gpus':1}}");
    assert_int_equal(provisioner_catalog(s->p, &c, &s->note, &s->e), 0);
    assert_int_equal(c.n, 3);
    const struct provision_offer *a100 = offer_of(&c, "NVIDIA-A100-SXM4-80GB");
    assert_int_equal(a100->gpus, 4);
    assert_true(a100->shared);
    assert_false(a100->any);
    assert_string_equal(a100->gpu_type, "NVIDIA-A100-SXM4-80GB");
    assert_string_equal(a100->regions, "default");
    assert_int_equal(offer_of(&c, "NVIDIA-L4")->gpus, 1); /* its taint is tolerated */
    const struct provision_offer *cpu = offer_of(&c, "cpu");
    assert_int_equal(cpu->gpus, 0);
    assert_string_equal(cpu->gpu_type, "");
}

static void a_large_cluster_is_read_in_pages(void **state)
{
    struct provider_scene *s = *state;
    cleanup_provision_catalog struct provision_catalog c = PROVISION_CATALOG_INIT;
    for (int i = 0; i < 250; i++)
        scene_order(s, "{'pod':{'node':'n2','gpus':0}}");
    scene_order(s, "{'pod':{'node':'n2','gpus':1}}");
    scene_set(&s->conf.kubernetes_cluster, "lab");
    provisioner_close(s->p);
    scene_start(s, "kubernetes");
    assert_int_equal(provisioner_catalog(s->p, &c, &s->note, &s->e), 0);
    assert_int_equal(child_server_requests(&s->server, "GET", "/api/v1/pods"), 3);
    assert_int_equal(offer_of(&c, "NVIDIA-L4")->gpus, 0); /* there, and in use */
    assert_string_equal(c.offer[0].regions, "lab");
}

static void a_catalog_that_cannot_be_had_is_an_error(void **state)
{
    struct provider_scene *s = *state;
    struct provision_catalog c = PROVISION_CATALOG_INIT;
    scene_order(s, "{'deny':['pods']}");
    scene_failed(s, provisioner_catalog(s->p, &c, &s->note, &s->e), PROVISION_ERROR_DENIED,
        "pods is forbidden");
}

/* --- the runtime ------------------------------------------------------------------------------ */

static void the_batch_service_is_told_of_the_service(void **state)
{
    struct provider_scene *s = *state;
    const struct provision_hooks hooks = provisioner_hooks(provisioner_find("kubernetes"));
    cleanup_json json_object *spec =
        json_of("{\"engine\":{\"image\":\"vllm:1\",\"serve_args\":[\"--tp\",\"2\"]}}");
    const struct hook_job job = { .model = "m", .spec = spec };
    json_object *runtime = NULL;
    provisioned(s);
    scene_await(s, PROVISION_RUNNING);
    assert_int_equal(hooks.build_runtime(&job, &s->result, &runtime, &s->e), 0);
    cleanup_json json_object *got = runtime;
    cleanup_json json_object *wanted = json_of(
        "{\"target\":\"Kubernetes\",\"options\":{\"http_base_url\":\"http://" SCENE_NAME
        ".default.svc:8000\",\"model\":\"m\",\"image\":\"vllm:1\",\"vllm_args\":\"--tp 2\"}}");
    assert_true(json_object_equal(got, wanted));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, scene_kubernetes, scene_teardown)
        SCENE(all_replicas_ready_is_running_at_one_address),
        SCENE(some_replicas_ready_is_not_running),
        SCENE(an_old_count_is_no_count),
        SCENE(one_that_is_gone_is_released),
        SCENE(answers_of_another_shape_make_no_sense),
        SCENE(pods_without_a_node_are_no_capacity_in_the_end),
        SCENE(slow_pods_are_waited_for),
        SCENE(a_quota_that_is_used_up_is_no_capacity_at_once),
        SCENE(an_engine_that_cannot_start_ends_the_job),
        SCENE(a_first_failed_pull_is_waited_for),
        SCENE(pods_that_cannot_be_listed_are_an_error),
        SCENE(the_catalog_is_what_the_nodes_have_left),
        SCENE(a_large_cluster_is_read_in_pages),
        SCENE(a_catalog_that_cannot_be_had_is_an_error),
        SCENE(the_batch_service_is_told_of_the_service),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
