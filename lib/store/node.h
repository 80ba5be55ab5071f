/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_NODE_H
#define WB_STORE_NODE_H

/* Nodes as they report themselves: artifacts contract, section 3. Errors are those of db.h. */
#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"

extern const struct db_stmts NODE_STMTS;

enum { NODE_SILENT_S = 60 }; /* without a heartbeat for so long a node is not alive */

struct node_row {
    const char *name;
    const char *rack;
    const char *zone;
    const char *address;
    const char *mounts_json;   /* an array */
    const char *versions_json; /* an array of {artifact, version, digest, state} */
    const char *agent_version;
    int64_t capacity_bytes;
    int64_t used_bytes;
    int64_t registered_us;
    int64_t seen_us;
    bool alive;
};
struct nodes {
    struct node_row *row;
    size_t n;
    struct db_rows rows;
};
#define NODES_INIT \
    { \
        .row = NULL, .n = 0, .rows = DB_ROWS_INIT \
    }
void nodes_free(struct nodes *n);
#define cleanup_nodes __attribute__((cleanup(nodes_free)))

/* Registration and heartbeat: what the node says replaces what it said before. */
int node_report(struct db *db, const struct node_row *n, struct err *e) WARN_UNUSED;

/* By name. ERR_NOT_FOUND for node_get() only. */
int node_list(struct db *db, struct nodes *out, struct err *e) WARN_UNUSED;
int node_get(struct db *db, const char *name, struct nodes *out, struct err *e) WARN_UNUSED;

/* Racks that have a living node. */
int node_racks(struct db *db, int64_t *out, struct err *e) WARN_UNUSED;

/* Which node has which version of an artifact in which state, as columns of text: version, state of the version, its
 * digest, node, rack, zone, state there, digest there, alive (true or false). What a node reports counts before what its assignment says.
 * By version (newest first), then node; a version that no node has is one row with an empty node. */
enum {
    SPREAD_VERSION,
    SPREAD_VERSION_STATE,
    SPREAD_DIGEST,
    SPREAD_NODE,
    SPREAD_RACK,
    SPREAD_ZONE,
    SPREAD_STATE,
    SPREAD_NODE_DIGEST,
    SPREAD_ALIVE
};
int node_spread(
    struct db *db, const char *artifact, struct db_rows *out, struct err *e) WARN_UNUSED;

#endif
