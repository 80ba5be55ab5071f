/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TEST_BATCH_SCENE_H
#define WB_TEST_BATCH_SCENE_H

/* A batch client and a double of its service, for cmocka tests. */
#include "batch/batch_client.h"
#include "tests/fake/child_server.h"

enum { BATCH_HANG_MS = 30000 };

#define BATCH_TOKEN "batch-token-0123456789"
#define BATCH_JOB   "0197a5c2-0d4e-7b1a-9c3d-5e6f70819203"

struct batch_scene {
    struct child_server server;
    struct batch_client *client;
    struct batch_note note;
    struct err e;
};

/* cmocka's setup and teardown; *state is the scene. */
int batch_setup(void **state);
int batch_teardown(void **state);

struct batch_client *batch_client_of(const char *url, const char *token, int64_t timeout_ms);

/* The least that a batch is created from. */
struct batch_create batch_plain(void);

/* Creates a batch of a job, which must work. It owns nothing. */
struct batch batch_make(struct batch_scene *s, const char *job_id);

/* Searches to the end, which must work: how many it found. */
size_t batch_find_all(struct batch_scene *s, struct batch_search *search);

#endif
