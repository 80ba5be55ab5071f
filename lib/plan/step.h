/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STEP_H
#define WB_STEP_H

/* The steps of a job, one file each. A step makes at most one outside call that changes anything, lands what came of
 * it, and says whether the job is to be looked at again by the same task. What a step begins is in Postgres before it
 * is done, and what came of it is there before the next begins, so a crash anywhere leaves a job that the next claim
 * continues: docs/planner.md has the table. */
#include "batch/batch_client.h"
#include "model/backoff.h"
#include "plan/task.h"

enum step {
    STEP_END, /* landed or handed back: the claim is over */
    STEP_ON   /* the claim goes on: choose the next step */
};
typedef enum step step_fn(struct task *t, struct hand *h);

step_fn step_provision;       /* planned: ask for machines */
step_fn step_watch_provision; /* resource_preparing: wait for them and for the time window */
step_fn step_submit;          /* submitting: create the batch */
step_fn step_poll;            /* a batch runs: read it */
step_fn step_cancel; /* cancelling, or an intent to cancel the batch: take back what is outside */
step_fn step_expire; /* a deadline has passed */
void step_release(struct task *t, struct hand *h); /* give machines back */

/* --- what steps share --- */

/* Writes l back, with faults at before and at the point after it. keep: the task goes on with the job. STEP_ON when it
 * does; STEP_END when the claim is over, because it was not to be kept, the job has ended, somebody else has it, or
 * Postgres could not be reached while the lease lasted (whoever claims it next finds the intent). A batch of another job is
 * not taken: what is submitting then ends submit_failed, batch_nonsense. */
enum step step_land(
    struct task *t, struct hand *h, struct land *l, bool keep, enum fault_point before);

/* Gives the job back unchanged, due again in delay_ms. */
enum step step_hand_back(struct task *t, struct hand *h, int64_t delay_ms);

/* How a call that changed nothing is tried again. */
struct retry {
    int64_t again_ms;   /* not sooner: Retry-After */
    unsigned undone;    /* as in struct land */
    bool batch_missing; /* as in struct land */
    enum fault_point before;
};

/* Hands back with the error shown on the job, due again after a back-off that grows with the failures in a row. */
enum step step_failed(
    struct task *t, struct hand *h, const char *code, const struct err *why, const struct retry *r);

/* The back-off after so many failures in a row, at least again_ms. */
int64_t step_backoff_ms(const struct backoff *b, int64_t failures, int64_t again_ms);

/* Announces the outside call of the job's open intent: 0 go ahead; 1 the job is no longer ours or Postgres does not
 * answer: end the task. */
int step_begin(struct task *t, struct hand *h, enum fault_point begun);

/* The job's pool; never NULL (claims are of our pools). */
const struct plan_pool *step_pool(const struct task *t);

/* What is known of the job's machines, for its row: borrows from t->machines; all unset when they were not asked. */
struct land_provision step_got(const struct task *t);

/* True when two JSON texts mean the same; "" is no JSON. */
bool step_same_json(const char *a, const char *b);

/* Lands what the batch service said: the event of its status, or another instead; counts, outputs, deadline; Redis
 * too. Nothing new is handed back unwritten. The claim ends. */
struct batch_landing {
    enum fault_point before;
    unsigned settles;       /* as in struct land */
    enum job_event instead; /* JOB_EVENT__COUNT: of the status */
    const char *code;       /* with instead */
    const char *error;
    int64_t poll_ms; /* 0: [planner] poll_s */
};
enum step step_land_batch(
    struct task *t, struct hand *h, const struct batch *b, const struct batch_landing *how);

/* GET of a batch, counted, with its faults. */
int step_read_batch(struct hand *h, const char *id, struct batch *out, struct batch_note *note,
    struct err *e) WARN_UNUSED;

/* A batch that has ended, read once more: outputs and counts may come a moment after the end. */
void step_read_end(struct hand *h, struct batch *b);

/* Writes the intent to cancel the job's batch, after which the job becomes what `then` says; the claim ends. */
enum step step_stop(
    struct task *t, struct hand *h, enum job_event then, const char *code, const char *why);

/* The batches that the service has for a job whose creation was begun and not recorded. */
struct found {
    struct batch_search search; /* newest first */
    const struct batch *oldest; /* that is no other job's; NULL: there is none */
    int64_t wait_ms;            /* > 0: one may still turn up, for so long */
    struct batch_note note;     /* of a search that failed */
    struct err e;
};
void found_fini(struct found *f);
#define cleanup_found __attribute__((cleanup(found_fini)))

/* Searches: 0 with *out, -1 when the service could not be asked (out->note, out->e). */
int step_find(struct task *t, struct hand *h, struct found *out) WARN_UNUSED;

/* Asks the provisioner how the job's machines stand, into t->machines. */
int step_ask_machines(
    struct task *t, struct hand *h, struct provision_note *note, struct err *e) WARN_UNUSED;

/* Who got, or is to get, the job's machines: as the provision row has it since the plan, whatever this process' pool
 * says by now. Its hooks; how long it may take to get them ready; whether this process can ask it. */
const char *step_provider(const struct task *t);
struct provision_hooks step_hooks(const struct task *t);
int64_t step_ready_us(const struct task *t);
bool step_serves(const struct task *t, struct hand *h);

/* What the machines are to be; their name, this attempt. */
int step_spec(const struct task *t, struct provision_spec *out, struct err *e) WARN_UNUSED;
int step_machines_name(
    const struct task *t, char out[PROVISION_NAME_SIZE], struct err *e) WARN_UNUSED;

#endif
