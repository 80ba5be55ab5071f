/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LIBPQ_FAILS_H
#define WB_LIBPQ_FAILS_H

/* A libpq that fails when it is told to: calls that never fail by themselves on a healthy machine. A program that
 * uses this calls libpq through it; what is not told to fail goes to the real one. One thread. */
#include <stdbool.h>

enum libpq_call {
    LIBPQ_CONNECT_POLL,
    LIBPQ_CONSUME_INPUT,
    LIBPQ_ENTER_PIPELINE,
    LIBPQ_ERROR_FIELD, /* answers NULL: a result that names no SQLSTATE */
    LIBPQ_EXIT_PIPELINE,
    LIBPQ_FLUSH,
    LIBPQ_GET_RESULT, /* answers NULL */
    LIBPQ_PIPELINE_SYNC,
    LIBPQ_SEND, /* a statement, however it is sent */
    LIBPQ_SEND_PREPARE,
    LIBPQ_SET_NONBLOCKING,
    LIBPQ_STATUS, /* answers CONNECTION_BAD */
    LIBPQ__COUNT
};

/* The call fails once, after `first` more that do not. */
void libpq_fails(enum libpq_call call, int first);
/* Whether all that was told has happened; forgets what has not. */
bool libpq_failed(void);

#endif
