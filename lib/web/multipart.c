/* SPDX-License-Identifier: Apache-2.0 */
#include "web/multipart.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

enum { PIECE = 1 << 16 };

#define FORM        "multipart/form-data"
#define DISPOSITION "Content-Disposition:"

static int malformed(struct err *e)
{
    return err_set(e, ERR_INVALID, "the body is no whole multipart/form-data");
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at;
}

static bool ends_value(char c, bool quoted)
{
    return quoted ? c == '"' : c == ';' || isspace((unsigned char)c);
}

/* A value up to end: a token, or a quoted one in which \" and %22 stand for a quote, as browsers send it. Where it ended;
 * NULL: it does not fit, or its quote is missing. */
static const char *take_value(const char *at, const char *end, char *out, size_t size)
{
    size_t n = 0;
    const bool quoted = at < end && *at == '"';

    for (at += quoted ? 1 : 0; at < end && !ends_value(*at, quoted); at++) {
        if (quoted && *at == '\\' && at + 1 < end && (at[1] == '"' || at[1] == '\\'))
            at++;
        if (n + 1 >= size || *at == '\0')
            return NULL;
        out[n++] = *at;
    }
    out[n] = '\0';
    if (!quoted)
        return at;
    return at < end ? at + 1 : NULL;
}

/* The parameter of that name behind the first ';'. 1: there is none. */
static int find_param(const char *at, const char *end, const char *name, char *out, size_t size)
{
    char other[MULTIPART_FILENAME_SIZE] = "";
    const size_t length = strlen(name);

    while ((at = memchr(at, ';', (size_t)(end - at))) != NULL) {
        at = skip_space(at + 1, end);
        const char *eq = memchr(at, '=', (size_t)(end - at));
        if (eq == NULL)
            return 1;
        const bool ours = (size_t)(eq - at) == length && strncasecmp(at, name, length) == 0;
        at = take_value(eq + 1, end, ours ? out : other, ours ? size : sizeof other);
        if (at == NULL)
            return -1;
        if (ours)
            return 0;
    }
    return 1;
}

int multipart_boundary(
    const char *content_type, char out[MULTIPART_BOUNDARY_MAX + 1], struct err *e)
{
    const char *text = content_type == NULL ? "" : content_type;

    if (strncasecmp(text, FORM, strlen(FORM)) != 0 ||
        find_param(text, text + strlen(text), "boundary", out, MULTIPART_BOUNDARY_MAX + 1) != 0 ||
        out[0] == '\0')
        return err_set(e, ERR_MEDIA_TYPE, "the body must be " FORM);
    return 0;
}

int multipart_headers(const char *text, size_t size, struct multipart_part *out, struct err *e)
{
    const char *end = text + size;

    out->name[0] = out->filename[0] = '\0';
    for (const char *at = text; at < end;) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (line_end == NULL)
            return malformed(e);
        if ((size_t)(line_end - at) > strlen(DISPOSITION) &&
            strncasecmp(at, DISPOSITION, strlen(DISPOSITION)) == 0) {
            if (find_param(at, line_end, "name", out->name, sizeof out->name) != 0 ||
                find_param(at, line_end, "filename", out->filename, sizeof out->filename) < 0)
                return malformed(e);
        }
        at = line_end + 2;
    }
    return out->name[0] == '\0' ? malformed(e) : 0;
}

/* --- in the file --- */

/* Where text stands next from `from` on. 1: nowhere. */
static int find(
    const struct multipart *m, int64_t from, const char *text, int64_t *out, struct err *e)
{
    cleanup_free char *piece = mem_alloc(PIECE);
    const size_t length = strlen(text);

    while (m->size - from >= (int64_t)length) {
        const int64_t left = m->size - from;
        const size_t n = (size_t)(left < PIECE ? left : PIECE);
        if (file_read_at(m->fd, piece, n, from) < 0)
            return err_errno(e, ERR_UNAVAILABLE, "the body cannot be read");
        const char *found = memmem(piece, n, text, length);
        if (found != NULL) {
            *out = from + (found - piece);
            return 0;
        }
        from += (int64_t)(n - length + 1);
    }
    return 1;
}

static int read_at(
    const struct multipart *m, int64_t at, char *to, size_t size, size_t *got, struct err *e)
{
    const int64_t left = m->size - at;

    *got = (size_t)(left < (int64_t)size ? left : (int64_t)size);
    if (file_read_at(m->fd, to, *got, at) < 0)
        return err_errno(e, ERR_UNAVAILABLE, "the body cannot be read");
    return 0;
}

int multipart_open(
    struct multipart *m, int fd, int64_t size, const char *content_type, struct err *e)
{
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    char first[MULTIPART_BOUNDARY_MAX + 3];
    size_t got = 0;

    if (multipart_boundary(content_type, boundary, e) < 0)
        return -1;
    *m = (struct multipart){ .fd = fd, .size = size };
    (void)!str_format(m->delimiter, sizeof m->delimiter, "\r\n--%s", boundary);
    const size_t length = strlen(m->delimiter) - 2;
    if (read_at(m, 0, first, length, &got, e) < 0)
        return -1;
    if (got == length && memcmp(first, m->delimiter + 2, length) == 0) {
        m->at = (int64_t)length;
        return 0;
    }
    const int none = find(m, 0, m->delimiter, &m->at, e);
    if (none != 0)
        return none < 0 ? -1 : malformed(e);
    m->at += (int64_t)length + 2;
    return 0;
}

int multipart_next(struct multipart *m, struct multipart_part *out, struct err *e)
{
    cleanup_free char *head = mem_alloc(MULTIPART_HEADERS_MAX);
    size_t got = 0;
    int64_t end = 0;

    if (read_at(m, m->at, head, MULTIPART_HEADERS_MAX, &got, e) < 0)
        return -1;
    if (got >= 2 && memcmp(head, "--", 2) == 0)
        return 1;
    const char *line_end = memmem(head, got, "\r\n", 2); /* of the delimiter */
    if (line_end == NULL)
        return malformed(e);
    const char *headers = line_end + 2;
    const char *headers_end = memmem(line_end, got - (size_t)(line_end - head), "\r\n\r\n", 4);
    if (headers_end == NULL || headers_end < headers ||
        multipart_headers(headers, (size_t)(headers_end + 2 - headers), out, e) < 0)
        return malformed(e);
    out->offset = m->at + (headers_end + 4 - head);
    /* What is empty ends with the line that ended the headers. */
    const int none = find(m, out->offset - 2, m->delimiter, &end, e);
    if (none != 0)
        return none < 0 ? -1 : malformed(e);
    out->size = end < out->offset ? 0 : end - out->offset;
    m->at = end + (int64_t)strlen(m->delimiter);
    return 0;
}
