/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_JOB_RUN_H
#define WB_STORE_JOB_RUN_H

/* Live jobs as planners work on them: look what is due, claim, renew, hand back. Jobs contract section 5,
 * "Act". A claim is a row lease: owner, epoch (+1 at each claim), until. Whoever holds it is the only one that
 * works on the job, its intents (but release) included. Errors are those of db.h. Rows of different pools and of
 * different jobs never wait for each other. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "model/job.h"

extern const struct db_stmts JOB_RUN_STMTS;

enum {
    RUN_LEASE_MS = 30000, /* what [planner] claim_ms is unless set; renewed three times as often */
    RUN_CLAIM_USUAL = 50,
    RUN_CLAIM_MAX = 500, /* each claim walks all live rows: of many that are due, many at a time */
    RUN_POOLS_MAX = 64,
    RUN_POOLS_TEXT_MAX = 512
};

/* The pools that a planner serves. */
struct run_pools {
    const int64_t *id;
    size_t n; /* at most RUN_POOLS_MAX */
};

/* As the text of a smallint[]. */
struct buf;
void run_pools_text(struct run_pools pools, struct buf *out);

/* What there is to do, in one cheap statement: the 1 s backstop. Nothing is locked. */
struct run_look {
    int64_t now_us;
    int64_t
        entered; /* enqueue sequence: grows with every commit that queued a job in these pools, or resumed one of them */
    int64_t plan_due_us;    /* earliest not_before still ahead; 0: none */
    int64_t claim_due_us;   /* earliest poll of a row that nobody holds; 0: none */
    int64_t release_due_us; /* earliest release intent that nobody holds; 0: none */
    int64_t overdue_us;     /* earliest queue deadline of a queued job; 0: none */
};
int run_look(
    struct db *db, struct run_pools pools, struct run_look *out, struct err *e) WARN_UNUSED;

/* The intent that a claimed job has to settle first, if any. */
struct run_intent {
    int64_t id; /* 0: none */
    enum intent_kind kind;
    int64_t attempts; /* > 0: it may have been carried out, or half, at began_us */
    int64_t began_us;
    int64_t created_us;
    const char *payload_json;
};

/* The provision of the current attempt. */
struct run_provision {
    const char *id; /* uuid, as the wire shows it; "" when there is none */
    const char *provider;
    const char *status;
    const char *region;
    const char *spec_json;    /* what was asked for */
    const char *details_json; /* what was got, as the provisioner told it */
    int64_t starts_us;        /* when the machines are ours; 0: not told */
    int64_t ends_us;
    int64_t created_us;
};

struct run_claim {
    struct job_run run;
    struct run_intent intent;
    struct run_provision provision;
};
struct run_claims {
    struct run_claim *claim;
    size_t n;
    int64_t now_us;
    struct db_rows rows;
};
#define RUN_CLAIMS_INIT \
    { \
        .claim = NULL, .n = 0, .now_us = 0, .rows = DB_ROWS_INIT \
    }
void run_claims_free(struct run_claims *c);
#define cleanup_run_claims __attribute__((cleanup(run_claims_free)))

/* What is claimed: jobs of these pools that are in one of these states (bits 1 << enum job_state), for whom (a uuid
 * for each start of a process), for how long. */
struct run_ask {
    struct run_pools pools;
    unsigned states; /* 0: planned ... cancelling */
    const char *owner;
    int64_t limit; /* 1 ... RUN_CLAIM_MAX */
    int64_t lease_ms;
};

/* Leases jobs in planned ... cancelling that are due and that nobody holds, longest due first. What another claims at the same moment is passed over (SKIP LOCKED), so no
 * job is ever handed to two. */
int run_claim(
    struct db *db, const struct run_ask *ask, struct run_claims *out, struct err *e) WARN_UNUSED;

/* A claim as far as the database must find it again. */
struct run_held {
    char id[UUID_SIZE];
    int64_t lease_epoch;
};

/* Prolongs the leases for lease_ms: lost[i] is set for those that are no longer held with that epoch (may be NULL). */
int run_renew(struct db *db, const struct run_held *held, size_t n, int64_t lease_ms, bool *lost,
    struct err *e) WARN_UNUSED;

/* Gives jobs back unchanged, due again in poll_ms: after polls that told nothing new, and at shutdown
 * (poll_ms 0). Those no longer held are passed over. HOT. */
int run_hand_back(struct db *db, const struct run_held *held, size_t n, int64_t poll_ms,
    struct err *e) WARN_UNUSED;

/* Before an outside call that an intent asks for: counts the attempt and stamps it, so that whoever comes after
 * a crash knows that it may have happened. 1 when the job is no longer held: do not call. */
int run_intent_begin(
    struct db *db, const struct run_held *held, int64_t intent_id, struct err *e) WARN_UNUSED;

/* The request of a claimed job (request_json and what else struct job has): job_get(). */

/* Ends queued jobs of these pools whose queue deadline has passed: expired. *n counts them. */
int run_expire_queued(
    struct db *db, struct run_pools pools, int64_t limit, int64_t *n, struct err *e) WARN_UNUSED;

#endif
