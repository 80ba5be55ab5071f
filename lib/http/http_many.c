/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_many.h"

#include <curl/curl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/http.h"
#include "http/http_easy.h"
#include "http/http_map.h"

/* libcurl's event interface over one epoll set: what a turn costs depends on what happened, not on how many are in
 * flight. Handles are used again, with what is the same for all calls set once. */

enum { EVENTS = 128, KEEP_BODY = 1 << 16, NO_TIMER = -1 };

struct http_many_call {
    CURL *easy;
    struct buf body;
    void *ctx;
    struct http_many_call *prev; /* of those under way */
    struct http_many_call *next; /* of those that are idle, or under way */
};

struct http_many {
    CURLM *multi;
    struct curl_slist *headers;
    struct http_options policy;
    struct http_many_call *idle;
    struct http_many_call *busy; /* under way */
    int set_fd;
    int wake_fd;
    int64_t timer_ns; /* NO_TIMER: none */
};

/* --- what libcurl asks for --- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
    struct http_many *m = ctx;
    struct epoll_event ev = { .data.fd = fd };
    (void)easy;

    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(m->set_fd, EPOLL_CTL_DEL, fd, &ev);
        return 0;
    }
    ev.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    if (epoll_ctl(m->set_fd, known != NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) < 0)
        return -1;
    (void)curl_multi_assign(m->multi, fd, m);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *ctx)
{
    struct http_many *m = ctx;
    (void)multi;
    m->timer_ns = ms < 0 ? NO_TIMER : clock_deadline(ms);
    return 0;
}

static size_t take_body(char *data, size_t size, size_t n, void *ctx)
{
    struct buf *body = ctx;
    buf_add(body, data, size * n);
    return body->overflow ? 0 : size * n; /* 0: curl gives up with CURLE_WRITE_ERROR */
}

/* --- life --- */

static void must(CURLMcode code)
{
    if (code != CURLM_OK)
        abort();
}

static void make_headers(struct http_many *m, const char *bearer)
{
    http_easy_header(&m->headers, "Accept", "application/json");
    http_easy_header(&m->headers, "Content-Type", "application/json");
    http_easy_header(&m->headers, "Expect", "");
    if (!str_empty(bearer))
        http_easy_bearer(&m->headers, bearer);
}

static int make_set(struct http_many *m, struct err *e)
{
    struct epoll_event ev = { .events = EPOLLIN };

    m->set_fd = epoll_create1(EPOLL_CLOEXEC);
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ev.data.fd = m->wake_fd;
    if (m->set_fd < 0 || m->wake_fd < 0 || epoll_ctl(m->set_fd, EPOLL_CTL_ADD, m->wake_fd, &ev) < 0)
        return err_errno(e, ERR_INTERNAL, "no set of connections");
    return 0;
}

int http_many_open(const struct http_many_options *o, struct http_many **out, struct err *e)
{
    if (!str_empty(o->bearer) && !http_easy_is_one_line(o->bearer))
        return err_set(e, ERR_INVALID, "the token holds a control character");
    cleanup_http_many struct http_many *m = mem_calloc(1, sizeof *m);
    m->set_fd = m->wake_fd = -1;
    m->timer_ns = NO_TIMER;
    m->policy = (struct http_options){
        .user_agent = o->user_agent,
        .ca_file = o->ca_file,
        .connect_ms = o->connect_ms > 0 ? o->connect_ms : HTTP_CONNECT_MS,
        .stop_fd = -1,
    };
    curl_easy_cleanup(http_easy_new()); /* sets libcurl up */
    if (make_set(m, e) < 0)
        return -1;
    m->multi = curl_multi_init();
    if (m->multi == NULL)
        abort();
    must(curl_multi_setopt(m->multi, CURLMOPT_SOCKETFUNCTION, on_socket));
    must(curl_multi_setopt(m->multi, CURLMOPT_SOCKETDATA, m));
    must(curl_multi_setopt(m->multi, CURLMOPT_TIMERFUNCTION, on_timer));
    must(curl_multi_setopt(m->multi, CURLMOPT_TIMERDATA, m));
    must(curl_multi_setopt(m->multi, CURLMOPT_MAXCONNECTS, (long)o->keep));
    make_headers(m, o->bearer);
    *out = STEAL(m);
    return 0;
}

static void free_call(struct http_many_call *c)
{
    curl_easy_cleanup(c->easy);
    buf_free(&c->body);
    free(c);
}

void http_many_close(struct http_many *m)
{
    if (m == NULL)
        return;
    while (m->busy != NULL)
        http_many_drop(m, m->busy);
    while (m->idle != NULL) {
        struct http_many_call *c = m->idle;
        m->idle = c->next;
        free_call(c);
    }
    if (m->multi != NULL)
        (void)curl_multi_cleanup(m->multi);
    curl_slist_free_all(m->headers);
    if (m->set_fd >= 0)
        close(m->set_fd);
    if (m->wake_fd >= 0)
        close(m->wake_fd);
    free(m);
}

/* --- calls --- */

static struct http_many_call *new_call(struct http_many *m)
{
    struct http_many_call *c = mem_calloc(1, sizeof *c);

    c->easy = http_easy_new();
    http_easy_policy(c->easy, &m->policy);
    http_easy_must(curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, m->headers));
    http_easy_must(curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, take_body));
    http_easy_must(curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, &c->body));
    http_easy_must(curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c));
    http_easy_long(c->easy, CURLOPT_POST, 1L);
    return c;
}

struct http_many_call *http_many_start(struct http_many *m, const struct http_many_request *r)
{
    struct http_many_call *c = m->idle;

    if (c != NULL)
        m->idle = c->next;
    else
        c = new_call(m);
    buf_clear(&c->body);
    c->body.max = r->answer_max;
    c->ctx = r->ctx;
    http_easy_text(c->easy, CURLOPT_URL, r->url);
    http_easy_long(c->easy, CURLOPT_TIMEOUT_MS, r->timeout_ms);
    http_easy_must(
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_size));
    http_easy_must(curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, r->body));
    must(curl_multi_add_handle(m->multi, c->easy));
    DL_APPEND(m->busy, c);
    return c;
}

static void put_back(struct http_many *m, struct http_many_call *c)
{
    if (c->body.cap > KEEP_BODY)
        buf_free(&c->body);
    c->next = m->idle;
    m->idle = c;
}

static void take_out(struct http_many *m, struct http_many_call *c)
{
    must(curl_multi_remove_handle(m->multi, c->easy));
    DL_DELETE(m->busy, c);
}

void http_many_drop(struct http_many *m, struct http_many_call *c)
{
    take_out(m, c);
    put_back(m, c);
}

static void read_end(struct http_many_call *c, CURLcode code, struct http_many_end *end)
{
    long status = 0;
    long sent = 0;

    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(c->easy, CURLINFO_REQUEST_SIZE, &sent);
    end->ctx = c->ctx;
    end->reached = sent > 0;
    end->body = "";
    if (code == CURLE_OK) {
        end->status = (int)status;
        end->retry_after_ms = http_easy_retry_after_ms(c->easy);
        const char *id = http_easy_answer_header(c->easy, "x-request-id");
        if (id != NULL)
            http_quote(end->request_id, sizeof end->request_id, id, NULL);
        if (c->body.data != NULL)
            end->body = c->body.data;
        end->size = c->body.len;
    } else if (c->body.overflow) {
        (void)err_set(&end->why, ERR_TOO_LARGE, "the answer is larger than %zu bytes", c->body.max);
    } else {
        (void)err_set(&end->why, http_err_code(code), "%s", curl_easy_strerror(code));
    }
}

static void tell_ends(
    struct http_many *m, void (*fn)(void *ctx, const struct http_many_end *end), void *ctx)
{
    for (;;) {
        int left = 0;
        void *private = NULL;
        const CURLMsg *msg = curl_multi_info_read(m->multi, &left);
        if (msg == NULL)
            return;
        const CURLcode code = msg->data.result;
        CURL *easy = msg->easy_handle; /* msg goes with the handle's leaving */
        http_easy_must(curl_easy_getinfo(easy, CURLINFO_PRIVATE, &private));
        struct http_many_call *c = private;
        struct http_many_end end = { .why = ERR_INIT };
        take_out(m, c);
        read_end(c, code, &end);
        fn(ctx, &end);
        put_back(m, c);
    }
}

/* --- turns --- */

static int until_timer(const struct http_many *m, int wait_ms)
{
    if (m->timer_ns == NO_TIMER)
        return wait_ms;
    const int left = clock_left_ms(m->timer_ns);
    return left < wait_ms ? left : wait_ms;
}

static void serve(struct http_many *m, const struct epoll_event *ev)
{
    int running = 0;
    int mask = 0;

    if (ev->data.fd == m->wake_fd) {
        uint64_t n = 0;
        (void)!read(m->wake_fd, &n, sizeof n);
        return;
    }
    mask |= ev->events & EPOLLIN ? CURL_CSELECT_IN : 0;
    mask |= ev->events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
    mask |= ev->events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0;
    must(curl_multi_socket_action(m->multi, ev->data.fd, mask, &running));
}

void http_many_turn(struct http_many *m, int wait_ms,
    void (*fn)(void *ctx, const struct http_many_end *end), void *ctx)
{
    struct epoll_event events[EVENTS];
    int running = 0;
    const int n = epoll_wait(m->set_fd, events, EVENTS, until_timer(m, wait_ms));

    for (int i = 0; i < n; i++)
        serve(m, &events[i]);
    if (m->timer_ns != NO_TIMER && clock_left_ms(m->timer_ns) == 0) {
        m->timer_ns = NO_TIMER; /* set anew from within */
        must(curl_multi_socket_action(m->multi, CURL_SOCKET_TIMEOUT, 0, &running));
    }
    tell_ends(m, fn, ctx);
}

void http_many_wake(struct http_many *m)
{
    const uint64_t one = 1;
    (void)!write(m->wake_fd, &one, sizeof one);
}
