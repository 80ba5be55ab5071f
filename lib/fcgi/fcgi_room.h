/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_ROOM_H
#define WB_FCGI_ROOM_H

/* The waiting room: connections whose request has begun but is not whole, in the main thread's own
 * edge-triggered epoll set. Their bytes are taken out of the socket as they come: a socket's queue is
 * bounded by its skbs' overhead too (some 270 writes of one byte fill it), so a request that trickles in
 * could never become whole there. A whole request goes to a thread; so does one whose body outgrows the
 * window, if a place for such is free; one that is not whole by its deadline is closed. Also holds
 * connections that were answered while their peer still sends: they are read to the end, briefly. */
#include <stdint.h>

#include "fcgi/fcgi_conn.h"
#include "fcgi/fcgi_set_internal.h"

struct room {
    struct set *set;
    int ep; /* borrowed: the main thread's set */
    struct conn *conns;
    size_t bytes; /* held by all */
    unsigned char *window;
};

/* All held bytes together: enough for 1,300 bodies of the usual limit. */
enum { ROOM_BYTES_MAX = 256 << 20, ROOM_LINGER_MS = 2000, ROOM_STOP_MS = 500 };

void room_init(struct room *r, struct set *s, int ep);
void room_fini(struct room *r);

/* Takes in who came to the set's `entering`. */
void room_admit(struct room *r, int64_t now_ns);

/* Something happened on c, which is in the room. */
void room_look(struct room *r, struct conn *c);

/* Sends those to a thread who wait for a place, and closes those past their deadline. While the set
 * stops, nobody has more than ROOM_STOP_MS. */
void room_tend(struct room *r, int64_t now_ns);

#endif
