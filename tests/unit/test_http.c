/* SPDX-License-Identifier: Apache-2.0
 * HTTP calls: policy, errors, how far a call came, secrets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/stop.h"
#include "http/http.h"
#include "http/http_json.h"
#include "tests/fake/http_server.h"

enum { HANG_MS = 30000 };

#define OK_EMPTY "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define SECRET   "sk-very-secret-0123456789"

#define STEPS(...) \
    ((const struct http_step[]){ __VA_ARGS__ }), \
        sizeof((const struct http_step[]){ __VA_ARGS__ }) / sizeof(struct http_step)
#define ANSWER(text) \
    { \
        .kind = HTTP_STEP_ANSWER, .bytes = (text) \
    }
#define STEP(what) \
    { \
        .kind = HTTP_STEP_##what, .bytes = "" \
    }

/* A client that no test's slowness makes time out. */
static struct http *client(const struct http_server *s)
{
    struct http_options o = {
        .unix_socket = s == NULL ? NULL : s->unix_socket,
        .timeout_ms = HANG_MS,
        .connect_ms = HANG_MS,
        .stop_fd = -1,
    };
    return http_new(&o);
}

static struct http_request get(const struct http_server *s)
{
    return (struct http_request){ .method = "GET", .url = s->url };
}

static void an_answer_of_any_status_is_one(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s,
        STEPS(ANSWER("HTTP/1.1 200 OK\r\nX-Request-Id: r-1\r\nContent-Length: 2\r\n\r\nhi"),
            ANSWER("HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"),
            ANSWER("HTTP/1.1 503 No\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n"),
            ANSWER(
                "HTTP/1.1 500 No\r\nRetry-After: Thu, 01 Jan 2099 00:00:00 GMT\r\nContent-Length: "
                "0\r\n\r\n")),
        false);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);

    assert_int_equal(http_call(h, &r, &a, &e), 0);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body.data, "hi");
    assert_string_equal(a.request_id, "r-1");
    assert_int_equal(a.retry_after_ms, 0);
    assert_int_equal(a.sent, HTTP_SENT);

    assert_int_equal(http_call(h, &r, &a, &e), 0);
    assert_int_equal(a.status, 429);
    assert_string_equal(a.body.data, "busy");
    assert_string_equal(a.request_id, ""); /* not the last one's */
    assert_int_equal(a.retry_after_ms, 7000);

    assert_int_equal(http_call(h, &r, &a, &e), 0);
    assert_int_equal(a.retry_after_ms, 3600 * 1000); /* an hour is long enough */
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    assert_int_equal(a.retry_after_ms, 3600 * 1000); /* a date */
    http_server_close(&s);
    assert_int_equal(s.connections, 1); /* kept */
    http_server_free(&s);
}

static void methods_and_bodies_go_out(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s, STEPS(ANSWER(OK_EMPTY), ANSWER(OK_EMPTY), ANSWER(OK_EMPTY)), true);
    cleanup_http struct http *h = client(&s);
    struct http_request r = { .method = "POST",
        .url = "http://server/a?b=c",
        .body = "x\0y",
        .body_size = 3,
        .content_type = "text/plain" };
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    r = (struct http_request){ .method = "POST", .url = "http://server/none" };
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    r = (struct http_request){ .method = "DELETE", .url = "http://server/gone" };
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    http_server_close(&s);
    assert_int_equal(http_server_heard(&s, "POST /a?b=c HTTP/1.1\r\n"), 1);
    assert_int_equal(http_server_heard(&s, "Content-Type: text/plain\r\n"), 1);
    assert_int_equal(http_server_heard(&s, "Content-Length: 3\r\n"), 1);
    assert_int_equal(http_server_heard(&s, "POST /none HTTP/1.1\r\n"), 1);
    assert_int_equal(http_server_heard(&s, "Content-Length: 0\r\n"), 1);
    assert_int_equal(http_server_heard(&s, "Content-Type:"), 1);
    assert_int_equal(http_server_heard(&s, "DELETE /gone HTTP/1.1\r\n"), 1);
    assert_int_equal(http_server_heard(&s, "User-Agent: weighbridge\r\n"), 3);
    assert_int_equal(http_server_heard(&s, "Expect"), 0);
    http_server_free(&s);
}

static void credentials_go_into_their_header_only(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s, STEPS(ANSWER(OK_EMPTY), ANSWER(OK_EMPTY), ANSWER(OK_EMPTY)), false);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);
    r.auth = HTTP_AUTH_BEARER;
    r.secret = SECRET;
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    r.auth = HTTP_AUTH_BASIC_USER;
    r.secret = "user";
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    r.auth = HTTP_AUTH_NONE; /* nothing of the call before stays */
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    http_server_close(&s);
    assert_int_equal(http_server_heard(&s, "Authorization: Bearer " SECRET "\r\n"), 1);
    assert_int_equal(http_server_heard(&s, "Authorization: Basic dXNlcjo=\r\n"), 1);
    assert_int_equal(http_server_heard(&s, "Authorization:"), 2);
    http_server_free(&s);
}

static void a_secret_that_breaks_its_header_is_not_sent(void **state)
{
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    cleanup_http struct http *h = client(NULL);
    struct http_request r = { .method = "GET",
        .url = "http://127.0.0.1:1/",
        .auth = HTTP_AUTH_BEARER,
        .secret = "a\r\nX-Evil: 1" };
    assert_int_equal(http_call(h, &r, &a, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
}

static void redirects_are_answers(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s,
        STEPS(ANSWER("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")),
        false);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    assert_int_equal(a.status, 302);
    assert_int_equal(http_classify(a.status), HTTP_CLASS_REFUSED);
    http_server_close(&s);
    http_server_free(&s);
}

static void only_http_and_https(void **state)
{
    static const char *const URLS[] = { "file:///etc/passwd", "ftp://127.0.0.1/", "gopher://a/",
        "http://user:" SECRET "@127.0.0.1/", "not a url", "", "http://" };
    (void)state;
    cleanup_http struct http *h = client(NULL);
    for (size_t i = 0; i < sizeof URLS / sizeof URLS[0]; i++) {
        cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
        struct err e = ERR_INIT;
        struct http_request r = { .method = "GET", .url = URLS[i] };
        assert_int_equal(http_call(h, &r, &a, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
        assert_int_equal(a.status, 0);
        assert_int_equal(a.sent, HTTP_NOT_SENT);
        assert_null(strstr(e.msg, SECRET));
    }
}

/* A port where nobody listens: nothing was sent, so the call certainly did nothing. */
static void a_refused_connection_sent_nothing(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s, NULL, 0, false);
    http_server_close(&s);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);
    assert_int_equal(http_call(h, &r, &a, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(a.sent, HTTP_NOT_SENT);
    http_server_free(&s);
}

static void a_lost_answer_may_have_been_done(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s,
        STEPS(STEP(DROP), { .kind = HTTP_STEP_LAST,
                              .bytes = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf" }),
        false);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);
    assert_int_equal(http_call(h, &r, &a, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(a.sent, HTTP_SENT);
    /* The head came, the body broke off: no answer either. */
    assert_int_equal(http_call(h, &r, &a, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(a.status, 0);
    assert_int_equal(a.body.len, 0);
    http_server_close(&s);
    http_server_free(&s);
}

static void no_answer_in_time_is_a_timeout(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s, STEPS(STEP(HOLD)), false);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);
    r.timeout_ms = 2000; /* to be sent in, on a busy machine; never to be answered in */
    assert_int_equal(http_call(h, &r, &a, &e), -1);
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_int_equal(a.sent, HTTP_SENT);
    http_server_close(&s);
    http_server_free(&s);
    r.timeout_ms = -1; /* no time was left to begin with */
    assert_int_equal(http_call(h, &r, &a, &e), -1);
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_int_equal(a.sent, HTTP_NOT_SENT);
}

/* libcurl sends a request anew when a kept connection turns out dead, a POST too. What must not happen
 * twice is sent on a fresh one, where that cannot be. */
static void what_must_not_happen_twice_is_sent_once(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s, STEPS(ANSWER(OK_EMPTY), STEP(DROP)), false);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    r.method = "POST";
    r.once = true;
    assert_int_equal(http_call(h, &r, &a, &e), -1);
    assert_int_equal(a.sent, HTTP_SENT);
    http_server_close(&s);
    assert_int_equal(http_server_heard(&s, "POST / "), 1);
    assert_int_equal(s.connections, 2);
    http_server_free(&s);
}

static void too_large_an_answer_is_cut_short(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    (void)state;
    http_server_open(&s,
        STEPS({ .kind = HTTP_STEP_LAST,
                  .bytes = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345" },
            { .kind = HTTP_STEP_LAST, .bytes = "HTTP/1.1 200 OK\r\n\r\n12345" },
            { .kind = HTTP_STEP_LAST, .bytes = "HTTP/1.1 200 OK\r\n\r\n1234" }),
        false);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);
    r.body_max = 4;
    for (int i = 0; i < 2; i++) { /* told beforehand, and not */
        assert_int_equal(http_call(h, &r, &a, &e), -1);
        assert_int_equal(e.code, ERR_TOO_LARGE);
        assert_int_equal(a.status, 0);
    }
    assert_int_equal(http_call(h, &r, &a, &e), 0);
    assert_string_equal(a.body.data, "1234");
    http_server_close(&s);
    http_server_free(&s);
}

struct stopped_call {
    struct http_server *server;
    int stop_fd;
    int result;
    struct err e;
    struct http_answer a;
};

static void *call_and_wait(void *arg)
{
    struct stopped_call *c = arg;
    struct http_options o = { .timeout_ms = HANG_MS, .stop_fd = c->stop_fd };
    cleanup_http struct http *h = http_new(&o);
    struct http_request r = get(c->server);
    c->result = http_call(h, &r, &c->a, &c->e);
    return NULL;
}

/* The server never answers, so that only the stop can end the call before its time. */
static void a_stop_ends_the_call(void **state)
{
    struct http_server s;
    pthread_t thread;
    struct stopped_call c = { .server = &s, .e = ERR_INIT, .a = HTTP_ANSWER_INIT };
    struct err e = ERR_INIT;
    (void)state;
    c.stop_fd = stop_event_fd(&e);
    assert_true(c.stop_fd >= 0);
    http_server_open(&s, STEPS(STEP(HOLD)), false);
    assert_int_equal(pthread_create(&thread, NULL, call_and_wait, &c), 0);
    http_server_wait_held(&s);
    stop_raise(c.stop_fd);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(c.result, -1);
    assert_int_equal(c.e.code, ERR_UNAVAILABLE);
    assert_true(c.a.stopped);
    assert_int_equal(c.a.sent, HTTP_SENT);
    http_server_close(&s);
    http_server_free(&s);
    http_answer_fini(&c.a);
    close(c.stop_fd);
}

static void what_statuses_mean(void **state)
{
    static const int RETRY[] = { 408, 425, 429, 500, 502, 503, 504, 599 };
    static const int REFUSED[] = { 0, 199, 300, 304, 400, 401, 403, 404, 405, 409, 413, 422 };
    (void)state;
    assert_int_equal(http_classify(200), HTTP_CLASS_OK);
    assert_int_equal(http_classify(299), HTTP_CLASS_OK);
    for (size_t i = 0; i < sizeof RETRY / sizeof RETRY[0]; i++)
        assert_int_equal(http_classify(RETRY[i]), HTTP_CLASS_RETRY);
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++)
        assert_int_equal(http_classify(REFUSED[i]), HTTP_CLASS_REFUSED);
}

static void json_goes_out_and_comes_in(void **state)
{
    struct http_server s;
    cleanup_http_answer struct http_answer a = HTTP_ANSWER_INIT;
    struct err e = ERR_INIT;
    int64_t n = 0;
    (void)state;
    http_server_open(&s,
        STEPS(ANSWER("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"n\":3}"), ANSWER(OK_EMPTY),
            ANSWER("HTTP/1.1 502 No\r\nContent-Length: 9\r\n\r\n<html>no<"),
            ANSWER("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html>no<")),
        false);
    cleanup_http struct http *h = client(&s);
    struct http_request r = get(&s);
    cleanup_json json_object *in = NULL;
    cleanup_json json_object *out = jx_object();
    jx_set_str(out, "a", "b/c");
    r.method = "POST";
    assert_int_equal(http_json(h, &r, out, &a, &in, &e), 0);
    assert_true(jx_get_int(in, "n", &n));
    assert_int_equal(n, 3);
    json_object_put(STEAL(in));
    assert_int_equal(http_json(h, &r, NULL, &a, &in, &e), 0);
    assert_null(in);
    assert_int_equal(http_json(h, &r, NULL, &a, &in, &e), 0);
    assert_null(in);
    assert_int_equal(a.status, 502);
    assert_int_equal(http_json(h, &r, NULL, &a, &in, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_int_equal(a.status, 200);
    http_server_close(&s);
    assert_int_equal(http_server_heard(&s, "\r\n\r\n{\"a\":\"b/c\"}"), 1);
    assert_int_equal(http_server_heard(&s, "Content-Type: application/json\r\n"), 1);
    http_server_free(&s);
}

static void foreign_texts_are_made_harmless(void **state)
{
    char out[16];
    char wide[64];
    (void)state;
    http_quote(wide, sizeof wide, "key " SECRET " is " SECRET "!", SECRET);
    assert_string_equal(wide, "key *** is ***!");
    http_quote(wide, sizeof wide, "a\nb\x1b[c\xC2\x9F\xFFz", NULL);
    assert_string_equal(wide, "a?b?[c??z");
    http_quote(out, sizeof out, "0123456789abcdefgh", NULL);
    assert_string_equal(out, "0123456789abcde");
    http_quote(out, sizeof out, "0123456789abcd\xC3\xA4", NULL); /* whole characters only */
    assert_string_equal(out, "0123456789abcd");
    http_quote(out, sizeof out, "", "");
    assert_string_equal(out, "");
}

static void urls_are_put_together(void **state)
{
    char out[32];
    cleanup_buf struct buf b = BUF_INIT(64);
    (void)state;
    assert_true(http_url(out, sizeof out, "http://h/v1", "/a/b"));
    assert_string_equal(out, "http://h/v1/a/b");
    assert_true(http_url(out, sizeof out, "http://h/v1//", "a"));
    assert_string_equal(out, "http://h/v1/a");
    assert_false(http_url(out, sizeof out, "http://host.example/", "0123456789ab"));
    http_url_escape(&b, "a/b?c&d ../\xC3\xA4");
    assert_string_equal(b.data, "a%2Fb%3Fc%26d%20..%2F%C3%A4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_of_any_status_is_one),
        cmocka_unit_test(methods_and_bodies_go_out),
        cmocka_unit_test(credentials_go_into_their_header_only),
        cmocka_unit_test(a_secret_that_breaks_its_header_is_not_sent),
        cmocka_unit_test(redirects_are_answers),
        cmocka_unit_test(only_http_and_https),
        cmocka_unit_test(a_refused_connection_sent_nothing),
        cmocka_unit_test(a_lost_answer_may_have_been_done),
        cmocka_unit_test(no_answer_in_time_is_a_timeout),
        cmocka_unit_test(what_must_not_happen_twice_is_sent_once),
        cmocka_unit_test(too_large_an_answer_is_cut_short),
        cmocka_unit_test(a_stop_ends_the_call),
        cmocka_unit_test(what_statuses_mean),
        cmocka_unit_test(json_goes_out_and_comes_in),
        cmocka_unit_test(foreign_texts_are_made_harmless),
        cmocka_unit_test(urls_are_put_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
