/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/fcgi_set.h"

#include <errno.h>
#include <fcgiapp.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/wait.h"
#include "fcgi/fcgi_room.h"
#include "fcgi/fcgi_set_internal.h"

enum { TICK_MS = 50, ACCEPT_LOOK_MS = 100, EVENTS = 16 };

/* The main thread's own things. */
struct hall {
    struct set *set;
    struct room room;
    int ep;
    int signal_fd;
    int terms;          /* TERM and INT so far */
    int64_t stop_at_ns; /* after HUP: idle connections are closed then; 0: not so */
    int64_t tended_at_ns;
    int64_t looked_at_ns;
    bool waited; /* a connection waited in the backlog when looked_at_ns */
};

static int watch(int ep, int fd, uint32_t events, void *tag, struct err *e)
{
    struct epoll_event ev = { .events = events, .data.ptr = tag };
    return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : err_errno(e, ERR_INTERNAL, "epoll_ctl");
}

static int set_open_fds(struct set *s, struct err *e)
{
    s->ep = epoll_create1(EPOLL_CLOEXEC);
    s->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (s->ep < 0 || s->ready_fd < 0)
        return err_errno(e, ERR_INTERNAL, "epoll_create1 or eventfd");
    s->quit_fd = stop_event_fd(e);
    s->wake_fd = s->quit_fd < 0 ? -1 : stop_event_fd(e);
    if (s->wake_fd < 0)
        return -1;
    if (watch(s->ep, s->ready_fd, EPOLLIN, &s->ready_fd, e) < 0 ||
        watch(s->ep, s->quit_fd, EPOLLIN, &s->quit_fd, e) < 0)
        return -1;
    int flags = fcntl(s->o->listen_fd, F_GETFL);
    if (flags < 0 || fcntl(s->o->listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_errno(e, ERR_INTERNAL, "the listening socket");
    return 0;
}

static void set_fini(struct set *s)
{
    cleanup_fd_(&s->ep);
    cleanup_fd_(&s->ready_fd);
    cleanup_fd_(&s->quit_fd);
    cleanup_fd_(&s->wake_fd);
    (void)pthread_mutex_destroy(&s->lock);
}
#define cleanup_set __attribute__((cleanup(set_fini)))

static void hall_fini(struct hall *h)
{
    room_fini(&h->room);
    cleanup_fd_(&h->ep);
    cleanup_fd_(&h->signal_fd);
}
#define cleanup_hall __attribute__((cleanup(hall_fini)))

static int hall_open(struct hall *h, struct set *s, struct err *e)
{
    h->set = s;
    h->ep = epoll_create1(EPOLL_CLOEXEC);
    if (h->ep < 0)
        return err_errno(e, ERR_INTERNAL, "epoll_create1");
    room_init(&h->room, s, h->ep);
    h->signal_fd = stop_signal_fd(e);
    if (h->signal_fd < 0)
        return -1;
    if (watch(h->ep, h->signal_fd, EPOLLIN, &h->signal_fd, e) < 0)
        return -1;
    return watch(h->ep, s->wake_fd, EPOLLIN, &s->wake_fd, e);
}

static void take_signals(struct hall *h)
{
    for (int sig = 0; (sig = stop_next_signal(h->signal_fd)) != 0;) {
        if (sig == SIGHUP && h->stop_at_ns == 0) {
            h->stop_at_ns = clock_deadline(h->set->o->drain_ms);
            set_change_mode(h->set, SET_DRAIN);
        } else if (sig == SIGTERM || sig == SIGINT) {
            if (h->terms++ > 0)
                _exit(1);
            set_change_mode(h->set, SET_STOP);
        }
    }
}

/* Whether there is anything that only the clock can move on. */
static bool ticks(const struct hall *h)
{
    SET_LOCKED(h->set);
    return h->room.conns != NULL || h->set->accept_at_ns != 0 || h->set->mode != SET_RUN;
}

static void tend(struct hall *h, int64_t now_ns)
{
    h->tended_at_ns = now_ns;
    (void)set_listen(h->set, now_ns);
    if (h->stop_at_ns != 0 && now_ns >= h->stop_at_ns)
        set_change_mode(h->set, SET_STOP);
    room_tend(&h->room, now_ns);
}

static void drain_counter(int event_fd)
{
    uint64_t count = 0;
    ssize_t n = read(event_fd, &count, sizeof count);
    (void)n;
}

/* The kernel wakes one thread for a connection. If that thread's process is frozen nobody else hears of
 * it, so each process looks now and then, and takes what has been there since it looked before. */
static void accept_forgotten(struct hall *h, int64_t now_ns)
{
    if (now_ns - h->looked_at_ns < ACCEPT_LOOK_MS * (int64_t)NS_PER_MS)
        return;
    h->looked_at_ns = now_ns;
    bool waits = set_listens(h->set) && wait_fd(h->set->o->listen_fd, POLLIN, now_ns) > 0;
    if (waits && h->waited)
        set_accept(h->set);
    h->waited = waits;
}

/* Returns when the set is drained. */
static void keep_hall(struct hall *h)
{
    while (set_mode(h->set) == SET_RUN || set_open(h->set) > 0) {
        struct epoll_event ev[EVENTS];
        int n = epoll_wait(h->ep, ev, EVENTS, ticks(h) ? TICK_MS : ACCEPT_LOOK_MS);
        bool woken = false;
        for (int i = 0; i < n; i++) {
            if (ev[i].data.ptr == &h->signal_fd) {
                take_signals(h);
            } else if (ev[i].data.ptr == &h->set->wake_fd) {
                drain_counter(h->set->wake_fd);
                woken = true;
            } else {
                room_look(&h->room, ev[i].data.ptr);
            }
        }
        int64_t now_ns = clock_mono_ns();
        if (woken)
            room_admit(&h->room, now_ns);
        if (woken || now_ns - h->tended_at_ns >= TICK_MS * (int64_t)NS_PER_MS)
            tend(h, now_ns);
        accept_forgotten(h, now_ns);
    }
}

static void say_ready(int fd)
{
    if (fd < 0)
        return;
    ssize_t n = -1;
    do
        n = write(fd, "1", 1);
    while (n < 0 && errno == EINTR);
    close(fd);
}

int fcgi_set_run(const struct fcgi_set_options *o, struct err *e)
{
    cleanup_set struct set s = { .o = o,
        .ep = -1,
        .ready_fd = -1,
        .quit_fd = -1,
        .wake_fd = -1,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .stream_places = o->threads / 2 };
    cleanup_hall struct hall h = { .ep = -1, .signal_fd = -1 };
    if (FCGX_Init() != 0)
        return err_set(e, ERR_INTERNAL, "libfcgi does not start");
    stop_block(); /* FCGX_Init put handlers of its own in place */
    if (set_open_fds(&s, e) < 0 || hall_open(&h, &s, e) < 0)
        return -1;
    struct worker *workers = NULL;
    if (workers_start(&s, &workers, e) < 0)
        return -1;
    bool listens = set_listen(&s, clock_mono_ns());
    if (listens) {
        say_ready(o->ready_fd);
        keep_hall(&h);
    }
    workers_join(&s, workers);
    return listens ? 0 : err_set(e, ERR_INTERNAL, "the listening socket cannot be polled");
}
