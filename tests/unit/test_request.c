/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "web/request.h"

static int query(const char *text, const char *name, char *dst, size_t size, struct err *e)
{
    struct web_req r = { .query = text };
    return web_query(&r, name, dst, size, e);
}

static void expect_query(const char *text, const char *name, const char *value)
{
    struct err e = ERR_INIT;
    char dst[64] = "before";
    if (query(text, name, dst, sizeof(dst), &e) != 0)
        fail_msg("%s: %s", text, e.msg);
    assert_string_equal(dst, value);
}

static void expect_absent(const char *text, const char *name)
{
    struct err e = ERR_INIT;
    char dst[64] = "before";
    assert_int_equal(query(text, name, dst, sizeof(dst), &e), 1);
    assert_string_equal(dst, "before");
}

static void expect_bad(const char *text, const char *name)
{
    struct err e = ERR_INIT;
    char dst[8];
    assert_int_equal(query(text, name, dst, sizeof(dst), &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
}

static void query_parameters_are_decoded(void **state)
{
    (void)state;
    expect_query("limit=5", "limit", "5");
    expect_query("a=1&limit=5&b=2", "limit", "5");
    expect_query("q=a+b%2Bc%26d%3D", "q", "a b+c&d=");
    expect_query("q=a=b", "q", "a=b");
    expect_query("q=", "q", "");
    expect_query("q", "q", "");
    expect_query("&&q=1&", "q", "1");
    expect_query("q=1&q=2", "q", "1");
    expect_query("%71=1", "q", "1");
    expect_query("a+b=1", "a b", "1");
}

static void absent_query_parameters_are_told(void **state)
{
    (void)state;
    expect_absent("", "q");
    expect_absent("qq=1", "q");
    expect_absent("a=q", "q");
    expect_absent("Q=1", "q");
    expect_absent("=1", "q");
}

static void bad_query_parameters_are_refused(void **state)
{
    (void)state;
    expect_bad("q=%zz", "q");
    expect_bad("q=%", "q");
    expect_bad("q=%00", "q");
    expect_bad("q=%ff", "q");
    expect_bad("q=12345678", "q"); /* no room */
    expect_bad("%zz=1&q=1", "q");
}

static void parameters_of_the_path_are_found_by_name(void **state)
{
    struct err e = ERR_INIT;
    struct web_req r = { .query = "" };
    const struct web_route routes[] = { { "GET", "/{jobID}/{job}", NULL, 0, 0 } };
    (void)state;
    assert_int_equal(route_find(routes, 1, "GET", "/a/b", &r.match, &e), 0);
    assert_string_equal(web_param(&r, "job"), "b");
    assert_string_equal(web_param(&r, "jobID"), "a");
}

struct body {
    const char *owner;
    int64_t n;
};

static void without_a_body_only_required_fields_are_missed(void **state)
{
    static const struct jx_field OPTIONAL[] = { JX_INT(struct body, n, 0, 0, 9) };
    static const struct jx_field REQUIRED[] = { JX_TEXT(struct body, owner, JX_REQUIRED, 9) };
    struct err e = ERR_INIT;
    struct web_req r = { .query = "" };
    struct body b = { .owner = NULL, .n = -1 };
    (void)state;
    assert_int_equal(web_bind(&r, OPTIONAL, 1, JX_STRICT, &b, &e), 0);
    assert_int_equal(b.n, -1);
    assert_int_equal(web_bind(&r, REQUIRED, 1, JX_STRICT, &b, &e), -1);
    assert_string_equal(e.msg, "owner: is required");
}

static void the_clients_request_id_goes_first_if_it_is_good(void **state)
{
    char id[REQUEST_ID_SIZE];
    char other[REQUEST_ID_SIZE];
    char longest[66];
    (void)state;
    request_id_choose("Client-1._x", "server-id-1", id);
    assert_string_equal(id, "Client-1._x");
    request_id_choose(NULL, "server-id-1", id);
    assert_string_equal(id, "server-id-1");
    request_id_choose("short-7", "server-id-1", id);
    assert_string_equal(id, "server-id-1");
    request_id_choose("forged\nline=1", "server-id-1", id);
    assert_string_equal(id, "server-id-1");
    request_id_choose("with space", "server-id-1", id);
    assert_string_equal(id, "server-id-1");

    memset(longest, 'x', sizeof(longest));
    longest[64] = '\0';
    request_id_choose(longest, "server-id-1", id);
    assert_string_equal(id, longest);
    longest[64] = 'x';
    longest[65] = '\0';
    request_id_choose(longest, "server-id-1", id);
    assert_string_equal(id, "server-id-1");

    request_id_choose(NULL, NULL, id);
    request_id_choose("", "bad id!!", other);
    assert_int_equal(strlen(id), 32);
    assert_int_equal(strlen(other), 32);
    assert_string_not_equal(id, other);
}

static int origin(const char *method, const char *from, const char *host, const char *site)
{
    struct err e = ERR_INIT;
    int rc = request_check_origin(method, from, host, site, &e);
    if (rc < 0)
        assert_int_equal(e.code, ERR_FORBIDDEN);
    return rc;
}

static void safe_methods_may_come_from_anywhere(void **state)
{
    (void)state;
    assert_int_equal(origin("GET", "https://evil.example", "h", "cross-site"), 0);
    assert_int_equal(origin("HEAD", "null", "h", "cross-site"), 0);
}

static void unsafe_methods_from_other_sites_are_refused(void **state)
{
    (void)state;
    assert_int_equal(origin("POST", NULL, "h", "cross-site"), -1);
    assert_int_equal(origin("POST", NULL, "h", "same-site"), -1);
    assert_int_equal(origin("DELETE", "https://evil.example", "h", NULL), -1);
    assert_int_equal(origin("PUT", "null", "h", NULL), -1);
    assert_int_equal(origin("PUT", "https://h:8080", "h", NULL), -1);
    assert_int_equal(origin("PUT", "https://h", "h:8080", NULL), -1);
    assert_int_equal(origin("PUT", "http://h", "h:443", NULL), -1);
    assert_int_equal(origin("PUT", "http://hh", "h", NULL), -1);
    assert_int_equal(origin("PUT", "ftp://h", "h", NULL), -1);
    assert_int_equal(origin("PUT", "http://", "", NULL), -1);
    assert_int_equal(origin("PUT", "http://h", NULL, NULL), -1);
    assert_int_equal(origin("PUT", "http://h@evil", "h", NULL), -1);
    assert_int_equal(origin("POST", "https://evil.example", "h", "same-origin"), -1);
    assert_int_equal(origin("post", "https://evil.example", "h", NULL), -1);
}

static void unsafe_methods_from_here_are_taken(void **state)
{
    (void)state;
    assert_int_equal(origin("POST", NULL, NULL, NULL), 0); /* curl */
    assert_int_equal(origin("POST", "", "h", ""), 0);
    assert_int_equal(origin("POST", NULL, "h", "same-origin"), 0);
    assert_int_equal(origin("POST", NULL, "h", "none"), 0);
    assert_int_equal(origin("POST", "http://h", "h", NULL), 0);
    assert_int_equal(origin("POST", "HTTP://Host.Example:80", "hOST.eXAMPLE", NULL), 0);
    assert_int_equal(origin("POST", "https://h", "h:443", NULL), 0);
    assert_int_equal(origin("POST", "http://h:8080", "h:8080", NULL), 0);
    assert_int_equal(origin("POST", "http://[::1]:8080", "[::1]:8080", "same-origin"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(query_parameters_are_decoded),
        cmocka_unit_test(absent_query_parameters_are_told),
        cmocka_unit_test(bad_query_parameters_are_refused),
        cmocka_unit_test(parameters_of_the_path_are_found_by_name),
        cmocka_unit_test(without_a_body_only_required_fields_are_missed),
        cmocka_unit_test(the_clients_request_id_goes_first_if_it_is_good),
        cmocka_unit_test(safe_methods_may_come_from_anywhere),
        cmocka_unit_test(unsafe_methods_from_other_sites_are_refused),
        cmocka_unit_test(unsafe_methods_from_here_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
