/* SPDX-License-Identifier: Apache-2.0 */
#include "model/batch_flow.h"

#include <stddef.h>

static const struct {
    enum batch_status from;
    enum batch_status to;
} FLOW[] = {
    { BATCH_VALIDATING, BATCH_IN_PROGRESS },
    { BATCH_VALIDATING, BATCH_FAILED },
    { BATCH_VALIDATING, BATCH_CANCELLING },
    { BATCH_IN_PROGRESS, BATCH_FINALIZING },
    { BATCH_IN_PROGRESS, BATCH_FAILED }, /* its input is gone */
    { BATCH_IN_PROGRESS, BATCH_CANCELLING },
    { BATCH_FINALIZING, BATCH_COMPLETED },
    { BATCH_FINALIZING, BATCH_EXPIRED },
    { BATCH_CANCELLING, BATCH_CANCELLED },
};

bool batch_flow_allows(enum batch_status from, enum batch_status to)
{
    for (size_t i = 0; i < sizeof FLOW / sizeof FLOW[0]; i++) {
        if (FLOW[i].from == from && FLOW[i].to == to)
            return true;
    }
    return false;
}
