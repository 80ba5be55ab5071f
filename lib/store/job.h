/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_JOB_H
#define WB_STORE_JOB_H

/* Jobs as users see them: submit, read, list, cancel, history. Jobs contract, sections 2, 3 and 4. For
 * handlers: no call here needs a planner. Errors are those of db.h; ids are bare uuids (model/job.h turns wire
 * ids into them). A struct db belongs to one thread; different threads may do the same at once. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "model/job.h"

extern const struct db_stmts JOB_STMTS;
extern const struct db_stmts JOB_LIST_STMTS; /* of job_list() */

/* Jobs with what they borrow from. */
struct jobs {
    struct job *job;
    size_t n;
    int64_t now_us; /* Postgres' time when they were read */
    bool more;      /* of a list: further ones follow */
    struct db_rows rows;
};
#define JOBS_INIT \
    { \
        .job = NULL, .n = 0, .now_us = 0, .more = false, .rows = DB_ROWS_INIT \
    }
void jobs_free(struct jobs *j);
#define cleanup_jobs __attribute__((cleanup(jobs_free)))

/* What was asked, checked already (model/job_request.h). Texts borrowed; NULL counts as "". */
struct job_new {
    const char *created_by;
    const char *pool;   /* "": default */
    const char *tenant; /* for quotas and fairness; "": created_by */
    const char *name;
    const char *endpoint;
    const char *model;
    const char *input_file;
    bool any_file; /* may name a file of somebody else's: an admin */
    const char *completion_window;
    int64_t window_minutes;
    int64_t queue_deadline_s; /* [planner] queue_deadline_s */
    int64_t priority;
    int64_t replicas;
    int64_t gpus; /* of each replica */
    const char *gpu_type;
    const char *request_json; /* as in struct job */
    const char *idem_key;     /* NULL: none */
    const char *idem_hash;    /* of the body, with a key */
};

enum job_fate { JOB_FATE_NEW, JOB_FATE_SAME };

/* Accepts a job: 0 after the commit, *out has the one job, *fate says whether it is new or the one that the
 * same user's same key and same hash made before. ERR_CONFLICT when the key was used with another hash,
 * ERR_INVALID when there is no such pool, ERR_FORBIDDEN when the file is not created_by's and any_file is not set
 * (job_file_access). Of any number of callers with one key at a moment exactly one makes
 * the job. ERR_UNAVAILABLE and ERR_TIMEOUT leave it open whether it was accepted: with a key the caller may
 * just ask again. Locks no row of others but the counters' slots; waits for one that names the same new file. */
int job_enqueue(struct db *db, const struct job_new *j, struct jobs *out, enum job_fate *fate,
    struct err *e) WARN_UNUSED;

/* The job that a user's Idempotency-Key made before: 0; 1 none; ERR_CONFLICT when it was made by a request of another
 * hash. */
int job_of_key(struct db *db, const char *created_by, const char *key, const char *hash,
    struct jobs *out, struct err *e) WARN_UNUSED;

/* One job, live or ended. ERR_NOT_FOUND. */
int job_get(struct db *db, const char *id, struct jobs *out, struct err *e) WARN_UNUSED;

/* How many due or delayed jobs stand before a queued one in its pool, plus 1, at most 1000; 0 when it is not
 * queued. */
int job_queue_position(struct db *db, const char *id, int64_t *out, struct err *e) WARN_UNUSED;

/* A page, newest first by (created_at, id). */
struct job_filter {
    const char *after;      /* id of the job before the page; NULL: from the newest */
    int64_t limit;          /* 1 ... 200 */
    unsigned states;        /* bits 1 << enum job_state; 0: all */
    const char *created_by; /* NULL: anyone */
    const char *q; /* NULL, or: a (wire) id, or a prefix of a name among the newest 10,000 jobs */
};
/* ERR_INVALID when after names no job. An empty page never has more. */
int job_list(
    struct db *db, const struct job_filter *f, struct jobs *out, struct err *e) WARN_UNUSED;

/* Cancels: one statement, which waits for a result that is just being written. *state: cancelled (it was
 * queued and has ended with this call) or cancelling. 1 when it had ended before: *state is how. Said again it
 * changes nothing. ERR_NOT_FOUND. Where a batch is known the intent to cancel it is written with it. The
 * version of the row is not raised, so that a result in flight still lands. */
int job_cancel(struct db *db, const char *id, const char *actor, enum job_state *state,
    struct err *e) WARN_UNUSED;

/* The audit trail of a job, oldest first. */
struct job_happening {
    enum job_state from; /* JOB_NONE: the enqueue */
    enum job_state to;
    enum job_event event;
    int64_t at_us;
    int64_t epoch;
    const char *actor;
    const char *detail_json; /* "" when none */
};
struct job_history {
    struct job_happening *happening;
    size_t n;
    struct db_rows rows;
};
#define JOB_HISTORY_INIT \
    { \
        .happening = NULL, .n = 0, .rows = DB_ROWS_INIT \
    }
void job_history_free(struct job_history *h);
#define cleanup_job_history __attribute__((cleanup(job_history_free)))
/* ERR_NOT_FOUND when there is no such job. */
int job_events(struct db *db, const char *id, struct job_history *out, struct err *e) WARN_UNUSED;

/* Counts by state, from counters. */
int job_stats(struct db *db, int64_t count[JOB_STATE__COUNT], struct err *e) WARN_UNUSED;

/* Does any job name the file (as input, output or errors), and is it user's? It belongs to whoever owns the job that
 * it came out of, or else the first that named it; with a job without a creator, to everyone. */
int job_file_access(struct db *db, const char *file_id, const char *user, bool *named, bool *owned,
    struct err *e) WARN_UNUSED;

/* By the same rule, of many: seen[i] for the ith of n ids, the text of a JSON array, whether user may read the file. */
int job_files_seen(struct db *db, const char *ids_json, const char *user, size_t n, bool *seen,
    struct err *e) WARN_UNUSED;

#endif
