/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STOP_H
#define WB_STOP_H

/* Signals as descriptors. stop_block() before the first thread; the main thread reads the signals
 * from stop_signal_fd(); other threads wait on stop_event_fd(), which becomes readable for good once
 * stop_raise() was called. SIGPIPE is ignored (libfcgi and hiredis write without MSG_NOSIGNAL). */
#include <stdbool.h>

#include "base/err.h"

/* Blocks TERM, INT, HUP, CHLD, USR1 and USR2 in this and later threads and ignores PIPE. Again after
 * anything that installs handlers of its own (FCGX_Init does): calling it twice is harmless. */
void stop_block(void);

/* Undoes stop_block() in a child before exec, so that it starts with default signals. */
void stop_unblock(void);

/* A new signalfd (CLOEXEC, non-blocking) for the blocked signals; the caller closes it. -1 with e. */
int stop_signal_fd(struct err *e) WARN_UNUSED;

/* The next signal pending on fd, or 0. */
int stop_next_signal(int fd);

/* A new eventfd that tells threads to end, and the call that raises it. */
int stop_event_fd(struct err *e) WARN_UNUSED;
void stop_raise(int event_fd);

#endif
