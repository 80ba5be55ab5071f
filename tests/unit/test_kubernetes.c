/* SPDX-License-Identifier: Apache-2.0
 * The provisioner kubernetes against a double of an API server behind TLS: what is made, adopted, given back, and what
 * its failures are (jobs contract, section 5). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "json/jx.h"
#include "tests/fake/json_of.h"
#include "tests/fake/provider_scene.h"

#define DEPLOYMENTS "/apis/apps/v1/namespaces/default/deployments"
#define SERVICES    "/api/v1/namespaces/default/services"

static int made(struct provider_scene *s)
{
    return (int)child_server_number(&s->server, "made");
}

static json_object *held(struct provider_scene *s, const char *kind)
{
    cleanup_json json_object *state = child_server_state(&s->server);
    return json_object_get(jx_get(state, kind));
}

/* --- what is made ----------------------------------------------------------------------------- */

static void a_deployment_and_its_service_are_made(void **state)
{
    struct provider_scene *s = *state;
    cleanup_json json_object *spec = json_of(
        "{\"engine\":{\"type\":\"vllm\",\"image\":\"vllm:1\",\"serve_args\":[\"--tp\",\"2\"],"
        "\"health_endpoint\":\"/ready\"}}");
    const struct hook_job job = { .model = "m/x", .spec = spec };
    scene_want(s, 1, 2, "A100");
    s->request.job = &job;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_true(s->note.may_exist);
    cleanup_free char *body = child_server_body(&s->server, "POST", DEPLOYMENTS);
#define LABELS \
    "{\"app.kubernetes.io/managed-by\":\"weighbridge\",\"app.kubernetes.io/instance\":\"" SCENE_NAME \
    "\",\"weighbridge/cluster\":\"c1\",\"weighbridge/job\":\"" SCENE_JOB "\"}"
    assert_string_equal(body,
        "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"" SCENE_NAME
        "\",\"labels\":" LABELS "},\"spec\":{\"replicas\":1,\"progressDeadlineSeconds\":300,"
        "\"revisionHistoryLimit\":0,\"selector\":{\"matchLabels\":{\"app.kubernetes.io/instance\":\"" SCENE_NAME
        "\"}},\"template\":{\"metadata\":{\"labels\":" LABELS "},\"spec\":{\"containers\":["
        "{\"name\":\"engine\",\"image\":\"vllm:1\",\"args\":[\"--model\",\"m/x\",\"--tp\",\"2\"],"
        "\"ports\":[{\"name\":\"http\",\"containerPort\":8000}],"
        "\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"2\"}},"
        "\"readinessProbe\":{\"httpGet\":{\"path\":\"/ready\",\"port\":8000},\"periodSeconds\":5},"
        "\"volumeMounts\":[{\"name\":\"shm\",\"mountPath\":\"/dev/shm\"}]}],"
        "\"volumes\":[{\"name\":\"shm\",\"emptyDir\":{\"medium\":\"Memory\"}}],"
        "\"automountServiceAccountToken\":false,"
        "\"tolerations\":[{\"key\":\"nvidia.com/gpu\",\"operator\":\"Exists\",\"effect\":\"NoSchedule\"}],"
        "\"affinity\":{\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":"
        "{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"nvidia.com/gpu.product\","
        "\"operator\":\"In\",\"values\":[\"NVIDIA-A100-SXM4-80GB\"]}]}]}}}}}}}");
    cleanup_free char *service = child_server_body(&s->server, "POST", SERVICES);
    assert_non_null(strstr(service, "\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":"
                                    "\"Deployment\",\"name\":\"" SCENE_NAME "\",\"uid\":\""));
    assert_non_null(
        strstr(service, "\"spec\":{\"selector\":{\"app.kubernetes.io/instance\":\"" SCENE_NAME
                        "\"},\"ports\":[{\"name\":\"http\",\"port\":8000,\"targetPort\":8000}]}"));
}

static void options_of_the_pod_are_taken(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 0, "");
    scene_set(&s->conf.kubernetes_image, "mine:2");
    scene_set(&s->conf.kubernetes_env_secret, "hf");
    scene_set(&s->conf.kubernetes_pull_secret, "registry");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    cleanup_free char *body = child_server_body(&s->server, "POST", DEPLOYMENTS);
    assert_non_null(strstr(body, "\"image\":\"mine:2\",\"args\":[]"));
    assert_non_null(strstr(body, "\"envFrom\":[{\"secretRef\":{\"name\":\"hf\"}}]"));
    assert_non_null(strstr(body, "\"imagePullSecrets\":[{\"name\":\"registry\"}]"));
    assert_non_null(strstr(body, "\"path\":\"/health\"")); /* the default */
    assert_null(strstr(body, "limits"));                   /* no GPU is asked for */
    assert_null(strstr(body, "affinity"));
    assert_null(strstr(body, "tolerations"));
}

/* Only where there is nothing that says which: an engine of another type may take other arguments. */
static void a_model_is_named_only_where_the_arguments_do_not(void **state)
{
    static const struct {
        const char *engine;
        const char *args;
    } CASES[] = {
        { "{\"type\":\"vllm\"}", "[\"--model\",\"m\"]" },
        { "{\"type\":\"vllm\",\"serve_args\":[\"--model\",\"other\"]}", "[\"--model\",\"other\"]" },
        { "{\"type\":\"vllm\",\"serve_args\":[\"--model=other\"]}", "[\"--model=other\"]" },
        { "{\"type\":\"sglang\",\"serve_args\":[\"-x\"]}", "[\"-x\"]" },
    };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char text[128];
        char name[PROVISION_NAME_SIZE];
        (void)snprintf(text, sizeof text, "{\"engine\":%s}", CASES[i].engine);
        (void)snprintf(name, sizeof name, "wb-c1-" SCENE_JOB "-%zu", i);
        cleanup_json json_object *spec = json_of(text);
        const struct hook_job job = { .model = "m", .spec = spec };
        s->request.job = &job;
        s->request.name = name;
        scene_provision_ok(s, PROVISION_PROVISIONING);
        cleanup_free char *body = child_server_body(&s->server, "POST", DEPLOYMENTS);
        (void)snprintf(text, sizeof text, "\"args\":%s,", CASES[i].args);
        assert_non_null(strstr(body, text));
    }
}

static void what_cannot_be_started_is_refused(void **state)
{
    static const struct {
        const char *engine;
        const char *piece;
    } CASES[] = {
        { "{\"image\":7}", "engine.image" },
        { "{\"type\":[]}", "engine.type" },
        { "{\"serve_args\":\"--x\"}", "engine.serve_args" },
        { "{\"serve_args\":[1]}", "engine.serve_args" },
        { "{\"health_endpoint\":\"x\"}", "engine.health_endpoint" },
    };
    struct provider_scene *s = *state;
    const struct provision_hooks hooks = provisioner_hooks(provisioner_find("kubernetes"));
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char text[128];
        struct err e = ERR_INIT;
        (void)snprintf(text, sizeof text, "{\"engine\":%s}", CASES[i].engine);
        cleanup_json json_object *spec = json_of(text);
        const struct hook_job job = { .model = "m", .spec = spec };
        s->request.job = &job;
        scene_failed(s, scene_provision(s), PROVISION_ERROR_REFUSED, CASES[i].piece);
        assert_int_equal(hooks.validate_request(&job, &e), -1); /* when it is accepted, too */
        assert_non_null(strstr(e.msg, CASES[i].piece));
    }
    assert_int_equal(made(s), 0);
}

static void a_gpu_that_no_node_has_ends_the_job(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 1, 1, "H100");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_NO_GPU_TYPE, "no node with a \"H100\"");
    assert_false(provision_error_retryable(s->note.error));
    assert_false(s->note.may_exist);
    scene_set(&s->conf.kubernetes_gpu_label, ""); /* they are not asked */
    scene_provision_ok(s, PROVISION_PROVISIONING);
}

static void all_values_that_match_will_do(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s,
        "{'nodes':{'a':{'gpu':'NVIDIA-A100-SXM4-80GB','gpus':1},'b':{'gpu':'NVIDIA-A100-PCIE-40GB',"
        "'gpus':1},'c':{'gpu':'NVIDIA-A10','gpus':1},'d':{'gpu':'NVIDIA-A100-SXM4-80GB','gpus':1}}}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    cleanup_free char *body = child_server_body(&s->server, "POST", DEPLOYMENTS);
    assert_non_null(
        strstr(body, "\"values\":[\"NVIDIA-A100-SXM4-80GB\",\"NVIDIA-A100-PCIE-40GB\"]"));
}

static void another_region_is_refused(void **state)
{
    struct provider_scene *s = *state;
    (void)str_copy(s->spec.region, sizeof s->spec.region, "elsewhere");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_REFUSED, "not this cluster");
    (void)str_copy(s->spec.region, sizeof s->spec.region, "default");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.region, "default");
}

/* --- repeats ---------------------------------------------------------------------------------- */

static void a_repeat_adopts_what_is_there(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'stuck':true}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, "{'stuck':false}");
    scene_await(s, PROVISION_RUNNING);
    scene_provision_ok(s, PROVISION_RUNNING);
    assert_int_equal(made(s), 1);
}

static void a_lost_answer_is_looked_for(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'faults':[{'match':'POST .*deployments','do':'drop_after'}]}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(made(s), 1);
    assert_false(s->note.unsure);
}

static void an_answer_lost_before_it_was_made_is_unsure(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'faults':[{'match':'POST .*deployments','do':'drop'}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "");
    assert_true(s->note.unsure);
    assert_true(s->note.may_exist);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(made(s), 1);
}

/* Two planners at once: the name is the key, and the loser of the race adopts (409). */
static void a_race_is_won_by_one(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'stuck':true}");
    scene_order(s, "{'faults':[{'match':'GET .*deployments/.*','do':'status','status':404}]}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, "{'faults':[{'match':'GET .*deployments/.*','do':'status','status':404}]}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(made(s), 1);
    assert_int_equal(child_server_requests(&s->server, "POST", DEPLOYMENTS), 2);
}

/* As after a crash between the two. */
static void a_service_that_is_missing_is_made(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'faults':[{'match':'POST .*services','do':'status','status':503}]}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "the Service: 503");
    assert_true(s->note.may_exist);
    scene_provision_ok(s, PROVISION_PROVISIONING);
    cleanup_json json_object *services = held(s, "services");
    assert_non_null(jx_get(services, SCENE_NAME));
    assert_int_equal(made(s), 1);
}

static void one_that_is_not_ours_is_left_alone(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'deployment':{'name':'" SCENE_NAME "','labels':{'app':'x'}}}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_REFUSED, "not ours");
    assert_false(s->note.may_exist);
    assert_int_equal(scene_release(s), 0);
    cleanup_json json_object *there = held(s, "deployments");
    assert_non_null(jx_get(there, SCENE_NAME));
}

/* --- giving back ------------------------------------------------------------------------------ */

static void all_of_it_is_given_back(void **state)
{
    struct provider_scene *s = *state;
    scene_want(s, 3, 1, "A100");
    assert_int_equal(scene_provision(s), 0);
    scene_await(s, PROVISION_RUNNING);
    assert_int_equal(scene_alive(s), 3);
    assert_int_equal(scene_release(s), 0);
    assert_false(s->note.may_exist);
    cleanup_free char *body = child_server_body(&s->server, "DELETE", DEPLOYMENTS "/" SCENE_NAME);
    assert_non_null(
        strstr(body, "\"propagationPolicy\":\"Foreground\",\"preconditions\":{\"uid\":\""));
    assert_int_equal(scene_alive(s), 0);
    assert_int_equal(scene_status(s), 0); /* it waits for its pods */
    assert_string_equal(provision_status_name(s->result.status), "released");
    assert_int_equal(scene_release(s), 0); /* a repeat, and when it is gone */
    assert_int_equal(scene_release(s), 0);
    cleanup_json json_object *services = held(s, "services");
    assert_int_equal(json_object_object_length(services), 0);
    assert_int_equal(child_server_requests(&s->server, "DELETE", DEPLOYMENTS), 1);
}

static void gone_under_the_hand_is_given_back(void **state)
{
    struct provider_scene *s = *state;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, "{'faults':[{'match':'DELETE .*','do':'status_after','status':404}]}");
    assert_int_equal(scene_release(s), 0);
    assert_int_equal(scene_alive(s), 0);
}

/* Made anew by another between the look and the call: looked at again. */
static void another_of_that_name_is_not_deleted_unseen(void **state)
{
    struct provider_scene *s = *state;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, "{'faults':[{'match':'DELETE .*','do':'status','status':409}]}");
    assert_int_equal(scene_release(s), 1);
    assert_int_equal(s->note.again_ms, 1000);
    assert_true(s->note.may_exist);
    assert_int_equal(scene_release(s), 0);
}

static void a_release_that_fails_says_so(void **state)
{
    struct provider_scene *s = *state;
    scene_provision_ok(s, PROVISION_PROVISIONING);
    scene_order(s, "{'faults':[{'match':'DELETE .*','do':'status','status':500}]}");
    scene_failed(s, scene_release(s), PROVISION_ERROR_UNAVAILABLE, "500");
    assert_true(s->note.may_exist);
    assert_int_equal(
        provisioner_release(s->p, "wb-c2-" SCENE_JOB "-1", &s->note, &s->e), -1); /* another's */
}

/* While it ends, nothing new can have its name. */
static void what_ends_is_not_adopted(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'delete_polls':9}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_int_equal(scene_release(s), 0);
    cleanup_provision_list struct provision_list l = PROVISION_LIST_INIT;
    assert_int_equal(provisioner_list(s->p, &l, &s->note, &s->e), 0);
    assert_int_equal(l.n, 0); /* nor a stray */
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "being deleted");
    assert_true(provision_error_retryable(s->note.error));
}

/* --- the list --------------------------------------------------------------------------------- */

static void ours_are_listed_page_by_page(void **state)
{
    struct provider_scene *s = *state;
    cleanup_provision_list struct provision_list l = PROVISION_LIST_INIT;
    char order[512];
    for (int i = 0; i < 120; i++) {
        (void)snprintf(order, sizeof order,
            "{'deployment':{'name':'wb-c1-" SCENE_JOB "-%d','replicas':2,'labels':{"
            "'app.kubernetes.io/managed-by':'weighbridge','weighbridge/cluster':'c1'}}}",
            i);
        scene_order(s, order);
    }
    scene_order(s, "{'deployment':{'name':'wb-c2-" SCENE_JOB "-1','labels':{"
                   "'app.kubernetes.io/managed-by':'weighbridge','weighbridge/cluster':'c2'}}}");
    scene_order(s, "{'deployment':{'name':'theirs','labels':{"
                   "'app.kubernetes.io/managed-by':'weighbridge','weighbridge/cluster':'c1'}}}");
    scene_order(s, "{'unlabel':'wb-c1-" SCENE_JOB "-7'}"); /* kept by who took the label off */
    assert_int_equal(provisioner_list(s->p, &l, &s->note, &s->e), 0);
    assert_int_equal(l.n, 119);
    assert_int_equal(l.seen[0].machines, 2);
    assert_int_equal(child_server_requests(&s->server, "GET", DEPLOYMENTS), 2);
}

static void a_list_that_grew_too_old_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    struct provision_list l = PROVISION_LIST_INIT;
    scene_order(s,
        "{'faults':[{'match':'GET .*','do':'status','status':410,'body':{'kind':'Status',"
        "'message':'The provided continue parameter is too old','code':410}}]}");
    scene_failed(
        s, provisioner_list(s->p, &l, &s->note, &s->e), PROVISION_ERROR_UNAVAILABLE, "too old");
    scene_order(s, "{'faults':[{'match':'GET .*','do':'status','status':200,'body':{'items':1}}]}");
    scene_failed(
        s, provisioner_list(s->p, &l, &s->note, &s->e), PROVISION_ERROR_NONSENSE, "no list");
}

/* --- failures --------------------------------------------------------------------------------- */

static void errors_are_told_apart(void **state)
{
    static const struct {
        const char *fault;
        enum provision_error error;
        const char *piece;
    } CASES[] = {
        { "'do':'status','status':429,'headers':{'Retry-After':'7'}", PROVISION_ERROR_BUSY, "429" },
        { "'do':'status','status':500,'body':{'kind':'Status','message':'etcdserver: leader changed'}",
            PROVISION_ERROR_UNAVAILABLE, "500 etcdserver: leader changed" },
        { "'do':'status','status':504", PROVISION_ERROR_UNAVAILABLE, "504" },
        { "'do':'status','status':403,'body':{'kind':'Status','message':'deployments.apps is forbidden'}",
            PROVISION_ERROR_DENIED, "is forbidden" },
        { "'do':'status','status':403,'body':{'kind':'Status','message':'forbidden: exceeded quota: x'}",
            PROVISION_ERROR_NO_CAPACITY, "exceeded quota" },
        { "'do':'status','status':422,'body':{'kind':'Status','message':'is invalid'}",
            PROVISION_ERROR_REFUSED, "422 is invalid" },
        { "'do':'status','status':200,'body':{'metadata':{}}", PROVISION_ERROR_NONSENSE,
            "makes no sense" },
    };
    struct provider_scene *s = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char order[512];
        (void)snprintf(order, sizeof order, "{'faults':[{'match':'GET .*deployments/.*',%s}]}",
            CASES[i].fault);
        scene_order(s, order);
        scene_failed(s, scene_provision(s), CASES[i].error, CASES[i].piece);
        assert_true(s->note.may_exist); /* as it is not known */
        if (CASES[i].error == PROVISION_ERROR_BUSY)
            assert_int_equal(s->note.again_ms, 7000);
    }
    assert_int_equal(made(s), 0);
}

static void a_wrong_token_is_denied_and_not_told(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'tokens':['another']}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "401 Unauthorized");
    scene_order(s, "{'tokens':['" SCENE_KEY "'],'deny':['services']}");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "services is forbidden");
    assert_true(s->note.may_exist);
    scene_order(s, "{'deny':['nodes']}");
    s->request.name = "wb-c1-" SCENE_JOB "-2";
    scene_failed(s, scene_provision(s), PROVISION_ERROR_DENIED, "nodes is forbidden");
    assert_false(s->note.may_exist);
}

static void no_answer_in_time_is_for_later(void **state)
{
    struct provider_scene *s = *state;
    scene_order(s, "{'faults':[{'match':'GET .*','do':'hold','name':'g'}]}");
    s->request.deadline_ns = clock_deadline(300);
    scene_failed(s, scene_provision(s), PROVISION_ERROR_TIMEOUT, "");
    scene_order(s, "{'clear':true}");
}

/* --- where, and by what token ----------------------------------------------------------------- */

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(file_write(fd, text, strlen(text)), 0);
    close(fd);
}

static void copy_file(const char *from, const char *dir, const char *name)
{
    char text[4096] = "";
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && st.st_size < (off_t)sizeof text);
    assert_int_equal(file_read(fd, text, (size_t)st.st_size), 0);
    close(fd);
    write_file(dir, name, text);
}

/* As a pod of the cluster: all by the environment and the mounted service account, whose token is replaced. */
static void inside_a_cluster_all_is_given(void **state)
{
    struct provider_scene *s = *state;
    char dir[] = "/tmp/wb-account-XXXXXX";
    static const char *const FILES[] = { "token", "ca.crt", "namespace" };
    assert_non_null(mkdtemp(dir));
    write_file(dir, "token", "first-token\n");
    write_file(dir, "namespace", "jobs");
    copy_file(s->conf.kubernetes_ca_file, dir, "ca.crt");
    scene_set(&s->conf.kubernetes_account_dir, dir);
    scene_set(&s->conf.kubernetes_url, "");
    scene_set(&s->conf.kubernetes_ca_file, "");
    scene_set(&s->conf.kubernetes_token, "");
    (void)setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", strrchr(s->server.url, ':') + 1, 1);
    provisioner_close(s->p);
    scene_start(s, "kubernetes");
    scene_order(s, "{'tokens':['first-token'],'stuck':true}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    assert_string_equal(s->result.region, "jobs");
    assert_string_equal(s->result.machine[0].url, "http://" SCENE_NAME ".jobs.svc:8000");
    write_file(dir, "token", "second-token\n");
    scene_order(s, "{'tokens':['second-token']}");
    scene_provision_ok(s, PROVISION_PROVISIONING);
    write_file(dir, "token", "");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "the token cannot be read");
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", dir, FILES[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
}

static void a_server_that_nobody_vouches_for_gets_no_token(void **state)
{
    struct provider_scene *s = *state;
    provisioner_close(s->p);
    scene_set(&s->conf.kubernetes_ca_file, "");
    scene_start(s, "kubernetes");
    scene_failed(s, scene_provision(s), PROVISION_ERROR_UNAVAILABLE, "");
    assert_int_equal(child_server_requests(&s->server, "GET", "/"), 0);
}

static void what_is_missing_is_told_at_the_start(void **state)
{
    struct provider_scene *s = *state;
    scene_set(&s->conf.kubernetes_cluster, "No Such");
    scene_refuses_options(s, "kubernetes", "[kubernetes] namespace and cluster");
    scene_set(&s->conf.kubernetes_cluster, "");
    scene_set(&s->conf.kubernetes_token, "");
    scene_refuses_options(s, "kubernetes", "[kubernetes] neither token nor token_path");
    scene_set(&s->conf.kubernetes_url, "http://127.0.0.1:1");
    scene_refuses_options(s, "kubernetes", "must begin with https://");
    scene_set(&s->conf.kubernetes_url, "");
    scene_refuses_options(s, "kubernetes", "[kubernetes] url is not set, and this is no pod");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(t) cmocka_unit_test_setup_teardown(t, scene_kubernetes, scene_teardown)
        SCENE(a_deployment_and_its_service_are_made),
        SCENE(options_of_the_pod_are_taken),
        SCENE(a_model_is_named_only_where_the_arguments_do_not),
        SCENE(what_cannot_be_started_is_refused),
        SCENE(a_gpu_that_no_node_has_ends_the_job),
        SCENE(all_values_that_match_will_do),
        SCENE(another_region_is_refused),
        SCENE(a_repeat_adopts_what_is_there),
        SCENE(a_lost_answer_is_looked_for),
        SCENE(an_answer_lost_before_it_was_made_is_unsure),
        SCENE(a_race_is_won_by_one),
        SCENE(a_service_that_is_missing_is_made),
        SCENE(one_that_is_not_ours_is_left_alone),
        SCENE(all_of_it_is_given_back),
        SCENE(gone_under_the_hand_is_given_back),
        SCENE(another_of_that_name_is_not_deleted_unseen),
        SCENE(a_release_that_fails_says_so),
        SCENE(what_ends_is_not_adopted),
        SCENE(ours_are_listed_page_by_page),
        SCENE(a_list_that_grew_too_old_is_for_later),
        SCENE(errors_are_told_apart),
        SCENE(a_wrong_token_is_denied_and_not_told),
        SCENE(no_answer_in_time_is_for_later),
        SCENE(inside_a_cluster_all_is_given),
        SCENE(a_server_that_nobody_vouches_for_gets_no_token),
        SCENE(what_is_missing_is_told_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
