/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/operations_app.h"

#include "base/metrics.h"
#include "base/str.h"
#include "handlers/gallery_json.h"
#include "handlers/text_limits.h"
#include "store/gallery.h"
#include "store/gallery_nodes.h"
#include "store/op_overlay.h"

#define STAGING_PREFIX "staging:"

static struct gallery_db rows_of(const struct web_req *req)
{
    return GALLERY_DB(req->db, req->conf->operations_read_only);
}

static const char *job_id(const struct web_req *req, struct err *e)
{
    const char *id = web_param(req, "jobID");
    return gallery_id_check(id, e) < 0 ? NULL : id;
}

/* What the web UI looks for. */
static int succeeded(struct web_reply *reply, const char *message)
{
    json_object *answer = jx_object();
    jx_set_bool(answer, "success", true);
    if (message != NULL)
        jx_set_str(answer, "message", message);
    reply_json(reply, answer);
    return 0;
}

/* --- acting calls: contract section 4 --- */

/* The row is what counts: what Redis does not take is hidden by it. */
static void forget_overlay(struct web_req *req, const char *id)
{
    struct err ignored = ERR_INIT;
    (void)!op_overlay_end(req->kv, id, &ignored);
}

static int stop_operation(struct web_req *req, enum gallery_control control, struct err *e)
{
    struct err ignored = ERR_INIT;
    if (str_starts(web_param(req, "jobID"), STAGING_PREFIX))
        return err_set(e, ERR_INVALID,
            "a copy in progress cannot be stopped here: it belongs to the load that needs it");
    const char *id = job_id(req, e);
    if (id == NULL || gallery_stop(rows_of(req), id, control, e) < 0)
        return -1;
    forget_overlay(req, id);
    (void)!control_publish(req->kv, id, control, &ignored);
    operations_rows_changed(req);
    return 0;
}

int post_operation_cancel(struct web_req *req, struct web_reply *reply, struct err *e)
{
    if (stop_operation(req, GALLERY_CANCEL, e) < 0)
        return -1;
    return succeeded(reply, "Operation cancelled");
}

int post_operation_pause(struct web_req *req, struct web_reply *reply, struct err *e)
{
    if (stop_operation(req, GALLERY_PAUSE, e) < 0)
        return -1;
    return succeeded(reply, "Operation paused");
}

/* Of what is no job's id at all there is nothing to dismiss. */
int post_operation_dismiss(struct web_req *req, struct web_reply *reply, struct err *e)
{
    struct err ignored = ERR_INIT;
    const char *id = job_id(req, &ignored);
    int none = id == NULL ? 1 : gallery_dismiss(req->db, id, e);
    if (none < 0)
        return -1;
    if (none == 0)
        operations_rows_changed(req);
    return succeeded(reply, "Operation dismissed");
}

int get_operation_control(struct web_req *req, struct web_reply *reply, struct err *e)
{
    enum gallery_control control = GALLERY_GO_ON;
    const char *id = job_id(req, e);
    if (id == NULL || gallery_control_get(req->db, id, &control, e) < 0)
        return -1;
    json_object *answer = jx_object();
    jx_set_str(answer, "control", gallery_control_name(control));
    reply_json(reply, answer);
    return 0;
}

int get_operation_history(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_gallery_rows struct gallery_rows ended = GALLERY_ROWS_INIT;
    if (gallery_history(req->db, &ended, e) < 0)
        return -1;
    reply_json(reply, gallery_history_json(&ended));
    return 0;
}

int delete_operation_history(struct web_req *req, struct web_reply *reply, struct err *e)
{
    if (gallery_history_clear(rows_of(req), e) < 0) {
        if (e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT)
            e->code = ERR_NOT_DONE; /* contract section 4: 500, whatever the cause */
        return err_wrap(e, "the history was not cleared");
    }
    operations_rows_changed(req);
    return succeeded(reply, NULL);
}

/* --- calls of who does the work: contract section 5 --- */

struct admission_body {
    const char *id;
    const char *gallery_element_name;
    const char *cache_key;
    const char *op_type;
    const char *user_id;
    int is_backend_op;
    int cancellable;
};

static const struct jx_field ADMISSION_FIELDS[] = {
    JX_TEXT(struct admission_body, id, 0, GALLERY_ID_MAX),
    JX_TEXT(struct admission_body, gallery_element_name, JX_REQUIRED, GALLERY_NAME_MAX),
    JX_TEXT(struct admission_body, cache_key, 0, GALLERY_CACHE_KEY_MAX),
    JX_BOOL(struct admission_body, is_backend_op, 0),
    JX_TEXT(struct admission_body, op_type, JX_REQUIRED, TEXT_MAX_OP_TYPE),
    JX_TEXT(struct admission_body, user_id, 0, GALLERY_USER_MAX),
    JX_BOOL(struct admission_body, cancellable, 0),
};

int post_operation(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_gallery_rows struct gallery_rows admitted = GALLERY_ROWS_INIT;
    struct admission_body b = { .is_backend_op = -1, .cancellable = -1 };
    if (web_bind(req, ADMISSION_FIELDS, sizeof(ADMISSION_FIELDS) / sizeof(ADMISSION_FIELDS[0]),
            JX_STRICT, &b, e) < 0)
        return -1;
    const struct gallery_admission a = {
        .id = b.id,
        .element_name = b.gallery_element_name,
        .cache_key = b.cache_key,
        .op_type = b.op_type,
        .user_id = b.user_id,
        .is_backend_op = b.is_backend_op,
        .cancellable = b.cancellable,
    };
    struct err ignored = ERR_INIT;
    if (gallery_admission_check(&a, e) < 0)
        return -1;
    int known = gallery_admit(rows_of(req), &a, &admitted, e);
    if (known < 0)
        return -1;
    if (known == 0)
        (void)!op_overlay_begin(req->kv, admitted.row[0].op.id, &ignored);
    metric_add(METRIC_OPERATIONS_ADMITTED, 1);
    operations_rows_changed(req);
    reply_created(reply, gallery_row_json(&admitted.row[0]));
    return 0;
}

struct report_body {
    const char *status;
    const char *phase;
    const char *message;
    const char *file_name;
    const char *error;
    double progress;
    int64_t current_bytes;
    int64_t total_bytes;
    int cancellable;
    json_object *nodes;
};

static const struct jx_field REPORT_FIELDS[] = {
    JX_TEXT(struct report_body, status, 0, TEXT_MAX_STATUS),
    JX_DOUBLE(struct report_body, progress, 0, 0, 100),
    JX_TEXT(struct report_body, phase, 0, GALLERY_PHASE_MAX),
    JX_TEXT(struct report_body, message, 0, GALLERY_TEXT_MAX),
    JX_INT(struct report_body, current_bytes, 0, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct report_body, total_bytes, 0, 0, OVERLAY_NUMBER_MAX),
    JX_TEXT(struct report_body, file_name, 0, GALLERY_FILE_MAX),
    JX_BOOL(struct report_body, cancellable, 0),
    JX_TEXT(struct report_body, error, 0, GALLERY_TEXT_MAX),
    JX_RAW(struct report_body, nodes, 0),
};

/* *out borrows from the body. */
static int read_report(const struct web_req *req, struct gallery_report *out, struct err *e)
{
    struct report_body b = {
        .progress = -1.0, .current_bytes = -1, .total_bytes = -1, .cancellable = -1
    };
    const struct gallery_node *node = NULL;
    size_t nodes = 0;
    if (web_bind(req, REPORT_FIELDS, sizeof(REPORT_FIELDS) / sizeof(REPORT_FIELDS[0]), JX_STRICT,
            &b, e) < 0)
        return -1;
    if (b.nodes != NULL && gallery_nodes_read(b.nodes, &node, &nodes, e) < 0)
        return -1;
    *out = (struct gallery_report){
        .status = b.status,
        .progress = b.progress,
        .phase = b.phase,
        .message = b.message,
        .current_bytes = b.current_bytes,
        .total_bytes = b.total_bytes,
        .file_name = b.file_name,
        .cancellable = b.cancellable,
        .error = b.error,
        .has_nodes = b.nodes != NULL,
        .node = node,
        .nodes = nodes,
    };
    return gallery_report_check(out, e);
}

static bool is_end(const struct gallery_report *r)
{
    return !str_empty(r->status) && gallery_is_final(gallery_status_parse(r->status));
}

/* op NULL: Postgres does not say. */
static int reported(struct web_reply *reply, const struct gallery_op *op, bool durable)
{
    json_object *answer = jx_object();
    if (op != NULL)
        jx_set_str(answer, "status", gallery_status_name(op->status));
    jx_set_bool(answer, "settled", op != NULL && gallery_is_settled(op->status));
    jx_set_bool(answer, "durable", durable);
    reply_json(reply, answer);
    return 0;
}

/* Postgres does not answer: an operation whose overlay lives was running a moment ago, and its reports
 * may go on to be shown. How it ends is for Postgres to keep: an overlay takes no final status. */
static int report_without_row(struct web_req *req, const char *id, const struct gallery_report *r,
    struct web_reply *reply, struct err *e)
{
    struct err ignored = ERR_INIT;
    enum report_fate fate;
    const struct op_source from = { .id = id, .row = NULL, .stamp_us = operations_stamp_us(req) };
    if (op_overlay_report(req->kv, &from, r, &fate, &ignored) < 0)
        return -1; /* with the reason that Postgres gave */
    e->code = ERR_OK;
    return reported(reply, NULL, false);
}

/* The overlay follows the row, or goes. True when it has what the report says. */
static bool follow_row(struct web_req *req, const struct gallery_rows *rows,
    const struct gallery_report *r, enum gallery_outcome outcome)
{
    struct err ignored = ERR_INIT;
    enum report_fate fate = REPORT_APPLIED;
    const struct gallery_op *op = &rows->row[0].op;
    bool kept = false;

    if (outcome == GALLERY_TAKEN || outcome == GALLERY_CHANGED) {
        const struct op_source from = { .id = op->id, .row = op, .stamp_us = rows->now_us };
        kept = op_overlay_report(req->kv, &from, r, &fate, &ignored) == 0;
    } else {
        forget_overlay(req, op->id);
    }
    if (!rows_of(req).read_only && (outcome == GALLERY_CHANGED || outcome == GALLERY_ENDED))
        operations_rows_changed(req);
    else if (fate == REPORT_FIRST)
        operations_changed(req);
    return kept;
}

/* What the report does not bring comes from the overlay, where that is ahead of the row: it took what was
 * held back before. False when there is nothing of the kind. out borrows from live. */
static bool take_held_back(const struct op_overlays *live, const struct gallery_op *row,
    const struct gallery_report *r, struct gallery_report *out)
{
    const struct gallery_op *o = &live->overlay[0].op;
    *out = *r;
    if (r->progress >= 0 || o->progress <= row->progress)
        return false;
    out->progress = o->progress;
    if (r->current_bytes < 0)
        out->current_bytes = o->current_bytes;
    if (r->total_bytes < 0)
        out->total_bytes = o->total_bytes;
    if (!r->has_nodes && o->nodes > 0) {
        out->has_nodes = true;
        out->node = o->node;
        out->nodes = o->nodes;
    }
    out->at_once = true;
    return true;
}

/* What was acknowledged must be somewhere: a report that was held back and that the overlay did not take is
 * written after all, and what only the overlay has goes along with the next report that is written. */
static int keep_report(struct web_req *req, const struct gallery_rows *rows,
    const struct gallery_report *r, enum gallery_outcome outcome, struct err *e)
{
    cleanup_gallery_rows struct gallery_rows again = GALLERY_ROWS_INIT;
    cleanup_op_overlays struct op_overlays live = OP_OVERLAYS_INIT;
    struct err ignored = ERR_INIT;
    struct gallery_report more = *r;
    const struct gallery_op *op = &rows->row[0].op;
    const bool writes = !rows_of(req).read_only && outcome <= GALLERY_ENDED && !rows->held_back;

    more.at_once = true;
    /* Before the overlay goes: a failure is shown with how far it came. */
    bool more_known = writes && r->progress < 0 &&
                      op_overlay_get(req->kv, op->id, &live, &ignored) == 0 &&
                      take_held_back(&live, op, r, &more);
    if (more_known && gallery_is_settled(op->status))
        more_known = false; /* it never changes again */
    const bool kept = follow_row(req, rows, r, outcome);
    if (!more_known && (!rows->held_back || kept || rows_of(req).read_only))
        return 0;
    return gallery_progress(rows_of(req), op->id, &more, &again, &outcome, e);
}

int put_operation(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_gallery_rows struct gallery_rows found = GALLERY_ROWS_INIT;
    struct gallery_report r = GALLERY_REPORT_INIT;
    enum gallery_outcome outcome = GALLERY_TAKEN;
    const struct gallery_db rows = rows_of(req);

    const char *id = job_id(req, e);
    if (id == NULL || read_report(req, &r, e) < 0)
        return -1;
    if (rows.read_only && is_end(&r))
        return err_set(e, ERR_FORBIDDEN,
            "read_only is on: how an operation ended is written by the site's own front ends");
    if (gallery_progress(rows, id, &r, &found, &outcome, e) == 0) {
        metric_add(METRIC_OPERATION_REPORTS, 1);
        if (keep_report(req, &found, &r, outcome, e) == 0)
            return reported(reply, &found.row[0].op, !rows.read_only);
    }
    if (e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT)
        return report_without_row(req, id, &r, reply, e);
    return -1;
}
