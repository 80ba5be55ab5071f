/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CONSOLE_JSON_H
#define WB_CONSOLE_JSON_H

/* Jobs as the AIBrix Console's API writes them (grpc-gateway): lowerCamelCase, every field present, int64 as
 * text, int32 as numbers, null for messages that are unset. Jobs contract, section 3; reference 1.2 and 1.4.
 * Results are the caller's. Pure but for json-c. */
#include "json/jx.h"
#include "model/job.h"
#include "store/job.h"
#include "store/job_progress.h"
#include "store/provision.h"

/* What is shown beside the job's own rows. NULL: not known, or not asked for. */
struct console_extras {
    const struct job_progress *progress;
    const struct provision *provision;
    const struct job_history *history;
    int64_t queue_position; /* 0: not queued */
};

json_object *console_job(const struct job *j, const struct console_extras *x);
json_object *console_provision(const struct provision *p);

/* The audit trail: {"events":[{from,to,event,at,actor,epoch,detail}]}. */
json_object *console_history(const struct job_history *h);

/* int64 as text. */
void console_set_int64(json_object *o, const char *key, int64_t n);

#endif
