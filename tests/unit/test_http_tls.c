/* SPDX-License-Identifier: Apache-2.0
 * Certificates are verified: by the given authorities, and for the right host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "http/http.h"
#include "tests/fake/child_server.h"

enum { HANG_MS = 30000, SKIPPED = 77 };

static char dir[] = "/tmp/wb-tls-XXXXXX";
static char cert[64];
static char key[64];
static struct child_server server;

/* A certificate for 127.0.0.1 that nobody but itself vouches for. */
static void make_certificate(void)
{
    int status = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execlp("openssl", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test", "-addext",
            "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert, (char *)NULL);
        _exit(SKIPPED);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        exit(SKIPPED);
    assert_int_equal(status, 0);
}

static int up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(str_format(cert, sizeof cert, "%s/cert", dir), 0);
    assert_int_equal(str_format(key, sizeof key, "%s/key", dir), 0);
    make_certificate();
    const char *const args[] = { "--tls", cert, key, NULL };
    child_server_open(&server, "fake_batch_service.py", args);
    return 0;
}

static int down(void **state)
{
    (void)state;
    child_server_close(&server);
    (void)unlink(cert);
    (void)unlink(key);
    return rmdir(dir);
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
    assert_int_equal(ask(cert, url, &a, &e), 0);
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
    refuse(cert, url);
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
