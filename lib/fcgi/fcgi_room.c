/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/fcgi_room.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"

void room_init(struct room *r, struct set *s, int ep)
{
    *r = (struct room){ .set = s, .ep = ep };
    r->window = mem_alloc(FCGI_PEEK_WINDOW);
}

void room_fini(struct room *r)
{
    free(r->window);
    r->window = NULL;
}

static void leave(struct room *r, struct conn *c)
{
    DL_DELETE2(r->conns, c, queue_prev, queue_next);
    (void)epoll_ctl(r->ep, EPOLL_CTL_DEL, c->fd, NULL);
    r->bytes -= c->held.len;
    if (!c->lingers)
        metric_add(METRIC_CONNS_WAITING, -1);
}

static void leave_and_close(struct room *r, struct conn *c, enum metric counter)
{
    leave(r, c);
    if (!c->lingers)
        metric_add(counter, 1);
    set_close(r->set, c);
}

static void admit(struct room *r, struct conn *c, int64_t now_ns)
{
    int64_t wait_ms = c->lingers ? ROOM_LINGER_MS : r->set->o->read_timeout_ms;
    c->deadline_ns = now_ns + wait_ms * NS_PER_MS;
    DL_APPEND2(r->conns, c, queue_prev, queue_next);
    r->bytes += c->held.len;
    if (!c->lingers)
        metric_add(METRIC_CONNS_WAITING, 1);
    struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = c };
    if (!c->lingers)
        ev.events |= EPOLLET;
    if (epoll_ctl(r->ep, EPOLL_CTL_ADD, c->fd, &ev) < 0)
        leave_and_close(r, c, METRIC_CONNS_EXPIRED);
}

static struct conn *all_entering(struct set *s)
{
    SET_LOCKED(s);
    struct conn *all = s->entering;
    s->entering = NULL;
    return all;
}

static struct conn *take_first(struct conn **list)
{
    struct conn *first = *list;
    DL_DELETE2(*list, first, queue_prev, queue_next);
    return first;
}

void room_admit(struct room *r, int64_t now_ns)
{
    struct conn *came = all_entering(r->set);
    while (came != NULL)
        admit(r, take_first(&came), now_ns);
}

/* Takes what has come for this request and no byte more: the rest belongs to the next one. 1 when
 * something was taken, 0 when nothing is there now, -1 when the peer is gone. */
static int take(struct room *r, struct conn *c)
{
    size_t room = FCGI_PEEK_WINDOW - c->held.len;
    ssize_t seen = recv(c->fd, r->window, room, MSG_PEEK | MSG_DONTWAIT);
    if (seen < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (seen == 0)
        return -1;
    size_t used = fcgi_scan(&c->scan, r->window, (size_t)seen);
    if (recv(c->fd, r->window, used, MSG_DONTWAIT) != (ssize_t)used)
        return -1;
    buf_add(&c->held, r->window, used);
    r->bytes += used;
    return 1;
}

static void move_on(struct room *r, struct conn *c)
{
    leave(r, c);
    set_make_ready(r->set, c);
}

static bool fills_window(const struct conn *c)
{
    return c->held.len == FCGI_PEEK_WINDOW;
}

static void read_on(struct room *r, struct conn *c)
{
    int rc = 1;
    enum fcgi_peek seen = fcgi_scan_verdict(&c->scan, fills_window(c));
    while (rc > 0 && seen == FCGI_PEEK_MORE && r->bytes <= ROOM_BYTES_MAX) {
        rc = take(r, c);
        seen = fcgi_scan_verdict(&c->scan, fills_window(c));
    }
    if (seen == FCGI_PEEK_WHOLE)
        move_on(r, c);
    else if (seen == FCGI_PEEK_BAD)
        leave_and_close(r, c, METRIC_CONNS_REFUSED);
    else if (rc < 0 || r->bytes > ROOM_BYTES_MAX)
        leave_and_close(r, c, METRIC_CONNS_EXPIRED);
    else if (seen == FCGI_PEEK_STREAM && (c->streams = set_take_stream_place(r->set)))
        move_on(r, c);
}

void room_look(struct room *r, struct conn *c)
{
    if (!c->lingers) {
        read_on(r, c);
        return;
    }
    ssize_t n = recv(c->fd, r->window, FCGI_PEEK_WINDOW, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        leave_and_close(r, c, METRIC_CONNS_EXPIRED);
}

void room_tend(struct room *r, int64_t now_ns)
{
    int64_t latest_ns = INT64_MAX;
    if (set_mode(r->set) == SET_STOP)
        latest_ns = now_ns + ROOM_STOP_MS * (int64_t)NS_PER_MS;
    struct conn *c = NULL;
    struct conn *next = NULL;
    DL_FOREACH_SAFE2(r->conns, c, next, queue_next)
    {
        if (c->deadline_ns > latest_ns)
            c->deadline_ns = latest_ns;
        if (c->deadline_ns <= now_ns)
            leave_and_close(r, c, METRIC_CONNS_EXPIRED);
        else if (!c->lingers && fills_window(c))
            read_on(r, c);
    }
}
