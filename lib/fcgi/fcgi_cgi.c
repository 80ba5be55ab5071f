/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "fcgi/fcgi_req_internal.h"
#include "fcgi/fcgi_set.h"

int fcgi_cgi_run(void (*handle)(struct fcgi_req *r, void *ctx), void *ctx, struct err *e)
{
    struct fcgi_req r = { .env = environ, .in_fd = STDIN_FILENO, .out_fd = STDOUT_FILENO };
    const char *length = fcgi_env(&r, "CONTENT_LENGTH");
    int64_t size = 0;
    if (!str_empty(length) && str_to_i64(length, 0, INT64_MAX, &size) < 0)
        r.cut = true; /* how much there is to read nobody can tell */
    r.body_left = (uint64_t)size;
    handle(&r, ctx);
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
