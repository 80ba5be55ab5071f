/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/str.h"
#include "tests/fake/fcgi_server.h"

/* Where a test says that others are served meanwhile, the server's read timeout is longer than the
 * client's guard: had they waited for it, the test would fail. */

static void test_a_kept_connection_serves_many_requests(void **state)
{
    struct server *s = *state;
    {
        cleanup_fd int fd = server_connect(s);
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        server_request(&b, "hello", NULL, NULL, true);
        for (int i = 0; i < 200; i++)
            server_expect(fd, &b, "hello");
        assert_int_equal(metric_get(METRIC_CONNS_ACCEPTED), 1);
        assert_int_equal(metric_get(METRIC_CONNS_OPEN), 1);
    }
    server_await(METRIC_CONNS_OPEN, 0);
}

static void test_a_connection_is_closed_when_it_is_not_to_be_kept(void **state)
{
    struct server *s = *state;
    server_expect_alive(s);
    server_await(METRIC_CONNS_OPEN, 0);
}

/* Reference section 2, item 3; report 4. */
static void test_slow_requests_overlap_on_all_threads(void **state)
{
    (void)state;
    struct server s;
    enum { THREADS = 8 };
    server_start(&s, &(struct server_options){ .threads = THREADS });
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "meet", NULL, NULL, true);
    int fds[THREADS];
    for (int i = 0; i < THREADS; i++) {
        fds[i] = server_connect(&s);
        server_send(fds[i], &b);
    }
    for (int i = 0; i < THREADS; i++) {
        server_expect_reply(fds[i], "met");
        close(fds[i]);
    }
    server_stop(&s);
}

/* Section 0; report 1: four idle kept connections on four threads gave others 504. */
static void test_idle_kept_connections_hold_no_thread(void **state)
{
    struct server *s = *state;
    enum { IDLE = 40 };
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "hello", NULL, NULL, true);
    int fds[IDLE];
    for (int i = 0; i < IDLE; i++) {
        fds[i] = server_connect(s);
        server_expect(fds[i], &b, "hello");
    }
    server_expect_alive(s);
    for (int i = 0; i < IDLE; i++) {
        server_expect(fds[i], &b, "hello");
        close(fds[i]);
    }
}

/* Section 2, item 8; report 2: a client that says nothing, one that says BEGIN and no more. */
static void test_silent_and_begin_only_clients_hold_no_thread(void **state)
{
    struct server *s = *state;
    enum { EACH = 10 };
    cleanup_buf struct buf begin = BUF_INIT(CLIENT_REQUEST_MAX);
    client_begin(&begin, 1, 1, true);
    int fds[2 * EACH];
    for (int i = 0; i < 2 * EACH; i++) {
        fds[i] = server_connect(s);
        if (i >= EACH)
            server_send(fds[i], &begin);
    }
    server_await(METRIC_CONNS_WAITING, EACH);
    server_expect_alive(s);
    for (int i = 0; i < 2 * EACH; i++)
        close(fds[i]);
    server_await(METRIC_CONNS_OPEN, 0);
    server_await(METRIC_CONNS_WAITING, 0);
}

static void test_a_request_that_never_becomes_whole_is_closed(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2, .read_timeout_ms = 100 });
    cleanup_buf struct buf begin = BUF_INIT(CLIENT_REQUEST_MAX);
    client_begin(&begin, 1, 1, true);
    cleanup_fd int fd = server_connect(&s);
    server_send(fd, &begin);
    assert_true(client_closed(fd));
    assert_int_equal(metric_get(METRIC_CONNS_EXPIRED), 1);
    server_expect_alive(&s);
    server_stop(&s);
}

/* More bytes than one-byte writes fit into a socket's queue (each costs a whole skb). */
static void test_a_request_sent_byte_by_byte_completes(void **state)
{
    struct server *s = *state;
    static char cookie[1500];
    memset(cookie, 'c', sizeof cookie - 1);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "hello", "HTTP_COOKIE", cookie, true);
    cleanup_fd int fd = server_connect(s);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < b.len; i++)
            assert_int_equal(client_send(fd, b.data + i, 1), 0);
        server_expect_reply(fd, "hello");
    }
    server_await(METRIC_CONNS_WAITING, 0);
}

/* Report 10. */
static void test_stalled_bodies_do_not_block_others(void **state)
{
    struct server *s = *state;
    enum { STALLED = 12, SENT = 150000, OVER = 300000 };
    char *body = calloc(1, OVER);
    assert_non_null(body);
    int fds[STALLED];
    for (int i = 0; i < STALLED; i++) {
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        server_request_body(&b, "hash", body, i % 2 == 0 ? SENT : OVER, true);
        fds[i] = server_connect(s);
        assert_int_equal(client_send(fds[i], b.data, b.len - 1000), 0);
    }
    /* one of those over the window has the only place for a body that is not whole */
    server_await(METRIC_CONNS_WAITING, STALLED - 1);
    server_expect_alive(s);
    for (int i = 0; i < STALLED; i++)
        close(fds[i]);
    free(body);
    server_await(METRIC_CONNS_OPEN, 0);
}

/* Report 5: the answer to these is printed into a buffer of 64 bytes. */
static void test_get_values_never_reaches_libfcgi(void **state)
{
    struct server *s = *state;
    cleanup_buf struct buf values = BUF_INIT(CLIENT_REQUEST_MAX);
    for (int i = 0; i < 12; i++)
        client_pair(&values, "FCGI_MAX_CONNS", "");
    for (int begun = 0; begun <= 2; begun++) {
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        if (begun > 0)
            client_begin(&b, 1, 1, true);
        client_record(&b, CLIENT_GET_VALUES, 0, values.data, values.len, 0);
        buf_puts(&b, "and more bytes, so that the record is looked at");
        cleanup_fd int fd = server_connect(s);
        if (begun == 2) { /* after the waiting room has taken BEGIN */
            assert_int_equal(client_send(fd, b.data, 16), 0);
            server_await(METRIC_CONNS_WAITING, 1);
            assert_int_equal(client_send(fd, b.data + 16, b.len - 16), 0);
        } else {
            server_send(fd, &b);
        }
        assert_true(client_closed(fd));
        server_await(METRIC_CONNS_REFUSED, begun + 1);
    }
    server_expect_alive(s);
}

/* Report 5, CVE-2025-23016. */
static void test_malformed_lengths_are_refused(void **state)
{
    struct server *s = *state;
    cleanup_buf struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
    buf_add(&pairs, "\xff\xff\xff\xfe\xff\xff\xff\xfexxxx", 12);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request_pairs(&b, &pairs, true);
    cleanup_fd int fd = server_connect(s);
    server_send(fd, &b);
    assert_true(client_closed(fd));
    server_await(METRIC_CONNS_REFUSED, 1);
    server_expect_alive(s);
}

/* Report 6: parameters larger than libfcgi's buffer. */
static void test_a_cookie_of_20000_bytes_arrives(void **state)
{
    struct server *s = *state;
    cleanup_fd int fd = server_connect(s);
    static char cookie[20001];
    const size_t sizes[] = { 8100, 8191, 8192, 8193, 20000 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(cookie, 'c', sizes[i]);
        cookie[sizes[i]] = '\0';
        cleanup_buf struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        client_pair(&pairs, "DO", "env");
        client_pair(&pairs, "NAME", "HTTP_COOKIE");
        client_pair(&pairs, "HTTP_COOKIE", cookie);
        server_request_pairs(&b, &pairs, true);
        server_expect(fd, &b, cookie);
    }
}

/* Section 2, item 10: the web server overrides a parameter by sending it again. */
static void test_of_duplicate_parameters_the_last_counts(void **state)
{
    struct server *s = *state;
    cleanup_fd int fd = server_connect(s);
    cleanup_buf struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    client_pair(&pairs, "X", "first");
    client_pair(&pairs, "DO", "env");
    client_pair(&pairs, "NAME", "X");
    client_pair(&pairs, "XY", "another");
    client_pair(&pairs, "X", "last");
    server_request_pairs(&b, &pairs, true);
    server_expect(fd, &b, "last");
}

/* What comes after the first parameters, which are indexed, counts as well; names as long as another,
 * or longer than the index can tell, are told apart. */
static void test_parameters_are_found_however_many_there_are(void **state)
{
    struct server *s = *state;
    cleanup_fd int fd = server_connect(s);
    char name[302];
    const int others[] = { 0, 10, 60, 61, 62, 63, 64, 65, 200 };
    for (size_t i = 0; i < 2 * sizeof others / sizeof others[0]; i++) {
        const bool twice = i % 2 == 1;
        cleanup_buf struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        memset(name, 'N', sizeof name);
        name[i % 4 < 2 ? 3 : 300] = '\0';
        client_pair(&pairs, "DO", "env");
        client_pair(&pairs, "NAME", name);
        client_pair(&pairs, name, "first");
        for (int k = 0; k < others[i / 2]; k++)
            client_pair(&pairs, "XXX", "another");
        if (twice)
            client_pair(&pairs, name, "last");
        name[i % 4 < 2 ? 2 : 299] = 'M';
        client_pair(&pairs, name, "as long");
        server_request_pairs(&b, &pairs, true);
        server_expect(fd, &b, twice ? "last" : "first");
    }
}

static void test_a_second_request_sent_along_is_not_answered_wrongly(void **state)
{
    struct server *s = *state;
    cleanup_fd int fd = server_connect(s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "hello", NULL, NULL, true);
    server_request(&b, "empty", NULL, NULL, true);
    server_expect(fd, &b, "hello");
    assert_true(client_closed(fd));
    server_expect_alive(s);
}

/* ... and where the waiting room took the first, the second is answered too. */
static void test_a_second_request_sent_after_a_slow_first_is_answered(void **state)
{
    struct server *s = *state;
    cleanup_fd int fd = server_connect(s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "empty", NULL, NULL, true);
    server_request(&b, "hello", NULL, NULL, true);
    assert_int_equal(client_send(fd, b.data, 20), 0);
    server_await(METRIC_CONNS_WAITING, 1);
    assert_int_equal(client_send(fd, b.data + 20, b.len - 20), 0);
    server_expect_reply(fd, "");
    server_expect_reply(fd, "hello");
}

static void test_a_request_whose_client_shut_its_side_is_answered(void **state)
{
    struct server *s = *state;
    cleanup_fd int fd = server_connect(s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "hello", NULL, NULL, true);
    server_send(fd, &b);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    server_expect_reply(fd, "hello");
    assert_true(client_closed(fd));
}

/* How many lines the server has logged. */
static int log_lines(FILE *log)
{
    int lines = 0;
    rewind(log);
    for (int c = 0; (c = getc(log)) != EOF;)
        lines += c == '\n';
    return lines;
}

/* Section 2, item 4: errors of accept end naive loops for good, or have them spin. Each attempt that
 * fails is logged: six of them take five pauses at least. */
static void test_running_out_of_descriptors_is_survived_without_spinning(void **state)
{
    (void)state;
    struct server s;
    enum { SPARE = 4, CLIENTS = 12, ATTEMPTS = 6, PAUSE_MS = 100 };
    FILE *log = tmpfile();
    assert_non_null(log);
    char path[64]; /* an offset of its own for the child */
    (void)str_format(path, sizeof path, "/proc/self/fd/%d", fileno(log));
    cleanup_fd int log_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    server_start(
        &s, &(struct server_options){ .threads = 2, .spare_fds = SPARE, .log_fd = log_fd });
    int fds[CLIENTS];
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "hello", NULL, NULL, true);
    int64_t began_ns = clock_mono_ns();
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = server_connect(&s);
        server_send(fds[i], &b);
    }
    server_await(METRIC_CONNS_OPEN, SPARE);
    while (log_lines(log) < ATTEMPTS)
        assert_true(clock_mono_ns() - began_ns < CLIENT_GUARD_MS * (int64_t)NS_PER_MS);
    assert_true(clock_mono_ns() - began_ns >= (ATTEMPTS - 1) * PAUSE_MS * (int64_t)NS_PER_MS);
    for (int i = 0; i < CLIENTS; i++) { /* each close makes room for the next */
        server_expect_reply(fds[i], "hello");
        close(fds[i]);
    }
    server_expect_alive(&s);
    server_stop(&s);
    (void)fclose(log);
}

static void fill_to_max_conns(void)
{
    struct server s;
    enum { MAX = 16 };
    server_start(&s, &(struct server_options){ .threads = 2, .max_conns = MAX });
    int fds[MAX + 1];
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "hello", NULL, NULL, true);
    for (int i = 0; i < MAX; i++) {
        fds[i] = server_connect(&s);
        server_expect(fds[i], &b, "hello");
    }
    fds[MAX] = server_connect(&s);
    server_send(fds[MAX], &b);
    server_expect(fds[0], &b, "hello");
    assert_int_equal(metric_get(METRIC_CONNS_ACCEPTED), MAX);
    for (int i = 0; i <= MAX; i++) {
        if (i == MAX)
            server_expect_reply(fds[i], "hello");
        close(fds[i]);
    }
    server_stop(&s);
}

/* Many times: a thread that met the limit because of a place another one gave back unused once stopped
 * listening for good. */
static void test_at_max_conns_others_wait_in_the_backlog(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++)
        fill_to_max_conns();
}

static void test_a_handler_that_does_not_answer_costs_its_connection_only(void **state)
{
    struct server *s = *state;
    cleanup_fd int fd = server_connect(s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "mute", NULL, NULL, true);
    server_send(fd, &b);
    assert_true(client_closed(fd));
    server_expect_alive(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(test_a_kept_connection_serves_many_requests),
        SERVER_TEST(test_a_connection_is_closed_when_it_is_not_to_be_kept),
        cmocka_unit_test(test_slow_requests_overlap_on_all_threads),
        SERVER_TEST(test_idle_kept_connections_hold_no_thread),
        SERVER_TEST(test_silent_and_begin_only_clients_hold_no_thread),
        cmocka_unit_test(test_a_request_that_never_becomes_whole_is_closed),
        SERVER_TEST(test_a_request_sent_byte_by_byte_completes),
        SERVER_TEST(test_stalled_bodies_do_not_block_others),
        SERVER_TEST(test_get_values_never_reaches_libfcgi),
        SERVER_TEST(test_malformed_lengths_are_refused),
        SERVER_TEST(test_a_cookie_of_20000_bytes_arrives),
        SERVER_TEST(test_of_duplicate_parameters_the_last_counts),
        SERVER_TEST(test_parameters_are_found_however_many_there_are),
        SERVER_TEST(test_a_second_request_sent_along_is_not_answered_wrongly),
        SERVER_TEST(test_a_second_request_sent_after_a_slow_first_is_answered),
        SERVER_TEST(test_a_request_whose_client_shut_its_side_is_answered),
        cmocka_unit_test(test_running_out_of_descriptors_is_survived_without_spinning),
        cmocka_unit_test(test_at_max_conns_others_wait_in_the_backlog),
        SERVER_TEST(test_a_handler_that_does_not_answer_costs_its_connection_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
