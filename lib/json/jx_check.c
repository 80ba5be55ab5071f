/* SPDX-License-Identifier: Apache-2.0 */
#include "json/jx_check.h"

#include <stdbool.h>
#include <string.h>

#include "base/str.h"

struct scan {
    const char *text;
    size_t size;
    size_t at;
    size_t depth;
    size_t depth_max;
    size_t members;
};

static int bad(const struct scan *s, const char *what, struct err *e)
{
    return err_set(e, ERR_INVALID, "malformed JSON at byte %zu: %s", s->at, what);
}

/* The byte at the scan's place, -1 at the end. */
static int peek(const struct scan *s)
{
    return s->at < s->size ? (unsigned char)s->text[s->at] : -1;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool take(struct scan *s, char c)
{
    if (peek(s) != c)
        return false;
    s->at++;
    return true;
}

static bool take_digits(struct scan *s)
{
    size_t from = s->at;
    while (is_digit(peek(s)))
        s->at++;
    return s->at > from;
}

/* RFC 8259 section 6. */
static int number(struct scan *s, struct err *e)
{
    (void)take(s, '-');
    bool whole = take(s, '0') || take_digits(s);
    bool fraction = !take(s, '.') || take_digits(s);
    bool exponent = true;
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (!take(s, '+'))
            (void)take(s, '-');
        exponent = take_digits(s);
    }
    /* A digit here follows a leading zero. */
    if (!whole || !fraction || !exponent || is_digit(peek(s)))
        return bad(s, "not a number", e);
    return 0;
}

static int hex_value(int c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Four hex digits, or -1. */
static int hex4(struct scan *s)
{
    int unit = 0;
    for (int i = 0; i < 4; i++) {
        int v = hex_value(peek(s));
        if (v < 0)
            return -1;
        unit = unit * 16 + v;
        s->at++;
    }
    return unit;
}

/* What follows \u. */
static int unicode_escape(struct scan *s, struct err *e)
{
    int unit = hex4(s);
    if (unit < 0)
        return bad(s, "\\u wants four hex digits", e);
    if (unit == 0)
        return bad(s, "U+0000 is not allowed", e);
    if (unit < 0xD800 || unit > 0xDFFF)
        return 0;
    int low = -1;
    if (unit <= 0xDBFF && take(s, '\\') && take(s, 'u'))
        low = hex4(s);
    if (low < 0xDC00 || low > 0xDFFF)
        return bad(s, "half a surrogate pair", e);
    return 0;
}

static int escape(struct scan *s, struct err *e)
{
    int c = peek(s);
    if (c <= 0 || strchr("\"\\/bfnrtu", c) == NULL)
        return bad(s, "unknown escape", e);
    s->at++;
    return c == 'u' ? unicode_escape(s, e) : 0;
}

static int string(struct scan *s, struct err *e)
{
    s->at++;
    for (;;) {
        int c = peek(s);
        if (c < 0)
            return bad(s, "the text ends within a string", e);
        if (c < 0x20)
            return bad(s, "control character in a string", e);
        s->at++;
        if (c == '"')
            return 0;
        if (c == '\\' && escape(s, e) < 0)
            return -1;
    }
}

static int literal(struct scan *s, struct err *e)
{
    static const char *const WORDS[] = { "true", "false", "null" };
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
        size_t n = strlen(WORDS[i]);
        if (s->size - s->at >= n && memcmp(s->text + s->at, WORDS[i], n) == 0) {
            s->at += n;
            return 0;
        }
    }
    return bad(s, "unexpected character", e);
}

static int open_level(struct scan *s, struct err *e)
{
    if (++s->depth > s->depth_max)
        return err_set(e, ERR_INVALID, "JSON is nested deeper than %zu levels", s->depth_max);
    s->at++;
    return 0;
}

static int token(struct scan *s, struct err *e)
{
    int c = peek(s);
    switch (c) {
    case ' ':
    case '\t':
    case '\n':
    case '\r':
    case ',':
        s->at++;
        return 0;
    case ':':
        s->members++;
        s->at++;
        return 0;
    case '{':
    case '[':
        return open_level(s, e);
    case '}':
    case ']':
        if (s->depth == 0)
            return bad(s, "nothing to close", e);
        s->depth--;
        s->at++;
        return 0;
    case '"':
        return string(s, e);
    default:
        return c == '-' || is_digit(c) ? number(s, e) : literal(s, e);
    }
}

int jx_check(const char *text, size_t size, size_t depth_max, size_t *members, struct err *e)
{
    struct scan s = { .text = text, .size = size, .depth_max = depth_max };
    if (!str_utf8_valid(text, size))
        return err_set(e, ERR_INVALID, "malformed JSON: not UTF-8");
    while (s.at < s.size) {
        if (token(&s, e) < 0)
            return -1;
    }
    *members = s.members;
    return 0;
}
