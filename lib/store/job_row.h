/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_ROW_H
#define WB_JOB_ROW_H

/* How a job is selected and read: one list of columns, one mapper. j is the row of job, r that of job_run (all
 * NULL once the job has ended), p that of pool. */
#include "db/db.h"
#include "store/job.h"
#include "store/sql_time.h"

/* The columns of job_rows_take(). */
#define JOB_COLUMNS SQL_CLOCK JOB_TEXTS JOB_NUMBERS JOB_TIMES
#define JOB_TEXTS \
    ", j.id, p.name, j.created_by, j.name, j.endpoint, j.model, j.input_file," \
    " j.completion_window, j.request, coalesce(r.batch_id, j.batch_id)," \
    " coalesce(r.provision_key, j.provision_key), coalesce(r.error_code, j.error_code)," \
    " coalesce(r.error, j.error), coalesce(r.batch, j.batch)"
#define JOB_NUMBERS \
    ", coalesce(r.state, j.final_state)," \
    " array_to_string(coalesce(r.stamps, j.stamps), ' ', '0'), j.seq, j.window_minutes," \
    " coalesce(r.attempts, j.attempts, 0)"
#define JOB_TIMES \
    JOB_TIME("j.created_at") \
    JOB_TIME("r.queue_deadline") \
    JOB_TIME("coalesce(r.expires_at, j.expires_at)") \
    JOB_TIME("r.not_before") \
    JOB_TIME("coalesce(r.cancel_requested_at, j.cancel_requested_at)") \
    JOB_TIME("j.finished_at")
#define JOB_TIME(time) ", " SQL_US(time)

#define JOB_JOINS_WITH(run) \
    " JOIN pool p ON p.id = j.pool_id LEFT JOIN " run " r ON r.job_id = j.id"
#define JOB_JOINS JOB_JOINS_WITH("job_run")

enum { JOB_COL_NEXT = 26 }; /* the first column after these, if a statement has any */

/* Reads all rows, which it consumes. limit: rows behind it only say that there are more; 0: none. */
int job_rows_take(struct db_rows *rows, int64_t limit, struct jobs *out, struct err *e) WARN_UNUSED;

#endif
