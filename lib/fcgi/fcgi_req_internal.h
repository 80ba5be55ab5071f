/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_REQ_INTERNAL_H
#define WB_FCGI_REQ_INTERNAL_H

/* What a request is, for those in this folder who make one: fcgi_worker.c and fcgi_cgi.c. */
#include <fcgiapp.h>
#include <stdbool.h>
#include <stdint.h>

#include "fcgi/fcgi_feed.h"
#include "fcgi/fcgi_req.h"

struct worker;

/* More parameters than a web server usually passes. */
enum { FCGI_NAMES_INDEXED = 64 };

struct fcgi_req {
    struct worker *worker; /* NULL: CGI */
    FCGX_Request *fcgx;    /* NULL: CGI */
    struct fcgi_feed
        *feed; /* NULL: libfcgi reads the socket itself, and the request is whole in it */
    char *const *env;
    size_t indexed; /* of env, made by the first fcgi_env(); the rest is searched */
    unsigned char name_size[FCGI_NAMES_INDEXED];
    int in_fd;          /* CGI: the body */
    uint64_t body_left; /* CGI: of CONTENT_LENGTH */
    int out_fd;
    int thread;
    int64_t send_timeout_ms;
    bool cut;    /* the body could not be read to its end */
    bool begun;  /* fcgi_send() was called */
    bool failed; /* ... and could not send all */
};

/* The thread's part in the crew (fcgi_worker.c): gives up the lead, if it has it. NULL is fine. */
void worker_follow(struct worker *w);

/* Reads the rest of the body where it costs no waiting. Before the answer is sent: what the client
 * sends after the answer belongs to its next request, and libfcgi would read into it. */
void fcgi_req_drain(struct fcgi_req *r);

#endif
