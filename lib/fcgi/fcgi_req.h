/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FCGI_REQ_H
#define WB_FCGI_REQ_H

/* One request, as FastCGI (libfcgi) or CGI (environment, stdin, stdout), the same to its user. Lives on
 * the stack of the thread that handles it. */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct fcgi_req;

/* A parameter of the request (REQUEST_METHOD, HTTP_ACCEPT, ...), borrowed while the request lives; NULL
 * when absent. Of duplicates the last counts (web servers override by appending). */
const char *fcgi_env(struct fcgi_req *r, const char *name);

/* The next bytes of the body: their number, 0 at its end, -1 when it was cut off (client gone,
 * protocol error, read timeout). */
ssize_t fcgi_read(struct fcgi_req *r, void *data, size_t size);

/* Sends the whole answer: head is CGI header lines, each ended by CRLF, and the empty line; body may be
 * empty. Once per request. Failure: ERR_UNAVAILABLE, the client is gone or does not read. */
int fcgi_send(struct fcgi_req *r, const char *head, size_t head_size, const char *body,
    size_t body_size, struct err *e) WARN_UNUSED;

/* To be called before the handler may wait for anything (a store, another thread, the body): from here
 * on other threads serve what comes meanwhile. Calling it again, or in CGI, does nothing. Needed only
 * where fcgi_set_options.handler_follows is set; fcgi_read() and fcgi_send() see to themselves. */
void fcgi_may_wait(struct fcgi_req *r);

/* The thread that handles it, 0 .. threads-1 (0 in CGI). */
int fcgi_thread(const struct fcgi_req *r);

bool fcgi_is_cgi(const struct fcgi_req *r);

#endif
