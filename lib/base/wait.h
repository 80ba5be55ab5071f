/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_WAIT_H
#define WB_WAIT_H

/* Waiting for a descriptor or a word in shared memory, always with a deadline. */
#include <stdatomic.h>
#include <stdint.h>

#include "base/cleanup.h"

/* Waits until fd is ready for events (POLLIN, POLLOUT) or in error. 1 ready, 0 deadline passed,
 * -1 poll failed (errno set). A signal does not end it. deadline_ns is of clock_mono_ns(). A passed
 * deadline still looks once. */
int wait_fd(int fd, short events, int64_t deadline_ns) WARN_UNUSED;

/* Sleeps while *word == seen, across processes that map the word, until woken or the deadline.
 * May return early: callers look again. */
void wait_word(const _Atomic uint32_t *word, uint32_t seen, int64_t deadline_ns);

/* Wakes all that sleep on word, in every process. */
void wake_word(const _Atomic uint32_t *word);

#endif
