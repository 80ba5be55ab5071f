/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STR_H
#define WB_STR_H

/* Bounded copies, strict numbers, UTF-8, hex. No locale matters here. Any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/* Copies text into dst of size bytes, always terminated. 0, or -1 when it was cut. */
int str_copy(char *dst, size_t size, const char *text);

/* snprintf that tells: 0, or -1 when the text was cut. */
int str_format(char *dst, size_t size, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The whole text as a decimal integer within [min, max]: optional '-', digits, nothing else.
 * 0, or -1 with *out untouched. */
int str_to_i64(const char *text, int64_t min, int64_t max, int64_t *out) WARN_UNUSED;

/* The whole text as a finite decimal number. 0, or -1 with *out untouched. */
int str_to_double(const char *text, double *out) WARN_UNUSED;

/* True for well-formed UTF-8 by RFC 3629 (no surrogates, no overlong forms, up to U+10FFFF). */
bool str_utf8_valid(const char *text, size_t size);

/* Bytes of the well-formed character that text of size bytes begins with, or 0. */
size_t str_utf8_char(const char *text, size_t size);

/* Number of characters of valid UTF-8 text. */
size_t str_utf8_length(const char *text);

bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);
bool str_empty(const char *text); /* NULL or "" */

/* Lower-case hex of size bytes into dst, which has 2 * size + 1 bytes. */
void str_hex(char *dst, const void *data, size_t size);

#endif
