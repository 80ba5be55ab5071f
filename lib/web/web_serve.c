/* SPDX-License-Identifier: Apache-2.0 */
#include "web/web_serve.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "store/ready.h"
#include "web/web_body.h"

enum { HEAD_MAX = 4096 + REPLY_LINES_MAX };

static bool lists(const struct web_app *app, const struct db_stmts *stmts)
{
    for (size_t i = 0; i < app->n_stmts; i++) {
        if (app->stmts[i].stmt == stmts->stmt)
            return true;
    }
    return false;
}

/* Under the program's name too, so that one web server can tell those of several programs apart. */
static void add_health_routes(struct web_server *s, const char *name)
{
    s->named = mem_calloc(HEALTH_ROUTES_COUNT, sizeof(s->named[0]));
    for (size_t i = 0; i < HEALTH_ROUTES_COUNT; i++) {
        struct web_route *r = &s->routes[s->n_routes];
        (void)str_format(s->named[i], sizeof(s->named[i]), "/%s%s", name, HEALTH_ROUTES[i].pattern);
        r[0] = HEALTH_ROUTES[i];
        r[1] = HEALTH_ROUTES[i];
        r[1].pattern = s->named[i];
        s->n_routes += 2;
    }
}

static void join_tables(struct web_server *s, const struct web_app *app)
{
    s->routes = mem_calloc(app->n_routes + 2 * HEALTH_ROUTES_COUNT, sizeof(s->routes[0]));
    for (size_t i = 0; i < app->n_routes; i++)
        s->routes[s->n_routes++] = app->routes[i];
    add_health_routes(s, app->name);

    s->stmts = mem_calloc(app->n_stmts + 1, sizeof(s->stmts[0]));
    for (size_t i = 0; i < app->n_stmts; i++)
        s->stmts[s->n_stmts++] = app->stmts[i];
    if (!lists(app, &READY_STMTS))
        s->stmts[s->n_stmts++] = READY_STMTS;
}

static void thread_init(struct web_thread *t, const struct web_server *s, size_t number)
{
    const struct conf *conf = s->context->conf;
    (void)str_format(t->name, sizeof(t->name), "weighbridge-%s/%zu", s->app->name, number);
    t->head = (struct buf)BUF_INIT(HEAD_MAX);
    t->db = mem_kept(db_new(&(struct db_options){ .url = conf->db_url,
        .name = t->name,
        .prepared = conf->db_prepared,
        .timeout_ms = conf->db_timeout_ms,
        .breaker = s->context->db_breaker,
        .stmts = s->stmts,
        .n_stmts = s->n_stmts }));
    t->kv = mem_kept(kv_new(&(struct kv_options){ .url = conf->redis_url,
        .name = t->name,
        .timeout_ms = conf->redis_timeout_ms,
        .breaker = s->context->kv_breaker }));
}

void web_server_init(struct web_server *s, const struct web_app *app,
    const struct web_context *context, const struct auth *auth, size_t threads)
{
    *s = (struct web_server){ .app = app, .context = context, .auth = auth };
    join_tables(s, app);
    s->threads = mem_calloc(threads, sizeof(s->threads[0]));
    for (; s->n_threads < threads; s->n_threads++)
        thread_init(&s->threads[s->n_threads], s, s->n_threads);
}

void web_server_fini(struct web_server *s)
{
    for (size_t i = 0; i < s->n_threads; i++) {
        db_close(s->threads[i].db);
        kv_close(s->threads[i].kv);
        buf_free(&s->threads[i].head);
    }
    free(s->threads);
    free(s->stmts);
    free(s->routes);
    free(s->named);
    *s = (struct web_server){ 0 };
}

/* The raw address. A CGI is called by a path of its own, which is not part of ours. */
static const char *request_uri(struct fcgi_req *r)
{
    const char *uri = fcgi_env(r, "REQUEST_URI");
    const char *script = fcgi_env(r, "SCRIPT_NAME");
    if (uri == NULL || !fcgi_is_cgi(r) || str_empty(script) || str_empty(fcgi_env(r, "PATH_INFO")))
        return uri;
    const size_t n = strlen(script);
    return strncmp(uri, script, n) == 0 && uri[n] == '/' ? uri + n : uri;
}

static const char *query_of(const char *uri)
{
    const char *at = strchr(uri, '?');
    return at == NULL ? "" : at + 1;
}

static int check_caller(
    const struct web_server *s, struct fcgi_req *r, struct web_req *req, struct err *e)
{
    if (request_check_origin(req->method, fcgi_env(r, "HTTP_ORIGIN"), fcgi_env(r, "HTTP_HOST"),
            fcgi_env(r, "HTTP_SEC_FETCH_SITE"), e) < 0)
        return -1;
    /* A wrong credential is no hindrance where none is needed. */
    if ((req->match.route->flags & WEB_OPEN) != 0)
        return 0;
    if (auth_check(s->auth, fcgi_env(r, "HTTP_AUTHORIZATION"), fcgi_env(r, "WB_REMOTE_USER"),
            &req->caller, e) < 0) {
        if (!auth_is_open(s->auth, req->match.route))
            return -1;
        e->code = ERR_OK;
        return 0;
    }
    return auth_allows(s->auth, &req->caller, req->match.route, e);
}

static int find_route(
    const struct web_server *s, struct web_req *req, struct web_reply *reply, struct err *e)
{
    const char *uri = request_uri(req->fcgi);
    req->uri = uri == NULL ? "" : uri;
    if (uri == NULL || req->method == NULL)
        return err_set(e, ERR_INVALID, "the web server passes no REQUEST_URI or REQUEST_METHOD");
    if (route_find(s->routes, s->n_routes, req->method, uri, &req->match, e) < 0) {
        if (e->code == ERR_METHOD)
            (void)str_copy(reply->allow, sizeof(reply->allow), req->match.allow);
        return -1;
    }
    req->query = query_of(uri);
    return 0;
}

static void set_deadlines(
    const struct web_server *s, const struct web_thread *t, struct web_req *req, int64_t began_ns)
{
    const struct conf *conf = s->context->conf;
    req->deadline_ns = began_ns + conf->db_timeout_ms * NS_PER_MS;
    db_set_deadline(t->db, req->deadline_ns);
    kv_set_deadline(t->kv, 0); /* each call its own: Redis does not pay for a slow Postgres */
}

static int answer(const struct web_server *s, const struct web_thread *t, struct web_req *req,
    struct web_reply *reply, struct err *e)
{
    const struct web_route *route = NULL;
    if (find_route(s, req, reply, e) < 0 || check_caller(s, req->fcgi, req, e) < 0)
        return -1;
    route = req->match.route;
    if ((route->flags & WEB_INSTANT) == 0)
        fcgi_may_wait(req->fcgi);
    if (web_body_read(req->fcgi, route->flags, &req->body, e) < 0)
        return -1;
    /* From here on: what the client took to send its body is not the stores' fault. */
    set_deadlines(s, t, req, clock_mono_ns());
    if (route->handle(req, reply, e) < 0)
        return -1;
    if (reply->lines.overflow)
        return err_set(e, ERR_INTERNAL, "the header of the answer is too long");
    if (reply->body.overflow)
        return err_set(e, ERR_INTERNAL, "the answer is larger than %d bytes", REPLY_MAX);
    if (strcmp(route->method, "GET") == 0)
        reply_revalidate(
            reply, (route->flags & WEB_ETAG) != 0, fcgi_env(req->fcgi, "HTTP_IF_NONE_MATCH"));
    return 0;
}

static void count(const struct web_reply *reply, size_t sent, int64_t took_ns)
{
    static const enum metric CLASSES[] = { METRIC_REQUESTS_2XX, METRIC_REQUESTS_3XX,
        METRIC_REQUESTS_4XX, METRIC_REQUESTS_5XX };
    const int class = reply->status / 100;
    assert(class >= 2 && class <= 5);
    metric_add(CLASSES[class - 2], 1);
    metric_add(METRIC_REQUEST_SECONDS, took_ns / (NS_PER_S / US_PER_S));
    metric_add(METRIC_BYTES_OUT, (int64_t)sent);
    if (reply->status == reply_status_of(ERR_UNAUTHENTICATED))
        metric_add(METRIC_AUTH_FAILURES, 1);
}

/* A store that is down is logged once by who talks to it; a thousand polls that miss it are not. What was to change
 * something and was refused is, unless by who has no token: strangers are counted, and fill no log. */
static enum log_level level_of(const struct web_req *req, const struct err *e)
{
    if (e->code == ERR_INTERNAL)
        return LOG_ERROR;
    const bool down = e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT;
    const bool reads = req->method != NULL &&
                       (strcmp(req->method, "GET") == 0 || strcmp(req->method, "HEAD") == 0);
    const bool told = down || (e->code != ERR_OK && req->caller.role != ROLE_NONE);
    return told && !reads ? LOG_INFO : LOG_DEBUG;
}

static void note(
    const struct web_req *req, const struct web_reply *reply, const struct err *e, int64_t took_ns)
{
    const struct web_route *route = req->match.route;
    /* A key of NULL ends the list: no error, no such key. */
    log_emit(level_of(req, e),
        LOG_KVS(LOG_MSG("request"), LOG_S("method", req->method == NULL ? "" : req->method),
            LOG_S("route", route == NULL ? "" : route->pattern), LOG_I("status", reply->status),
            LOG_I("took_us", took_ns / (NS_PER_S / US_PER_S)), LOG_S("caller", req->caller.subject),
            LOG_S(e->code == ERR_OK ? NULL : "error", e->msg)));
}

static void send_reply(struct web_thread *t, const struct web_req *req, struct web_reply *reply,
    const struct err *why, int64_t began_ns)
{
    struct err e = ERR_INIT;
    size_t size = 0;
    buf_clear(&t->head);
    reply_head(reply, req->request_id, &t->head);
    const char *body = reply_bytes(reply, &size);
    if (req->method != NULL && strcmp(req->method, "HEAD") == 0)
        size = 0;
    const int64_t took_ns = clock_mono_ns() - began_ns;
    count(reply, size, took_ns);
    note(req, reply, why, took_ns);
    if (fcgi_send(req->fcgi, t->head.data, t->head.len, body, size, &e) < 0)
        log_debug(LOG_MSG("nobody took the answer"), LOG_S("error", e.msg));
}

static void req_init(
    struct web_req *req, const struct web_server *s, const struct web_thread *t, struct fcgi_req *r)
{
    memset(req, 0, offsetof(struct web_req, match.text));
    req->fcgi = r;
    req->method = fcgi_env(r, "REQUEST_METHOD");
    req->query = "";
    req->uri = "";
    req->conf = s->context->conf;
    req->db = t->db;
    req->kv = t->kv;
    req->shared = s->context->shared;
    req->app = s->app_data;
    req->needs_postgres = s->app->needs_postgres;
}

void web_serve(struct fcgi_req *r, void *server)
{
    const struct web_server *s = server;
    const int number = fcgi_thread(r);
    const int64_t began_ns = clock_mono_ns();
    struct web_reply reply;
    struct web_req req;
    struct err e = ERR_INIT;

    assert(number >= 0 && (size_t)number < s->n_threads);
    struct web_thread *t = &s->threads[number];
    req_init(&req, s, t, r);
    request_id_choose(fcgi_env(r, "HTTP_X_REQUEST_ID"), fcgi_env(r, "REQUEST_ID"), req.request_id);
    log_set_request(req.request_id);
    reply_init(&reply);
    if (answer(s, t, &req, &reply, &e) < 0) {
        if (e.code == ERR_OK)
            (void)err_set(&e, ERR_INTERNAL, "a handler failed and did not say why");
        if (s->app->fail != NULL)
            s->app->fail(&req, &reply, &e);
        else
            reply_error(&reply, &e, req.request_id);
    }
    send_reply(t, &req, &reply, &e, began_ns);
    reply_fini(&reply);
    json_object_put(req.body);
    log_set_request(NULL);
}
