/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_ASKED_H
#define WB_ASKED_H

/* What the user asked for, read from the job's cold row when a step needs it. */
#include "batch/batch_client.h"
#include "plan/task.h"
#include "provision/hooks.h"
#include "store/job.h"

struct asked {
    struct jobs jobs;
    const struct job *job;
    json_object *request; /* of job->request_json; never NULL once filled */
    struct hook_job hook; /* borrows from request */
};
#define ASKED_INIT \
    { \
        .jobs = JOBS_INIT, .job = NULL, .request = NULL, .hook = {.spec = NULL } \
    }
void asked_fini(struct asked *a);
#define cleanup_asked __attribute__((cleanup(asked_fini)))

/* Reads a job. Errors of the store; ERR_INTERNAL when the request cannot be read. */
int asked_get(struct hand *h, const char *id, struct asked *out, struct err *e) WARN_UNUSED;

/* How the hooks see a request. *out borrows from request and model. */
void asked_hook(json_object *request, const char *model, struct hook_job *out);

/* A member that is an object, or NULL. */
json_object *asked_object(json_object *o, const char *key);

/* What the batch is created from, but for runtime, allocation and window: these are the caller's to add. *out borrows
 * from a. */
void asked_batch(const struct asked *a, struct batch_create *out);

/* Where faults may be injected: those that the job asks for, into t->faults. */
void asked_faults(struct task *t, struct hand *h);

#endif
