/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_JOB_LAND_H
#define WB_STORE_JOB_LAND_H

/* What came of the work on a claimed job, written back. The only way (beside plan, cancel and the expiry of
 * queued jobs) in which a job changes its state. One transaction: compare-and-set on version and lease epoch; the
 * state where the event leads from the state that the row has NOW (after a cancel that is cancelling, and an
 * event that leads nowhere from there leaves it so, but what it brought is kept); event, counters, stamps; intents
 * settled and written; at the end the cold row's result, the release intent, and the row of job_run goes. Jobs
 * contract sections 2 and 5. Locks the job's row, its provision and its intents. Errors are those of db.h. */
#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"
#include "model/job.h"
#include "store/job_run.h"

extern const struct db_stmts JOB_LAND_STMTS;

/* What is known of machines: kept in the provision row of the attempt. NULL leaves a value alone. */
struct land_provision {
    const char *provider;
    const char *status; /* pending, provisioning, running, failed, released, ... */
    const char *region;
    const char *details_json;
    int64_t starts_us; /* when the machines are ours; 0 leaves it alone */
    int64_t ends_us;
    const char *error;
};

enum land_machines {
    LAND_MACHINES_KEEP,
    LAND_MACHINES_NONE /* certainly none were made, or all are gone */
};

struct land {
    enum job_event event;    /* JOB_EVENT__COUNT: no event, the state stays */
    const char *actor;       /* for the audit trail: "planner host/pid" */
    const char *detail_json; /* NULL: none */
    int64_t poll_ms;         /* due again after this; ignored at an end */
    int64_t delay_ms;        /* EV_REQUEUE: not_before */
    const char *error_code;  /* NULL leaves the error alone, "" clears it */
    const char *error;
    const struct land_provision *provision; /* NULL: nothing new */
    enum land_machines machines;
    const char *batch_id; /* NULL leaves it alone */
    /* As struct job has it; NULL: nothing new. Written when the state changes or what is there is 30 s old,
     * otherwise left to the overlay. */
    const char *batch_json;
    int64_t expires_us; /* 0 leaves it alone */
    unsigned settles;   /* bits 1 << enum intent_kind: open intents of the job that this settles */
    unsigned
        undone; /* of those that it does not settle: the outside call that run_intent_begin() announced
                           certainly did nothing, so that it counts as never begun */
    bool timed_out;     /* EV_REQUEUE after the time-out of resource_preparing: counts it */
    bool call_failed;   /* an outside call failed: one more in a row; otherwise none */
    bool batch_missing; /* 404: one more in a row; otherwise none */
};
#define LAND_INIT(ev) \
    { \
        .event = (ev), .actor = "" \
    }

struct landed {
    enum job_state state; /* now */
    bool moved;           /* by this event */
    int64_t version;      /* for the next land(), lease_epoch stays */
    bool cancel;          /* a cancel is asked for */
    int64_t intent_id;    /* with keep: the open intent that the job has to settle next; 0 none */
    enum intent_kind intent_kind;
};

/* 0 when a batch is no other job's, live or ended; 1 when it is. */
int land_batch_taken(
    struct db *db, const char *job_id, const char *batch_id, struct err *e) WARN_UNUSED;

/* 0 with *out. The claim ends with it unless keep: then the lease goes on, with out->version.
 * 1 when we were superseded (version or lease epoch have changed, or the job has ended): nothing is written,
 * except that the machines of r->provision_key, unless l->machines says that there are none or they are still
 * the job's own, get a release intent, or have theirs opened again: what was made late is not lost.
 * 2 when l->batch_id is the batch of another job, live or ended: nothing is written, and the claim goes on. Of two jobs
 * that bring the same batch at once one gets ERR_CONFLICT, and 2 when it tries again.
 * EV_SUBMIT that moved writes the create_batch intent; a batch id that becomes known in cancelling writes the
 * cancel_batch intent; EV_REQUEUE and every end write the release intent unless there are no machines. */
int land(struct db *db, const struct job_run *r, const struct land *l, bool keep,
    struct landed *out, struct err *e) WARN_UNUSED;

/* Writes the intent to cancel the batch of a job that is to end otherwise than by its user: then is what the
 * job becomes when that is done (EV_RUN_EXPIRE, EV_MACHINES_LOST). The claim goes on, version unchanged. It shows
 * in later claims as intent cancel_batch with payload {"then":"run_expire","code":…,"message":…}. 1 when
 * superseded. */
int land_stop(struct db *db, const struct job_run *r, enum job_event then, const char *code,
    const char *message, struct err *e) WARN_UNUSED;

#endif
