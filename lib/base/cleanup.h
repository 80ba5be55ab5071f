/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CLEANUP_H
#define WB_CLEANUP_H

/* Attribute macros: scope-bound cleanup, ownership, checked results.
 *
 * A local resource is declared with its attribute and initialised in the same statement:
 *     cleanup_fd int fd = -1;
 *     cleanup_free char *text = NULL;
 * It is handed over with STEAL(), which leaves NULL (or -1 by STEAL_FD) behind.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARN_UNUSED       __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define UNUSED            __attribute__((unused))

/* The pointer that a function returns is the caller's, who ends it with fn. */
#if defined(__GNUC__) && !defined(__clang__)
#define OWNED_BY(fn) __attribute__((malloc, malloc(fn, 1), warn_unused_result))
#else
#define OWNED_BY(fn) __attribute__((malloc, warn_unused_result))
#endif

static inline void cleanup_free_(void *p)
{
    free(*(void **)p);
}

static inline void cleanup_fd_(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#define cleanup_free __attribute__((cleanup(cleanup_free_)))
#define cleanup_fd   __attribute__((cleanup(cleanup_fd_)))

static inline int steal_fd_(int *fd)
{
    int old = *fd;
    *fd = -1;
    return old;
}

static inline void hand_over_(void *to, void *from, const void *empty, size_t size)
{
    memcpy(to, from, size);
    memcpy(from, empty, size);
}

/* STEAL() for a struct: *from becomes *to, and what is left behind is empty, a value for which its cleanup does nothing:
 *     HAND_OVER(out, &got, ((struct rows)ROWS_INIT));
 */
#define HAND_OVER(to, from, empty) hand_over_((to), (1 ? (from) : (to)), &empty, sizeof *(from))

#define STEAL(p) \
    __extension__({ \
        __typeof__(p) stolen_ = (p); \
        (p) = NULL; \
        stolen_; \
    })
#define STEAL_FD(fd) steal_fd_(&(fd))

#endif
