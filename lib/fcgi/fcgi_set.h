/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_SET_H
#define WB_FCGI_SET_H

/* The worker's threads over one epoll set that holds the listening socket and every idle kept-alive
 * connection. Idle connections cost no thread; a connection whose request has begun but is not whole
 * waits in the main thread's own edge-triggered set, so a silent or slow client blocks nobody. Why:
 * docs/architecture.md; measurements: plain FCGX_Accept_r loops pin a thread per idle connection. */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "fcgi/fcgi_req.h"

struct fcgi_set_options {
    int listen_fd;           /* borrowed; made non-blocking */
    int threads;             /* 2..64 */
    int64_t read_timeout_ms; /* begun requests that do not become whole; also socket send timeout */
    int64_t drain_ms;        /* after HUP: how long connections stay for the peer to close */
    int64_t max_conns;
    int ready_fd; /* gets one byte when threads accept; -1: none. Closed after */
    void (*handle)(struct fcgi_req *r, void *ctx); /* any thread; must call fcgi_send() once */
    void *ctx;
    /* handle() calls fcgi_may_wait() itself before it waits for anything. Otherwise the set takes every
     * handler for one that waits, which costs a wake-up of another thread for each request. */
    bool handler_follows;
};

/* Serves until TERM or INT (finish what is in hand, close idle connections, leave within a second of
 * the last answer; the second one ends the process at once) or HUP (stop accepting, go on answering
 * on the connections there are until the peer closes them; after drain_ms close the idle ones). A web
 * server may be sending the next request on a connection in the moment its worker closes it, and does
 * not send a POST again: only the web server can close without loss. Signals must be blocked
 * (stop_block). Runs on the calling thread, which becomes the waiting room. 0 when drained. */
int fcgi_set_run(const struct fcgi_set_options *o, struct err *e) WARN_UNUSED;

/* Handles the one request of a CGI process. */
int fcgi_cgi_run(
    void (*handle)(struct fcgi_req *r, void *ctx), void *ctx, struct err *e) WARN_UNUSED;

/* How this process was started. */
enum fcgi_start {
    FCGI_START_SOCKET,  /* fd 0 is a listening socket: systemd, spawn-fcgi, our supervisor */
    FCGI_START_CGI,     /* GATEWAY_INTERFACE or REQUEST_METHOD in the environment */
    FCGI_START_COMMAND, /* by hand or by an init system: be the supervisor */
};
enum fcgi_start fcgi_how_started(void);

#endif
