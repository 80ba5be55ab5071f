/* SPDX-License-Identifier: Apache-2.0 */
/* Which urls name a Redis, and that a password never gets into a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kv/kv.h"
#include "kv/kv_url.h"

#define SECRET "s3cret"

struct good {
    const char *url;
    const char *path;
    const char *host;
    int64_t port;
    const char *password;
    int64_t db;
};

static const struct good GOOD[] = {
    { "unix:/run/redis.sock", "/run/redis.sock", NULL, 0, NULL, 0 },
    { "127.0.0.1:6379", NULL, "127.0.0.1", 6379, NULL, 0 },
    { "cache-1.example_x:1", NULL, "cache-1.example_x", 1, NULL, 0 },
    { "[::1]:65535", NULL, "::1", 65535, NULL, 0 },
    { "[fe80::1%eth0]:7", NULL, "fe80::1%eth0", 7, NULL, 0 },
    { "redis://h:7000", NULL, "h", 7000, NULL, 0 },
    { "redis://h", NULL, "h", 6379, NULL, 0 },
    { "redis://h/", NULL, "h", 6379, NULL, 0 },
    { "redis://h:7000/3", NULL, "h", 7000, NULL, 3 },
    { "redis://[::1]/2", NULL, "::1", 6379, NULL, 2 },
    { "redis://:" SECRET "@h:7000/3", NULL, "h", 7000, SECRET, 3 },
    { "redis://:a%40b%2Fc%25:d@h", NULL, "h", 6379, "a@b/c%:d", 0 },
    { "redis://:a@b@h", NULL, "h", 6379, "a@b", 0 },
};

static void assert_text(const char *got, const char *want)
{
    if (want == NULL)
        assert_null(got);
    else
        assert_string_equal(got, want);
}

static void test_urls_that_name_a_redis(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        const struct good *g = &GOOD[i];
        struct err e = ERR_INIT;
        cleanup_kv_url struct kv_url u = KV_URL_INIT;
        if (kv_url_parse(g->url, &u, &e) < 0)
            fail_msg("%s: %s", g->url, e.msg);
        assert_text(u.path, g->path);
        assert_text(u.host, g->host);
        assert_text(u.password, g->password);
        assert_int_equal(u.port, g->port);
        assert_int_equal(u.db, g->db);
        assert_int_equal(kv_url_check(g->url, &e), 0);
    }
}

static const char *const BAD[] = { "", "h", ":6379", "h:", "h:0", "h:65536", "h:12x", "h: 1",
    "::1:6379", "[::1", "[::1]", "[::1]x:1", "a b:1", "unix:", "unix:relative", "http://h:1",
    "rediss://h:1", "h:1/2", ":" SECRET "@h:1", "redis://", "redis://:" SECRET "@",
    "redis://:" SECRET "@h:x", "redis://user:" SECRET "@h:1", "redis://" SECRET "@h:1",
    "redis://:@h:1", "redis://:" SECRET "%4@h:1", "redis://:" SECRET "%00@h:1",
    "redis://:" SECRET "%zz@h:1", "redis://:" SECRET "@h:1/x", "redis://:" SECRET "@h:1/-1",
    "redis://:" SECRET "@h:1/1/2", "redis://:" SECRET "/x@h:1", "redis://h:1/99999999999" };

static void test_other_urls_are_refused_without_quoting_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct err e = ERR_INIT;
        struct kv_url u = { .port = 77 };
        if (kv_url_parse(BAD[i], &u, &e) == 0)
            fail_msg("accepted: %s", BAD[i]);
        assert_int_equal(u.port, 77);
        assert_int_equal(e.code, ERR_INVALID);
        assert_true(e.msg[0] != '\0');
        assert_null(strstr(e.msg, SECRET));
        assert_int_equal(kv_url_check(BAD[i], &e), -1);
    }
}

static void test_a_socket_path_fits_its_address(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char url[200] = "unix:/";
    memset(url + 6, 'x', 106); /* with the slash 107: the longest that fits with its NUL */
    assert_int_equal(kv_url_check(url, &e), 0);
    url[6 + 106] = 'x';
    assert_int_equal(kv_url_check(url, &e), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls_that_name_a_redis),
        cmocka_unit_test(test_other_urls_are_refused_without_quoting_them),
        cmocka_unit_test(test_a_socket_path_fits_its_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
