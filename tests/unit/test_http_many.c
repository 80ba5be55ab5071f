/* SPDX-License-Identifier: Apache-2.0
 * Many calls at once: how each ends, that its end is told once, and what a turn waits for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "http/http_many.h"
#include "tests/fake/http_server.h"

enum { HANG_MS = 30000, TURN_MS = 1000, ANSWER_MAX = 64, ENDS_MAX = 8 };

#define SECRET "sk-very-secret-0123456789"
#define BODY   "{\"n\":1}"

#define STEPS(...) \
    ((const struct http_step[]){ __VA_ARGS__ }), \
        sizeof((const struct http_step[]){ __VA_ARGS__ }) / sizeof(struct http_step)
#define STEP(what, text) \
    { \
        .kind = HTTP_STEP_##what, .bytes = (text) \
    }

/* What was told, in order. */
struct told {
    struct {
        void *ctx;
        int status;
        bool reached;
        int64_t retry_after_ms;
        char request_id[HTTP_MANY_ID_SIZE];
        char body[ANSWER_MAX + 1];
        struct err why;
    } end[ENDS_MAX];
    size_t n;
    struct http_many *m;        /* to begin another from within */
    struct http_many_request r; /* url NULL: none */
};

static void note(void *ctx, const struct http_many_end *end)
{
    struct told *t = ctx;

    assert_true(t->n < ENDS_MAX);
    assert_int_equal(strlen(end->body), end->size);
    t->end[t->n].ctx = end->ctx;
    t->end[t->n].status = end->status;
    t->end[t->n].reached = end->reached;
    t->end[t->n].retry_after_ms = end->retry_after_ms;
    assert_int_equal(str_copy(t->end[t->n].request_id, HTTP_MANY_ID_SIZE, end->request_id), 0);
    assert_int_equal(str_copy(t->end[t->n].body, ANSWER_MAX + 1, end->body), 0);
    t->end[t->n++].why = end->why;
    if (t->r.url != NULL) {
        const struct http_many_request r = t->r;
        t->r.url = NULL;
        (void)http_many_start(t->m, &r);
    }
}

static struct http_many *opened(const char *bearer)
{
    const struct http_many_options o = { .bearer = bearer, .connect_ms = HANG_MS, .keep = 4 };
    struct http_many *m = NULL;
    struct err e = ERR_INIT;

    if (http_many_open(&o, &m, &e) < 0)
        fail_msg("%s", e.msg);
    return m;
}

static struct http_many_request post(const struct http_server *s, void *ctx)
{
    return (struct http_many_request){ .url = s->url,
        .body = BODY,
        .body_size = strlen(BODY),
        .timeout_ms = HANG_MS,
        .answer_max = ANSWER_MAX,
        .ctx = ctx };
}

static void until_told(struct http_many *m, struct told *t, size_t n)
{
    for (int turns = 0; t->n < n; turns++) {
        assert_true(turns < 10000);
        http_many_turn(m, TURN_MS, note, t);
    }
}

/* Returns when the server has the request, and says nothing. */
static void held(struct http_many *m, struct http_server *s, struct told *t)
{
    struct pollfd holds = { .fd = s->holding_fd, .events = POLLIN };
    for (int turns = 0; poll(&holds, 1, 0) == 0; turns++) {
        assert_true(turns < HANG_MS);
        http_many_turn(m, 1, note, t);
    }
}

static void ends_are_told_with_what_was_answered(void **state)
{
    struct http_server s;
    struct told t = { .n = 0 };
    int one = 0;
    int two = 0;
    (void)state;
    http_server_open(&s,
        STEPS(STEP(ANSWER, "HTTP/1.1 200 OK\r\nX-Request-Id: r-1\r\nContent-Length: 2\r\n\r\nhi"),
            STEP(ANSWER, "HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy")),
        false);
    cleanup_http_many struct http_many *m = opened(SECRET);
    const struct http_many_request first = post(&s, &one);
    const struct http_many_request second = post(&s, &two);

    (void)http_many_start(m, &first);
    until_told(m, &t, 1);
    (void)http_many_start(m, &second); /* the first one's handle again */
    until_told(m, &t, 2);
    http_server_close(&s);
    assert_ptr_equal(t.end[0].ctx, &one);
    assert_int_equal(t.end[0].status, 200);
    assert_string_equal(t.end[0].body, "hi");
    assert_string_equal(t.end[0].request_id, "r-1");
    assert_int_equal(t.end[0].retry_after_ms, 0);
    assert_ptr_equal(t.end[1].ctx, &two);
    assert_int_equal(t.end[1].status, 429);
    assert_string_equal(t.end[1].body, "busy");
    assert_string_equal(t.end[1].request_id, ""); /* not the last one's */
    assert_int_equal(t.end[1].retry_after_ms, 7000);
    assert_int_equal(s.connections, 1); /* kept */
    assert_int_equal(http_server_heard(&s, "POST / HTTP/1.1"), 2);
    assert_int_equal(http_server_heard(&s, "Authorization: Bearer " SECRET "\r\n"), 2);
    assert_int_equal(http_server_heard(&s, "Content-Type: application/json\r\n"), 2);
    assert_int_equal(http_server_heard(&s, "\r\n\r\n" BODY), 2);
    http_server_free(&s);
}

static void what_is_no_answer_says_why_and_whether_anything_was_sent(void **state)
{
    struct http_server s;
    struct told t = { .n = 0 };
    (void)state;
    http_server_open(&s,
        STEPS(STEP(DROP, ""),
            STEP(LAST, "HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n"
                       "0123456789012345678901234567890123456789012345678901234567890123456789"),
            STEP(LAST, "HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\nshort")),
        false);
    cleanup_http_many struct http_many *m = opened(NULL);
    struct http_many_request r = post(&s, NULL);

    for (size_t i = 1; i <= 3; i++) {
        (void)http_many_start(m, &r);
        until_told(m, &t, i);
        assert_int_equal(t.end[i - 1].status, 0);
        assert_true(t.end[i - 1].reached);
        assert_string_equal(t.end[i - 1].body, "");
    }
    http_server_close(&s);
    http_server_free(&s);
    assert_int_equal(t.end[0].why.code, ERR_UNAVAILABLE);
    assert_int_equal(t.end[1].why.code, ERR_TOO_LARGE);
    assert_non_null(strstr(t.end[1].why.msg, "64 bytes"));
    (void)http_many_start(m, &r); /* nobody listens there any more */
    until_told(m, &t, 4);
    assert_int_equal(t.end[3].why.code, ERR_UNAVAILABLE);
    assert_false(t.end[3].reached);
}

static void an_answer_that_does_not_come_is_a_timeout(void **state)
{
    struct http_server s;
    struct told t = { .n = 0 };
    (void)state;
    http_server_open(&s, STEPS(STEP(HOLD, "")), false);
    cleanup_http_many struct http_many *m = opened(NULL);
    struct http_many_request r = post(&s, NULL);

    r.timeout_ms = 100;
    (void)http_many_start(m, &r);
    until_told(m, &t, 1);
    http_server_close(&s);
    http_server_free(&s);
    assert_int_equal(t.end[0].why.code, ERR_TIMEOUT);
    assert_true(t.end[0].reached);
}

static void redirects_are_answers_and_not_followed(void **state)
{
    struct http_server s;
    struct told t = { .n = 0 };
    (void)state;
    http_server_open(&s,
        STEPS(STEP(ANSWER,
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")),
        false);
    cleanup_http_many struct http_many *m = opened(SECRET);
    struct http_many_request r = post(&s, NULL);

    (void)http_many_start(m, &r);
    until_told(m, &t, 1);
    http_server_close(&s);
    assert_int_equal(t.end[0].status, 302);
    assert_int_equal(s.connections, 1);
    http_server_free(&s);
}

static void a_call_may_begin_while_ends_are_told(void **state)
{
    struct http_server s;
    struct told t = { .n = 0 };
    int one = 0;
    int two = 0;
    (void)state;
    http_server_open(&s,
        STEPS(STEP(ANSWER, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"),
            STEP(ANSWER, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb")),
        false);
    cleanup_http_many struct http_many *m = opened(NULL);
    struct http_many_request r = post(&s, &one);

    t.m = m;
    t.r = post(&s, &two);
    (void)http_many_start(m, &r);
    until_told(m, &t, 2);
    http_server_close(&s);
    http_server_free(&s);
    assert_ptr_equal(t.end[0].ctx, &one);
    assert_string_equal(t.end[0].body, "a");
    assert_ptr_equal(t.end[1].ctx, &two);
    assert_string_equal(t.end[1].body, "b");
}

static void what_was_dropped_is_not_told(void **state)
{
    struct http_server s;
    struct told t = { .n = 0 };
    int kept = 0;
    (void)state;
    http_server_open(&s,
        STEPS(STEP(HOLD, ""), STEP(ANSWER, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")), false);
    cleanup_http_many struct http_many *m = opened(NULL);
    struct http_many_request r = post(&s, NULL);

    struct http_many_call *c = http_many_start(m, &r);
    held(m, &s, &t);
    http_many_drop(m, c);
    r.ctx = &kept;
    (void)http_many_start(m, &r);
    until_told(m, &t, 1);
    http_server_close(&s);
    http_server_free(&s);
    assert_ptr_equal(t.end[0].ctx, &kept);
    assert_int_equal(t.n, 1);
}

/* Nothing is told, and nothing stays behind. */
static void closing_ends_what_is_under_way(void **state)
{
    struct http_server s;
    struct told t = { .n = 0 };
    (void)state;
    http_server_open(&s, STEPS(STEP(HOLD, "")), false);
    struct http_many *m = opened(NULL);
    struct http_many_request r = post(&s, NULL);

    (void)http_many_start(m, &r);
    held(m, &s, &t);
    http_many_close(m);
    http_server_close(&s);
    http_server_free(&s);
    assert_int_equal(t.n, 0);
    http_many_close(NULL);
}

static void *wake(void *ctx)
{
    http_many_wake(ctx);
    return NULL;
}

static void a_turn_ends_when_another_thread_wakes_it(void **state)
{
    struct told t = { .n = 0 };
    pthread_t thread;
    (void)state;
    cleanup_http_many struct http_many *m = opened(NULL);

    http_many_wake(m); /* before it */
    http_many_turn(m, INT32_MAX, note, &t);
    assert_int_equal(pthread_create(&thread, NULL, wake, m), 0);
    http_many_turn(m, INT32_MAX, note, &t);
    pthread_join(thread, NULL);
    assert_int_equal(t.n, 0);
}

static void a_token_of_two_lines_is_refused_and_not_repeated(void **state)
{
    const struct http_many_options o = { .bearer = SECRET "\r\nX: y" };
    struct http_many *m = NULL;
    struct err e = ERR_INIT;
    (void)state;
    assert_int_equal(http_many_open(&o, &m, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_null(strstr(e.msg, SECRET));
    assert_null(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_told_with_what_was_answered),
        cmocka_unit_test(what_is_no_answer_says_why_and_whether_anything_was_sent),
        cmocka_unit_test(an_answer_that_does_not_come_is_a_timeout),
        cmocka_unit_test(redirects_are_answers_and_not_followed),
        cmocka_unit_test(a_call_may_begin_while_ends_are_told),
        cmocka_unit_test(what_was_dropped_is_not_told),
        cmocka_unit_test(closing_ends_what_is_under_way),
        cmocka_unit_test(a_turn_ends_when_another_thread_wakes_it),
        cmocka_unit_test(a_token_of_two_lines_is_refused_and_not_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
