/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "web/route.h"

static const struct web_route ROUTES[] = {
    { "GET", "/api/operations", NULL, 0, 0 },
    { "GET", "/api/operations/history", NULL, 0, 0 },
    { "DELETE", "/api/operations/history", NULL, 0, 0 },
    { "GET", "/api/operations/{jobID}", NULL, 0, 0 },
    { "POST", "/api/operations/{jobID}/cancel", NULL, 0, 0 },
    { "GET", "/api/v1/staging/{key}", NULL, 0, 0 },
    { "PUT", "/api/v1/staging/{key}", NULL, 0, 0 },
    { "DELETE", "/api/v1/staging/{key}", NULL, 0, 0 },
    { "GET", "/x/{a}/y/{b}", NULL, 0, 0 },
};

static int find(const char *method, const char *uri, struct route_match *m, struct err *e)
{
    return route_find(ROUTES, sizeof(ROUTES) / sizeof(ROUTES[0]), method, uri, m, e);
}

static void expect_match(const char *method, const char *uri, const char *pattern)
{
    struct err e = ERR_INIT;
    struct route_match m;
    if (find(method, uri, &m, &e) < 0)
        fail_msg("%s %s: %s", method, uri, e.msg);
    assert_string_equal(m.route->pattern, pattern);
}

static void expect_key(const char *uri, const char *key)
{
    struct err e = ERR_INIT;
    struct route_match m;
    if (find("GET", uri, &m, &e) < 0)
        fail_msg("%s: %s", uri, e.msg);
    assert_int_equal(m.params, 1);
    assert_int_equal(m.name_size[0], 3);
    assert_memory_equal(m.name[0], "key", 3);
    assert_string_equal(m.value[0], key);
}

static void expect_error(const char *method, const char *uri, enum err_code code)
{
    struct err e = ERR_INIT;
    struct route_match m;
    if (find(method, uri, &m, &e) == 0)
        fail_msg("%s %s matched", method, uri);
    if (e.code != code)
        fail_msg("%s %s: %s", method, uri, e.msg);
}

static void matches_literals_and_leaves_the_query(void **state)
{
    (void)state;
    expect_match("GET", "/api/operations", "/api/operations");
    expect_match("GET", "/api/operations?a=/../b%", "/api/operations");
    expect_match("GET", "/api/operations/history", "/api/operations/history");
    expect_match("POST", "/api/operations/history/cancel", "/api/operations/{jobID}/cancel");
    expect_match("GET", "/api/%6Fperations", "/api/operations");
}

static void takes_the_absolute_form(void **state)
{
    (void)state;
    expect_match("GET", "http://host:80/api/operations?x", "/api/operations");
    expect_match("GET", "HTTPS://host/api/operations", "/api/operations");
    expect_error("GET", "http://host", ERR_NOT_FOUND);
    expect_error("GET", "http://host?x", ERR_INVALID);
}

static void get_serves_head(void **state)
{
    (void)state;
    expect_match("HEAD", "/api/operations", "/api/operations");
}

static void an_encoded_slash_stays_in_its_segment(void **state)
{
    (void)state;
    expect_key("/api/v1/staging/org%2Fmodel", "org/model");
    expect_key("/api/v1/staging/org%2fa%40b:c%25", "org/a@b:c%");
    expect_key("/api/v1/staging/a+b", "a+b"); /* '+' is itself in a path */
    expect_key("/api/v1/staging/%C3%A9", "é");
    expect_key("/api/v1/staging/...", "...");
    expect_key("/api/v1/staging/.a%2Fb.", ".a/b.");
}

static void decodes_several_parameters(void **state)
{
    struct err e = ERR_INIT;
    struct route_match m;
    (void)state;
    assert_int_equal(find("GET", "/x/1%2F2/y/3", &m, &e), 0);
    assert_int_equal(m.params, 2);
    assert_string_equal(m.value[0], "1/2");
    assert_string_equal(m.value[1], "3");
}

static void empty_segments_match_nothing(void **state)
{
    (void)state;
    expect_error("GET", "/", ERR_NOT_FOUND);
    expect_error("GET", "//api/operations", ERR_NOT_FOUND);
    expect_error("GET", "/api//operations", ERR_NOT_FOUND);
    expect_error("GET", "/api/operations/", ERR_NOT_FOUND);
    expect_error("GET", "/api/v1/staging/", ERR_NOT_FOUND);
    expect_error("POST", "/api/operations//cancel", ERR_NOT_FOUND);
    expect_error("GET", "/nothing", ERR_NOT_FOUND);
    expect_error("GET", "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r", ERR_NOT_FOUND);
}

static void dot_segments_are_refused_encoded_or_not(void **state)
{
    (void)state;
    expect_error("GET", "/api/../api/operations", ERR_INVALID);
    expect_error("GET", "/api/./operations", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/..", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/%2e%2E", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/.%2e", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/%2e", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/a%2F..%2Fb", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/a%2F.", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/..%2Fa", ERR_INVALID);
    expect_error("GET", "/nowhere/..", ERR_INVALID);
}

static void bad_escapes_are_refused(void **state)
{
    (void)state;
    expect_error("GET", "/api/v1/staging/%", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/%4", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/%zz", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/%4/b", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/%4?1", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/a%00b", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/%ff", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/\xc3", ERR_INVALID);
    expect_error("GET", "/api/v1/staging/%c0%af", ERR_INVALID);
    expect_error("GET", "api/operations", ERR_INVALID);
    expect_error("GET", "", ERR_INVALID);
    expect_error("GET", "*", ERR_INVALID);
}

static void long_paths_are_refused(void **state)
{
    char uri[ROUTE_PATH_MAX + 8];
    (void)state;
    memset(uri, 'a', sizeof(uri));
    uri[0] = '/';
    uri[sizeof(uri) - 1] = '\0';
    expect_error("GET", uri, ERR_INVALID);
    uri[ROUTE_PATH_MAX] = '\0';
    expect_error("GET", uri, ERR_NOT_FOUND);
    memcpy(uri, "/api/v1/staging/", 16);
    uri[16 + ROUTE_TEXT_MAX] = '\0';
    expect_error("GET", uri, ERR_INVALID);
    uri[15 + ROUTE_TEXT_MAX] = '\0';
    expect_match("GET", uri, "/api/v1/staging/{key}");
    uri[ROUTE_PATH_MAX] = '?'; /* the query does not count */
    uri[15 + ROUTE_TEXT_MAX] = '?';
    expect_match("GET", uri, "/api/v1/staging/{key}");
}

static void wrong_method_tells_the_right_ones(void **state)
{
    struct err e = ERR_INIT;
    struct route_match m;
    (void)state;
    assert_int_equal(find("PATCH", "/api/v1/staging/k", &m, &e), -1);
    assert_int_equal(e.code, ERR_METHOD);
    assert_string_equal(m.allow, "GET, HEAD, PUT, DELETE");
    assert_int_equal(find("PATCH", "/api/operations/history", &m, &e), -1);
    assert_string_equal(m.allow, "GET, HEAD, DELETE"); /* each once */
    assert_int_equal(find("OPTIONS", "/api/operations", &m, &e), -1);
    assert_int_equal(e.code, ERR_METHOD);
    assert_string_equal(m.allow, "GET, HEAD");
    assert_int_equal(find("get", "/api/operations", &m, &e), -1);
    assert_int_equal(e.code, ERR_METHOD);
    assert_int_equal(find("HEAD", "/api/operations/1/cancel", &m, &e), -1);
    assert_string_equal(m.allow, "POST");
}

static void decodes_into_the_room_there_is(void **state)
{
    struct err e = ERR_INIT;
    char dst[4];
    (void)state;
    assert_int_equal(percent_decode("a+%41", 5, true, dst, sizeof(dst), &e), 0);
    assert_string_equal(dst, "a A");
    assert_int_equal(percent_decode("abcd", 4, true, dst, sizeof(dst), &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_int_equal(percent_decode("abcdefghijklmnop", 16, true, dst, sizeof(dst), &e), -1);
    assert_int_equal(percent_decode("", 0, true, dst, 0, &e), -1);
    assert_int_equal(percent_decode("", 0, true, dst, 1, &e), 0);
    assert_string_equal(dst, "");
    assert_int_equal(percent_decode("a\0b", 3, true, dst, sizeof(dst), &e), -1);
    assert_int_equal(percent_decode("%41", 2, true, dst, sizeof(dst), &e), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_literals_and_leaves_the_query),
        cmocka_unit_test(takes_the_absolute_form),
        cmocka_unit_test(get_serves_head),
        cmocka_unit_test(an_encoded_slash_stays_in_its_segment),
        cmocka_unit_test(decodes_several_parameters),
        cmocka_unit_test(empty_segments_match_nothing),
        cmocka_unit_test(dot_segments_are_refused_encoded_or_not),
        cmocka_unit_test(bad_escapes_are_refused),
        cmocka_unit_test(long_paths_are_refused),
        cmocka_unit_test(wrong_method_tells_the_right_ones),
        cmocka_unit_test(decodes_into_the_room_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
