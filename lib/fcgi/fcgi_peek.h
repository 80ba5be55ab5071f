/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_PEEK_H
#define WB_FCGI_PEEK_H

/* Follows the records of one request without interpreting them, and so tells whether a thread may enter
 * libfcgi for it: libfcgi reads without a timeout of its own, so a request that has only begun would pin
 * the thread. Also the gate that keeps from libfcgi what it does not survive: management records (its
 * answer to FCGI_GET_VALUES is printed into a fixed buffer), lengths of names and values that do not fit
 * (CVE-2025-23016), and padding after BEGIN or after a stream's end (which it takes for the next header).
 * FastCGI 1.0 specification, sections 3.3, 3.4 and 5. Pure. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

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
    FCGI_HEADER_SIZE = 8,
};

enum fcgi_phase {
    FCGI_PHASE_BEGIN,
    FCGI_PHASE_PARAMS,
    FCGI_PHASE_BODY,
    FCGI_PHASE_DONE, /* the request is whole */
    FCGI_PHASE_BAD,
};

/* A request followed so far. All zero at its start. */
struct fcgi_scan {
    enum fcgi_phase phase;
    unsigned request_id;
    unsigned char part[FCGI_HEADER_SIZE]; /* of a header or of BEGIN's body */
    unsigned part_size;
    size_t content; /* bytes left of the current record */
    size_t padding;
    size_t params;            /* bytes of PARAMS content so far */
    uint64_t body;            /* bytes of STDIN content so far */
    unsigned char lengths[8]; /* of the pair being read */
    unsigned lengths_size;
    size_t pair; /* bytes left of its name and value */
};

/* Follows size further bytes and returns how many of them belong to the request: fewer than size only
 * when its phase has become DONE or BAD. */
size_t fcgi_scan(struct fcgi_scan *s, const unsigned char *data, size_t size) WARN_UNUSED;

/* One look at a request from its start. data: what MSG_PEEK gave, size bytes; full: it filled the
 * largest window. *end (may be NULL): how many of the bytes belong to the request. */
enum fcgi_peek fcgi_peek(const unsigned char *data, size_t size, bool full, size_t *end);

/* What a scan so far means; full as above. */
enum fcgi_peek fcgi_scan_verdict(const struct fcgi_scan *s, bool full);

#endif
