/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SWEEP_H
#define WB_SWEEP_H

/* The net under everything else: what is outside and belongs to no job, whoever lost it, is given back or cancelled.
 * Another installation's machines carry another name, and its batches the ids of jobs that are not in our database:
 * both are left alone. Failures are logged; the next sweep tries again. */
#include "plan/hand.h"

/* Batches that were created within the last hour and still run, but are not the batch of their job. */
void sweep_batches(struct hand *h);

/* Machines of a type whose attempt is not the current one of a live job: their release is asked for (again). pool_id:
 * for attempts that no row knows of. */
void sweep_machines(struct hand *h, const char *type, int64_t pool_id);

#endif
