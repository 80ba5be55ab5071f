/* SPDX-License-Identifier: Apache-2.0
 * Certificates are verified: by the given authorities, and for the right host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/str.h"
#include "http/http.h"
#include "tests/fake/child_server.h"
#include "tests/fake/tls_files.h"

enum { HANG_MS = 30000 };

static struct tls_files files;
static struct child_server server;

static int up(void **state)
{
    (void)state;
    tls_files_make(&files);
    const char *const args[] = { "--tls", files.cert, files.key, NULL };
    child_server_open(&server, "fake_batch_service.py", args);
    return 0;
}

static int down(void **state)
{
    (void)state;
    child_server_close(&server);
    tls_files_remove(&files);
    return 0;
}

static int ask(const char *ca_file, const char *url, struct http_answer *a, struct err *e)
{
    struct http_options o = { .ca_file = ca_file, .timeout_ms = HANG_MS, .stop_fd = -1 };
    struct http_request r = {
        .method = "GET", .url = url, .auth = HTTP_AUTH_BEARER, .secret = "s"
    };
    cleanup_http struct http *h = http_new(&o);
    return http_call(h, &r, a, e);
}

static void refuse(const char *ca_file, const char *url)
{
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    assert_int_equal(ask(ca_file, url, &a, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(a.sent, HTTP_NOT_SENT); /* the secret did not leave */
}

static void a_certificate_that_is_vouched_for_is_taken(void **state)
{
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    char url[96];
    (void)state;
    assert_true(http_url(url, sizeof url, server.url, "v1/batches"));
    assert_int_equal(ask(files.cert, url, &a, &e), 0);
    assert_int_equal(a.status, 200);
}

static void one_that_nobody_vouches_for_is_not(void **state)
{
    (void)state;
    refuse(NULL, server.url);
}

static void one_for_another_host_is_not(void **state)
{
    char url[96];
    (void)state;
    assert_int_equal(
        str_format(url, sizeof url, "https://localhost%s", strrchr(server.url, ':')), 0);
    refuse(files.cert, url);
}

static void authorities_that_cannot_be_read_are_not_left_out(void **state)
{
    (void)state;
    refuse("/nonexistent", server.url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_certificate_that_is_vouched_for_is_taken),
        cmocka_unit_test(one_that_nobody_vouches_for_is_not),
        cmocka_unit_test(one_for_another_host_is_not),
        cmocka_unit_test(authorities_that_cannot_be_read_are_not_left_out),
    };
    return cmocka_run_group_tests(tests, up, down);
}
