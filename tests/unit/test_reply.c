/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "web/reply.h"

#define ID "0123456789abcdef"

static int released;

static void release(void *ctx)
{
    released++;
    assert_ptr_equal(ctx, &released);
}

static json_object *object(void)
{
    json_object *o = jx_object();
    jx_set_str(o, "a", "b/c");
    return o;
}

static void expect_head(const struct web_reply *r, const char *head)
{
    cleanup_buf struct buf out = BUF_INIT(4096);
    reply_head(r, ID, &out);
    assert_string_equal(out.data, head);
}

static void expect_body(const struct web_reply *r, const char *body)
{
    size_t size = 0;
    const char *bytes = reply_bytes(r, &size);
    assert_int_equal(size, strlen(body));
    assert_memory_equal(bytes, body, size);
}

static void json_replies_have_type_and_length(void **state)
{
    struct web_reply r;
    (void)state;
    reply_init(&r);
    reply_json(&r, object());
    expect_body(&r, "{\"a\":\"b/c\"}");
    expect_head(&r, "Status: 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n"
                    "Cache-Control: no-store\r\nX-Request-Id: " ID "\r\n\r\n");
    reply_created(&r, object());
    expect_head(&r,
        "Status: 201 Created\r\nContent-Type: application/json\r\nContent-Length: 11\r\n"
        "Cache-Control: no-store\r\nX-Request-Id: " ID "\r\n\r\n");
    reply_accepted(&r, object());
    assert_int_equal(r.status, 202);
    reply_fini(&r);
}

static void no_content_has_no_length(void **state)
{
    struct web_reply r;
    (void)state;
    reply_init(&r);
    reply_none(&r);
    expect_body(&r, "");
    expect_head(&r, "Status: 204 No Content\r\nCache-Control: no-store\r\n"
                    "X-Request-Id: " ID "\r\n\r\n");
    reply_fini(&r);
}

static void text_is_taken_over(void **state)
{
    struct web_reply r;
    struct buf text = BUF_INIT(100);
    (void)state;
    reply_init(&r);
    buf_puts(&text, "x 1\n");
    reply_text(&r, "text/plain; version=0.0.4", &text);
    assert_null(text.data);
    expect_body(&r, "x 1\n");
    expect_head(&r, "Status: 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                    "Content-Length: 4\r\nCache-Control: no-store\r\nX-Request-Id: " ID "\r\n\r\n");
    reply_fini(&r);
}

static void borrowed_bytes_are_given_back_once(void **state)
{
    struct web_reply r;
    (void)state;
    released = 0;
    reply_init(&r);
    reply_borrow(&r, "[]", 2, "tag", release, &released);
    reply_degraded(&r, "postgres");
    reply_revalidate(&r, true, NULL);
    expect_body(&r, "[]");
    expect_head(&r, "Status: 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
                    "ETag: \"tag\"\r\nCache-Control: no-cache\r\nX-Degraded: postgres\r\n"
                    "X-Request-Id: " ID "\r\n\r\n");
    assert_int_equal(released, 0);
    reply_fini(&r);
    assert_int_equal(released, 1);
}

static void not_modified_keeps_tag_and_degraded(void **state)
{
    struct web_reply r;
    (void)state;
    released = 0;
    reply_init(&r);
    reply_borrow(&r, "[]", 2, "tag", release, &released);
    reply_degraded(&r, "redis");
    reply_revalidate(&r, true, "\"other\", W/\"tag\"");
    assert_int_equal(released, 1);
    expect_body(&r, "");
    expect_head(&r, "Status: 304 Not Modified\r\nETag: \"tag\"\r\nCache-Control: no-cache\r\n"
                    "X-Degraded: redis\r\nX-Request-Id: " ID "\r\n\r\n");
    reply_fini(&r);
    assert_int_equal(released, 1);
}

static void an_error_gives_borrowed_bytes_back(void **state)
{
    struct web_reply r;
    struct err e = ERR_INIT;
    (void)state;
    released = 0;
    reply_init(&r);
    reply_borrow(&r, "[]", 2, "tag", release, &released);
    (void)err_set(&e, ERR_NOT_FOUND, "no such key");
    reply_error(&r, &e, ID);
    assert_int_equal(released, 1);
    expect_body(&r, "{\"error\":\"no such key\",\"request_id\":\"" ID "\"}");
    expect_head(&r,
        "Status: 404 Not Found\r\nContent-Type: application/json\r\n"
        "Content-Length: 55\r\nCache-Control: no-store\r\nX-Request-Id: " ID "\r\n\r\n");
    reply_fini(&r);
    assert_int_equal(released, 1);
}

static void the_tag_is_the_bodys_digest(void **state)
{
    struct web_reply r;
    (void)state;
    reply_init(&r);
    reply_json(&r, jx_object());
    reply_revalidate(&r, true, NULL);
    assert_string_equal(r.etag, "44136fa355b3678a1146ad16f7e8649e"); /* sha256 of {} */
    reply_revalidate(&r, true, "\"44136fa355b3678a1146ad16f7e8649e\"");
    assert_int_equal(r.status, 304);
    reply_fini(&r);
}

static void untagged_routes_have_no_tag(void **state)
{
    struct web_reply r;
    (void)state;
    reply_init(&r);
    reply_json(&r, jx_object());
    reply_revalidate(&r, false, "*");
    assert_string_equal(r.etag, "");
    assert_int_equal(r.status, 200);
    reply_fini(&r);
}

static void failures_are_never_not_modified(void **state)
{
    struct web_reply r;
    (void)state;
    reply_init(&r);
    reply_unavailable(&r, jx_object());
    reply_revalidate(&r, true, "*");
    assert_int_equal(r.status, 503);
    assert_false(r.revalidate);
    reply_fini(&r);
}

static void every_code_has_its_status(void **state)
{
    static const int STATUS[ERR__COUNT] = { [ERR_OK] = 500,
        [ERR_INVALID] = 400,
        [ERR_UNAUTHENTICATED] = 401,
        [ERR_FORBIDDEN] = 403,
        [ERR_NOT_FOUND] = 404,
        [ERR_METHOD] = 405,
        [ERR_CONFLICT] = 409,
        [ERR_NO_LENGTH] = 411,
        [ERR_TOO_LARGE] = 413,
        [ERR_MEDIA_TYPE] = 415,
        [ERR_TIMEOUT] = 503,
        [ERR_UNAVAILABLE] = 503,
        [ERR_MISMATCH] = 422,
        [ERR_NO_ROOM] = 507,
        [ERR_NOT_DONE] = 500,
        [ERR_INTERNAL] = 500 };
    (void)state;
    for (unsigned code = 0; code < ERR__COUNT; code++) {
        cleanup_buf struct buf head = BUF_INIT(4096);
        char line[32];
        struct web_reply r;
        struct err e = { .code = (enum err_code)code, .msg = "why" };
        assert_int_equal(reply_status_of((enum err_code)code), STATUS[code]);
        reply_init(&r);
        reply_error(&r, &e, ID);
        reply_head(&r, ID, &head);
        (void)snprintf(line, sizeof(line), "Status: %d ", STATUS[code]);
        assert_memory_equal(head.data, line, strlen(line));
        reply_fini(&r);
    }
}

static bool error_head_has(enum err_code code, const char *header)
{
    cleanup_buf struct buf head = BUF_INIT(4096);
    struct web_reply r;
    struct err e = { .code = code, .msg = "why" };
    reply_init(&r);
    (void)snprintf(r.allow, sizeof(r.allow), "GET, HEAD");
    reply_error(&r, &e, ID);
    reply_head(&r, ID, &head);
    reply_fini(&r);
    return strstr(head.data, header) != NULL;
}

static void errors_tell_what_to_do(void **state)
{
    (void)state;
    assert_true(error_head_has(ERR_UNAVAILABLE, "\r\nRetry-After: 1\r\n"));
    assert_true(error_head_has(ERR_TIMEOUT, "\r\nRetry-After: 1\r\n"));
    assert_false(error_head_has(ERR_INTERNAL, "Retry-After"));
    assert_true(error_head_has(ERR_METHOD, "\r\nAllow: GET, HEAD\r\n"));
    assert_false(error_head_has(ERR_NOT_FOUND, "Allow"));
    assert_true(error_head_has(
        ERR_UNAUTHENTICATED, "\r\nWWW-Authenticate: Bearer realm=\"weighbridge\"\r\n"));
    assert_false(error_head_has(ERR_FORBIDDEN, "WWW-Authenticate"));
}

static void internal_errors_tell_strangers_nothing(void **state)
{
    struct web_reply r;
    struct err e = ERR_INIT;
    (void)state;
    reply_init(&r);
    (void)err_set(&e, ERR_INTERNAL, "relation \"x\" does not exist");
    reply_error(&r, &e, ID);
    expect_body(&r, "{\"error\":\"internal error\",\"request_id\":\"" ID "\"}");
    reply_fini(&r);
}

static void what_did_not_happen_says_why(void **state)
{
    struct web_reply r;
    struct err e = ERR_INIT;
    (void)state;
    reply_init(&r);
    (void)err_set(&e, ERR_NOT_DONE, "the store is away");
    reply_error(&r, &e, ID);
    expect_body(&r, "{\"error\":\"the store is away\",\"request_id\":\"" ID "\"}");
    reply_fini(&r);
}

static void an_error_text_is_always_utf8(void **state)
{
    struct web_reply r;
    struct err e = { .code = ERR_INVALID, .msg = "bad \xff" };
    (void)state;
    reply_init(&r);
    reply_error(&r, &e, ID);
    expect_body(&r, "{\"error\":\"invalid\",\"request_id\":\"" ID "\"}");
    reply_fini(&r);
}

static void if_none_match_is_a_list_compared_weakly(void **state)
{
    (void)state;
    assert_true(reply_etag_matches("\"a\"", "a"));
    assert_true(reply_etag_matches("W/\"a\"", "a"));
    assert_true(reply_etag_matches("\"b\",\"a\"", "a"));
    assert_true(reply_etag_matches(" \"b\" , W/\"c,d\" ,\"a\"", "a"));
    assert_true(reply_etag_matches("\"a,b\"", "a,b"));
    assert_true(reply_etag_matches("*", "a"));
    assert_true(reply_etag_matches(" * ", "a"));
    assert_false(reply_etag_matches("*", ""));
    assert_false(reply_etag_matches("", "a"));
    assert_false(reply_etag_matches("a", "a"));
    assert_false(reply_etag_matches("\"a", "a"));
    assert_false(reply_etag_matches("\"ab\"", "a"));
    assert_false(reply_etag_matches("\"\"", "a"));
    assert_false(reply_etag_matches("*a", "a"));
    assert_false(reply_etag_matches("w/\"a\"", "a")); /* case counts: RFC 9110, 8.8.3 */
    assert_false(reply_etag_matches("\"b\" junk \"a\"", "a"));
}

static void a_tag_that_does_not_fit_is_none(void **state)
{
    char tag[100];
    struct web_reply r;
    (void)state;
    memset(tag, 'x', sizeof(tag));
    tag[sizeof(tag) - 1] = '\0';
    reply_init(&r);
    reply_borrow(&r, "[]", 2, tag, NULL, NULL);
    assert_string_equal(r.etag, "");
    reply_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_replies_have_type_and_length),
        cmocka_unit_test(no_content_has_no_length),
        cmocka_unit_test(text_is_taken_over),
        cmocka_unit_test(borrowed_bytes_are_given_back_once),
        cmocka_unit_test(not_modified_keeps_tag_and_degraded),
        cmocka_unit_test(an_error_gives_borrowed_bytes_back),
        cmocka_unit_test(the_tag_is_the_bodys_digest),
        cmocka_unit_test(untagged_routes_have_no_tag),
        cmocka_unit_test(failures_are_never_not_modified),
        cmocka_unit_test(every_code_has_its_status),
        cmocka_unit_test(errors_tell_what_to_do),
        cmocka_unit_test(internal_errors_tell_strangers_nothing),
        cmocka_unit_test(what_did_not_happen_says_why),
        cmocka_unit_test(an_error_text_is_always_utf8),
        cmocka_unit_test(if_none_match_is_a_list_compared_weakly),
        cmocka_unit_test(a_tag_that_does_not_fit_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
