/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/operations_app.h"

#include "base/metrics.h"
#include "base/str.h"
#include "handlers/load_job_json.h"
#include "handlers/text_limits.h"
#include "store/staging.h"

struct staging_body {
    const char *session;
    const char *node_name;
    const char *file_name;
    const char *speed;
    const char *message;
    int64_t bytes_sent;
    int64_t total_bytes;
    int64_t file_index;
    int64_t total_files;
};

static const struct jx_field PUT_FIELDS[] = {
    JX_TEXT(struct staging_body, session, 0, TEXT_MAX_SESSION),
    JX_TEXT(struct staging_body, node_name, JX_REQUIRED, TEXT_MAX_NODE_NAME),
    JX_TEXT(struct staging_body, file_name, 0, TEXT_MAX_FILE_NAME),
    JX_TEXT(struct staging_body, speed, 0, TEXT_MAX_SPEED),
    JX_TEXT(struct staging_body, message, 0, TEXT_MAX_MESSAGE),
    JX_INT(struct staging_body, bytes_sent, 0, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct staging_body, total_bytes, 0, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct staging_body, file_index, 0, 0, INT32_MAX),
    JX_INT(struct staging_body, total_files, 0, 0, INT32_MAX),
};

static const struct jx_field FILE_COMPLETE_FIELDS[] = {
    JX_TEXT(struct staging_body, session, 0, TEXT_MAX_SESSION),
    JX_INT(struct staging_body, file_index, JX_REQUIRED, 1, INT32_MAX),
    JX_INT(struct staging_body, total_files, JX_REQUIRED, 1, INT32_MAX),
};

static const struct staging_body BODY_INIT = {
    .bytes_sent = -1,
    .total_bytes = -1,
    .file_index = -1,
    .total_files = -1,
};

static int report(
    struct web_req *req, const struct staging_body *b, bool file_complete, struct err *e)
{
    enum report_fate fate;
    const char *key = operations_key(req, e);
    if (key == NULL)
        return -1;
    const struct report r = {
        .file_complete = file_complete,
        .stamp_us = operations_stamp_us(req),
        .node_name = b->node_name,
        .file_name = b->file_name,
        .speed = b->speed,
        .message = b->message,
        .session = b->session,
        .bytes_sent = b->bytes_sent,
        .total_bytes = b->total_bytes,
        .file_index = b->file_index,
        .total_files = b->total_files,
    };
    if (staging_report(req->kv, key, &r, &fate, e) < 0)
        return -1;
    metric_add(METRIC_STAGING_REPORTS, 1);
    if (fate == REPORT_FIRST)
        operations_changed(req);
    return 0;
}

int put_staging(struct web_req *req, struct web_reply *reply, struct err *e)
{
    struct staging_body b = BODY_INIT;
    if (web_bind(req, PUT_FIELDS, sizeof(PUT_FIELDS) / sizeof(PUT_FIELDS[0]), JX_STRICT, &b, e) < 0)
        return -1;
    if (report(req, &b, false, e) < 0)
        return -1;
    reply_none(reply);
    return 0;
}

int post_staging_file_complete(struct web_req *req, struct web_reply *reply, struct err *e)
{
    struct staging_body b = BODY_INIT;
    if (web_bind(req, FILE_COMPLETE_FIELDS,
            sizeof(FILE_COMPLETE_FIELDS) / sizeof(FILE_COMPLETE_FIELDS[0]), JX_STRICT, &b, e) < 0)
        return -1;
    if (b.file_index > b.total_files)
        return err_set(e, ERR_INVALID, "file_index: must not be over total_files");
    if (report(req, &b, true, e) < 0)
        return -1;
    reply_none(reply);
    return 0;
}

int delete_staging(struct web_req *req, struct web_reply *reply, struct err *e)
{
    const char *key = operations_key(req, e);
    if (key == NULL || staging_end(req->kv, key, e) < 0)
        return -1;
    operations_changed(req);
    reply_none(reply);
    return 0;
}

int get_staging_list(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_overlays struct overlays found = OVERLAYS_INIT;
    if (staging_list(req->kv, NULL, &found, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(list, overlay_view_json(&found.overlay[i]));
    json_object *answer = jx_object();
    jx_set(answer, "staging", list);
    reply_json(reply, answer);
    return 0;
}

int get_staging(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_overlays struct overlays found = OVERLAYS_INIT;
    const char *key = operations_key(req, e);
    if (key == NULL)
        return -1;
    int rc = staging_get(req->kv, key, &found, e);
    if (rc < 0)
        return -1;
    if (rc == 1)
        return err_set(e, ERR_NOT_FOUND, "nobody reports a copy of %.150s", key);
    reply_json(reply, overlay_view_json(&found.overlay[0]));
    return 0;
}
