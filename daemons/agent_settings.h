/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_SETTINGS_H
#define WB_AGENT_SETTINGS_H

/* What `agent run` goes by: the configuration as it was read last, the token, this node's name. Read anew by SIGHUP; whoever still works by
 * the old ones keeps them. Read-only once they are made, any thread. */
#include <stdatomic.h>

#include "base/conf.h"
#include "daemons/agent.h"
#include "model/manifest.h"

struct settings {
    struct conf conf;
    char token[AGENT_TOKEN_SIZE];
    char node[VERSION_NAME_MAX + 1];
    const char *root;
    atomic_int users;
};

/* What the command line says; texts are borrowed for good. */
struct settings_from {
    const char *config; /* NULL: no file */
    const char *root;   /* NULL: what the configuration says; so with: */
    const char *token_file;
};

/* ERR_INVALID and others say what is wrong; the caller has one use of *out. */
int settings_read(
    const struct settings_from *from, struct settings **out, struct err *e) WARN_UNUSED;

struct settings *settings_use(struct settings *s);
void settings_drop(struct settings *s); /* NULL is fine */

#endif
