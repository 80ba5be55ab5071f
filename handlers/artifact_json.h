/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ARTIFACT_JSON_H
#define WB_ARTIFACT_JSON_H

/* Artifacts, nodes and assignments on the wire: artifacts contract, section 3. Results are the caller's. */
#include "db/db.h"
#include "json/jx.h"
#include "store/artifact.h"
#include "store/assignment.h"
#include "store/node.h"

json_object *version_json(const struct version_row *v);
json_object *node_json(const struct node_row *n);
json_object *assignment_json(const struct assignment_row *a);

/* An assignment as a node gets it. origin: [artifacts] origin. */
json_object *order_json(const struct assignment_row *a, const char *origin);
/* Where its bytes can be had. */
json_object *sources_json(const struct assignment_row *a, const char *origin);

/* A row of node_spread(). */
json_object *spread_json(const struct db_rows *rows, int row);
/* The nodes that have to do with one version. */
int version_nodes_json(struct db *db, const char *artifact, const char *version, json_object **out,
    struct err *e) WARN_UNUSED;

#endif
