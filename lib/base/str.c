/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int str_copy(char *dst, size_t size, const char *text)
{
    size_t len = strlen(text);
    size_t fits = len < size ? len : size - 1;

    memcpy(dst, text, fits);
    dst[fits] = '\0';
    return fits == len ? 0 : -1;
}

int str_format(char *dst, size_t size, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(dst, size, fmt, args);
    va_end(args);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

static const char *skip_digits(const char *p)
{
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

int str_to_i64(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const bool negative = *text == '-';
    const char *digits = negative ? text + 1 : text;
    const char *p = digits;
    int64_t value = 0; /* of the same sign as the number, so that INT64_MIN fits */

    for (; *p >= '0' && *p <= '9'; p++) {
        int digit = negative ? '0' - *p : *p - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return -1;
    }
    if (p == digits || *p != '\0' || value < min || value > max)
        return -1;
    *out = value;
    return 0;
}

/* True for -?digits[.digits][e[+-]digits]: strtod alone also takes spaces, hex, inf and nan. */
static bool is_decimal(const char *p)
{
    const char *start = *p == '-' ? p + 1 : p;

    p = skip_digits(start);
    if (p == start)
        return false;
    if (*p == '.') {
        start = p + 1;
        p = skip_digits(start);
        if (p == start)
            return false;
    }
    if (*p == 'e' || *p == 'E') {
        start = p[1] == '-' || p[1] == '+' ? p + 2 : p + 1;
        p = skip_digits(start);
        if (p == start)
            return false;
    }
    return *p == '\0';
}

int str_to_double(const char *text, double *out)
{
    if (!is_decimal(text))
        return -1;
    double value = strtod(text, NULL);
    if (!isfinite(value))
        return -1;
    *out = value;
    return 0;
}

/* Length that the first byte announces, and the bounds of the second (RFC 3629, section 4). */
static size_t announced(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return 2;
    if (first >= 0xE0 && first <= 0xEF)
        return 3;
    if (first >= 0xF0 && first <= 0xF4)
        return 4;
    return 0;
}

size_t str_utf8_char(const char *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low = 0;
    unsigned char high = 0;

    if (size == 0)
        return 0;
    size_t len = announced(p[0], &low, &high);
    if (len == 0 || len > size)
        return 0;
    if (len > 1 && (p[1] < low || p[1] > high))
        return 0;
    for (size_t i = 2; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    return len;
}

/* The first byte at or after i of what is not ASCII; whole words at a time. */
static size_t skip_ascii(const char *text, size_t i, size_t size)
{
    uint64_t word;
    for (; size - i >= sizeof(word); i += sizeof(word)) {
        memcpy(&word, text + i, sizeof(word));
        if ((word & UINT64_C(0x8080808080808080)) != 0)
            break;
    }
    while (i < size && (text[i] & 0x80) == 0)
        i++;
    return i;
}

bool str_utf8_valid(const char *text, size_t size)
{
    for (size_t i = skip_ascii(text, 0, size); i < size; i = skip_ascii(text, i, size)) {
        size_t step = str_utf8_char(text + i, size - i);
        if (step == 0)
            return false;
        i += step;
    }
    return true;
}

size_t str_utf8_length(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

bool str_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *text, const char *suffix)
{
    size_t len = strlen(text);
    size_t tail = strlen(suffix);

    return len >= tail && memcmp(text + len - tail, suffix, tail) == 0;
}

bool str_empty(const char *text)
{
    return !text || *text == '\0';
}

void str_hex(char *dst, const void *data, size_t size)
{
    static const char DIGITS[] = "0123456789abcdef";
    const unsigned char *p = data;

    for (size_t i = 0; i < size; i++) {
        dst[2 * i] = DIGITS[p[i] >> 4];
        dst[2 * i + 1] = DIGITS[p[i] & 15];
    }
    dst[2 * size] = '\0';
}
