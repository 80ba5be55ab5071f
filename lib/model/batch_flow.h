/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BATCH_FLOW_H
#define WB_BATCH_FLOW_H

/* What becomes of a batch of the embedded batch service: validating -> in_progress -> finalizing -> completed or expired;
 * a file that is not valid -> failed; cancel -> cancelling -> cancelled. The database holds the same table
 * (sql/0016_batch_service.sql) and refuses anything else. Batch contract, "Progress". Pure. */
#include <stdbool.h>

#include "model/batch.h"

bool batch_flow_allows(enum batch_status from, enum batch_status to);

#endif
