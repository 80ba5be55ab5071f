/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job_row.h"

#include <stdlib.h>

#include "base/mem.h"
#include "db/db_row.h"

enum col {
    COL_CLOCK,
    COL_ID,
    COL_POOL,
    COL_CREATED_BY,
    COL_NAME,
    COL_ENDPOINT,
    COL_MODEL,
    COL_INPUT_FILE,
    COL_WINDOW,
    COL_REQUEST,
    COL_BATCH_ID,
    COL_PROVISION_KEY,
    COL_ERROR_CODE,
    COL_ERROR,
    COL_BATCH,
    COL_STATE,
    COL_STAMPS,
    COL_SEQ,
    COL_WINDOW_MINUTES,
    COL_ATTEMPTS,
    COL_CREATED,
    COL_QUEUE_DEADLINE,
    COL_EXPIRES,
    COL_NOT_BEFORE,
    COL_CANCEL_REQUESTED,
    COL_FINISHED,
    COL__COUNT
};

_Static_assert(COL__COUNT == (int)JOB_COL_NEXT, "JOB_COLUMNS and the mapper are one list");

/* "1796076736150421 0 1796076736169232": as many as there were states when it was written. */
static int read_stamps(const char *text, int64_t stamp_us[JOB_STATE__COUNT], struct err *e)
{
    for (int s = 0; s < JOB_STATE__COUNT && *text != '\0'; s++) {
        char *end = NULL;
        stamp_us[s] = strtoll(text, &end, 10);
        if (end == text || (*end != ' ' && *end != '\0'))
            return err_set(e, ERR_INTERNAL, "the stamps are '%s'", text);
        text = *end == ' ' ? end + 1 : end;
    }
    return 0;
}

static int read_row(const struct db_rows *rows, int row, struct job *out, struct err *e)
{
    int64_t state = JOB_STATE__COUNT;
    const struct db_int8_at numbers[] = {
        { COL_STATE, &state },
        { COL_SEQ, &out->seq },
        { COL_WINDOW_MINUTES, &out->window_minutes },
        { COL_ATTEMPTS, &out->attempts },
        { COL_CREATED, &out->created_us },
        { COL_QUEUE_DEADLINE, &out->queue_deadline_us },
        { COL_EXPIRES, &out->expires_us },
        { COL_NOT_BEFORE, &out->not_before_us },
        { COL_CANCEL_REQUESTED, &out->cancel_requested_us },
        { COL_FINISHED, &out->finished_us },
    };
    out->id = db_text(rows, row, COL_ID);
    out->pool = db_text(rows, row, COL_POOL);
    out->created_by = db_text(rows, row, COL_CREATED_BY);
    out->name = db_text(rows, row, COL_NAME);
    out->endpoint = db_text(rows, row, COL_ENDPOINT);
    out->model = db_text(rows, row, COL_MODEL);
    out->input_file = db_text(rows, row, COL_INPUT_FILE);
    out->completion_window = db_text(rows, row, COL_WINDOW);
    out->request_json = db_text(rows, row, COL_REQUEST);
    out->batch_id = db_text(rows, row, COL_BATCH_ID);
    out->provision_key = db_text(rows, row, COL_PROVISION_KEY);
    out->error_code = db_text(rows, row, COL_ERROR_CODE);
    out->error = db_text(rows, row, COL_ERROR);
    out->batch_json = db_text(rows, row, COL_BATCH);
    if (db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e) < 0 ||
        read_stamps(db_text(rows, row, COL_STAMPS), out->stamp_us, e) < 0)
        return err_wrap(e, "job %s", out->id);
    if (state < 0 || state >= JOB_STATE__COUNT)
        return err_set(e, ERR_INTERNAL, "job %s is in state %lld", out->id, (long long)state);
    out->state = (enum job_state)state;
    return 0;
}

int job_rows_take(struct db_rows *rows, int64_t limit, struct jobs *out, struct err *e)
{
    cleanup_jobs struct jobs got = JOBS_INIT;
    size_t count = (size_t)db_rows_count(rows);
    got.rows.res = STEAL(rows->res);
    got.more = limit > 0 && count > (size_t)limit;
    if (got.more)
        count = (size_t)limit;
    got.job = mem_calloc(count + 1, sizeof *got.job);
    for (; got.n < count; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.job[got.n], e) < 0)
            return -1;
    }
    if (count > 0) {
        if (db_int8(&got.rows, 0, COL_CLOCK, &got.now_us, e) < 0)
            return -1;
        db_saw_clock(got.now_us);
    }
    HAND_OVER(out, &got, ((struct jobs)JOBS_INIT));
    return 0;
}
