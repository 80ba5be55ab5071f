/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_UNIQUE_H
#define WB_LINES_UNIQUE_H

/* Which texts of very many are there more than once, in memory that does not grow with them: the hash of each goes to
 * one of several files, and each file is sorted by itself at the end. Two texts with the same first 128 bits of SHA-256
 * count as one. Batch contract, "Memory does not grow with the file". One thread. Failures: ERR_NO_ROOM,
 * ERR_UNAVAILABLE. */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct unique;
void unique_close(struct unique *u); /* NULL is fine; nothing stays behind */
/* folder: where the files are made, without names that last. */
int unique_open(int folder, struct unique **out, struct err *e) WARN_UNUSED;
static inline void unique_close_p(struct unique **u)
{
    unique_close(*u);
}
#define cleanup_unique __attribute__((cleanup(unique_close_p)))

int unique_add(struct unique *u, const char *text, int64_t number, struct err *e) WARN_UNUSED;

/* Tells, in no order, of each number whose text a smaller number has, too. Once, at the end. */
int unique_end(
    struct unique *u, void (*fn)(void *ctx, int64_t number), void *ctx, struct err *e) WARN_UNUSED;

#endif
