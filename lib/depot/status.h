/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DEPOT_STATUS_H
#define WB_DEPOT_STATUS_H

/* What lies below a root, for people and programs. */
#include "base/buf.h"
#include "model/mishap.h"

/* JSON: {"root","used_bytes","promised_bytes","trash_bytes","free_bytes","artifacts":[{"artifact","current","versions":[{"version","digest",
 * "total_bytes"} or {"version","error"}],"parts":[{"name","bytes","total_bytes","marked_shards","live"}],"trash":[names]}]}. No root is an empty
 * one. */
int status_print(const char *root, struct buf *out, struct mishap *m) WARN_UNUSED;

#endif
