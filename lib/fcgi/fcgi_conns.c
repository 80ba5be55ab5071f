/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/fcgi_set_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/stop.h"

enum { ACCEPT_BURST = 8, ACCEPT_PAUSE_MS = 100 };

struct set *set_lock(struct set *s)
{
    (void)pthread_mutex_lock(&s->lock);
    return s;
}

void set_lock_release(struct set **s)
{
    (void)pthread_mutex_unlock(&(*s)->lock);
}

/* Lock held. */
static void stop_listening(struct set *s)
{
    if (s->listening)
        (void)epoll_ctl(s->ep, EPOLL_CTL_DEL, s->o->listen_fd, NULL);
    s->listening = false;
}

/* Lock held. */
static void listen_again(struct set *s, int64_t now_ns)
{
    if (s->listening || s->mode != SET_RUN || s->open >= s->o->max_conns)
        return;
    if (s->accept_at_ns > now_ns)
        return;
    s->accept_at_ns = 0;
    struct epoll_event ev = { .events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = NULL };
    s->listening = epoll_ctl(s->ep, EPOLL_CTL_ADD, s->o->listen_fd, &ev) == 0;
}

bool set_listens(struct set *s)
{
    SET_LOCKED(s);
    return s->listening;
}

bool set_listen(struct set *s, int64_t now_ns)
{
    SET_LOCKED(s);
    listen_again(s, now_ns);
    return s->listening;
}

/* Lock held. c is armed for one event; from then on it is whose the event is. */
static int arm_first(struct set *s, struct conn *c)
{
    struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = c };
    (void)pthread_mutex_lock(&c->handover);
    atomic_store(&c->idle, true);
    if (s->mode == SET_STOP)
        (void)shutdown(c->fd, SHUT_RD);
    int rc = epoll_ctl(s->ep, EPOLL_CTL_ADD, c->fd, &ev);
    (void)pthread_mutex_unlock(&c->handover);
    return rc;
}

/* Lock held. The descriptor is closed before the lock is given back: set_change_mode() shuts the
 * descriptors of what is in the list. */
static void forget(struct set *s, struct conn *c)
{
    DL_DELETE(s->all, c);
    s->open--;
    if (c->streams)
        s->stream_places++;
    if (c->fd >= 0)
        close(c->fd);
    listen_again(s, clock_mono_ns());
}

void set_close(struct set *s, struct conn *c)
{
    bool wake = c->streams;
    {
        SET_LOCKED(s);
        forget(s, c);
        wake = wake || s->mode != SET_RUN;
    }
    metric_add(METRIC_CONNS_OPEN, -1);
    buf_free(&c->held);
    (void)pthread_mutex_destroy(&c->handover);
    free(c);
    if (wake)
        stop_raise(s->wake_fd);
}

/* Once for each request, hence without the set's lock: either this thread sees the new mode, or
 * set_change_mode() sees the connection idle and shuts it, which its event then tells. */
bool set_rest(struct set *s, struct conn *c)
{
    struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = c };
    bool armed = false;
    (void)pthread_mutex_lock(&c->handover);
    atomic_store(&c->idle, true);
    if (atomic_load(&s->mode) != SET_STOP)
        armed = epoll_ctl(s->ep, EPOLL_CTL_MOD, c->fd, &ev) == 0;
    else
        atomic_store(&c->idle, false);
    (void)pthread_mutex_unlock(&c->handover);
    return armed;
}

void set_take(struct conn *c)
{
    (void)pthread_mutex_lock(&c->handover);
    bool was_idle = atomic_exchange(&c->idle, false);
    (void)pthread_mutex_unlock(&c->handover);
    assert(was_idle);
}

/* Takes a place for one more connection. False at the limit: then nothing is accepted any more. */
static bool reserve(struct set *s)
{
    SET_LOCKED(s);
    if (s->open >= s->o->max_conns) {
        stop_listening(s);
        return false;
    }
    if (!s->listening)
        return false;
    s->open++;
    return true;
}

static void add_conn(struct set *s, int fd)
{
    struct conn *c = mem_calloc(1, sizeof *c);
    c->fd = fd;
    (void)pthread_mutex_init(&c->handover, NULL);
    c->held = (struct buf)BUF_INIT(FCGI_PEEK_WINDOW);
    const struct timeval limit = { .tv_sec = s->o->read_timeout_ms / MS_PER_S,
        .tv_usec = s->o->read_timeout_ms % MS_PER_S * US_PER_MS };
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    metric_add(METRIC_CONNS_ACCEPTED, 1);
    metric_add(METRIC_CONNS_OPEN, 1);
    bool armed = false;
    {
        SET_LOCKED(s);
        DL_APPEND(s->all, c);
        armed = arm_first(s, c) == 0;
    }
    if (!armed)
        set_close(s, c);
}

/* No connection came of a reserved place: error is accept4's. */
static void unreserve(struct set *s, int error)
{
    bool starved = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    bool wake = starved;
    bool paused = false;
    {
        SET_LOCKED(s);
        s->open--;
        paused = starved && s->listening; /* others may have failed at the same moment */
        if (paused) {
            stop_listening(s);
            s->accept_at_ns = clock_deadline(ACCEPT_PAUSE_MS);
        }
        /* another thread may have met the limit because of this place, and stopped listening */
        listen_again(s, clock_mono_ns());
        wake = wake || s->mode != SET_RUN;
    }
    if (paused)
        log_warn(LOG_MSG("out of descriptors: no connections for a while"), LOG_I("errno", error));
    if (wake)
        stop_raise(s->wake_fd);
}

void set_accept(struct set *s)
{
    for (int i = 0; i < ACCEPT_BURST && reserve(s); i++) {
        int fd = accept4(s->o->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            unreserve(s, errno);
            return;
        }
        add_conn(s, fd);
    }
}

void set_enter_room(struct set *s, struct conn *c)
{
    {
        SET_LOCKED(s);
        DL_APPEND2(s->entering, c, queue_prev, queue_next);
    }
    stop_raise(s->wake_fd);
}

void set_make_ready(struct set *s, struct conn *c)
{
    {
        SET_LOCKED(s);
        DL_APPEND2(s->ready, c, queue_prev, queue_next);
    }
    stop_raise(s->ready_fd);
}

struct conn *set_next_ready(struct set *s)
{
    SET_LOCKED(s);
    struct conn *c = s->ready;
    if (c != NULL)
        DL_DELETE2(s->ready, c, queue_prev, queue_next);
    return c;
}

bool set_take_stream_place(struct set *s)
{
    SET_LOCKED(s);
    if (s->stream_places == 0)
        return false;
    s->stream_places--;
    return true;
}

void set_free_stream_place(struct set *s)
{
    {
        SET_LOCKED(s);
        s->stream_places++;
    }
    stop_raise(s->wake_fd);
}

void set_change_mode(struct set *s, enum set_mode mode)
{
    SET_LOCKED(s);
    if (mode <= s->mode)
        return;
    s->mode = mode;
    stop_listening(s);
    if (mode != SET_STOP)
        return;
    struct conn *c = NULL;
    DL_FOREACH(s->all, c)
    if (atomic_load(&c->idle))
        (void)shutdown(c->fd, SHUT_RD);
}

enum set_mode set_mode(struct set *s)
{
    return atomic_load(&s->mode);
}

int64_t set_open(struct set *s)
{
    SET_LOCKED(s);
    return s->open;
}
