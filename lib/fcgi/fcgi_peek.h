/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_PEEK_H
#define WB_FCGI_PEEK_H

/* Looks at the bytes that wait in a connection's socket, without taking them, and tells whether a
 * thread may enter libfcgi for them: libfcgi reads without a timeout of its own, so a request that has
 * only begun would pin the thread. FastCGI 1.0 specification, sections 3.3 and 5. Pure. */
#include <stddef.h>

enum fcgi_peek {
    FCGI_PEEK_MORE,   /* a request has begun; wait for the rest */
    FCGI_PEEK_WHOLE,  /* parameters and body are all there */
    FCGI_PEEK_STREAM, /* parameters are all there, the body is larger than the window */
    FCGI_PEEK_BAD,    /* not FastCGI, not a responder's request, or parameters over the limit */
};

enum {
    FCGI_PARAMS_MAX = 65536,   /* bytes of PARAMS content of one request */
    FCGI_PEEK_SMALL = 4096,    /* first look */
    FCGI_PEEK_WINDOW = 196608, /* second look: parameters and a body of the usual limit fit */
};

/* data: what MSG_PEEK gave, size bytes; full: it filled the largest window. */
enum fcgi_peek fcgi_peek(const unsigned char *data, size_t size, int full);

#endif
