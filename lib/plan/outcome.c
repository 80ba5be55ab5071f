/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/outcome.h"

void outcome_of_provider(int rc, enum provision_error error, enum metric failed)
{
    static const enum metric OF[PROVISION_ERROR__COUNT] = {
        [PROVISION_ERROR_NONE] = METRIC_PROVIDER_OTHER,
        [PROVISION_ERROR_NO_CAPACITY] = METRIC_PROVIDER_NO_CAPACITY,
        [PROVISION_ERROR_BUSY] = METRIC_PROVIDER_BUSY,
        [PROVISION_ERROR_UNAVAILABLE] = METRIC_PROVIDER_UNAVAILABLE,
        [PROVISION_ERROR_TIMEOUT] = METRIC_PROVIDER_TIMEOUT,
        [PROVISION_ERROR_STOPPED] = METRIC_PROVIDER_OTHER,
        [PROVISION_ERROR_NO_GPU_TYPE] = METRIC_PROVIDER_REFUSED,
        [PROVISION_ERROR_DENIED] = METRIC_PROVIDER_DENIED,
        [PROVISION_ERROR_REFUSED] = METRIC_PROVIDER_REFUSED,
        [PROVISION_ERROR_NONSENSE] = METRIC_PROVIDER_OTHER,
    };
    metric_add(rc >= 0 ? METRIC_PROVIDER_OK : OF[error], 1);
    if (rc < 0 && error != PROVISION_ERROR_STOPPED)
        metric_add(failed, 1);
}

void outcome_of_batch(enum batch_outcome outcome, enum metric failed)
{
    static const enum metric OF[BATCH_OUTCOME__COUNT] = {
        [BATCH_DONE] = METRIC_BATCH_DONE,
        [BATCH_REFUSED] = METRIC_BATCH_REFUSED,
        [BATCH_NOT_FOUND] = METRIC_BATCH_NOT_FOUND,
        [BATCH_CONFLICT] = METRIC_BATCH_CONFLICT,
        [BATCH_DENIED] = METRIC_BATCH_DENIED,
        [BATCH_BUSY] = METRIC_BATCH_BUSY,
        [BATCH_UNREACHABLE] = METRIC_BATCH_UNREACHABLE,
        [BATCH_UNSURE] = METRIC_BATCH_UNSURE,
        [BATCH_STOPPED] = METRIC_BATCH_STOPPED,
    };
    metric_add(OF[outcome], 1);
    if (outcome != BATCH_DONE && outcome != BATCH_STOPPED)
        metric_add(failed, 1);
}
