/* SPDX-License-Identifier: Apache-2.0
 * The hooks' defaults, those of each type, and the registry of types (jobs contract, section 5, backend hooks
 * and provisioners; reference 1.7, 1.9). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "json/jx.h"
#include "provision/provisioner.h"
#include "tests/fake/json_of.h"

static struct provision_hooks hooks_of(const char *type)
{
    return provisioner_hooks(provisioner_find(type));
}

static int setup(void **state)
{
    (void)state;
    provisioner_register_builtin();
    return 0;
}

/* --- schedule --------------------------------------------------------------------------------- */

static struct provision_spec scheduled(const struct hook_job *job)
{
    struct provision_spec spec;
    struct err e = ERR_INIT;
    if (PROVISION_DEFAULT_HOOKS.schedule(job, &spec, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(PROVISION_DEFAULT_HOOKS.validate_request(job, &e), 0);
    return spec;
}

static void a_template_says_what_is_needed(void **state)
{
    cleanup_json json_object *spec =
        json_of("{\"accelerator\":{\"type\":\"A100\",\"count\":8,\"vram_gb\":80},\"engine\":{}}");
    cleanup_json json_object *config = json_of("{\"region\":\"us-west-1\",\"other\":[1]}");
    struct hook_job job = { .model = "m", .replicas = 3, .spec = spec, .provider_config = config };
    (void)state;
    struct provision_spec s = scheduled(&job);
    assert_int_equal(s.replicas, 3);
    assert_int_equal(s.gpus_per_replica, 8);
    assert_string_equal(s.gpu_type, "A100");
    assert_string_equal(s.region, "us-west-1");
}

/* The stock SDKs send none (jobs contract, section 3). */
static void without_a_template_one_replica_and_no_accelerator(void **state)
{
    struct hook_job job = { .model = "" };
    (void)state;
    struct provision_spec s = scheduled(&job);
    assert_int_equal(s.replicas, 1);
    assert_int_equal(s.gpus_per_replica, 0);
    assert_string_equal(s.gpu_type, "");
    assert_string_equal(s.region, "");
    cleanup_json json_object *nulls = json_of("{\"accelerator\":{\"type\":null,\"count\":null}}");
    job.spec = nulls;
    s = scheduled(&job);
    assert_int_equal(s.gpus_per_replica, 0);
}

static void refuse(
    const char *spec_text, const char *config_text, int64_t replicas, const char *piece)
{
    cleanup_json json_object *spec = json_of(spec_text);
    cleanup_json json_object *config = json_of(config_text);
    struct hook_job job = { .replicas = replicas, .spec = spec, .provider_config = config };
    struct provision_spec s;
    for (int i = 0; i < 2; i++) { /* the same when it is accepted and when it is planned */
        struct err e = ERR_INIT;
        int rc = i == 0 ? PROVISION_DEFAULT_HOOKS.validate_request(&job, &e)
                        : PROVISION_DEFAULT_HOOKS.schedule(&job, &s, &e);
        assert_int_equal(rc, -1);
        assert_int_equal(e.code, ERR_INVALID);
        if (strstr(e.msg, piece) == NULL)
            fail_msg("\"%s\" does not hold \"%s\"", e.msg, piece);
    }
}

static void what_cannot_be_is_named(void **state)
{
    char text[256];
    (void)state;
    refuse("{\"accelerator\":{\"count\":-1}}", "{}", 1, "accelerator.count");
    refuse("{\"accelerator\":{\"count\":1025}}", "{}", 1, "accelerator.count");
    refuse("{\"accelerator\":{\"count\":1.5}}", "{}", 1, "accelerator.count");
    refuse("{\"accelerator\":{\"count\":\"8\"}}", "{}", 1, "accelerator.count");
    refuse("{\"accelerator\":{\"type\":7}}", "{}", 1, "accelerator.type");
    (void)snprintf(text, sizeof text, "{\"accelerator\":{\"type\":\"%0100d\"}}", 0);
    refuse(text, "{}", 1, "accelerator.type");
    refuse("{}", "{\"region\":[]}", 1, "provider_config.region");
    refuse("{}", "{}", 1025, "replicas");
    refuse("{}", "{}", -1, "replicas");
}

/* Whatever is of another type is named, and never passed over: when the job is accepted. */
static void a_template_of_wrong_types_is_refused(void **state)
{
    static const struct {
        const char *spec;
        const char *piece;
    } BAD[] = {
        { "{\"accelerator\":\"A100\"}", "accelerator: must be an object" },
        { "{\"accelerator\":[8]}", "accelerator: must be an object" },
        { "{\"engine\":\"vllm\"}", "engine: must be an object" },
        { "{\"engine\":{\"image\":7}}", "engine.image" },
        { "{\"engine\":{\"serve_args\":\"--a\"}}", "engine.serve_args" },
        { "{\"engine\":{\"serve_args\":[1]}}", "engine.serve_args" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        cleanup_json json_object *spec = json_of(BAD[i].spec);
        const struct hook_job job = { .spec = spec };
        struct err e = ERR_INIT;
        assert_int_equal(PROVISION_DEFAULT_HOOKS.validate_request(&job, &e), -1);
        assert_non_null(strstr(e.msg, BAD[i].piece));
    }
}

static void runpod_needs_a_type_at_once(void **state)
{
    struct hook_job job = { .model = "" };
    struct err e = ERR_INIT;
    cleanup_json json_object *spec = json_of("{\"accelerator\":{\"type\":\"A40\",\"count\":1}}");
    (void)state;
    assert_int_equal(hooks_of("runpod").validate_request(&job, &e), -1);
    assert_non_null(strstr(e.msg, "accelerator.type"));
    job.spec = spec;
    assert_int_equal(hooks_of("runpod").validate_request(&job, &e), 0);
    assert_int_equal(hooks_of("lambdaCloud").validate_request(&(struct hook_job){ 0 }, &e), 0);
    assert_int_equal(hooks_of("local").validate_request(&(struct hook_job){ 0 }, &e), 0);
}

/* --- runtime ---------------------------------------------------------------------------------- */

static struct machine ssh_machine(void)
{
    return (struct machine){ .id = "i",
        .host = "192.0.2.1",
        .ssh_user = "ubuntu",
        .ssh_port = 22,
        .url = "http://192.0.2.1:8000" };
}

static void machines_are_reached_by_ssh(void **state)
{
    struct machine m = ssh_machine();
    struct provision_result r = { .machine = &m, .n = 1 };
    cleanup_json json_object *spec = json_of(
        "{\"engine\":{\"image\":\"vllm:1\",\"serve_args\":[\"--a\",\"--b=c\",\"two words\",\"it's\",\"\",\"$(x)\"]}}");
    cleanup_json json_object *out = NULL;
    struct hook_job job = { .model = "org/model", .spec = spec };
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(hooks_of("lambdaCloud").build_runtime(&job, &r, &out, &e), 0);
    json_is(out,
        "{\"target\":\"LambdaCloud\",\"options\":{\"host\":\"192.0.2.1\",\"ssh_port\":\"22\",\"ssh_user\":\"ubuntu\","
        "\"http_base_url\":\"http://192.0.2.1:8000\",\"model\":\"org/model\",\"image\":\"vllm:1\","
        "\"vllm_args\":\"--a --b=c 'two words' 'it'\\\\''s' '' '$(x)'\"}}");
    json_object_put(STEAL(out));
    job = (struct hook_job){ .model = "" };
    assert_int_equal(hooks_of("runpod").build_runtime(&job, &r, &out, &e), 0);
    json_is(out,
        "{\"target\":\"RunPod\",\"options\":{\"host\":\"192.0.2.1\",\"ssh_port\":\"22\",\"ssh_user\":\"ubuntu\","
        "\"http_base_url\":\"http://192.0.2.1:8000\"}}");
}

/* Those of reference 1.9 are the first's, for a service that speaks to one; `machines` has all of them. */
static void of_several_machines_all_are_told(void **state)
{
    struct machine m[3] = { ssh_machine(), ssh_machine(), ssh_machine() };
    const struct provision_result r = { .machine = m, .n = 3 };
    const struct hook_job job = { .model = "m" };
    cleanup_json json_object *out = NULL;
    cleanup_json json_object *machines = NULL;
    struct err e = ERR_INIT;
    const char *text = "";
    (void)state;
    (void)str_copy(m[1].host, sizeof m[1].host, "192.0.2.2");
    (void)str_copy(m[2].ssh_user, sizeof m[2].ssh_user, "");
    m[2].ssh_port = 2222;
    m[2].url[0] = '\0';
    assert_int_equal(hooks_of("runpod").build_runtime(&job, &r, &out, &e), 0);
    json_object *options = jx_get(out, "options");
    assert_true(jx_get_str(options, "machines", &text));
    machines = json_of(text);
    json_is(machines,
        "[{\"host\":\"192.0.2.1\",\"ssh_port\":\"22\",\"ssh_user\":\"ubuntu\",\"http_base_url\":\"http://192.0.2.1:8000\"},"
        "{\"host\":\"192.0.2.2\",\"ssh_port\":\"22\",\"ssh_user\":\"ubuntu\",\"http_base_url\":\"http://192.0.2.1:8000\"},"
        "{\"host\":\"192.0.2.1\",\"ssh_port\":\"2222\"}]");
    json_object_object_del(options, "machines");
    json_is(out,
        "{\"target\":\"RunPod\",\"options\":{\"host\":\"192.0.2.1\",\"ssh_port\":\"22\",\"ssh_user\":\"ubuntu\","
        "\"http_base_url\":\"http://192.0.2.1:8000\",\"model\":\"m\"}}");
}

static void refuse_runtime(
    const struct provision_result *r, const char *spec_text, const char *piece)
{
    cleanup_json json_object *spec = json_of(spec_text);
    json_object *out = NULL;
    struct hook_job job = { .model = "m", .spec = spec };
    struct err e = ERR_INIT;
    assert_int_equal(hooks_of("lambdaCloud").build_runtime(&job, r, &out, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_non_null(strstr(e.msg, piece));
    assert_null(out);
}

static void a_runtime_that_cannot_be_is_refused(void **state)
{
    struct machine good = ssh_machine();
    struct machine no_port = { .host = "192.0.2.1" };
    struct machine no_host = { .ssh_port = 22 };
    const struct provision_result fine = { .machine = &good, .n = 1 };
    (void)state;
    refuse_runtime(&(struct provision_result){ .n = 0 }, "{}", "no machine");
    refuse_runtime(&(struct provision_result){ .machine = &no_port, .n = 1 }, "{}", "by SSH");
    refuse_runtime(&(struct provision_result){ .machine = &no_host, .n = 1 }, "{}", "by SSH");
    struct machine second[2] = { good, no_port };
    refuse_runtime(&(struct provision_result){ .machine = second, .n = 2 }, "{}", "by SSH");
    refuse_runtime(&fine, "{\"engine\":{\"image\":7}}", "engine.image");
    refuse_runtime(&fine, "{\"engine\":{\"serve_args\":\"--a\"}}", "engine.serve_args");
    refuse_runtime(&fine, "{\"engine\":{\"serve_args\":[1]}}", "engine.serve_args");
    refuse_runtime(&fine, "{\"engine\":{\"serve_args\":[null]}}", "engine.serve_args");
}

static void a_server_that_runs_already_is_external(void **state)
{
    struct machine m = { .id = "1", .url = "http://127.0.0.1:8000" };
    struct provision_result r = { .machine = &m, .n = 1 };
    cleanup_json json_object *out = NULL;
    struct hook_job job = { .model = "m" };
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(hooks_of("local").build_runtime(&job, &r, &out, &e), 0);
    json_is(out,
        "{\"target\":\"External\",\"options\":{\"http_base_url\":\"http://127.0.0.1:8000\","
        "\"model\":\"m\"}}");
    json_object_put(STEAL(out));
    m.url[0] = '\0'; /* the batch service knows where it is: nothing is sent */
    assert_int_equal(hooks_of("local").build_runtime(&job, &r, &out, &e), 0);
    assert_null(out);
}

/* --- allocation ------------------------------------------------------------------------------- */

static void the_allocation_tells_what_was_got(void **state)
{
    struct provision_spec spec = { .replicas = 2, .gpus_per_replica = 1, .gpu_type = "A10" };
    cleanup_json json_object *out = NULL;
    struct hook_job job = { .model = "m" };
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(
        PROVISION_DEFAULT_HOOKS.build_resource_allocation(&job, &spec, "p-1", &out, &e), 0);
    json_is(out,
        "{\"provision_id\":\"p-1\",\"resource_details\":[{\"gpu_type\":\"A10\",\"replica\":2}]}");
    json_object_put(STEAL(out));
    spec.gpu_type[0] = '\0';
    assert_int_equal(
        PROVISION_DEFAULT_HOOKS.build_resource_allocation(&job, &spec, "p-1", &out, &e), 0);
    json_is(out, "{\"provision_id\":\"p-1\",\"resource_details\":[{\"replica\":2}]}");
}

static void no_window_is_no_gate(void **state)
{
    struct provision_result r = PROVISION_RESULT_INIT;
    struct provision_window w = { .start_us = 7, .end_us = 7 };
    struct hook_job job = { .model = "m" };
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(PROVISION_DEFAULT_HOOKS.allocation_time_window(&job, &r, &w, &e), 1);
    assert_int_equal(w.start_us, 7);
    r.end_us = 5;
    assert_int_equal(PROVISION_DEFAULT_HOOKS.allocation_time_window(&job, &r, &w, &e), 0);
    assert_int_equal(w.start_us, 0);
    assert_int_equal(w.end_us, 5);
}

/* --- specs in rows ---------------------------------------------------------------------------- */

static void a_spec_survives_its_row(void **state)
{
    struct provision_spec spec = {
        .replicas = 1024, .gpus_per_replica = 8, .gpu_type = "H100", .region = "r"
    };
    struct provision_spec back;
    struct err e = ERR_INIT;
    cleanup_json json_object *o = provision_spec_json(&spec);
    (void)state;
    json_is(o, "{\"replicas\":1024,\"gpus_per_replica\":8,\"gpu_type\":\"H100\",\"region\":\"r\"}");
    assert_int_equal(provision_spec_read(o, &back, &e), 0);
    assert_int_equal(back.replicas, 1024);
    assert_int_equal(back.gpus_per_replica, 8);
    assert_string_equal(back.gpu_type, "H100");
    assert_string_equal(back.region, "r");
    cleanup_json json_object *least = json_of("{\"replicas\":1}");
    assert_int_equal(provision_spec_read(least, &back, &e), 0);
    assert_int_equal(back.gpus_per_replica, 0);
    assert_string_equal(back.gpu_type, "");
}

static void a_spec_that_makes_no_sense_is_refused(void **state)
{
    static const char *const BAD[] = { "{}", "[]", "{\"replicas\":0}", "{\"replicas\":1025}",
        "{\"replicas\":1,\"gpus_per_replica\":-1}", "{\"replicas\":1,\"gpu_type\":7}" };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct provision_spec back;
        struct err e = ERR_INIT;
        cleanup_json json_object *o = json_of(BAD[i]);
        assert_int_equal(provision_spec_read(o, &back, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
    }
}

/* --- the registry ----------------------------------------------------------------------------- */

static void types_are_found_by_their_exact_name(void **state)
{
    (void)state;
    assert_string_equal(provisioner_find("lambdaCloud")->type, "lambdaCloud");
    assert_null(provisioner_find("LambdaCloud"));
    assert_null(provisioner_find(""));
    /* How long machines may take (contract, section 5). */
    assert_int_equal(provisioner_find("local")->ready_s, 60);
    assert_int_equal(provisioner_find("aws")->ready_s, 10 * 60);
    assert_int_equal(provisioner_find("kubernetes")->ready_s, 15 * 60);
    assert_int_equal(provisioner_find("lambdaCloud")->ready_s, 20 * 60);
    assert_int_equal(provisioner_find("runpod")->ready_s, 15 * 60);
}

static int refuse_open(const struct provisioner_env *env, struct provisioner **out, struct err *e)
{
    (void)env;
    (void)out;
    return err_set(e, ERR_INVALID, "not today");
}

static void the_last_registration_wins(void **state)
{
    static const struct provisioner_ops OURS = { .type = "lambdaCloud", .open = refuse_open };
    const struct provisioner_env env = { .cluster = "c1", .stop_fd = -1 };
    struct provisioner *p = NULL;
    struct err e = ERR_INIT;
    (void)state;
    provisioner_register(&OURS);
    assert_ptr_equal(provisioner_find("lambdaCloud"), &OURS);
    assert_int_equal(provisioner_open("lambdaCloud", &env, &p, &e), -1);
    assert_string_equal(e.msg, "provisioner lambdaCloud: not today");
    provisioner_register_builtin();
    assert_ptr_not_equal(provisioner_find("lambdaCloud"), &OURS);
}

static void an_unknown_type_is_told(void **state)
{
    const struct provisioner_env env = { .cluster = "c1", .stop_fd = -1 };
    struct provisioner *p = NULL;
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(provisioner_open("mainframe", &env, &p, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_non_null(strstr(e.msg, "no such provisioner: mainframe"));
}

/* In a child, as it must end there. */
static void registering_after_the_freeze_aborts(void **state)
{
    static const struct provisioner_ops OURS = { .type = "late" };
    int status = 0;
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit none = { 0, 0 };
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGABRT, SIG_DFL);
        provisioner_freeze();
        provisioner_register(&OURS);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_says_what_is_needed),
        cmocka_unit_test(without_a_template_one_replica_and_no_accelerator),
        cmocka_unit_test(what_cannot_be_is_named),
        cmocka_unit_test(a_template_of_wrong_types_is_refused),
        cmocka_unit_test(runpod_needs_a_type_at_once),
        cmocka_unit_test(machines_are_reached_by_ssh),
        cmocka_unit_test(of_several_machines_all_are_told),
        cmocka_unit_test(a_runtime_that_cannot_be_is_refused),
        cmocka_unit_test(a_server_that_runs_already_is_external),
        cmocka_unit_test(the_allocation_tells_what_was_got),
        cmocka_unit_test(no_window_is_no_gate),
        cmocka_unit_test(a_spec_survives_its_row),
        cmocka_unit_test(a_spec_that_makes_no_sense_is_refused),
        cmocka_unit_test(types_are_found_by_their_exact_name),
        cmocka_unit_test(the_last_registration_wins),
        cmocka_unit_test(an_unknown_type_is_told),
        cmocka_unit_test(registering_after_the_freeze_aborts),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
