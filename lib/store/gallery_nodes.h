/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_GALLERY_NODES_H
#define WB_GALLERY_NODES_H

/* The nodes of an operation as JSON: one shape for the body of PUT, the value in Redis, the column
 * operation_control.nodes and the answer. Operations contract, section 3. */
#include <stddef.h>

#include "json/jx.h"
#include "model/gallery.h"

/* Reads an array and sorts it; once for each array, which owns the result: both live equally long. Each
 * node needs node_id or node_name, and a known status; percentage is 0 when missing; current and total
 * may be whole numbers too, which are kept as text; unknown members are left alone. ERR_INVALID naming
 * node and field ("nodes[2].status: must be one of ..."). */
int gallery_nodes_read(
    json_object *array, const struct gallery_node **out, size_t *n, struct err *e) WARN_UNUSED;

/* Appends the array: node_id, node_name, status, percentage, then only what is not empty of file_name,
 * current, total, phase, error. */
void gallery_nodes_print(const struct gallery_node *node, size_t n, struct buf *out);

#endif
