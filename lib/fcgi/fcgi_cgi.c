/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "fcgi/fcgi_req_internal.h"
#include "fcgi/fcgi_set.h"

enum { REST_MAX = 1 << 20, SCRATCH_SIZE = 8192 };

/* What the handler left of the body. Where one socket is standard input and output (Apache's mod_cgid), bytes that
 * nobody read when it closes would take the answer with them. */
static void take_rest(const struct fcgi_req *r)
{
    char scratch[SCRATCH_SIZE];
    uint64_t left = r->body_left < REST_MAX ? r->body_left : REST_MAX;
    while (left > 0) {
        ssize_t n = read(r->in_fd, scratch, left < sizeof scratch ? (size_t)left : sizeof scratch);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        left -= (uint64_t)n;
    }
}

int fcgi_cgi_run(void (*handle)(struct fcgi_req *r, void *ctx), void *ctx, struct err *e)
{
    struct fcgi_req r = { .env = environ, .in_fd = STDIN_FILENO, .out_fd = STDOUT_FILENO };
    const char *length = fcgi_env(&r, "CONTENT_LENGTH");
    int64_t size = 0;
    if (!str_empty(length) && str_to_i64(length, 0, INT64_MAX, &size) < 0)
        r.cut = true; /* how much there is to read nobody can tell */
    r.body_left = (uint64_t)size;
    handle(&r, ctx);
    take_rest(&r);
    if (!r.begun)
        return err_set(e, ERR_INTERNAL, "a handler did not answer");
    if (r.failed)
        return err_set(e, ERR_UNAVAILABLE, "the answer could not be written");
    return 0;
}

enum fcgi_start fcgi_how_started(void)
{
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0)
        return FCGI_START_SOCKET;
    if (getenv("GATEWAY_INTERFACE") != NULL || getenv("REQUEST_METHOD") != NULL)
        return FCGI_START_CGI;
    return FCGI_START_COMMAND;
}
