/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/fcgi_peek.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/fake/fcgi_client.h"

enum { ID = 7 };

static enum fcgi_peek peek(const struct buf *b)
{
    return fcgi_peek((const unsigned char *)b->data, b->len, false, NULL);
}

static void add_get(struct buf *b, const char *body, size_t size)
{
    cleanup_buf struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
    client_pair(&pairs, "REQUEST_METHOD", "GET");
    client_pair(&pairs, "HTTP_COOKIE", "a=b");
    client_begin(b, ID, 1, true);
    client_params(b, ID, &pairs);
    client_body(b, ID, body, size, 100, true);
}

static void test_a_whole_request_is_whole_and_each_prefix_is_not(void **state)
{
    (void)state;
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    char body[333] = "x";
    add_get(&b, body, sizeof body);
    for (size_t n = 0; n < b.len; n++) {
        size_t end = 0;
        assert_int_equal(fcgi_peek((const unsigned char *)b.data, n, false, &end), FCGI_PEEK_MORE);
        assert_int_equal(end, n);
    }
    assert_int_equal(peek(&b), FCGI_PEEK_WHOLE);
}

static void test_bytes_one_by_one_mean_the_same_as_all_at_once(void **state)
{
    (void)state;
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    char body[333] = "x";
    add_get(&b, body, sizeof body);
    struct fcgi_scan s = { 0 };
    for (size_t i = 0; i < b.len; i++)
        assert_int_equal(fcgi_scan(&s, (const unsigned char *)b.data + i, 1), 1);
    assert_int_equal(s.phase, FCGI_PHASE_DONE);
    assert_int_equal(s.body, sizeof body);
    assert_int_equal(fcgi_scan(&s, (const unsigned char *)b.data, 1), 0);
}

static void test_a_pipelined_request_is_not_counted(void **state)
{
    (void)state;
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    add_get(&b, NULL, 0);
    size_t one = b.len;
    add_get(&b, NULL, 0);
    size_t end = 0;
    assert_int_equal(fcgi_peek((const unsigned char *)b.data, b.len, false, &end), FCGI_PEEK_WHOLE);
    assert_int_equal(end, one);
}

static void test_a_full_window_is_a_stream_only_after_the_parameters(void **state)
{
    (void)state;
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    cleanup_buf struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
    client_pair(&pairs, "A", "b");
    client_begin(&b, ID, 1, true);
    assert_int_equal(fcgi_peek((const unsigned char *)b.data, b.len, true, NULL), FCGI_PEEK_BAD);
    client_params(&b, ID, &pairs);
    assert_int_equal(fcgi_peek((const unsigned char *)b.data, b.len, true, NULL), FCGI_PEEK_STREAM);
    client_body(&b, ID, "body", 4, 4, false);
    assert_int_equal(fcgi_peek((const unsigned char *)b.data, b.len, true, NULL), FCGI_PEEK_STREAM);
    assert_int_equal(peek(&b), FCGI_PEEK_MORE);
}

/* Records, after a good BEGIN or at the start, that must never reach libfcgi. */
static void test_records_that_libfcgi_must_not_see(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        bool begun;
        unsigned type, id, size, padding;
    } cases[] = {
        { "GET_VALUES first", false, CLIENT_GET_VALUES, 0, 16, 0 },
        { "GET_VALUES within a request", true, CLIENT_GET_VALUES, 0, 16, 0 },
        { "a management record of a type unknown", true, 11, 0, 8, 0 },
        { "ABORT first", false, CLIENT_ABORT, ID, 0, 0 },
        { "ABORT within the parameters", true, CLIENT_ABORT, ID, 0, 0 },
        { "BEGIN of request 0", false, CLIENT_BEGIN, 0, 8, 0 },
        { "BEGIN of another size", false, CLIENT_BEGIN, ID, 16, 0 },
        { "padding after BEGIN, which libfcgi takes for a header", false, CLIENT_BEGIN, ID, 8, 8 },
        { "a second BEGIN: multiplexing", true, CLIENT_BEGIN, ID + 1, 8, 0 },
        { "parameters of another request", true, CLIENT_PARAMS, ID + 1, 2, 0 },
        { "padding after the parameters' end", true, CLIENT_PARAMS, ID, 0, 8 },
        { "a body before the parameters' end", true, CLIENT_STDIN, ID, 8, 0 },
        { "DATA, a filter's", true, 8, ID, 8, 0 },
        { "STDOUT, ours", true, CLIENT_STDOUT, ID, 8, 0 },
    };
    static const char zeros[64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        if (cases[i].begun)
            client_begin(&b, ID, 1, true);
        client_record(&b, cases[i].type, cases[i].id, zeros, cases[i].size, cases[i].padding);
        if (peek(&b) != FCGI_PEEK_BAD)
            fail_msg("%s passes", cases[i].why);
    }
}

static void test_other_roles_and_versions_are_bad(void **state)
{
    (void)state;
    for (unsigned role = 0; role <= 4; role++) {
        cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
        client_begin(&b, ID, role, true);
        assert_int_equal(peek(&b), role == 1 ? FCGI_PEEK_MORE : FCGI_PEEK_BAD);
        b.data[0] = 2;
        assert_int_equal(peek(&b), FCGI_PEEK_BAD);
    }
    const char http[] = "GET / HTTP/1.1\r\n\r\n";
    assert_int_equal(
        fcgi_peek((const unsigned char *)http, sizeof http - 1, false, NULL), FCGI_PEEK_BAD);
}

static enum fcgi_peek peek_pairs(const void *bytes, size_t size)
{
    cleanup_buf struct buf b = BUF_INIT(CLIENT_REQUEST_MAX);
    cleanup_buf struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
    buf_add(&pairs, bytes, size);
    client_begin(&b, ID, 1, true);
    client_params(&b, ID, &pairs);
    client_body(&b, ID, NULL, 0, 1, true);
    return peek(&b);
}

/* CVE-2025-23016: two huge lengths whose sum overflows an int. */
static void test_lengths_of_names_and_values_must_fit(void **state)
{
    (void)state;
    assert_int_equal(peek_pairs("\x01\x01"
                                "ab",
                         4),
        FCGI_PEEK_WHOLE);
    assert_int_equal(peek_pairs("\x80\x00\x00\x01\x80\x00\x00\x01"
                                "ab",
                         10),
        FCGI_PEEK_WHOLE);
    assert_int_equal(peek_pairs("\x00\x00", 2), FCGI_PEEK_WHOLE);
    assert_int_equal(peek_pairs("\xff\xff\xff\xff\xff\xff\xff\xff", 8), FCGI_PEEK_BAD);
    assert_int_equal(peek_pairs("\xff\xff\xff\xfe\xff\xff\xff\xfe", 8), FCGI_PEEK_BAD);
    assert_int_equal(peek_pairs("\x01\x02"
                                "ab",
                         4),
        FCGI_PEEK_BAD); /* a byte is missing */
    assert_int_equal(peek_pairs("\x01", 1), FCGI_PEEK_BAD);
    assert_int_equal(peek_pairs("\x80\x00\x00", 3), FCGI_PEEK_BAD);
    assert_int_equal(peek_pairs("\x01\x80\x00\x00", 4), FCGI_PEEK_BAD);
}

static void test_parameters_are_limited(void **state)
{
    (void)state;
    static char value[FCGI_PARAMS_MAX];
    memset(value, 'v', sizeof value);
    value[FCGI_PARAMS_MAX - 9] = '\0'; /* with NAME and the lengths, 1 + 4 bytes: the limit */
    cleanup_buf struct buf pairs = BUF_INIT(CLIENT_REQUEST_MAX);
    client_pair(&pairs, "NAME", value);
    assert_int_equal(pairs.len, FCGI_PARAMS_MAX);
    assert_int_equal(peek_pairs(pairs.data, pairs.len), FCGI_PEEK_WHOLE);
    buf_add(&pairs, "\0\0", 2);
    assert_int_equal(peek_pairs(pairs.data, pairs.len), FCGI_PEEK_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_request_is_whole_and_each_prefix_is_not),
        cmocka_unit_test(test_bytes_one_by_one_mean_the_same_as_all_at_once),
        cmocka_unit_test(test_a_pipelined_request_is_not_counted),
        cmocka_unit_test(test_a_full_window_is_a_stream_only_after_the_parameters),
        cmocka_unit_test(test_records_that_libfcgi_must_not_see),
        cmocka_unit_test(test_other_roles_and_versions_are_bad),
        cmocka_unit_test(test_lengths_of_names_and_values_must_fit),
        cmocka_unit_test(test_parameters_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
