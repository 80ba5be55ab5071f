/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_FIXTURE_H
#define WB_JOB_FIXTURE_H

/* What the tests of batch jobs share, beside store_fixture.h. */
#include "store/job.h"
#include "store/job_land.h"
#include "store/plan.h"
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

/* The default pool, its lease in the hands of one holder, and a planner's name. */
extern const char *const PLANNER_A; /* uuids, for leases and claims */
extern const char *const PLANNER_B;
struct run_pools default_pools(void);
void job_lead(struct db *db, const char *holder, struct lease *out);

/* Plans up to max_provisioning jobs by policy_simple with the spec {"replicas": 1}: how many. */
int64_t job_plan(struct db *db, const struct lease *l, int64_t max_provisioning);

/* What a planner claims: of the default pool, in any state, for RUN_LEASE_MS. */
struct run_ask job_ask(const char *owner, int64_t limit);

/* Claims; exactly n jobs must be due. */
void job_claim(struct db *db, const char *owner, size_t n, struct run_claims *out);

/* Lands; the call must give want (0 or 1). */
struct landed job_land(
    struct db *db, const struct run_claim *c, struct land l, bool keep, int want);

/* Brings the one queued job so far (planned ... finalizing), as planner A, and leaves nobody holding it. */
void job_bring(const char *id, enum job_state to);

/* Makes every row due. */
void job_all_due(void);

#endif
