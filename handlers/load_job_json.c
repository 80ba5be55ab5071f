/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/load_job_json.h"

#include <math.h>

#include "handlers/json_text.h"

/* What follows from the row and the time. */
static void set_derived(json_object *o, const struct load_row *r, int64_t now_us)
{
    double eta_s = 0;
    jx_set_double(
        o, "progress", load_progress(r->bytes_sent, r->total_bytes, r->file_index, r->total_files));
    jx_set_int(o, "heartbeat_age_seconds", (int64_t)load_heartbeat_age_s(r, now_us));
    jx_set_bool(o, "stalled", load_is_stalled(r, now_us));
    if (load_eta_s(r, now_us, &eta_s))
        jx_set_int(o, "eta_seconds", (int64_t)fmin(ceil(eta_s), (double)OVERLAY_NUMBER_MAX));
}

json_object *load_row_to_json(const struct load_row *r, int64_t now_us)
{
    json_object *o = jx_object();
    json_set_text(o, "tracking_key", r->key);
    jx_set_str(o, "state", load_state_name(r->state));
    json_set_text(o, "owner_replica", r->owner);
    json_set_text(o, "node_id", r->node_id);
    json_set_text(o, "node_name", r->node_name);
    jx_set_int(o, "replica_index", r->replica_index);
    jx_set_int(o, "bytes_sent", r->bytes_sent);
    jx_set_int(o, "total_bytes", r->total_bytes);
    jx_set_int(o, "file_index", r->file_index);
    jx_set_int(o, "total_files", r->total_files);
    json_set_time(o, "started_at", r->started_us);
    json_set_time(o, "last_progress", r->last_progress_us);
    json_set_time(o, "created_at", r->created_us);
    json_set_time(o, "updated_at", r->updated_us);
    json_set_text(o, "last_error", r->last_error);
    set_derived(o, r, now_us);
    return o;
}

json_object *overlay_view_json(const struct overlay *o)
{
    json_object *json = jx_object();
    json_set_text(json, "model_id", o->key);
    json_set_text(json, "node_name", o->node_name);
    json_set_text(json, "file_name", o->file_name);
    jx_set_int(json, "bytes_sent", o->bytes_sent);
    jx_set_int(json, "total_bytes", o->total_bytes);
    jx_set_double(json, "progress", o->progress);
    json_set_text(json, "speed", o->speed);
    jx_set_int(json, "file_index", o->file_index);
    jx_set_int(json, "total_files", o->total_files);
    json_set_text(json, "message", o->message);
    json_set_text(json, "started_at", o->started_at);
    json_set_text(json, "claim", o->claim);
    json_set_text(json, "session", o->session);
    json_set_time(json, "stamp", o->stamp_us);
    return json;
}
