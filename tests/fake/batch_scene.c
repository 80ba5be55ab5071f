/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/batch_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct batch_client *batch_client_of(const char *url, const char *token, int64_t timeout_ms)
{
    struct batch_client *c = NULL;
    struct err e = ERR_INIT;
    struct batch_client_options o = {
        .url = url, .token = token, .ca_file = "", .timeout_ms = timeout_ms, .stop_fd = -1
    };
    assert_int_equal(batch_client_open(&o, &c, &e), 0);
    return c;
}

int batch_setup(void **state)
{
    static struct batch_scene s;
    const char *const args[] = { "--token", BATCH_TOKEN, NULL };
    s = (struct batch_scene){ .note = BATCH_NOTE_INIT, .e = ERR_INIT };
    child_server_open(&s.server, "fake_batch_service.py", args);
    s.client = batch_client_of(s.server.url, BATCH_TOKEN, BATCH_HANG_MS);
    *state = &s;
    return 0;
}

int batch_teardown(void **state)
{
    struct batch_scene *s = *state;
    batch_client_close(s->client);
    child_server_close(&s->server);
    return 0;
}

struct batch_create batch_plain(void)
{
    return (struct batch_create){ .job_id = BATCH_JOB,
        .input_file_id = "file-1",
        .endpoint = "/v1/chat/completions",
        .completion_window = "90m" };
}

struct batch batch_make(struct batch_scene *s, const char *job_id)
{
    struct batch b = BATCH_INIT;
    struct batch_create r = batch_plain();
    r.job_id = job_id;
    if (batch_client_create(s->client, &r, &b, &s->note, &s->e) < 0)
        fail_msg("%s", s->e.msg);
    batch_fini(&b);
    return b;
}

size_t batch_find_all(struct batch_scene *s, struct batch_search *search)
{
    int more = 1;
    while (more == 1)
        more = batch_client_find(s->client, search, &s->note, &s->e);
    assert_int_equal(more, 0);
    return search->n;
}
