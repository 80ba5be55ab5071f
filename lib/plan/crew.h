/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CREW_H
#define WB_CREW_H

/* Threads that pull work from a bounded queue: take (under the lock), run (without), done (under the lock).
 * Jobs contract section 5, "Worker pool". Handing in never blocks; what finds no room stays the caller's.
 * Each thread owns what its open() made (connections). Nothing is cancelled and nothing detached. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct crew_options {
    const char *name; /* of the threads: "name-1", ... */
    size_t threads;
    size_t queue; /* items that may wait, those being run not counted */
    void *ctx;
    void *(*open)(size_t number, void *ctx); /* first thing in each thread: what it will own */
    void (*close)(void *own);                /* last thing in it */
    void (*run)(void *item, void *own);      /* consumes the item */
    void (*drop)(void *item, void *ctx); /* consumes an item that will not be run: crew_stop() */
};

struct crew;

/* Failures: ERR_INTERNAL, no thread to be had. */
int crew_start(const struct crew_options *o, struct crew **out, struct err *e) WARN_UNUSED;

/* 0: taken over. 1: no room, or stopping: the item is still the caller's. Never blocks. Any thread. */
int crew_submit(struct crew *c, void *item) WARN_UNUSED;

size_t crew_room(struct crew *c);    /* items that would be taken now */
size_t crew_waiting(struct crew *c); /* items in the queue */
size_t crew_running(struct crew *c); /* items being run */

/* No thread takes another item; those that wait are dropped, by the caller. */
void crew_stop(struct crew *c);

/* True when no item is being run, false when one still is at the deadline. */
bool crew_wait(struct crew *c, int64_t deadline_ns);

/* Ends and joins all threads: blocks for as long as an item is being run, so crew_wait() first. A process
 * that may not wait leaves without this call. */
void crew_free(struct crew *c);

#endif
