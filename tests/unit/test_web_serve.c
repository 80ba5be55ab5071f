/* SPDX-License-Identifier: Apache-2.0 */
/* The path of a request, with the transport replaced by the functions below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/digest.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "web/web_serve.h"

enum { ENV_MAX = 16 };

struct fcgi_req {
    const char *name[ENV_MAX];
    const char *value[ENV_MAX];
    const char *body;
    size_t body_size;
    size_t body_at;
    bool cgi;
    int sent;
    int waits; /* calls of fcgi_may_wait() */
    struct buf out;
};

void fcgi_may_wait(struct fcgi_req *r)
{
    r->waits++;
}

const char *fcgi_env(struct fcgi_req *r, const char *name)
{
    for (size_t i = 0; i < ENV_MAX && r->name[i] != NULL; i++) {
        if (strcmp(r->name[i], name) == 0)
            return r->value[i];
    }
    return NULL;
}

/* A byte at a time: callers must not take a short read for the end. */
ssize_t fcgi_read(struct fcgi_req *r, void *data, size_t size)
{
    assert_true(size > 0);
    if (r->body_at == r->body_size)
        return 0;
    memcpy(data, r->body + r->body_at++, 1);
    return 1;
}

int fcgi_send(struct fcgi_req *r, const char *head, size_t head_size, const char *body,
    size_t body_size, struct err *e)
{
    (void)e;
    r->sent++;
    buf_add(&r->out, head, head_size);
    buf_add(&r->out, body, body_size);
    return 0;
}

int fcgi_thread(const struct fcgi_req *r)
{
    (void)r;
    return 0;
}

bool fcgi_is_cgi(const struct fcgi_req *r)
{
    return r->cgi;
}

/* --- a small program --- */

static int handled;
static enum err_code failure;

static int get_thing(struct web_req *req, struct web_reply *reply, struct err *e)
{
    json_object *o = jx_object();
    (void)e;
    handled++;
    jx_set_str(o, "key", web_param(req, "key"));
    jx_set_str(o, "query", req->query);
    jx_set_str(o, "caller", req->caller.subject);
    reply_json(reply, o);
    return 0;
}

static int get_instant(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)req;
    (void)e;
    reply_json(reply, jx_object());
    return 0;
}

static int put_thing(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)e;
    handled++;
    reply_json(reply, req->body == NULL ? jx_object() : json_object_get(req->body));
    return 0;
}

static int fail_thing(struct web_req *req, struct web_reply *reply, struct err *e)
{
    (void)req;
    reply_json(reply, jx_object());
    return failure == ERR_OK ? -1 : err_set(e, failure, "the reason");
}

static const struct web_route ROUTES[] = {
    { "GET", "/things/{key}", get_thing, ROLE_VIEWER | ROLE_ADMIN, WEB_ETAG | WEB_ANONYMOUS },
    { "PUT", "/things/{key}", put_thing, ROLE_ADMIN, WEB_BODY_JSON },
    { "POST", "/things/{key}", put_thing, ROLE_ADMIN, WEB_BODY_OPTIONAL },
    { "DELETE", "/things/{key}", put_thing, ROLE_ADMIN, WEB_BODY_NONE },
    { "GET", "/instant", get_instant, ROLE_ADMIN, WEB_INSTANT },
    { "GET", "/fail", fail_thing, ROLE_ADMIN, 0 },
};

static const struct web_app APP = {
    .name = "test", .routes = ROUTES, .n_routes = sizeof(ROUTES) / sizeof(ROUTES[0])
};

static char word_open[] = "open";
static char word_tokens[] = "tokens";
static char word_none[] = "none";
static char word_empty[] = "";
static char no_tokens[] = "/dev/null";
static char token_path[] = "/tmp/wb-test-serve-XXXXXX";

/* A server in mode open, or with the token "secret" of a viewer. */
struct fixture {
    struct conf conf;
    struct auth *auth;
    struct web_context context;
    struct web_server server;
};

static void begin(struct fixture *f, char *mode)
{
    struct err e = ERR_INIT;
    *f = (struct fixture){ .conf = { .db_url = word_empty,
                               .db_timeout_ms = 100,
                               .redis_url = word_empty,
                               .redis_timeout_ms = 100,
                               .auth_mode = mode,
                               .auth_token_file = mode == word_open ? no_tokens : token_path,
                               .auth_anonymous = word_none,
                               .auth_remote_user_role = word_empty,
                               .auth_remote_admins = word_empty } };
    if (auth_load(&f->conf, &f->auth, &e) < 0)
        fail_msg("%s", e.msg);
    f->context = (struct web_context){ .conf = &f->conf };
    web_server_init(&f->server, &APP, &f->context, f->auth, 1);
    handled = 0;
}

static void end(struct fixture *f)
{
    web_server_fini(&f->server);
    auth_free(f->auth);
}

static void set_env(struct fcgi_req *r, const char *name, const char *value)
{
    size_t i = 0;
    while (r->name[i] != NULL && strcmp(r->name[i], name) != 0)
        i++;
    assert_true(i + 1 < ENV_MAX);
    r->name[i] = name;
    r->value[i] = value;
}

static struct fcgi_req request(const char *method, const char *uri)
{
    struct fcgi_req r = { .sent = 0, .out = BUF_INIT(1 << 20) };
    set_env(&r, "REQUEST_METHOD", method);
    set_env(&r, "REQUEST_URI", uri);
    set_env(&r, "REQUEST_ID", "server-id-1");
    return r;
}

static void set_body(struct fcgi_req *r, const char *body, const char *length, const char *type)
{
    r->body = body;
    r->body_size = strlen(body);
    set_env(r, "CONTENT_LENGTH", length);
    if (type != NULL)
        set_env(r, "CONTENT_TYPE", type);
}

/* Serves r once and tells whether the answer begins and ends so. */
static void expect(struct fixture *f, struct fcgi_req *r, const char *status, const char *body)
{
    web_serve(r, &f->server);
    assert_int_equal(r->sent, 1);
    assert_non_null(r->out.data);
    if (!str_starts(r->out.data + strlen("Status: "), status) || !str_ends(r->out.data, body))
        fail_msg("not %s %s but: %s", status, body, r->out.data);
    buf_free(&r->out);
}

static void a_request_reaches_its_handler(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("GET", "/things/a%2Fb?x=1&y");
    set_env(&r, "HTTP_X_REQUEST_ID", "client-id-1");
    web_serve(&r, &f.server);
    assert_string_equal(r.out.data,
        "Status: 200 OK\r\nContent-Type: application/json\r\nContent-Length: 45\r\n"
        "ETag: \"c7874dd35f118e68f50bac7084d9d598\"\r\nCache-Control: no-cache\r\n"
        "X-Request-Id: client-id-1\r\n\r\n{\"key\":\"a/b\",\"query\":\"x=1&y\",\"caller\":\"open\"}");
    buf_free(&r.out);
    end(&f);
}

/* Only who promises to say so itself may keep other requests from being served meanwhile. */
static void other_threads_take_over_unless_the_route_is_instant(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req waiting = request("GET", "/things/a");
    web_serve(&waiting, &f.server);
    assert_true(waiting.waits > 0);
    struct fcgi_req instant = request("GET", "/instant");
    web_serve(&instant, &f.server);
    assert_int_equal(instant.waits, 0);
    buf_free(&waiting.out);
    buf_free(&instant.out);
    end(&f);
}

static void head_has_the_length_and_no_body(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("HEAD", "/things/a");
    web_serve(&r, &f.server);
    assert_non_null(strstr(r.out.data, "Content-Length: 38\r\n"));
    assert_true(str_ends(r.out.data, "\r\n\r\n"));
    buf_free(&r.out);
    end(&f);
}

static void errors_have_text_and_request_id(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("GET", "/nowhere");
    expect(&f, &r, "404 ",
        "{\"error\":\"there is nothing at this address\",\"request_id\":\"server-id-1\"}");
    r = request("GET", "/things/..");
    expect(&f, &r, "400 ", "\"request_id\":\"server-id-1\"}");
    r = request("PATCH", "/things/a");
    web_serve(&r, &f.server);
    assert_non_null(strstr(r.out.data, "\r\nAllow: GET, HEAD, PUT, POST, DELETE\r\n"));
    buf_free(&r.out);
    r = request("GET", NULL);
    expect(&f, &r, "400 ", "}");
    r = request(NULL, "/things/a");
    expect(&f, &r, "400 ", "}");
    assert_int_equal(handled, 0);
    end(&f);
}

static void what_a_handler_says_becomes_the_status(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    failure = ERR_CONFLICT;
    struct fcgi_req r = request("GET", "/fail");
    expect(&f, &r, "409 ", "{\"error\":\"the reason\",\"request_id\":\"server-id-1\"}");
    failure = ERR_INTERNAL;
    r = request("GET", "/fail");
    expect(&f, &r, "500 ", "{\"error\":\"internal error\",\"request_id\":\"server-id-1\"}");
    failure = ERR_OK; /* it failed and did not say why */
    r = request("GET", "/fail");
    expect(&f, &r, "500 ", "{\"error\":\"internal error\",\"request_id\":\"server-id-1\"}");
    end(&f);
}

static void callers_are_checked(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_tokens);
    struct fcgi_req r = request("GET", "/things/a");
    expect(&f, &r, "401 ", "}");
    r = request("GET", "/things/a");
    set_env(&r, "HTTP_AUTHORIZATION", "Bearer wrong");
    expect(&f, &r, "401 ", "}");
    r = request("DELETE", "/things/a");
    set_env(&r, "HTTP_AUTHORIZATION", "Bearer secret");
    expect(&f, &r, "403 ", "}");
    assert_int_equal(handled, 0);
    r = request("GET", "/things/a");
    set_env(&r, "HTTP_AUTHORIZATION", "Bearer secret");
    expect(&f, &r, "200 ", "\"caller\":\"vera\"}");
    r = request("GET", "/healthz");
    set_env(&r, "HTTP_AUTHORIZATION", "Bearer wrong");
    expect(&f, &r, "200 ", "{\"status\":\"ok\"}");
    r = request("GET", "/metrics");
    expect(&f, &r, "401 ", "}");
    end(&f);
}

static void foreign_origins_are_refused_before_anything(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("DELETE", "/things/a");
    set_env(&r, "HTTP_HOST", "here");
    set_env(&r, "HTTP_ORIGIN", "https://there");
    expect(&f, &r, "403 ", "}");
    r = request("DELETE", "/things/a");
    set_env(&r, "HTTP_SEC_FETCH_SITE", "cross-site");
    expect(&f, &r, "403 ", "}");
    assert_int_equal(handled, 0);
    end(&f);
}

static void put(
    struct fixture *f, const char *body, const char *length, const char *type, const char *status)
{
    struct fcgi_req r = request("PUT", "/things/a");
    set_body(&r, body, length, type);
    expect(f, &r, status, "}");
}

static void a_required_body_is_json_with_a_length(void **state)
{
    struct fixture f;
    char large[8];
    (void)state;
    begin(&f, word_open);
    (void)str_format(large, sizeof(large), "%d", REQUEST_BODY_MAX + 1);
    put(&f, "{}", "", "application/json", "411 ");
    put(&f, "{}", "two", "application/json", "400 ");
    put(&f, "{}", "-2", "application/json", "400 ");
    put(&f, "{}", large, "application/json", "413 ");
    put(&f, "", "0", "application/json", "400 ");
    put(&f, "{}", "2", NULL, "415 ");
    put(&f, "{}", "2", "text/plain", "415 ");
    put(&f, "{}", "2", "application/jsonx", "415 ");
    put(&f, "{'", "2", "application/json", "400 ");
    put(&f, "{", "2", "application/json", "400 ");   /* cut off */
    put(&f, "{} ", "2", "application/json", "400 "); /* longer than announced */
    assert_int_equal(handled, 0);
    put(&f, "{\"b\":1}", "7", "Application/JSON ; charset=utf-8", "200 ");
    put(&f, "{}", "2", "application/json", "200 ");
    assert_int_equal(handled, 2);
    end(&f);
}

static void an_optional_body_may_be_missing(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("POST", "/things/a");
    expect(&f, &r, "200 ", "\r\n\r\n{}");
    r = request("POST", "/things/a");
    set_body(&r, "", "0", "application/x-www-form-urlencoded");
    expect(&f, &r, "200 ", "\r\n\r\n{}");
    r = request("POST", "/things/a");
    set_body(&r, "{\"b\":1}", "7", "application/json");
    expect(&f, &r, "200 ", "\r\n\r\n{\"b\":1}");
    r = request("POST", "/things/a");
    set_body(&r, "b=1", "3", "application/x-www-form-urlencoded");
    expect(&f, &r, "415 ", "}");
    r = request("POST", "/things/a");
    set_body(&r, "{}", "", "application/json");
    set_env(&r, "HTTP_TRANSFER_ENCODING", "chunked");
    expect(&f, &r, "411 ", "}");
    assert_int_equal(handled, 3);
    end(&f);
}

static void a_body_that_is_not_wanted_is_not_looked_at(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("DELETE", "/things/a");
    set_body(&r, "junk", "4", "text/plain");
    expect(&f, &r, "200 ", "\r\n\r\n{}");
    end(&f);
}

static void a_cgis_input_need_not_end_with_the_body(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("PUT", "/things/a");
    r.cgi = true;
    set_body(&r, "{}and more", "2", "application/json");
    expect(&f, &r, "200 ", "\r\n\r\n{}");
    end(&f);
}

static void a_cgis_own_path_is_taken_off(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("GET", "/cgi-bin/wb/things/a%2Fb");
    r.cgi = true;
    set_env(&r, "SCRIPT_NAME", "/cgi-bin/wb");
    set_env(&r, "PATH_INFO", "/things/a/b");
    expect(&f, &r, "200 ", "{\"key\":\"a/b\",\"query\":\"\",\"caller\":\"open\"}");
    r = request("GET", "/things/a"); /* rewritten by the web server */
    r.cgi = true;
    set_env(&r, "SCRIPT_NAME", "/cgi-bin/wb");
    set_env(&r, "PATH_INFO", "/things/a");
    expect(&f, &r, "200 ", "}");
    r = request("GET", "/things/a"); /* nginx over FastCGI: SCRIPT_NAME is the whole path */
    set_env(&r, "SCRIPT_NAME", "/things/a");
    set_env(&r, "PATH_INFO", "");
    expect(&f, &r, "200 ", "}");
    end(&f);
}

static void a_matching_tag_is_answered_without_a_body(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    struct fcgi_req r = request("GET", "/things/a");
    set_env(&r, "HTTP_IF_NONE_MATCH", "*");
    expect(&f, &r, "304 ", "\r\n\r\n");
    r = request("PUT", "/things/a");
    set_body(&r, "{}", "2", "application/json");
    set_env(&r, "HTTP_IF_NONE_MATCH", "*");
    web_serve(&r, &f.server); /* only what GET gives has a tag and may be kept */
    assert_string_equal(r.out.data, "Status: 200 OK\r\nContent-Type: application/json\r\n"
                                    "Content-Length: 2\r\nCache-Control: no-store\r\n"
                                    "X-Request-Id: server-id-1\r\n\r\n{}");
    buf_free(&r.out);
    end(&f);
}

static void requests_are_counted_by_class(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, word_open);
    const int64_t ok = metric_get(METRIC_REQUESTS_2XX);
    const int64_t bad = metric_get(METRIC_REQUESTS_4XX);
    const int64_t bytes = metric_get(METRIC_BYTES_OUT);
    struct fcgi_req r = request("GET", "/healthz");
    expect(&f, &r, "200 ", "{\"status\":\"ok\"}");
    assert_int_equal(metric_get(METRIC_BYTES_OUT) - bytes, 15);
    r = request("GET", "/nowhere");
    expect(&f, &r, "404 ", "}");
    assert_int_equal(metric_get(METRIC_REQUESTS_2XX) - ok, 1);
    assert_int_equal(metric_get(METRIC_REQUESTS_4XX) - bad, 1);
    r = request("GET", "/metrics");
    web_serve(&r, &f.server);
    assert_non_null(strstr(r.out.data, "Content-Type: text/plain; version=0.0.4\r\n"));
    assert_non_null(strstr(r.out.data, "\nweighbridge_http_requests_total{code=\"2xx\"} "));
    buf_free(&r.out);
    end(&f);
}

static void it_is_not_ready_without_any_store(void **state)
{
    struct fixture f;
    char nowhere[] = "host=/nonexistent";
    (void)state;
    begin(&f, word_open);
    end(&f);
    f.conf.db_url = nowhere;
    f.auth = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(auth_load(&f.conf, &f.auth, &e), 0);
    web_server_init(&f.server, &APP, &f.context, f.auth, 1);
    struct fcgi_req r = request("GET", "/readyz");
    expect(&f, &r, "503 ",
        "{\"status\":\"down\",\"postgres\":\"down: unavailable\",\"redis\":\"off\","
        "\"error\":\"neither Postgres nor Redis answers\",\"request_id\":\"server-id-1\"}");
    end(&f);
}

static int make_tokens(void **state)
{
    char hash[65];
    (void)state;
    int fd = mkstemp(token_path);
    if (fd < 0)
        return -1;
    digest_hex("secret", 6, hash);
    (void)dprintf(fd, "%s viewer vera\n", hash);
    log_setup("test", LOG_ERROR);
    return close(fd);
}

static int remove_tokens(void **state)
{
    (void)state;
    return unlink(token_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_reaches_its_handler),
        cmocka_unit_test(other_threads_take_over_unless_the_route_is_instant),
        cmocka_unit_test(head_has_the_length_and_no_body),
        cmocka_unit_test(errors_have_text_and_request_id),
        cmocka_unit_test(what_a_handler_says_becomes_the_status),
        cmocka_unit_test(callers_are_checked),
        cmocka_unit_test(foreign_origins_are_refused_before_anything),
        cmocka_unit_test(a_required_body_is_json_with_a_length),
        cmocka_unit_test(an_optional_body_may_be_missing),
        cmocka_unit_test(a_body_that_is_not_wanted_is_not_looked_at),
        cmocka_unit_test(a_cgis_input_need_not_end_with_the_body),
        cmocka_unit_test(a_cgis_own_path_is_taken_off),
        cmocka_unit_test(a_matching_tag_is_answered_without_a_body),
        cmocka_unit_test(requests_are_counted_by_class),
        cmocka_unit_test(it_is_not_ready_without_any_store),
    };
    return cmocka_run_group_tests(tests, make_tokens, remove_tokens);
}
