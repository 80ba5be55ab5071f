/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TASK_H
#define WB_TASK_H

/* One claim in the hand of one thread: a live job, a release of machines, or a chore. It is worked on by steps (step.h)
 * until it is landed or handed back. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "plan/hand.h"
#include "store/intent.h"
#include "store/job_land.h"
#include "store/job_run.h"

/* Rows that tasks of one claim borrow from; freed with the last of them. */
struct claim_rows {
    atomic_int users;
    struct run_claims claims;
    struct releases releases;
    int64_t now_us;  /* Postgres' time ... */
    int64_t read_ns; /* ... at this monotonic one */
};
struct claim_rows *claim_rows_new(void);
void claim_rows_put(struct claim_rows *r);

struct task;
typedef void chore_fn(struct task *t, struct hand *h);

struct task {
    struct planner *planner;
    struct flight_entry flight; /* of a job or a release */
    struct claim_rows *rows;    /* NULL for a chore */
    chore_fn *chore;            /* NULL but for a chore */
    /* of a job: as claimed, moving on with what lands */
    struct run_claim c;
    struct provision_result machines; /* as last told in this task; details NULL: not asked yet */
    char *batch_id;                   /* own copies that c.run and c.provision point to */
    char *batch_json;
    char *details;
    struct faults *faults; /* of the job */
};

/* The tasks take over a use of rows each. */
struct task *task_of_job(struct planner *p, struct claim_rows *rows, const struct run_claim *c);
struct task *task_of_release(struct planner *p, struct claim_rows *rows, const struct release *r);
struct task *task_of_chore(struct planner *p, chore_fn *chore);
void task_free(struct task *t);

/* For the crew: works on the task to its end and frees it. */
void task_run(void *task, void *hand);

/* Gives the claim of a task that will not be run back. */
void task_return(struct task *t, struct db *db);

/* Postgres' time by its own clock at the claim and the monotonic one since. */
int64_t task_now_us(const struct task *t);

#endif
