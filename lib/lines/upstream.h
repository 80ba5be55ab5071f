/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LINES_UPSTREAM_H
#define WB_LINES_UPSTREAM_H

/* Which inference server a model's lines go to: [batch] models, else [batch] upstream. Batch contract, "Upstream". Pure
 * after upstream_open(); any thread. */
#include <stdbool.h>
#include <stddef.h>

#include "base/conf.h"
#include "base/err.h"

struct upstream;
void upstream_close(struct upstream *u); /* NULL is fine */
/* ERR_INVALID: [batch] upstream or models makes no sense. */
int upstream_open(const struct conf *conf, struct upstream **out, struct err *e) WARN_UNUSED;
static inline void upstream_close_p(struct upstream **u)
{
    upstream_close(*u);
}
#define cleanup_upstream __attribute__((cleanup(upstream_close_p)))

/* Is any server known at all? */
bool upstream_any(const struct upstream *u);

/* Where the model's server begins, without /v1; NULL: none has it. Borrowed. */
const char *upstream_of(const struct upstream *u, const char *model);

#endif
