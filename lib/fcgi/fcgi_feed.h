/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_FEED_H
#define WB_FCGI_FEED_H

/* What libfcgi reads instead of the socket when a request did not come in one piece: a file in memory
 * that holds the bytes the waiting room took, and grows by what is pulled from the socket while the body
 * is read. libfcgi never meets its end in the middle of a request, so it never waits, and every wait for
 * the client is ours, with its timeout. One per thread, used for one request at a time. */
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "fcgi/fcgi_conn.h"

struct fcgi_feed {
    int fd;                /* -1: libfcgi closed it after an error; feed_begin() makes a new one */
    int64_t end;           /* bytes written to it for this request */
    uint64_t taken;        /* body bytes handed out */
    struct conn *conn;     /* borrowed during the request */
    unsigned char *window; /* borrowed: FCGI_PEEK_WINDOW bytes */
};

/* Starts with what conn holds; fd stands at its first byte. Failures: ERR_UNAVAILABLE. */
int feed_begin(struct fcgi_feed *f, struct conn *conn, struct err *e) WARN_UNUSED;

/* Body bytes that can be read now without waiting; when there are none and the body goes on, waits for
 * more (the socket's read timeout). Their number, 0 at the body's end, -1 when it was cut off. */
int64_t feed_ready(struct fcgi_feed *f) WARN_UNUSED;

void feed_close(struct fcgi_feed *f);

#endif
