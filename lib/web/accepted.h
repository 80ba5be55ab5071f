/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ACCEPTED_H
#define WB_ACCEPTED_H

/* The configuration and the tokens that a generation of workers has read and found good, in a file in memory
 * that nobody can change: workers that come later in its place start with these, whatever the files hold by
 * then (fcgi/supervisor.h). It holds secrets, and goes with the last process that has it. */
#include "base/buf.h"
#include "base/conf.h"
#include "base/err.h"

/* tokens: the token file's content. Failures: ERR_INTERNAL. */
int accepted_make(
    const struct conf *c, const struct buf *tokens, int *out, struct err *e) WARN_UNUSED;

/* fd stays the caller's; *tokens is empty and has the room that auth_read_tokens() wants. 1: made by another
 * version of the program, so the files have to be read. Failures: ERR_INVALID, ERR_INTERNAL. */
int accepted_read(int fd, struct conf *c, struct buf *tokens, struct err *e) WARN_UNUSED;

#endif
