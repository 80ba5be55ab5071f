/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATION_JSON_H
#define WB_OPERATION_JSON_H

/* The body of GET /api/operations. Operations contract, section 3. */
#include "base/buf.h"
#include "model/ops.h"

/* Appends {"operations":[...]}: the entries in the list's order, the keys of each in the contract's.
 * The caller looks at out->overflow. */
void operations_print(const struct ops_list *l, struct buf *out);

#endif
