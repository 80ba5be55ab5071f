/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OUTCOME_H
#define WB_OUTCOME_H

/* Counts how calls to the outside end, by result. Any thread. */
#include "base/metrics.h"
#include "batch/batch_client.h"
#include "model/provision.h"

/* rc: of a verb of a provisioner. failed: counts what was being done, when it failed. */
void outcome_of_provider(int rc, enum provision_error error, enum metric failed);
void outcome_of_batch(enum batch_outcome outcome, enum metric failed);

#endif
