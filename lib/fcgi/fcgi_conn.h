/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_CONN_H
#define WB_FCGI_CONN_H

/* A connection from the web server. At any moment it has one owner, who alone touches it: a thread that
 * got its event (EPOLLONESHOT: nobody else gets one), the main thread while it is in the waiting room,
 * or a queue between them, under the set's lock. While it is idle and armed nobody owns it: then only
 * `idle` and `fd` may be read, under the set's lock, which is also needed to free it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "fcgi/fcgi_peek.h"

struct conn {
    int fd;
    pthread_mutex_t
        handover;        /* held while it is armed: who gets its event waits for that to be over */
    atomic_bool idle;    /* armed in the threads' epoll set */
    bool lingers;        /* answered; what the peer still sends is thrown away */
    bool streams;        /* holds one of the set's places for requests with an unfinished body */
    int64_t deadline_ns; /* in the waiting room: closed then */
    struct fcgi_scan scan;    /* of the bytes taken into held */
    struct buf held;          /* taken from the socket while the request was not whole */
    struct conn *prev, *next; /* all connections of the set */
    struct conn *queue_prev, *queue_next; /* the queue or room that holds it */
};

#endif
