/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/fcgi_peek.h"

enum { RECORD_BEGIN = 1, RECORD_PARAMS = 4, RECORD_STDIN = 5 };
enum { BEGIN_SIZE = 8, ROLE_RESPONDER = 1, VERSION = 1 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static unsigned two_bytes(const unsigned char *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

/* Lengths are one byte, or four with the top bit set (specification, section 3.4). */
static size_t length_at(const unsigned char *p)
{
    if (p[0] < 0x80)
        return p[0];
    return ((size_t)(p[0] & 0x7f) << 24) | ((size_t)p[1] << 16) | ((size_t)p[2] << 8) | p[3];
}

static unsigned length_width(unsigned char first)
{
    return first < 0x80 ? 1 : 4;
}

/* A byte of a pair's two lengths has come: when it was the last one, the pair begins. */
static void lengths_grew(struct fcgi_scan *s)
{
    unsigned name_width = length_width(s->lengths[0]);
    if (s->lengths_size <= name_width)
        return;
    if (s->lengths_size < name_width + length_width(s->lengths[name_width]))
        return;
    s->pair = length_at(s->lengths) + length_at(s->lengths + name_width);
    s->lengths_size = 0;
    if (s->pair > FCGI_PARAMS_MAX)
        s->phase = FCGI_PHASE_BAD;
}

static void scan_params(struct fcgi_scan *s, const unsigned char *data, size_t size)
{
    s->params += size;
    if (s->params > FCGI_PARAMS_MAX)
        s->phase = FCGI_PHASE_BAD;
    size_t at = 0;
    while (at < size && s->phase == FCGI_PHASE_PARAMS) {
        if (s->pair > 0) {
            size_t skip = least(s->pair, size - at);
            s->pair -= skip;
            at += skip;
        } else {
            s->lengths[s->lengths_size++] = data[at++];
            lengths_grew(s);
        }
    }
}

static void scan_begin(struct fcgi_scan *s, const unsigned char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        s->part[s->part_size++] = data[i];
    if (s->part_size < BEGIN_SIZE)
        return;
    s->part_size = 0;
    s->phase = two_bytes(s->part) == ROLE_RESPONDER ? FCGI_PHASE_PARAMS : FCGI_PHASE_BAD;
}

static size_t scan_content(struct fcgi_scan *s, const unsigned char *data, size_t size)
{
    size_t n = least(s->content, size);
    s->content -= n;
    if (s->phase == FCGI_PHASE_BEGIN)
        scan_begin(s, data, n);
    else if (s->phase == FCGI_PHASE_PARAMS)
        scan_params(s, data, n);
    else
        s->body += n;
    return n;
}

/* An empty record ends its stream. */
static enum fcgi_phase after_stream(const struct fcgi_scan *s)
{
    if (s->padding > 0)
        return FCGI_PHASE_BAD;
    if (s->phase == FCGI_PHASE_BODY)
        return FCGI_PHASE_DONE;
    return s->pair == 0 && s->lengths_size == 0 ? FCGI_PHASE_BODY : FCGI_PHASE_BAD;
}

/* A header is complete. Each phase admits one type of record, of one request. */
static void take_header(struct fcgi_scan *s)
{
    unsigned type = s->part[1];
    unsigned id = two_bytes(s->part + 2);
    s->part_size = 0;
    s->content = two_bytes(s->part + 4);
    s->padding = s->part[6];
    if (s->part[0] != VERSION) {
        s->phase = FCGI_PHASE_BAD;
    } else if (s->phase == FCGI_PHASE_BEGIN) {
        s->request_id = id;
        if (type != RECORD_BEGIN || id == 0 || s->content != BEGIN_SIZE || s->padding > 0)
            s->phase = FCGI_PHASE_BAD;
    } else if (id != s->request_id ||
               type != (s->phase == FCGI_PHASE_PARAMS ? RECORD_PARAMS : RECORD_STDIN)) {
        s->phase = FCGI_PHASE_BAD;
    } else if (s->content == 0) {
        s->phase = after_stream(s);
    }
}

static size_t scan_header(struct fcgi_scan *s, const unsigned char *data, size_t size)
{
    size_t n = least(FCGI_HEADER_SIZE - s->part_size, size);
    for (size_t i = 0; i < n; i++)
        s->part[s->part_size++] = data[i];
    if (s->part_size == FCGI_HEADER_SIZE)
        take_header(s);
    return n;
}

size_t fcgi_scan(struct fcgi_scan *s, const unsigned char *data, size_t size)
{
    size_t at = 0;
    while (at < size && s->phase != FCGI_PHASE_DONE && s->phase != FCGI_PHASE_BAD) {
        if (s->content > 0) {
            at += scan_content(s, data + at, size - at);
        } else if (s->padding > 0) {
            size_t n = least(s->padding, size - at);
            s->padding -= n;
            at += n;
        } else {
            at += scan_header(s, data + at, size - at);
        }
    }
    return at;
}

enum fcgi_peek fcgi_scan_verdict(const struct fcgi_scan *s, bool full)
{
    if (s->phase == FCGI_PHASE_BAD)
        return FCGI_PEEK_BAD;
    if (s->phase == FCGI_PHASE_DONE)
        return FCGI_PEEK_WHOLE;
    if (!full)
        return FCGI_PEEK_MORE;
    /* parameters that do not end within the window are over any limit */
    return s->phase == FCGI_PHASE_BODY ? FCGI_PEEK_STREAM : FCGI_PEEK_BAD;
}

enum fcgi_peek fcgi_peek(const unsigned char *data, size_t size, bool full, size_t *end)
{
    struct fcgi_scan s = { 0 };
    size_t used = fcgi_scan(&s, data, size);
    if (end != NULL)
        *end = used;
    return fcgi_scan_verdict(&s, full);
}
