/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_NODE_H
#define WB_AGENT_NODE_H

/* What a node says of itself. */
#include "daemons/agent_settings.h"

enum { NODE_BODY_MAX = 64 << 10 };

/* Appends the body of PUT /api/v1/nodes/{node}: what [agent] says, what the disk has and holds, the versions that have landed, as many as the
 * service takes (some 350; of others it knows by their receipts). root: the folder of the versions, open. */
int node_print(const struct settings *s, int root, struct buf *out, struct mishap *m) WARN_UNUSED;

#endif
