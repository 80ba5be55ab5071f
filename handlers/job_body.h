/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOB_BODY_H
#define WB_JOB_BODY_H

/* The body of a request to create a job, in either dialect, as one value. Jobs contract sections 3 and 4,
 * reference 1.5: fields in snake_case or lowerCamelCase, numbers also as text, unknown fields ignored. */
#include <stdint.h>

#include "base/err.h"
#include "json/jx.h"
#include "model/job_request.h"

struct job_body {
    struct job_request request; /* texts borrowed from the JSON; metadata from pairs */
    const char *model_id;       /* of the template; "" any */
    json_object *metadata;      /* all of these borrowed; NULL when absent */
    json_object *provider_config;
    json_object *injection_config;
    json_object *extra_body;
    struct job_pair *pairs; /* owned */
    json_object *owned;     /* the body in snake_case */
};
void job_body_free(struct job_body *b);
#define cleanup_job_body __attribute__((cleanup(job_body_free)))

/* body may be NULL (nothing was sent). ERR_INVALID naming the field. On failure too *out is to be freed. */
int job_body_read(
    enum job_dialect dialect, json_object *body, struct job_body *out, struct err *e) WARN_UNUSED;

/* o with the names that are in the proto style (lowerCamelCase) turned into snake_case, or the other way
 * round, at every depth but below the keys in KEEP (maps whose keys belong to the user). The caller's. */
json_object *job_snake_case(json_object *o);
json_object *job_camel_case(json_object *o);

#endif
