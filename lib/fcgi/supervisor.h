/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SUPERVISOR_H
#define WB_SUPERVISOR_H

/* Owns the listening socket and keeps generations of worker processes on it: each worker is this
 * program again, executed anew with the socket as fd 0, so that a reload picks up a new binary and new
 * configuration. HUP starts a new generation, waits until each of its workers says it is ready, and
 * sends HUP to the old one; a generation that does not become ready is ended and the old one stays.
 * TERM sends TERM to all and leaves when they have left; workers get TERM when the supervisor dies.
 * A worker that ends unasked is replaced at once, with back-off when it dies young. The service manager is
 * told of all this (base/notify.h).
 *
 * Only a reload reads the configuration: the first worker of a generation hands what it read back to the
 * supervisor, who gives it to those that replace workers of that generation, whatever the files hold by then.
 * When the listening socket had to be made again (fcgi/listener.h), a generation with the same
 * configuration takes over. */
#include "base/err.h"
#include "fcgi/listener.h"

struct supervisor_options {
    struct listener *listener; /* borrowed */
    int workers;
    char *const
        *argv; /* of the worker, argv[0] is a name; the executable is /proc/self/exe's path */
    int64_t ready_ms;        /* a worker that is not ready by then has failed */
    int64_t stop_ms;         /* after TERM, workers still there by then get KILL */
    int64_t drain_ms;        /* after HUP, old workers still there by then get KILL */
    void (*tend)(void *ctx); /* called about once a second; NULL: nothing else to look after */
    void *ctx;
};

/* Environment variables that tell a worker descriptors: the one it says things to its supervisor by, and the
 * configuration to start with, if it is not to read it anew. */
#define SUPERVISOR_READY_ENV    "WEIGHBRIDGE_READY_FD"
#define SUPERVISOR_ACCEPTED_ENV "WEIGHBRIDGE_ACCEPTED_FD"

/* In a worker: the descriptor that one of them names, close-on-exec from here on, or -1. The variable is
 * unset. Before threads. */
int supervisor_fd(const char *variable);

/* In a worker, before it is ready: what it has read its configuration from, as a file whose content never
 * changes; a replacement gets it by SUPERVISOR_ACCEPTED_ENV. fd stays the caller's. To say that it is ready, a
 * worker writes one byte. Failures: ERR_INTERNAL. */
int supervisor_accept(int ready_fd, int fd, struct err *e) WARN_UNUSED;

/* Runs until TERM or INT. 0 when all workers ended well; -1 with ERR_INTERNAL when the first
 * generation never became ready. */
int supervisor_run(const struct supervisor_options *o, struct err *e) WARN_UNUSED;

#endif
