/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/operations_app.h"

#include <string.h>

#include "base/digest.h"
#include "base/metrics.h"
#include "base/str.h"
#include "handlers/load_job_json.h"
#include "handlers/text_limits.h"
#include "store/load_job.h"
#include "store/staging.h"

/* Beside an existing LocalAI its tables are only read. Contract section 6. */
static int check_writable(const struct web_req *req, struct err *e)
{
    if (req->conf->operations_read_only)
        return err_set(e, ERR_FORBIDDEN,
            "read_only is on: load jobs are written by the site's own front ends");
    return 0;
}

static const char *writable_key(const struct web_req *req, struct err *e)
{
    return check_writable(req, e) < 0 ? NULL : operations_key(req, e);
}

int get_load_jobs(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_load_rows struct load_rows found = LOAD_ROWS_INIT;
    if (load_list(req->db, &found, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(list, load_row_to_json(&found.row[i], found.now_us));
    json_object *answer = jx_object();
    jx_set(answer, "load_jobs", list);
    reply_json(reply, answer);
    return 0;
}

int get_load_job(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_load_rows struct load_rows found = LOAD_ROWS_INIT;
    const char *key = operations_key(req, e);
    if (key == NULL || load_get(req->db, key, &found, e) < 0)
        return -1;
    reply_json(reply, load_row_to_json(&found.row[0], found.now_us));
    return 0;
}

/* --- claim --- */

struct claim_body {
    const char *owner;
};

static const struct jx_field CLAIM_FIELDS[] = {
    JX_TEXT(struct claim_body, owner, JX_REQUIRED, TEXT_MAX_OWNER),
};

/* The claim that the key's live overlay carries; "" when there is none, or Redis does not say. */
static void live_claim(struct web_req *req, const char *key, char out[CLAIM_SHORT_SIZE])
{
    cleanup_overlays struct overlays found = OVERLAYS_INIT;
    struct err ignored = ERR_INIT;
    out[0] = '\0';
    if (staging_get(req->kv, key, &found, &ignored) == 0)
        (void)!str_copy(out, CLAIM_SHORT_SIZE, found.overlay[0].claim);
}

int post_load_job_claim(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_load_rows struct load_rows found = LOAD_ROWS_INIT;
    struct claim_body b = { .owner = NULL };
    char overlay_claim[CLAIM_SHORT_SIZE];
    char token[TOKEN_HEX_SIZE];

    const char *key = writable_key(req, e);
    if (key == NULL || web_bind(req, CLAIM_FIELDS, 1, JX_STRICT, &b, e) < 0)
        return -1;
    live_claim(req, key, overlay_claim);
    const struct load_claimant who = { .owner = b.owner, .overlay_claim = overlay_claim };
    int rc = load_claim(req->db, key, &who, &found, token, e);
    if (rc < 0)
        return -1;
    json_object *job = load_row_to_json(&found.row[0], found.now_us);
    jx_set_bool(job, "claimed", rc == 0);
    metric_add(rc == 0 ? METRIC_LOAD_CLAIMS : METRIC_LOAD_CLAIMS_LOST, 1);
    if (rc == 1) {
        reply_json(reply, job);
        return 0;
    }
    struct err ignored = ERR_INIT; /* what stays is fenced by its claim */
    (void)!staging_forget(req->kv, key, &ignored);
    operations_rows_changed(req);
    jx_set_str(job, "claim_token", token);
    reply_created(reply, job);
    return 0;
}

/* --- progress --- */

struct update_body {
    const char *claim_token;
    const char *file_name;
    const char *speed;
    const char *message;
    const char *state;
    const char *node_id;
    const char *node_name;
    int64_t replica_index;
    int64_t bytes_sent;
    int64_t total_bytes;
    int64_t file_index;
    int64_t total_files;
};

/* file_name, speed and message are for the overlay only: the table has no columns for them. */
static const struct jx_field UPDATE_FIELDS[] = {
    JX_TEXT(struct update_body, claim_token, JX_REQUIRED, TEXT_MAX_CLAIM_TOKEN),
    JX_TEXT(struct update_body, state, 0, TEXT_MAX_STATE),
    JX_TEXT(struct update_body, node_id, 0, TEXT_MAX_NODE_ID),
    JX_TEXT(struct update_body, node_name, 0, TEXT_MAX_NODE_NAME),
    JX_INT(struct update_body, replica_index, 0, 0, INT32_MAX),
    JX_INT(struct update_body, bytes_sent, 0, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct update_body, total_bytes, 0, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct update_body, file_index, 0, 0, INT32_MAX),
    JX_INT(struct update_body, total_files, 0, 0, INT32_MAX),
    JX_TEXT(struct update_body, file_name, 0, TEXT_MAX_FILE_NAME),
    JX_TEXT(struct update_body, speed, 0, TEXT_MAX_SPEED),
    JX_TEXT(struct update_body, message, 0, TEXT_MAX_MESSAGE),
};

static int check_state(const struct update_body *b, struct err *e)
{
    enum load_state s = str_empty(b->state) ? LOAD_PENDING : load_state_parse(b->state);
    if (s == LOAD_STATE__COUNT || s == LOAD_FAILED)
        return err_set(e, ERR_INVALID,
            "state: must be pending, installing, staging or loading (to fail a load, POST .../fail)");
    return 0;
}

static int durable_reply(struct web_reply *reply, bool durable)
{
    json_object *answer = jx_object();
    jx_set_bool(answer, "durable", durable);
    reply_json(reply, answer);
    return 0;
}

static struct report report_of(const struct update_body *b, const char *claim, int64_t stamp_us)
{
    return (struct report){
        .stamp_us = stamp_us,
        .node_name = b->node_name,
        .file_name = b->file_name,
        .speed = b->speed,
        .message = b->message,
        .claim = claim,
        .bytes_sent = b->bytes_sent,
        .total_bytes = b->total_bytes,
        .file_index = b->file_index,
        .total_files = b->total_files,
    };
}

/* Postgres does not answer: while an overlay of the same claim lives, its owner is known to be the
 * owner, and may keep it fresh. Everybody else waits for Postgres. */
static int report_without_row(struct web_req *req, const char *key, const struct report *r,
    struct web_reply *reply, struct err *e)
{
    char live[CLAIM_SHORT_SIZE];
    enum report_fate fate;
    struct err ignored = ERR_INIT;
    live_claim(req, key, live);
    if (strcmp(live, r->claim) != 0 || staging_report(req->kv, key, r, &fate, &ignored) < 0)
        return -1; /* with the reason that Postgres gave */
    e->code = ERR_OK;
    return durable_reply(reply, false);
}

/* The overlay follows the row, or goes when nothing is being copied. True when it has what the report
 * says; *now is then how far it is. */
static bool follow_row(struct web_req *req, const struct load_row *row, struct report *r,
    bool changed, struct load_numbers *now)
{
    struct err ignored = ERR_INIT;
    enum report_fate fate = REPORT_APPLIED;
    bool kept = false;

    if (row->state == LOAD_STAGING) {
        r->node_name = row->node_name; /* which is never held back */
        r->row = row;
        kept = staging_report_now(req->kv, row->key, r, &fate, now, &ignored) == 0;
        metric_add(METRIC_STAGING_REPORTS, 1);
    } else {
        (void)!staging_forget(req->kv, row->key, &ignored);
    }
    if (changed || fate == REPORT_FIRST)
        operations_rows_changed(req);
    return kept;
}

struct told {
    struct load_owned load;
    struct load_update *update;
    struct report *report;
    const struct load_rows *rows; /* of load_update() */
    bool changed;
};

/* What was acknowledged must be somewhere: a report that was held back and that the overlay did not take is
 * written after all, and what was held back before, and only the overlay has, goes along with the next
 * report that is written. */
static int write_held_back(struct web_req *req, const struct told *t, struct err *e)
{
    const struct load_rows *told = t->rows;
    struct load_update *u = t->update;
    cleanup_load_rows struct load_rows again = LOAD_ROWS_INIT;
    struct load_numbers now = { 0 };
    const struct load_numbers row = load_row_numbers(&told->row[0]);
    const bool kept = follow_row(req, &told->row[0], t->report, t->changed, &now);
    bool ignored = false;

    if (told->held_back && (kept || !report_has_numbers(t->report)))
        return 0;
    if (!told->held_back) {
        if (!kept || !load_is_further(&now, row.file_index, load_progress_of(&row)))
            return 0;
        u->bytes_sent = now.bytes_sent;
        u->total_bytes = now.total_bytes;
        u->file_index = now.file_index;
        u->total_files = now.total_files;
    }
    u->at_once = true;
    return load_update(req->db, t->load, u, &again, &ignored, e);
}

int put_load_job(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_load_rows struct load_rows found = LOAD_ROWS_INIT;
    struct update_body b = {
        .replica_index = -1,
        .bytes_sent = -1,
        .total_bytes = -1,
        .file_index = -1,
        .total_files = -1,
    };
    char claim[CLAIM_SHORT_SIZE];
    bool changed = false;

    const char *key = writable_key(req, e);
    if (key == NULL ||
        web_bind(req, UPDATE_FIELDS, sizeof(UPDATE_FIELDS) / sizeof(UPDATE_FIELDS[0]), JX_STRICT,
            &b, e) < 0 ||
        check_state(&b, e) < 0)
        return -1;
    load_claim_short(b.claim_token, claim);
    struct report r = report_of(&b, claim, operations_stamp_us(req));
    struct load_update u = {
        .state = b.state,
        .node_id = b.node_id,
        .node_name = b.node_name,
        .replica_index = b.replica_index,
        .bytes_sent = b.bytes_sent,
        .total_bytes = b.total_bytes,
        .file_index = b.file_index,
        .total_files = b.total_files,
    };
    const struct load_owned load = LOAD_OWNED(key, b.claim_token);
    if (load_update(req->db, load, &u, &found, &changed, e) == 0 &&
        write_held_back(req,
            &(struct told){
                .load = load, .update = &u, .report = &r, .rows = &found, .changed = changed },
            e) == 0)
        return durable_reply(reply, true);
    bool staging = str_empty(b.state) || load_state_parse(b.state) == LOAD_STAGING;
    if (staging && (e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT))
        return report_without_row(req, key, &r, reply, e);
    return -1;
}

/* --- ends --- */

struct end_body {
    const char *claim_token;
    const char *error;
};

static const struct jx_field FAIL_FIELDS[] = {
    JX_TEXT(struct end_body, claim_token, JX_REQUIRED, TEXT_MAX_CLAIM_TOKEN),
    JX_TEXT(struct end_body, error, JX_REQUIRED, TEXT_MAX_ERROR),
};

static const struct jx_field DONE_FIELDS[] = {
    JX_TEXT(struct end_body, claim_token, JX_REQUIRED, TEXT_MAX_CLAIM_TOKEN),
};

/* The copy has ended, well or badly. The row says so; an overlay that Redis keeps because it is down
 * is hidden by the row, or fenced by its claim. */
static int ended(struct web_req *req, const char *key, struct web_reply *reply)
{
    struct err ignored = ERR_INIT;
    (void)!staging_end_load(req->kv, key, &ignored);
    operations_rows_changed(req);
    reply_none(reply);
    return 0;
}

int post_load_job_fail(struct web_req *req, struct web_reply *reply, struct err *e)
{
    struct end_body b = { .claim_token = NULL };
    const char *key = writable_key(req, e);
    if (key == NULL || web_bind(req, FAIL_FIELDS, 2, JX_STRICT, &b, e) < 0 ||
        load_fail(req->db, LOAD_OWNED(key, b.claim_token), b.error, e) < 0)
        return -1;
    return ended(req, key, reply);
}

/* Said again after an answer that got lost: the row is gone, its overlay may not be. An overlay that
 * carries another claim belongs to somebody else. */
static bool overlay_is_ours(struct web_req *req, const char *key, const char *token)
{
    char live[CLAIM_SHORT_SIZE];
    char ours[CLAIM_SHORT_SIZE];
    live_claim(req, key, live);
    load_claim_short(token, ours);
    return live[0] == '\0' || strcmp(live, ours) == 0;
}

int delete_load_job(struct web_req *req, struct web_reply *reply, struct err *e)
{
    struct end_body b = { .claim_token = NULL };
    const char *key = writable_key(req, e);
    if (key == NULL || web_bind(req, DONE_FIELDS, 1, JX_STRICT, &b, e) < 0)
        return -1;
    int rc = load_done(req->db, LOAD_OWNED(key, b.claim_token), e);
    if (rc < 0)
        return -1;
    if (rc == 0 || overlay_is_ours(req, key, b.claim_token))
        return ended(req, key, reply);
    reply_none(reply);
    return 0;
}
