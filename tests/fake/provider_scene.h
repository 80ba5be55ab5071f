/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_PROVIDER_SCENE_H
#define WB_TEST_PROVIDER_SCENE_H

/* A provisioner and a double of its provider, for cmocka tests. */
#include "provision/provisioner.h"
#include "tests/fake/child_server.h"
#include "tests/fake/tls_files.h"

#define SCENE_CLUSTER "c1"
#define SCENE_JOB     "0197a5c2-0d4e-7b1a-9c3d-5e6f70819203"
#define SCENE_NAME    "wb-c1-" SCENE_JOB "-1"
#define SCENE_KEY     "provider-key-0123456789"

struct provider_scene {
    struct child_server server;
    struct conf conf;
    struct provisioner *p;
    struct provision_spec spec;
    struct provision_request request; /* of spec, without a deadline */
    struct provision_result result;   /* of the last scene_provision() or scene_status() */
    struct provision_note note;
    struct err e;
};

/* The double alone, with the defaults of all options; the test then sets those of its type. */
void scene_open(struct provider_scene *s, const char *script);
/* The same by https, with that certificate. */
void scene_open_tls(struct provider_scene *s, const char *script, const struct tls_files *t);
/* Where the double's API is, and its key, into the options of a type. */
void scene_api(const struct provider_scene *s, const char *path, char **url, char **key);
/* The provisioner, by the options as they are now. */
void scene_start(struct provider_scene *s, const char *type);
/* A provisioner of that type is not opened, by the options as they are now and in a cluster of that name: ERR_INVALID,
 * with a text that holds the piece. */
void scene_refuses_in(
    struct provider_scene *s, const char *type, const char *cluster, const char *piece);
/* The same in SCENE_CLUSTER. */
void scene_refuses_options(struct provider_scene *s, const char *type, const char *piece);
void scene_close(struct provider_scene *s);

/* cmocka's setups and teardown: a type and its double; *state is the scene. */
int scene_lambda(void **state);
int scene_kubernetes(void **state);
int scene_aws(void **state);
int scene_teardown(void **state);

/* What the job needs. */
void scene_want(struct provider_scene *s, int replicas, int gpus, const char *type);

/* An order to the double; one about a machine of the last result, whose id stands for %s. */
void scene_order(struct provider_scene *s, const char *order);
void scene_order_machine(struct provider_scene *s, size_t i, const char *order);

/* Machines that the double has and that cost money. */
int64_t scene_alive(struct provider_scene *s);

/* One option of text. */
void scene_set(char **option, const char *value);

/* The verbs on SCENE_NAME. provision and status keep their result in the scene; details of status are those
 * of the last result. */
int scene_provision(struct provider_scene *s);
int scene_status(struct provider_scene *s);
int scene_release(struct provider_scene *s);

/* Looks until the status is this one; the double goes on by being looked at. */
void scene_await(struct provider_scene *s, enum provision_status status);

/* The last call failed for this reason, with a text that holds the piece. */
void scene_failed(
    const struct provider_scene *s, int result, enum provision_error error, const char *piece);

/* Every verb but provision of several at once: it worked. */
void scene_provision_ok(struct provider_scene *s, enum provision_status status);

#endif
