/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/wait.h"
#include "tests/fake/fcgi_server.h"

static void ask(int fd, const char *what)
{
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, what, NULL, NULL, true);
    assert_int_equal(client_send(fd, b.data, b.len), 0);
}

/* A connection whose request a handler holds. */
static int held(const struct server *s)
{
    int fd = server_connect(s);
    char byte = 0;
    ask(fd, "hold");
    assert_int_equal(wait_fd(s->entered_fd, POLLIN, clock_deadline(CLIENT_GUARD_MS)), 1);
    assert_int_equal(read(s->entered_fd, &byte, 1), 1);
    return fd;
}

static void let_go(const struct server *s)
{
    assert_int_equal(write(s->release_fd, "r", 1), 1);
}

/* Report 3: TERM while nothing happens at all. */
static void test_term_ends_an_idle_server(void **state)
{
    (void)state;
    const int signals[] = { SIGTERM, SIGINT };
    for (int i = 0; i < 2; i++) {
        struct server s;
        server_start(&s, &(struct server_options){ .threads = 2 });
        server_signal(&s, signals[i]);
        assert_int_equal(server_wait(&s), 0);
    }
}

/* Report 3, with connections that the web server keeps. */
static void test_term_closes_idle_connections(void **state)
{
    (void)state;
    struct server s;
    enum { IDLE = 30 };
    server_start(&s, &(struct server_options){ .threads = 2 });
    int fds[2 * IDLE];
    for (int i = 0; i < 2 * IDLE; i++) { /* kept ones, and some that never said a word */
        fds[i] = server_connect(&s);
        if (i < IDLE) {
            ask(fds[i], "hello");
            server_expect_reply(fds[i], "hello");
        }
    }
    server_await(METRIC_CONNS_OPEN, 2 * IDLE);
    server_signal(&s, SIGTERM);
    assert_int_equal(server_wait(&s), 0);
    for (int i = 0; i < 2 * IDLE; i++) {
        assert_true(client_closed(fds[i]));
        close(fds[i]);
    }
}

/* Report 3: the process ended while other threads were at work. */
static void test_term_lets_requests_in_hand_finish(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 3 });
    cleanup_fd int one = held(&s);
    cleanup_fd int other = held(&s);
    cleanup_fd int idle = server_connect(&s);
    ask(idle, "hello");
    server_expect_reply(idle, "hello");
    server_signal(&s, SIGTERM);
    assert_true(client_closed(idle)); /* now it stops */
    let_go(&s);
    let_go(&s);
    server_expect_reply(one, "held");
    server_expect_reply(other, "held");
    assert_true(client_closed(one));
    assert_true(client_closed(other));
    assert_int_equal(server_wait(&s), 0);
}

static void test_the_second_term_ends_it_at_once(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2 });
    cleanup_fd int fd = held(&s);
    cleanup_fd int idle = server_connect(&s);
    ask(idle, "hello");
    server_expect_reply(idle, "hello");
    server_signal(&s, SIGTERM);
    assert_true(client_closed(idle));
    server_signal(&s, SIGTERM);
    assert_int_equal(server_wait(&s), 1);
    assert_true(client_closed(fd));
}

/* TERM waits for what is in hand, not for a client that will never go on. */
static void test_term_does_not_wait_for_half_a_request(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2 });
    cleanup_fd int fd = server_connect(&s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    client_begin(&b, 1, 1, true);
    assert_int_equal(client_send(fd, b.data, b.len), 0);
    server_await(METRIC_CONNS_WAITING, 1);
    server_stop(&s);
    assert_true(client_closed(fd));
}

static void ask_for_hello(int fd)
{
    ask(fd, "hello");
    server_expect_reply(fd, "hello");
}

/* A reload: the old worker takes no new connections, but answers on those it has until their peer
 * closes them. */
static void test_hup_answers_what_open_connections_still_ask(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2 });
    int busy = held(&s);
    int idle = server_connect(&s);
    int half = server_connect(&s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "hello", NULL, NULL, true);
    assert_int_equal(client_send(half, b.data, 20), 0);
    server_await(METRIC_CONNS_WAITING, 1);
    server_await(METRIC_CONNS_OPEN, 3);
    server_signal(&s, SIGHUP);
    server_signal(&s, SIGHUP); /* twice is once */
    for (int i = 0; i < 20; i++)
        ask_for_hello(idle);
    let_go(&s);
    server_expect_reply(busy, "held");
    assert_int_equal(client_send(half, b.data + 20, b.len - 20), 0);
    server_expect_reply(half, "hello");
    ask_for_hello(busy);
    close(busy);
    close(half);
    ask_for_hello(idle);
    close(idle);
    assert_int_equal(server_wait(&s), 0);
}

/* Connections are taken until the signal has been seen; the first that is not is the next
 * generation's. */
static int connect_until_ignored(const struct server *s)
{
    enum { LOOK_MS = 100, TRIES = 200 };
    for (int i = 0; i < TRIES; i++) {
        int fd = server_connect(s);
        ask(fd, "hello");
        if (wait_fd(fd, POLLIN, clock_deadline(LOOK_MS)) == 0)
            return fd;
        server_expect_reply(fd, "hello");
        close(fd);
    }
    fail_msg("HUP was never seen");
    return -1;
}

static void test_hup_leaves_new_connections_to_the_next_generation(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2 });
    int idle = server_connect(&s);
    server_await(METRIC_CONNS_OPEN, 1);
    server_signal(&s, SIGHUP);
    cleanup_fd int late = connect_until_ignored(&s);
    int64_t accepted = metric_get(METRIC_CONNS_ACCEPTED);
    ask_for_hello(idle);
    assert_int_equal(wait_fd(late, POLLIN, 0), 0);
    assert_int_equal(metric_get(METRIC_CONNS_ACCEPTED), accepted);
    close(idle);
    assert_int_equal(server_wait(&s), 0);
}

/* The reload's promise: a kept connection answers each request, whatever the moment at which HUP
 * comes. */
static void test_hup_loses_no_request(void **state)
{
    (void)state;
    enum { ROUNDS = 24, REQUESTS = 40 };
    for (int round = 0; round < ROUNDS; round++) {
        struct server s;
        server_start(&s, &(struct server_options){ .threads = 2 });
        int fd = server_connect(&s);
        server_await(METRIC_CONNS_OPEN, 1); /* one in the backlog is the next generation's */
        for (int i = 0; i < REQUESTS; i++) {
            if (i == round)
                server_signal(&s, SIGHUP);
            ask_for_hello(fd);
        }
        close(fd);
        assert_int_equal(server_wait(&s), 0);
    }
}

static void test_hup_closes_idle_connections_after_drain_ms(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2, .drain_ms = 100 });
    cleanup_fd int kept = server_connect(&s);
    ask(kept, "hello");
    server_expect_reply(kept, "hello");
    server_signal(&s, SIGHUP);
    assert_true(client_closed(kept));
    assert_int_equal(server_wait(&s), 0);
}

static void test_hup_returns_when_the_peer_has_closed_its_idle_connections(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2 });
    int kept = server_connect(&s);
    ask(kept, "hello");
    server_expect_reply(kept, "hello");
    server_signal(&s, SIGHUP);
    close(kept);
    assert_int_equal(server_wait(&s), 0);
}

static void test_term_after_hup_ends_the_drain(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2 });
    cleanup_fd int kept = server_connect(&s);
    ask(kept, "hello");
    server_expect_reply(kept, "hello");
    server_signal(&s, SIGHUP);
    server_stop(&s);
    assert_true(client_closed(kept));
}

/* Whatever moment TERM comes at, each client gets a whole answer or none at all. */
static void test_term_under_load_cuts_no_answer(void **state)
{
    (void)state;
    enum { ROUNDS = 24, CLIENTS = 12 };
    for (int round = 0; round < ROUNDS; round++) {
        struct server s;
        int fds[CLIENTS];
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        server_request(&b, "hello", NULL, NULL, true);
        server_start(&s, &(struct server_options){ .threads = 4 });
        for (int i = 0; i < CLIENTS; i++)
            fds[i] = server_connect(&s);
        server_await(METRIC_CONNS_OPEN, CLIENTS);
        for (int i = 0; i < CLIENTS; i++) {
            (void)client_send(fds[i], b.data, b.len); /* refused once it is shut */
            if (i == round % CLIENTS)
                server_signal(&s, SIGTERM);
        }
        for (int i = 0; i < CLIENTS; i++) {
            cleanup_reply struct client_reply r = CLIENT_REPLY_INIT;
            int rc = client_receive(fds[i], &r);
            assert_true(rc == 1 || (rc == 0 && strcmp(reply_body(&r), "hello") == 0));
            close(fds[i]);
        }
        assert_int_equal(server_wait(&s), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_term_ends_an_idle_server),
        cmocka_unit_test(test_term_closes_idle_connections),
        cmocka_unit_test(test_term_lets_requests_in_hand_finish),
        cmocka_unit_test(test_the_second_term_ends_it_at_once),
        cmocka_unit_test(test_term_does_not_wait_for_half_a_request),
        cmocka_unit_test(test_hup_answers_what_open_connections_still_ask),
        cmocka_unit_test(test_hup_loses_no_request),
        cmocka_unit_test(test_hup_leaves_new_connections_to_the_next_generation),
        cmocka_unit_test(test_hup_closes_idle_connections_after_drain_ms),
        cmocka_unit_test(test_hup_returns_when_the_peer_has_closed_its_idle_connections),
        cmocka_unit_test(test_term_after_hup_ends_the_drain),
        cmocka_unit_test(test_term_under_load_cuts_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
