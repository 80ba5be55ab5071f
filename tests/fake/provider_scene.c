/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/provider_scene.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"

enum { LOOKS_MAX = 20 };

static void open_with(struct provider_scene *s, const char *script, const char *const args[])
{
    *s = (struct provider_scene){ .spec = { .replicas = 1, .gpus_per_replica = 1 },
        .result = PROVISION_RESULT_INIT,
        .note = PROVISION_NOTE_INIT,
        .e = ERR_INIT };
    s->request = (struct provision_request){ .name = SCENE_NAME, .spec = &s->spec };
    assert_int_equal(conf_load(&s->conf, NULL, &s->e), 0);
    child_server_open(&s->server, script, args);
}

void scene_open(struct provider_scene *s, const char *script)
{
    const char *const args[] = { "--key", SCENE_KEY, NULL };
    open_with(s, script, args);
}

void scene_open_tls(struct provider_scene *s, const char *script, const struct tls_files *t)
{
    const char *const args[] = { "--tls", t->cert, t->key, "--key", SCENE_KEY, NULL };
    open_with(s, script, args);
}

void scene_set(char **option, const char *value)
{
    mem_replace(option, value);
}

void scene_start(struct provider_scene *s, const char *type)
{
    const struct provisioner_env env = {
        .conf = &s->conf, .cluster = SCENE_CLUSTER, .db = NULL, .stop_fd = -1
    };
    provisioner_register_builtin();
    if (provisioner_open(type, &env, &s->p, &s->e) < 0)
        fail_msg("%s", s->e.msg);
}

void scene_refuses_options(struct provider_scene *s, const char *type, const char *piece)
{
    scene_refuses_in(s, type, SCENE_CLUSTER, piece);
}

void scene_refuses_in(
    struct provider_scene *s, const char *type, const char *cluster, const char *piece)
{
    struct provisioner *p = NULL;
    const struct provisioner_env env = { .conf = &s->conf, .cluster = cluster, .stop_fd = -1 };
    assert_int_equal(provisioner_open(type, &env, &p, &s->e), -1);
    assert_int_equal(s->e.code, ERR_INVALID);
    if (strstr(s->e.msg, piece) == NULL)
        fail_msg("%s", s->e.msg);
    assert_null(p);
}

void scene_close(struct provider_scene *s)
{
    provisioner_close(s->p);
    provision_result_fini(&s->result);
    conf_free(&s->conf);
    child_server_close(&s->server);
}

static int keep(struct provider_scene *s, int rc, struct provision_result *r)
{
    if (rc != 0)
        return rc;
    provision_result_fini(&s->result);
    s->result = *r;
    return 0;
}

int scene_provision(struct provider_scene *s)
{
    struct provision_result r = PROVISION_RESULT_INIT;
    s->e = (struct err)ERR_INIT;
    return keep(s, provisioner_provision(s->p, &s->request, &r, &s->note, &s->e), &r);
}

int scene_status(struct provider_scene *s)
{
    struct provision_result r = PROVISION_RESULT_INIT;
    s->e = (struct err)ERR_INIT;
    return keep(
        s, provisioner_status(s->p, &s->request, s->result.details, &r, &s->note, &s->e), &r);
}

int scene_release(struct provider_scene *s)
{
    s->e = (struct err)ERR_INIT;
    return provisioner_release(s->p, SCENE_NAME, &s->note, &s->e);
}

void scene_await(struct provider_scene *s, enum provision_status status)
{
    for (int i = 0; i < LOOKS_MAX; i++) {
        if (scene_status(s) < 0)
            fail_msg("%s", s->e.msg);
        if (s->result.status == status)
            return;
    }
    fail_msg(
        "never %s, but %s", provision_status_name(status), provision_status_name(s->result.status));
}

void scene_failed(
    const struct provider_scene *s, int result, enum provision_error error, const char *piece)
{
    assert_int_equal(result, -1);
    assert_string_equal(provision_error_name(s->note.error), provision_error_name(error));
    if (strstr(s->e.msg, piece) == NULL)
        fail_msg("\"%s\" does not hold \"%s\"", s->e.msg, piece);
    assert_null(strstr(s->e.msg, SCENE_KEY));
}

void scene_provision_ok(struct provider_scene *s, enum provision_status status)
{
    int rc = scene_provision(s);
    if (rc != 0)
        fail_msg("%d: %s", rc, s->e.msg);
    assert_string_equal(provision_status_name(s->result.status), provision_status_name(status));
    assert_int_equal(s->note.error, PROVISION_ERROR_NONE);
    assert_int_equal(s->result.n, s->spec.replicas);
}

void scene_api(const struct provider_scene *s, const char *path, char **url, char **key)
{
    char text[96];
    assert_true(http_url(text, sizeof text, s->server.url, path));
    scene_set(url, text);
    scene_set(key, SCENE_KEY);
}

int scene_lambda(void **state)
{
    static struct provider_scene s;
    scene_open(&s, "fake_lambda.py");
    scene_api(&s, "api/v1", &s.conf.lambda_cloud_url, &s.conf.lambda_cloud_key);
    scene_set(&s.conf.lambda_cloud_ssh_keys, "ci");
    scene_start(&s, "lambdaCloud");
    *state = &s;
    return 0;
}

/* One certificate for all tests of a program, made by the first. */
static struct tls_files files;

static void remove_files(void)
{
    tls_files_remove(&files);
}

static void make_files(void)
{
    if (files.dir[0] != '\0')
        return;
    tls_files_make(&files);
    (void)atexit(remove_files);
}

int scene_aws(void **state)
{
    static struct provider_scene s;
    make_files();
    scene_open_tls(&s, "fake_aws.py", &files);
    scene_api(&s, "", &s.conf.aws_url, &s.conf.aws_secret_access_key);
    scene_set(&s.conf.aws_ca_file, files.cert);
    scene_set(&s.conf.aws_access_key_id, "AKIATEST");
    scene_set(&s.conf.aws_region, "eu-test-1");
    scene_set(&s.conf.aws_image_id, "ami-0123456789abcdef0");
    scene_start(&s, "aws");
    scene_want(&s, 1, 1, "T4");
    *state = &s;
    return 0;
}

int scene_kubernetes(void **state)
{
    static struct provider_scene s;
    make_files();
    scene_open_tls(&s, "fake_kubernetes.py", &files);
    scene_api(&s, "", &s.conf.kubernetes_url, &s.conf.kubernetes_token);
    scene_set(&s.conf.kubernetes_ca_file, files.cert);
    scene_start(&s, "kubernetes");
    scene_want(&s, 1, 1, "A100");
    *state = &s;
    return 0;
}

int scene_teardown(void **state)
{
    scene_close(*state);
    return 0;
}

void scene_want(struct provider_scene *s, int replicas, int gpus, const char *type)
{
    s->spec.replicas = replicas;
    s->spec.gpus_per_replica = gpus;
    (void)str_copy(s->spec.gpu_type, sizeof s->spec.gpu_type, type);
}

void scene_order(struct provider_scene *s, const char *order)
{
    child_server_order(&s->server, order);
}

void scene_order_machine(struct provider_scene *s, size_t i, const char *order)
{
    cleanup_buf struct buf text = BUF_INIT(4096);
    const char *place = strstr(order, "%s");
    assert_non_null(place);
    buf_add(&text, order, (size_t)(place - order));
    buf_puts(&text, s->result.machine[i].id);
    buf_puts(&text, place + 2);
    scene_order(s, text.data);
}

int64_t scene_alive(struct provider_scene *s)
{
    return child_server_number(&s->server, "alive");
}
