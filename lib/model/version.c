/* SPDX-License-Identifier: Apache-2.0 */
#include "model/version.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

bool version_is_numeric(const char *text)
{
    if (*text == 'v')
        text++;
    for (;;) {
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > DIGITS_MAX)
            return false;
        text += digits;
        if (*text == '\0')
            return true;
        if (*text++ != '.')
            return false;
    }
}

/* The next part of a dotted-numeric text, 0 behind its end. */
static long take_part(const char **text)
{
    char *end = NULL;
    long n = strtol(*text, &end, 10);
    *text = *end == '.' ? end + 1 : end;
    return n;
}

int version_compare(const char *a, const char *b)
{
    bool numeric[] = { version_is_numeric(a), version_is_numeric(b) };
    if (!numeric[0] || !numeric[1])
        return numeric[0] == numeric[1] ? strcmp(a, b) : numeric[0] - numeric[1];
    a += *a == 'v';
    b += *b == 'v';
    while (*a != '\0' || *b != '\0') {
        long x = take_part(&a);
        long y = take_part(&b);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}
