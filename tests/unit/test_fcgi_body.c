/* SPDX-License-Identifier: Apache-2.0 */
#include <fcgiapp.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "base/digest.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "base/str.h"
#include "fcgi/fcgi_peek.h"
#include "tests/fake/fcgi_server.h"

static char *make_body(size_t size)
{
    char *body = malloc(size + 1);
    assert_non_null(body);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)(i * 2654435761U >> 24);
    return body;
}

static void expect_hash(int fd, const char *body, size_t size)
{
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    char hex[DIGEST_HEX_SIZE];
    char expected[128];
    digest_hex(body, size, hex);
    (void)str_format(expected, sizeof expected, "%zu %s", size, hex);
    server_request_body(&b, "hash", body, size, true);
    server_expect(fd, &b, expected);
}

/* Report 8. Sizes about libfcgi's buffer, about a record, about the window, and far over it. */
static void test_bodies_of_all_sizes_arrive_whole(void **state)
{
    struct server *s = *state;
    const size_t sizes[] = { 0, 1, 4095, 4096, 8191, 8192, 8193, 65535, 65536,
        FCGI_PEEK_WINDOW - 400, FCGI_PEEK_WINDOW, 5000000 };
    cleanup_fd int fd = server_connect(s);
    char *body = make_body(5000000);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        expect_hash(fd, body, sizes[i]);
    free(body);
    assert_int_equal(metric_get(METRIC_CONNS_ACCEPTED), 1);
}

/* Half the threads at most take bodies that are not whole; the others come in turn. */
static void test_more_large_bodies_than_places_all_arrive(void **state)
{
    (void)state;
    struct server s;
    enum { CLIENTS = 6, SIZE = 1000000, FIRST = 250000 };
    server_start(&s, &(struct server_options){ .threads = 4 });
    char *body = make_body(SIZE);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request_body(&b, "hash", body, SIZE, true);
    char hex[DIGEST_HEX_SIZE];
    char expected[128];
    digest_hex(body, SIZE, hex);
    (void)str_format(expected, sizeof expected, "%d %s", SIZE, hex);
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) { /* over the window: each wants a place, in this order */
        fds[i] = server_connect(&s);
        assert_int_equal(client_send(fds[i], b.data, FIRST), 0);
        server_await(METRIC_CONNS_WAITING, i < 2 ? 0 : i - 1);
    }
    server_expect_alive(&s);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(client_send(fds[i], b.data + FIRST, b.len - FIRST), 0);
        server_expect_reply(fds[i], expected);
        close(fds[i]);
    }
    free(body);
    server_stop(&s);
}

/* Section 2, item 7: what the handler leaves of the body must not be taken for the next request. */
static void test_an_unread_body_does_not_spoil_the_connection(void **state)
{
    struct server *s = *state;
    const size_t sizes[] = { 4000, 9000, 100000, FCGI_PEEK_WINDOW - 1000 };
    cleanup_fd int fd = server_connect(s);
    char *body = make_body(FCGI_PEEK_WINDOW);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        server_request_body(&b, "ignore", body, sizes[i], true);
        server_expect(fd, &b, "ignored");
        expect_hash(fd, body, 100);
    }
    free(body);
    assert_int_equal(metric_get(METRIC_CONNS_ACCEPTED), 1);
}

/* An answer before the body has been sent: the client gets it, and no reset while it goes on sending. */
static void test_an_early_answer_reaches_a_client_that_still_sends(void **state)
{
    struct server *s = *state;
    enum { SIZE = 3000000 };
    cleanup_fd int fd = server_connect(s);
    char *body = make_body(SIZE);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request_body(&b, "ignore", body, SIZE, true);
    server_expect(fd, &b, "ignored"); /* sends all of it first */
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    assert_true(client_closed(fd));
    free(body);
    server_await(METRIC_CONNS_OPEN, 0);
}

enum { CUT_HALF_CLOSE, CUT_ABORT, CUT_JUNK, CUT_GONE, CUT__COUNT };

static void cut_off(int fd, int how)
{
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    if (how == CUT_ABORT)
        client_record(&b, CLIENT_ABORT, 1, NULL, 0, 0);
    else if (how == CUT_JUNK)
        client_record(&b, CLIENT_GET_VALUES, 0,
            "\x0e\x00"
            "FCGI_MAX_CONNS",
            16, 0);
    if (b.len > 0)
        assert_int_equal(client_send(fd, b.data, b.len), 0);
    else if (how == CUT_HALF_CLOSE)
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
}

/* Section 2, item 11. Within the window the handler never hears of such a request. */
static void test_a_small_body_cut_off_is_no_request(void **state)
{
    struct server *s = *state;
    for (int how = 0; how < CUT__COUNT; how++) {
        cleanup_fd int fd = server_connect(s);
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        char body[2000] = "";
        server_request_body(&b, "hash", body, sizeof body, true);
        assert_int_equal(client_send(fd, b.data, b.len - 8), 0); /* all but the end */
        cut_off(fd, how);
        if (how != CUT_GONE)
            assert_true(client_closed(fd));
        server_expect_alive(s);
    }
    server_await(METRIC_CONNS_OPEN, 0);
}

/* ... and of a larger one he is told while he reads. */
static void test_a_large_body_cut_off_reads_as_minus_1(void **state)
{
    struct server *s = *state;
    enum { SIZE = 1000000 };
    char *body = make_body(SIZE);
    for (int how = 0; how < CUT__COUNT; how++) {
        cleanup_fd int fd = server_connect(s);
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        size_t sent = 0;
        server_request_body(&b, "hash", NULL, 0, true);
        b.len -= 8;
        for (; sent < 25 * 32768; sent += 32768)
            client_body(&b, 1, body + sent, 32768, 32768, false);
        assert_int_equal(client_send(fd, b.data, b.len), 0);
        cut_off(fd, how);
        if (how != CUT_GONE) {
            cleanup_reply struct client_reply r = CLIENT_REPLY_INIT;
            assert_int_equal(client_receive(fd, &r), 0);
            assert_memory_equal(reply_body(&r), "cut ", 4);
            (void)shutdown(fd, SHUT_WR);
            assert_true(client_closed(fd));
        }
        server_expect_alive(s);
    }
    free(body);
    server_await(METRIC_CONNS_OPEN, 0);
}

/* Section 2, item 8: a body that stops coming ends by the read timeout, not never. */
static void test_a_stalled_large_body_ends_by_the_read_timeout(void **state)
{
    (void)state;
    struct server s;
    enum { SIZE = 1000000 };
    server_start(&s, &(struct server_options){ .threads = 2, .read_timeout_ms = 150 });
    char *body = make_body(SIZE);
    cleanup_fd int fd = server_connect(&s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request_body(&b, "hash", body, SIZE, true);
    assert_int_equal(client_send(fd, b.data, 500000), 0);
    cleanup_reply struct client_reply r = CLIENT_REPLY_INIT;
    assert_int_equal(client_receive(fd, &r), 0);
    assert_memory_equal(reply_body(&r), "cut ", 4);
    server_expect_alive(&s);
    free(body);
    server_stop(&s);
}

static size_t pieces(size_t size)
{
    return (size + 65527) / 65528;
}

/* Appendix B: records of at most 65,528 bytes, padded to 8, STDOUT's end, END_REQUEST. */
static void test_answers_of_all_sizes_are_well_formed(void **state)
{
    struct server *s = *state;
    const size_t head = strlen("Status: 200 OK\r\nContent-Type: text/plain\r\n\r\n");
    const size_t sizes[] = { 0, 1, 11000, 65528 - head - 1, 65528 - head, 65529 - head, 65528,
        65529, 2 * 65528, 1 << 20, 3000000 };
    cleanup_fd int fd = server_connect(s);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        cleanup_reply struct client_reply r = CLIENT_REPLY_INIT;
        char size[32];
        (void)str_format(size, sizeof size, "%zu", sizes[i]);
        server_request(&b, "size", "SIZE", size, true);
        assert_int_equal(client_send(fd, b.data, b.len), 0);
        assert_int_equal(client_receive(fd, &r), 0);
        assert_int_equal(r.out.len, head + sizes[i]);
        assert_int_equal(r.records, pieces(head + sizes[i]));
        assert_true(r.largest <= 65528);
        assert_true(r.ended && !r.misaligned && r.app_status == 0 && r.protocol_status == 0);
        const char *body = reply_body(&r);
        for (size_t k = 0; k < sizes[i]; k++)
            if (body[k] != (char)('a' + k % 23))
                fail_msg("byte %zu of %zu", k, sizes[i]);
    }
}

/* Report 15: an answer without a body, between others, on one connection. */
static void test_answers_with_and_without_a_body_take_turns(void **state)
{
    struct server *s = *state;
    cleanup_fd int fd = server_connect(s);
    cleanup_buf struct buf with = BUF_INIT(CLIENT_REQUEST_MAX);
    cleanup_buf struct buf without = BUF_INIT(CLIENT_REQUEST_MAX);
    cleanup_buf struct buf larger = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&with, "hello", NULL, NULL, true);
    server_request(&without, "empty", NULL, NULL, true);
    server_request(&larger, "env", "NAME", "NOT_THERE", true);
    for (int i = 0; i < 20; i++) {
        server_expect(fd, &with, "hello");
        server_expect(fd, &without, "");
        server_expect(fd, &larger, "(none)");
    }
    assert_int_equal(metric_get(METRIC_CONNS_ACCEPTED), 1);
}

/* Section 2, item 8: no timeout of its own in libfcgi, here for a peer that does not read. */
static void test_a_client_that_does_not_read_hangs_nobody(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2, .read_timeout_ms = 150 });
    cleanup_fd int fd = server_connect(&s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "size", "SIZE", "8000000", true);
    assert_int_equal(client_send(fd, b.data, b.len), 0);
    server_expect_alive(&s);
    server_await(METRIC_CONNS_OPEN, 0); /* given up */
    server_expect_alive(&s);
    server_stop(&s);
}

/* ... nor one that reads so little at a time that no wait is long. */
static void test_a_client_that_reads_by_drops_is_given_up(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, &(struct server_options){ .threads = 2, .read_timeout_ms = 300 });
    cleanup_fd int fd = server_connect(&s);
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    server_request(&b, "size", "SIZE", "8000000", true);
    server_send(fd, &b);
    char drop[512];
    ssize_t total = 0;
    ssize_t n = 0;
    while ((n = recv(fd, drop, sizeof drop, 0)) > 0) {
        total += n;
        (void)poll(NULL, 0, 1); /* all of it would take half a minute */
    }
    assert_true(total > 0 && total < 4000000);
    server_stop(&s);
}

/* What lib/fcgi takes libfcgi for: FCGX_Accept_r() reads the request from a descriptor put into ipcFd
 * beforehand, leaves it open as keepConnection says, and puts there what the client asked for; of a
 * request that does not parse it closes the descriptor at once; FCGX_Free() without close leaves it. */
static void test_libfcgi_takes_a_descriptor_put_into_ipcfd(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(FCGX_Init(), 0);
    stop_block();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    FCGX_Request r;
    assert_int_equal(FCGX_InitRequest(&r, -1, 0), 0);
    for (int keep = 1; keep >= 0; keep--) {
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        server_request_body(&b, "x", "body", 4, keep == 1);
        assert_int_equal(client_send(pair[1], b.data, b.len), 0);
        r.ipcFd = pair[0];
        r.keepConnection = 1;
        (void)FCGX_Detach(&r);
        assert_int_equal(FCGX_Accept_r(&r), 0);
        assert_int_equal(r.ipcFd, pair[0]);
        assert_int_equal(r.keepConnection, keep);
        assert_int_equal(r.requestId, 1);
        assert_string_equal(FCGX_GetParam("DO", r.envp), "x");
        char body[8] = "";
        assert_int_equal(FCGX_GetStr(body, sizeof body, r.in), 4);
        assert_int_equal(FCGX_GetError(r.in), 0);
        FCGX_Free(&r, 0);
        assert_true(fcntl(pair[0], F_GETFD) >= 0);
    }
    assert_int_equal(client_send(pair[1], "not FastCGI at all", 18), 0);
    r.ipcFd = pair[0];
    r.keepConnection = 1;
    (void)FCGX_Detach(&r);
    assert_true(FCGX_Accept_r(&r) < 0);
    assert_int_equal(r.ipcFd, -1);
    assert_true(fcntl(pair[0], F_GETFD) < 0);
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(test_bodies_of_all_sizes_arrive_whole),
        cmocka_unit_test(test_more_large_bodies_than_places_all_arrive),
        SERVER_TEST(test_an_unread_body_does_not_spoil_the_connection),
        SERVER_TEST(test_an_early_answer_reaches_a_client_that_still_sends),
        SERVER_TEST(test_a_small_body_cut_off_is_no_request),
        SERVER_TEST(test_a_large_body_cut_off_reads_as_minus_1),
        cmocka_unit_test(test_a_stalled_large_body_ends_by_the_read_timeout),
        SERVER_TEST(test_answers_of_all_sizes_are_well_formed),
        SERVER_TEST(test_answers_with_and_without_a_body_take_turns),
        cmocka_unit_test(test_a_client_that_does_not_read_hangs_nobody),
        cmocka_unit_test(test_a_client_that_reads_by_drops_is_given_up),
        cmocka_unit_test(test_libfcgi_takes_a_descriptor_put_into_ipcfd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
