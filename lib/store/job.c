/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job.h"

void jobs_free(struct jobs *j)
{
    free(j->job);
    db_rows_free(&j->rows);
}

void job_history_free(struct job_history *h)
{
    free(h->happening);
    db_rows_free(&h->rows);
}

const struct db_stmts JOB_STMTS = { NULL, 0 };

int job_enqueue(
    struct db *db, const struct job_new *j, struct jobs *out, enum job_fate *fate, struct err *e)
{
    (void)db;
    (void)j;
    (void)out;
    (void)fate;
    return err_set(e, ERR_UNAVAILABLE, "job_enqueue: not there yet");
}

int job_get(struct db *db, const char *id, struct jobs *out, struct err *e)
{
    (void)db;
    (void)id;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "job_get: not there yet");
}

int job_queue_position(struct db *db, const char *id, int64_t *out, struct err *e)
{
    (void)db;
    (void)id;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "job_queue_position: not there yet");
}

int job_list(struct db *db, const struct job_filter *f, struct jobs *out, struct err *e)
{
    (void)db;
    (void)f;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "job_list: not there yet");
}

int job_cancel(
    struct db *db, const char *id, const char *actor, enum job_state *state, struct err *e)
{
    (void)db;
    (void)id;
    (void)actor;
    (void)state;
    return err_set(e, ERR_UNAVAILABLE, "job_cancel: not there yet");
}

int job_events(struct db *db, const char *id, struct job_history *out, struct err *e)
{
    (void)db;
    (void)id;
    (void)out;
    return err_set(e, ERR_UNAVAILABLE, "job_events: not there yet");
}

int job_stats(struct db *db, int64_t count[JOB_STATE__COUNT], struct err *e)
{
    (void)db;
    (void)count;
    return err_set(e, ERR_UNAVAILABLE, "job_stats: not there yet");
}

int job_file_access(
    struct db *db, const char *file_id, const char *user, bool *named, bool *owned, struct err *e)
{
    (void)db;
    (void)file_id;
    (void)user;
    (void)named;
    (void)owned;
    return err_set(e, ERR_UNAVAILABLE, "job_file_access: not there yet");
}
