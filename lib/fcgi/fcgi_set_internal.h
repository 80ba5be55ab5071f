/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_SET_INTERNAL_H
#define WB_FCGI_SET_INTERNAL_H

/* What the main thread (fcgi_set.c), the request threads (fcgi_worker.c) and the keeping of connections
 * (fcgi_conns.c) share. The lock guards what follows it; it is never held across a call that may wait. */
#include <pthread.h>

#include "fcgi/fcgi_conn.h"
#include "fcgi/fcgi_set.h"

enum set_mode {
    SET_RUN,
    SET_DRAIN, /* after HUP: accept nothing, leave closing to the peer */
    SET_STOP,  /* after TERM, or HUP and drain_ms: idle connections are closed too */
};

struct set {
    const struct fcgi_set_options *o;
    int ep;       /* the threads': listening socket, connections, ready_fd, quit_fd */
    int ready_fd; /* one count for each connection in `ready` */
    int quit_fd;  /* readable for good: threads end */
    int wake_fd;  /* wakes the main thread: it looks at everything below */
    pthread_mutex_t lock;
    _Atomic enum set_mode mode; /* written under the lock */
    struct conn *all;
    struct conn *entering; /* on their way to the waiting room */
    struct conn *ready;    /* on their way back, bytes of a request in `held` */
    int64_t open;          /* of `all`, and those being accepted */
    bool listening;        /* the listening socket is in ep */
    int64_t accept_at_ns;  /* out of descriptors: listen again then; 0: not so */
    int stream_places;     /* free ones: unfinished bodies never hold all threads */
};

/* --- connections: any thread --- */

void set_lock_release(struct set **s);
/* Holds s's lock to the end of the scope. */
#define SET_LOCKED(s) \
    struct set *locked_ __attribute__((cleanup(set_lock_release), unused)) = set_lock(s)
struct set *set_lock(struct set *s);

/* Accepts what waits, a few at most. Out of descriptors: no more for 100 ms. At max_conns: no more until
 * one is closed. */
void set_accept(struct set *s);

/* Takes the listening socket (back) into ep when mode, max_conns and accept_at_ns let it. Whether it is
 * there now. */
bool set_listen(struct set *s, int64_t now_ns);
bool set_listens(struct set *s);

/* The caller, who owns c, gives it up: armed again, it waits for its next request. False at
 * SET_STOP: the caller keeps it. */
bool set_rest(struct set *s, struct conn *c) WARN_UNUSED;
/* The caller got its event and owns it from now on. */
void set_take(struct conn *c);
void set_close(struct set *s, struct conn *c);

/* ... to the waiting room, ... to a thread. */
void set_enter_room(struct set *s, struct conn *c);
void set_make_ready(struct set *s, struct conn *c);
struct conn *set_next_ready(struct set *s);

/* A place for a body that is not whole: false when none is free. Giving one back wakes the room. */
bool set_take_stream_place(struct set *s);
void set_free_stream_place(struct set *s);

/* Only towards more stopping. Idle connections are shut for reading at SET_STOP, which makes their
 * event come to a thread: it finds the end, or a request that came just before, and closes. */
void set_change_mode(struct set *s, enum set_mode mode);
enum set_mode set_mode(struct set *s);
int64_t set_open(struct set *s);

/* --- request threads --- */

struct worker;
/* Starts o->threads threads. On failure those already started are ended. */
int workers_start(struct set *s, struct worker **out, struct err *e) WARN_UNUSED;
void workers_join(struct set *s, struct worker *w);

#endif
