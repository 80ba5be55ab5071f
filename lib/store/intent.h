/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_INTENT_H
#define WB_STORE_INTENT_H

/* Release intents: machines to be given back, retried for ever, visible until done; and batches that no job
 * holds, to be cancelled. They have leases of their own, since their job may be long gone. (The other kinds are
 * settled by whoever holds their job: job_run.h.)
 * Jobs contract section 5, "Intents". Errors are those of db.h. */
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "model/job.h"
#include "store/job_run.h"

extern const struct db_stmts INTENT_STMTS;

struct release {
    int64_t id;
    enum intent_kind kind; /* INTENT_RELEASE, INTENT_STRAY_BATCH */
    int64_t lease_epoch;
    char job_id[UUID_SIZE];
    int64_t pool_id;
    int64_t attempt; /* of the job: its machines are those of provision_name(.., job_id, attempt) */
    int64_t tries;   /* this one included */
    int64_t created_us;
    int64_t next_us;
    int64_t launched_us;       /* when machines of that name were last asked for; 0: never */
    const char *provision_key; /* INTENT_RELEASE, else "" */
    const char *batch_id;      /* INTENT_STRAY_BATCH, else "" */
    const char *provider;      /* where the machines were seen, else as the provision row has it */
    const char *region;
    const char *details_json; /* of the provision row: what is known to have been got */
    const char *error;        /* of the last attempt */
};
struct releases {
    struct release *release;
    size_t n;
    int64_t now_us;
    struct db_rows rows;
};
#define RELEASES_INIT \
    { \
        .release = NULL, .n = 0, .now_us = 0, .rows = DB_ROWS_INIT \
    }
void releases_free(struct releases *r);
#define cleanup_releases __attribute__((cleanup(releases_free)))

/* Leases open release intents that are due and that nobody holds, oldest due first; SKIP LOCKED, as run_claim()
 * (ask->states does not matter). Sets the provision row to releasing. */
int release_claim(
    struct db *db, const struct run_ask *ask, struct releases *out, struct err *e) WARN_UNUSED;

/* Done: the intent is closed, and the provision row becomes released. 1 when it is no longer
 * held, or was asked for again meanwhile: nothing is written, it is done once more. */
int release_done(struct db *db, const struct release *r, struct err *e) WARN_UNUSED;

/* Again after delay_ms. The provision row becomes release_failed with the error; without one ("") it goes on
 * releasing. 1 as above. */
int release_retry(struct db *db, const struct release *r, const char *error, int64_t delay_ms,
    struct err *e) WARN_UNUSED;

/* Gives it back untried, due at once: at shutdown. 1 as above. */
int release_hand_back(struct db *db, const struct release *r, struct err *e) WARN_UNUSED;

/* Prolongs the lease for lease_ms. 1 as above. */
int release_renew(
    struct db *db, const struct release *r, int64_t lease_ms, struct err *e) WARN_UNUSED;

/* Asks for the release (once more, if it was done before) of the machines of a provision key that were seen outside, at
 * that provider, whatever the provision row says: 0 written; 1 nothing is to be done, as they are those of a live job, or
 * are being released already. pool_id: for a key that no provision row knows. */
int release_open(struct db *db, const char *provision_key, const char *provider, int64_t pool_id,
    struct err *e) WARN_UNUSED;

/* Asks for the end of a batch that was seen outside under the id of a job: 0 written; 1 nothing is to be done, as it is
 * the job's, or another's, or one that the job may yet adopt, or there is no such job, or it is being ended already. */
int stray_batch_open(
    struct db *db, const char *job_id, const char *batch_id, struct err *e) WARN_UNUSED;

/* The open ones, oldest first, held or not: what operators see. */
int release_backlog(struct db *db, int64_t limit, struct releases *out, struct err *e) WARN_UNUSED;

#endif
