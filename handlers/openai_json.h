/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPENAI_JSON_H
#define WB_OPENAI_JSON_H

/* Jobs as a client of OpenAI's batch API knows them. Jobs contract, section 4; reference 1.14. */
#include "json/jx.h"
#include "model/job.h"
#include "store/job_progress.h"

/* A batch object; its id is the job's. progress: NULL when there is none. The caller's. */
json_object *openai_batch(const struct job *j, const struct job_progress *progress);

#endif
