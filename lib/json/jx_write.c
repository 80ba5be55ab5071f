/* SPDX-License-Identifier: Apache-2.0 */
#include "json/jx_write.h"

#include <assert.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The letter that stands after the backslash, 'u' for a number, 0 for what goes as it is. */
static char escape_of(unsigned char c)
{
    if (c >= 0x20)
        return c == '"' || c == '\\' ? (char)c : '\0';
    switch (c) {
    case '\b':
        return 'b';
    case '\t':
        return 't';
    case '\n':
        return 'n';
    case '\f':
        return 'f';
    case '\r':
        return 'r';
    default:
        return 'u';
    }
}

static void put_escape(struct buf *out, unsigned char c, char letter)
{
    static const char DIGIT[] = "0123456789abcdef";
    buf_putc(out, '\\');
    buf_putc(out, letter);
    if (letter != 'u')
        return;
    buf_puts(out, "00");
    buf_putc(out, DIGIT[c >> 4]);
    buf_putc(out, DIGIT[c & 0xF]);
}

void jx_write_text(struct buf *out, const char *text)
{
    buf_putc(out, '"');
    const char *from = text;
    for (; *text != '\0'; text++) {
        char letter = escape_of((unsigned char)*text);
        if (letter == '\0')
            continue;
        buf_add(out, from, (size_t)(text - from));
        put_escape(out, (unsigned char)*text, letter);
        from = text + 1;
    }
    buf_add(out, from, (size_t)(text - from));
    buf_putc(out, '"');
}

void jx_write_int(struct buf *out, int64_t n)
{
    char digits[24];
    char *end = digits + sizeof(digits);
    char *at = end;
    uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (n < 0)
        *--at = '-';
    buf_add(out, at, (size_t)(end - at));
}

static locale_t c_locale;
static void c_locale_make(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0)
        abort();
}

/* A decimal comma of the process' locale must not get into JSON. */
void jx_double_text(char dst[JX_DOUBLE_SIZE], double n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    assert(isfinite(n));
    (void)pthread_once(&once, c_locale_make);
    locale_t old = uselocale(c_locale);
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(dst, JX_DOUBLE_SIZE, "%.*g", digits, n);
        double back = strtod(dst, NULL);
        if (!islessgreater(back, n))
            break;
    }
    (void)uselocale(old);
}

void jx_write_double(struct buf *out, double n)
{
    char text[JX_DOUBLE_SIZE];
    jx_double_text(text, n);
    buf_puts(out, text);
}
