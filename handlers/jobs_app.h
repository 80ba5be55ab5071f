/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOBS_APP_H
#define WB_JOBS_APP_H

/* What the handlers of the jobs program share. Jobs contract, sections 3 and 4. */
#include <stdatomic.h>

#include "base/err.h"
#include "handlers/job_body.h"
#include "store/job.h"
#include "store/job_progress.h"
#include "web/reply.h"
#include "web/request.h"

/* A failure in the words of the address' dialect. */
void jobs_fail(const struct web_req *req, struct web_reply *reply, const struct err *e);

/* Accepts the request: checks, resolves the template, writes the row. *out has the job, *fate whether it is new or
 * was made by the same Idempotency-Key before. ERR_INVALID's text begins with the field's name. */
int jobs_submit(struct web_req *req, const struct job_body *body, struct jobs *out,
    enum job_fate *fate, struct err *e) WARN_UNUSED;

/* The path's {id} as a bare uuid. ERR_NOT_FOUND when it is no id of ours. */
int jobs_path_id(const struct web_req *req, char uuid[UUID_SIZE], struct err *e) WARN_UNUSED;

/* May the caller act on the job? Its owner or an admin: ERR_FORBIDDEN. */
int jobs_may_act(const struct web_req *req, const struct job *j, struct err *e) WARN_UNUSED;

/* What Redis knows of each of the jobs; none of what is not known. The caller frees it. */
struct job_progress *jobs_progress(const struct web_req *req, const struct jobs *j);

/* A whole number of the query, or dflt when it is absent. ERR_INVALID naming it. */
int jobs_query_int(const struct web_req *req, const char *name, int64_t dflt, int64_t *out,
    struct err *e) WARN_UNUSED;

/* ?after as a bare uuid: 1 when absent. ERR_INVALID when it is no id. */
int jobs_query_after(const struct web_req *req, char uuid[UUID_SIZE], struct err *e) WARN_UNUSED;

/* After a commit that leaves the planners something to do. */
void jobs_wake(struct web_req *req, const char *reason);

/* Console dialect. */
int console_list_jobs(struct web_req *req, struct web_reply *reply, struct err *e);
int console_get_job(struct web_req *req, struct web_reply *reply, struct err *e);
int console_create_job(struct web_req *req, struct web_reply *reply, struct err *e);
int console_cancel_job(struct web_req *req, struct web_reply *reply, struct err *e);
int console_job_events(struct web_req *req, struct web_reply *reply, struct err *e);
int console_job_stats(struct web_req *req, struct web_reply *reply, struct err *e);
int console_capabilities(struct web_req *req, struct web_reply *reply, struct err *e);
int console_auth_config(struct web_req *req, struct web_reply *reply, struct err *e);
int console_userinfo(struct web_req *req, struct web_reply *reply, struct err *e);
int console_health(struct web_req *req, struct web_reply *reply, struct err *e);
int console_provisions(struct web_req *req, struct web_reply *reply, struct err *e);
int console_planner(struct web_req *req, struct web_reply *reply, struct err *e);
int console_drain_pool(struct web_req *req, struct web_reply *reply, struct err *e);
int console_resume_pool(struct web_req *req, struct web_reply *reply, struct err *e);

int console_list_models(struct web_req *req, struct web_reply *reply, struct err *e);
int console_create_model(struct web_req *req, struct web_reply *reply, struct err *e);
int console_get_model(struct web_req *req, struct web_reply *reply, struct err *e);
int console_list_templates(struct web_req *req, struct web_reply *reply, struct err *e);
int console_create_template(struct web_req *req, struct web_reply *reply, struct err *e);
int console_get_template(struct web_req *req, struct web_reply *reply, struct err *e);
int console_update_template(struct web_req *req, struct web_reply *reply, struct err *e);
int console_delete_template(struct web_req *req, struct web_reply *reply, struct err *e);
int console_resolve_template(struct web_req *req, struct web_reply *reply, struct err *e);

/* What the program's threads share. */
struct jobs_state {
    atomic_int listing; /* threads that wait for the batch service */
};

/* The batch service's files that the caller may see. */
int file_list(struct web_req *req, struct web_reply *reply, struct err *e);

/* Asked by the web server before it lets a caller to the batch service's files. */
int file_access(struct web_req *req, struct web_reply *reply, struct err *e);

/* OpenAI dialect. */
int openai_list_batches(struct web_req *req, struct web_reply *reply, struct err *e);
int openai_get_batch(struct web_req *req, struct web_reply *reply, struct err *e);
int openai_create_batch(struct web_req *req, struct web_reply *reply, struct err *e);
int openai_cancel_batch(struct web_req *req, struct web_reply *reply, struct err *e);

#endif
