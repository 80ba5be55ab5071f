/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_H
#define WB_MEM_H

/* Allocators that never return NULL: out of memory aborts the process, whose supervisor starts it
 * again. All results are freed with free(). Any thread. */
#include <stddef.h>

#include "base/cleanup.h"

#define NEVER_NULL __attribute__((returns_nonnull))

void *mem_alloc(size_t size) OWNED_BY(free) NEVER_NULL;
void *mem_calloc(size_t count, size_t size) OWNED_BY(free) NEVER_NULL;
char *mem_strdup(const char *text) OWNED_BY(free) NEVER_NULL;

/* A copy of size bytes with a NUL after them. data may hold NULs. */
char *mem_dup(const void *data, size_t size) OWNED_BY(free) NEVER_NULL;

/* Puts a copy of `with` in the place of *text, which may be NULL and is freed. */
void mem_replace(char **text, const char *with);

/* p itself. Says that the place where it is stored owns it from here, for the compiler's analyzer, which
 * loses sight of a place that is found by an index, or lies in a struct that is handed over as a whole, and
 * then takes p for leaked. */
void *mem_kept(void *p) WARN_UNUSED;

/* Grows or shrinks an array to count elements of size bytes. Aborts also when count * size does
 * not fit. The old pointer is consumed. */
void *mem_resize(void *old, size_t count, size_t size) WARN_UNUSED NEVER_NULL;

#endif
