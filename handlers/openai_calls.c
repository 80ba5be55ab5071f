/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/jobs_app.h"

#include <stdlib.h>

#include "handlers/openai_json.h"
#include "handlers/openai_list.h"
#include "model/job_status.h"

enum { LIMIT = 20, LIMIT_MAX = 100 };

int openai_list_batches(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_jobs struct jobs jobs = JOBS_INIT;
    cleanup_free struct job_progress *progress = NULL;
    char after[UUID_SIZE];
    struct job_filter f = { .after = NULL };
    const int absent = jobs_query_after(req, after, e);
    if (absent < 0 || jobs_query_int(req, "limit", LIMIT, &f.limit, e) < 0)
        return -1;
    if (f.limit < 1 || f.limit > LIMIT_MAX)
        return err_set(e, ERR_INVALID, "limit: must be from 1 to %d", LIMIT_MAX);
    if (absent == 0)
        f.after = after;
    if (job_list(req->db, &f, &jobs, e) < 0)
        return -1;
    progress = jobs_progress(req, &jobs);
    json_object *data = jx_array();
    for (size_t i = 0; i < jobs.n; i++)
        jx_add(data, openai_batch(&jobs.job[i], &progress[i]));
    reply_json(reply, openai_page(data, jobs.more));
    return 0;
}

static void reply_batch(struct web_req *req, struct web_reply *reply, const struct jobs *jobs)
{
    cleanup_free struct job_progress *progress = jobs_progress(req, jobs);
    reply_json(reply, openai_batch(&jobs->job[0], progress));
}

int openai_get_batch(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_jobs struct jobs jobs = JOBS_INIT;
    char id[UUID_SIZE];
    if (jobs_path_id(req, id, e) < 0 || job_get(req->db, id, &jobs, e) < 0)
        return -1;
    reply_batch(req, reply, &jobs);
    return 0;
}

int openai_create_batch(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_jobs struct jobs jobs = JOBS_INIT;
    cleanup_job_body struct job_body body = { .pairs = NULL };
    enum job_fate fate;
    if (job_body_read(DIALECT_OPENAI, req->body, &body, e) < 0 ||
        jobs_submit(req, &body, &jobs, &fate, e) < 0)
        return -1;
    reply_batch(req, reply, &jobs);
    return 0;
}

int openai_cancel_batch(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_jobs struct jobs before = JOBS_INIT;
    cleanup_jobs struct jobs after = JOBS_INIT;
    enum job_state state;
    char id[UUID_SIZE];
    if (jobs_path_id(req, id, e) < 0 || job_get(req->db, id, &before, e) < 0 ||
        jobs_may_act(req, &before.job[0], e) < 0)
        return -1;
    const int ended = job_cancel(req->db, id, req->caller.subject, &state, e);
    if (ended < 0)
        return -1;
    if (ended == 1)
        return err_set(
            e, ERR_CONFLICT, "Cannot cancel a batch with status '%s'.", job_openai_status(state));
    jobs_wake(req, "cancel");
    if (job_get(req->db, id, &after, e) < 0)
        return -1;
    reply_batch(req, reply, &after);
    return 0;
}
