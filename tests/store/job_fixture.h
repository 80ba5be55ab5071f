/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_FIXTURE_H
#define WB_JOB_FIXTURE_H

/* What the tests of batch jobs share, beside store_fixture.h. */
#include "store/job.h"
#include "tests/store/store_fixture.h"

int jobs_setup(void **state); /* of the group: all statements of jobs and planners */

/* A request that is fine, of alice, for the default pool. */
struct job_new job_asked(const char *name);

/* Accepts it; the id of the job. */
void job_accept(const struct job_new *j, char id[UUID_SIZE]);
void job_make(const char *name, char id[UUID_SIZE]);

/* The job now. */
void job_now(const char *id, struct jobs *out);
enum job_state job_state_now(const char *id);

/* The states that job_event has, in order: "queued planned cancelling". */
void job_history_is(const char *id, const char *expected);

/* What must hold at any moment: counters equal the rows they count, every state has its event, no ended job is
 * live and no job that is not ended is missing from job_run. */
void jobs_consistent(void);

#endif
