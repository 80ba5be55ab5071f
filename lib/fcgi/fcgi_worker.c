/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <fcgiapp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "base/str.h"
#include "base/thread.h"
#include "fcgi/fcgi_req_internal.h"
#include "fcgi/fcgi_set_internal.h"

enum { EVENTS = 16 };

/* One thread leads: it takes events, several at a time, and serves them one after the other, so that
 * under load nobody has to be woken for a request. Before it may wait for anything (a store, a slow
 * client) it gives the lead up, and another goes on with the events that are left. */
struct crew {
    pthread_mutex_t lead; /* held by who leads */
    struct epoll_event ev[EVENTS];
    int n;
    int next;
};

struct worker {
    struct set *set;
    struct crew *crew;
    bool leads;
    int index;
    bool started;
    pthread_t thread;
    FCGX_Request fcgx;
    struct fcgi_feed feed;
    unsigned char *window;
};

void worker_follow(struct worker *w)
{
    if (w == NULL || !w->leads)
        return;
    w->leads = false;
    (void)pthread_mutex_unlock(&w->crew->lead);
}

enum after { AFTER_KEEP, AFTER_CLOSE, AFTER_LINGER };

/* While the set is stopped a connection ends with its answer, but its peer may have sent a request
 * before it could know: what the socket has taken is served, what comes later its sender sees fail. */
static void rest(struct worker *w, struct conn *c)
{
    if (set_rest(w->set, c))
        return;
    char byte = 0;
    (void)shutdown(c->fd, SHUT_RD);
    if (recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1)
        set_enter_room(w->set, c);
    else
        set_close(w->set, c);
}

static void finish(struct worker *w, struct conn *c, enum after after)
{
    buf_free(&c->held);
    c->held = (struct buf)BUF_INIT(FCGI_PEEK_WINDOW);
    c->scan = (struct fcgi_scan){ 0 };
    if (c->streams)
        set_free_stream_place(w->set);
    c->streams = false;
    if (after == AFTER_KEEP) {
        rest(w, c);
    } else if (after == AFTER_LINGER) {
        /* A peer that is still sending would lose the answer to a reset. */
        (void)shutdown(c->fd, SHUT_WR);
        c->lingers = true;
        set_enter_room(w->set, c);
    } else {
        set_close(w->set, c);
    }
}

/* Has libfcgi read the request from fd and hands it over. libfcgi closes fd itself when it fails, and
 * then w->fcgx.ipcFd is -1; otherwise fd is open as before. True when all went well and the web server
 * asked to keep the connection. */
static bool handle(struct worker *w, struct conn *c, int fd, struct fcgi_feed *feed)
{
    FCGX_Request *r = &w->fcgx;
    r->ipcFd = fd;
    r->keepConnection = 1; /* FCGX_Accept_r begins by finishing: this keeps fd open */
    (void)FCGX_Detach(r);  /* should it close fd, then without waiting for the peer */
    if (FCGX_Accept_r(r) < 0) {
        r->ipcFd = -1;
        return false;
    }
    struct fcgi_req req = { .fcgx = r,
        .feed = feed,
        .env = r->envp,
        .in_fd = -1,
        .out_fd = c->fd,
        .thread = w->index,
        .worker = w,
        .send_timeout_ms = w->set->o->read_timeout_ms };
    if (!w->set->o->handler_follows)
        worker_follow(w);
    w->set->o->handle(&req, w->set->o->ctx);
    if (!req.begun)
        log_error(LOG_MSG("a handler did not answer"));
    bool keep = r->keepConnection != 0 && req.begun && !req.failed && !req.cut;
    FCGX_Free(r, 0);
    return keep;
}

/* The request is whole in the socket, and `only` it. */
static void serve_at_once(struct worker *w, struct conn *c, bool only)
{
    bool keep = handle(w, c, c->fd, NULL);
    if (w->fcgx.ipcFd < 0)
        c->fd = -1;
    w->fcgx.ipcFd = -1;
    finish(w, c, keep && only ? AFTER_KEEP : AFTER_CLOSE);
}

/* The request came in pieces, which the waiting room took. */
static void serve_held(struct worker *w, struct conn *c)
{
    struct err e = ERR_INIT;
    worker_follow(w); /* the rest of the body may be long in coming */
    w->feed.window = w->window;
    if (feed_begin(&w->feed, c, &e) < 0) {
        log_error(LOG_MSG("a request is dropped"), LOG_S("error", e.msg));
        finish(w, c, AFTER_CLOSE);
        return;
    }
    bool keep = handle(w, c, w->feed.fd, &w->feed);
    if (w->fcgx.ipcFd < 0)
        w->feed.fd = -1;
    w->fcgx.ipcFd = -1;
    bool whole = c->scan.phase == FCGI_PHASE_DONE;
    finish(w, c, !whole ? AFTER_LINGER : keep ? AFTER_KEEP : AFTER_CLOSE);
}

/* A connection has become readable: looks what is there. */
static void look(struct worker *w, struct conn *c)
{
    set_take(c);
    ssize_t n = recv(c->fd, w->window, FCGI_PEEK_SMALL, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        finish(w, c, AFTER_KEEP);
        return;
    }
    if (n <= 0) {
        finish(w, c, AFTER_CLOSE);
        return;
    }
    size_t end = 0;
    enum fcgi_peek seen = fcgi_peek(w->window, (size_t)n, false, &end);
    if (seen == FCGI_PEEK_MORE && n == FCGI_PEEK_SMALL) {
        n = recv(c->fd, w->window, FCGI_PEEK_WINDOW, MSG_PEEK | MSG_DONTWAIT);
        seen = fcgi_peek(w->window, n > 0 ? (size_t)n : 0, false, &end);
    }
    if (seen == FCGI_PEEK_WHOLE) {
        serve_at_once(w, c, end == (size_t)n);
    } else if (seen == FCGI_PEEK_BAD) {
        metric_add(METRIC_CONNS_REFUSED, 1);
        finish(w, c, AFTER_CLOSE);
    } else {
        set_enter_room(w->set, c);
    }
}

static void serve_ready(struct worker *w)
{
    uint64_t one = 0;
    if (read(w->set->ready_fd, &one, sizeof one) != (ssize_t)sizeof one)
        return; /* another thread was quicker */
    struct conn *c = set_next_ready(w->set);
    if (c != NULL)
        serve_held(w, c);
}

static struct epoll_event next_event(struct worker *w)
{
    struct crew *c = w->crew;
    if (!w->leads)
        (void)pthread_mutex_lock(&c->lead);
    w->leads = true;
    while (c->next >= c->n) {
        c->n = epoll_wait(w->set->ep, c->ev, EVENTS, -1);
        c->next = 0;
    }
    return c->ev[c->next++];
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct set *s = w->set;
    for (;;) {
        struct epoll_event ev = next_event(w);
        if (ev.data.ptr == &s->quit_fd)
            break;
        if (ev.data.ptr == NULL)
            set_accept(s);
        else if (ev.data.ptr == &s->ready_fd)
            serve_ready(w);
        else
            look(w, ev.data.ptr);
    }
    worker_follow(w);
    feed_close(&w->feed);
    return NULL;
}

static int start(struct worker *w, struct set *s, int index, struct err *e)
{
    w->set = s;
    w->index = index;
    w->feed.fd = -1;
    w->window = mem_kept(mem_alloc(FCGI_PEEK_WINDOW));
    (void)FCGX_InitRequest(&w->fcgx, -1, 0);
    char name[THREAD_NAME_SIZE];
    (void)str_format(name, sizeof name, "request-%d", index);
    if (thread_start(&w->thread, work, w, name, e) < 0)
        return -1;
    w->started = true;
    return 0;
}

int workers_start(struct set *s, struct worker **out, struct err *e)
{
    int threads = s->o->threads;
    assert(threads > 0);
    struct worker *w = mem_calloc((size_t)threads, sizeof *w);
    struct crew *crew = mem_calloc(1, sizeof *crew);
    (void)pthread_mutex_init(&crew->lead, NULL);
    for (int i = 0; i < threads; i++)
        w[i].crew = mem_kept(crew);
    for (int i = 0; i < threads; i++) {
        if (start(&w[i], s, i, e) < 0) {
            workers_join(s, w);
            return -1;
        }
    }
    *out = w;
    return 0;
}

void workers_join(struct set *s, struct worker *w)
{
    stop_raise(s->quit_fd);
    for (int i = 0; i < s->o->threads; i++) {
        if (w[i].started)
            (void)pthread_join(w[i].thread, NULL);
        free(w[i].window);
    }
    (void)pthread_mutex_destroy(&w->crew->lead);
    free(w->crew);
    free(w);
}
