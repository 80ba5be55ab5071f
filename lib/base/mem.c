/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdint.h>
#include <string.h>

static void *or_abort(void *p)
{
    if (!p)
        abort();
    return p;
}

void *mem_alloc(size_t size)
{
    return or_abort(malloc(size ? size : 1));
}

void *mem_calloc(size_t count, size_t size)
{
    if (count == 0 || size == 0)
        count = size = 1;
    return or_abort(calloc(count, size));
}

static char *copy_of(const void *data, size_t size)
{
    char *copy = or_abort(malloc(size + 1));

    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

char *mem_strdup(const char *text)
{
    return copy_of(text, strlen(text));
}

char *mem_dup(const void *data, size_t size)
{
    return copy_of(data, size);
}

void mem_replace(char **text, const char *with)
{
    free(*text);
    *text = copy_of(with, strlen(with));
}

void *mem_kept(void *p)
{
    return p;
}

void *mem_resize(void *old, size_t count, size_t size)
{
    size_t bytes = 0;

    if (__builtin_mul_overflow(count, size, &bytes))
        abort();
    return or_abort(realloc(old, bytes ? bytes : 1));
}
