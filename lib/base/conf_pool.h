/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CONF_POOL_H
#define WB_CONF_POOL_H

/* The [pool NAME] sections while a configuration is read: for conf.c only. */
#include <stdbool.h>

#include "base/conf.h"
#include "base/err.h"

/* True for "pool" and "pool NAME", good name or bad. */
bool conf_pool_section(const char *section);

/* Which keys of which pool the file has set so far. */
struct conf_pool_seen {
    unsigned *keys; /* a bit for each option, by the order of conf->pool */
};

/* One `key = text` line. where names it in messages. */
struct conf_pair {
    const char *section;
    const char *key;
    const char *text;
    const char *where;
};

/* A section's line: the pool is made at its first, whether keys follow or not. ERR_INVALID: bad name. */
int conf_pool_begin(struct conf *c, struct conf_pool_seen *seen, const char *section,
    const char *where, struct err *e) WARN_UNUSED;

/* Takes a pair of the file. ERR_INVALID: bad name, unknown key, set
 * twice, bad value. */
int conf_pool_take(struct conf *c, struct conf_pool_seen *seen, const struct conf_pair *pair,
    struct err *e) WARN_UNUSED;

/* After the file: one pool at least, the variables of all pools, the default pool filled in.
 * ERR_INVALID: a bad variable, or a default pool that there is not. */
int conf_pool_finish(struct conf *c, struct err *e) WARN_UNUSED;

void conf_pool_clear(struct conf *c);

#endif
