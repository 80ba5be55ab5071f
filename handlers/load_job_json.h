/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LOAD_JOB_JSON_H
#define WB_LOAD_JOB_JSON_H

/* Load jobs and overlays on the wire. Operations contract, section 5. Results are the caller's. */
#include <stdint.h>

#include "json/jx.h"
#include "model/load_job.h"
#include "model/overlay.h"

/* A row with what follows from it: progress, heartbeat_age_seconds, stalled, and eta_seconds when it
 * means something. Ages are whole seconds, so that polls within a second have one ETag. now_us: when
 * the row was read, by Postgres' clock. */
json_object *load_row_to_json(const struct load_row *r, int64_t now_us);

/* An overlay as it is stored, stamp as a time. */
json_object *overlay_view_json(const struct overlay *o);

#endif
