/* SPDX-License-Identifier: Apache-2.0 */
#include "web/web_body.h"

#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/str.h"
#include "web/request.h"
#include "web/route.h"

/* 0 with the length, 1 when there is no body and none is needed. */
static int announced(struct fcgi_req *r, bool required, int64_t *length, struct err *e)
{
    const char *text = fcgi_env(r, "CONTENT_LENGTH");
    if (str_empty(text)) {
        /* A chunked body that the web server passes on as it comes has no length either. */
        if (required || !str_empty(fcgi_env(r, "HTTP_TRANSFER_ENCODING")))
            return err_set(e, ERR_NO_LENGTH, "a body needs a Content-Length");
        return 1;
    }
    if (str_to_i64(text, 0, INT64_MAX, length) < 0)
        return err_set(e, ERR_INVALID, "Content-Length is no length");
    if (*length > REQUEST_BODY_MAX)
        return err_set(e, ERR_TOO_LARGE, "the body is larger than %d bytes", REQUEST_BODY_MAX);
    if (*length == 0 && required)
        return err_set(e, ERR_INVALID, "a JSON body is required");
    return *length == 0 ? 1 : 0;
}

static bool is_json(const char *type)
{
    static const char JSON[] = "application/json";
    const size_t n = sizeof(JSON) - 1;
    if (type == NULL || strncasecmp(type, JSON, n) != 0)
        return false;
    const char *rest = type + n + strspn(type + n, " \t");
    return *rest == '\0' || *rest == ';';
}

/* Exactly size bytes and then the end. */
static int read_all(struct fcgi_req *r, char *data, size_t size, struct err *e)
{
    size_t got = 0;
    char more;
    while (got < size) {
        ssize_t n = fcgi_read(r, data + got, size - got);
        if (n <= 0)
            return err_set(e, ERR_INVALID, "the body ended after %zu of %zu bytes", got, size);
        got += (size_t)n;
    }
    /* A CGI's standard input need not end where the body does. */
    if (!fcgi_is_cgi(r) && fcgi_read(r, &more, 1) != 0)
        return err_set(e, ERR_INVALID, "the body is not as long as its Content-Length");
    return 0;
}

int web_body_read(struct fcgi_req *r, unsigned flags, json_object **out, struct err *e)
{
    int64_t length = 0;
    cleanup_free char *data = NULL;

    *out = NULL;
    if ((flags & (WEB_BODY_JSON | WEB_BODY_OPTIONAL)) == 0)
        return 0;
    int none = announced(r, (flags & WEB_BODY_JSON) != 0, &length, e);
    if (none != 0)
        return none < 0 ? -1 : 0;
    if (!is_json(fcgi_env(r, "CONTENT_TYPE")))
        return err_set(e, ERR_MEDIA_TYPE, "the body's Content-Type must be application/json");
    data = mem_alloc((size_t)length);
    if (read_all(r, data, (size_t)length, e) < 0)
        return -1;
    return jx_parse(data, (size_t)length, REQUEST_BODY_MAX, out, e);
}

int web_body_spooled(struct fcgi_req *r, int *out, int64_t *size, struct err *e)
{
    const char *path = fcgi_env(r, "WB_BODY_FILE");
    cleanup_fd int fd = -1;
    struct stat st;

    if (str_empty(path))
        return err_set(e, ERR_INVALID, "there is no body");
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(e, ERR_UNAVAILABLE, "the body that the web server took cannot be read");
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INTERNAL, "the body is no file");
    *size = st.st_size;
    *out = STEAL_FD(fd);
    return 0;
}
