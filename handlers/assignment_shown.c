/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/assignment_shown.h"

#include "base/log.h"
#include "base/str.h"
#include "model/key.h"
#include "store/load_job.h"
#include "store/ready.h"
#include "store/staging.h"

/* Machines with the operations program read their rows again: handlers/operations_app.h. */
static const char ROWS_CHANGED[] = " rows";

static void tell(struct web_req *req)
{
    struct err ignored = ERR_INIT;
    (void)!changes_publish(req->kv, ROWS_CHANGED, &ignored);
}

static void key_of(const struct assignment_row *a, char key[KEY_MAX_BYTES + 1])
{
    (void)!str_format(key, KEY_MAX_BYTES + 1, "%s@%s:%s", a->artifact, a->version, a->node);
}

static void not_shown(const char *key, const struct err *e)
{
    log_debug(LOG_MSG("a copy is not shown"), LOG_S("key", key), LOG_S("error", e->msg));
}

/* The token of its row: the one it has, or a fresh one. -1: there is none, since the tables are only read here, another owns the row, or a
 * store does not answer. */
static int own(struct web_req *req, const struct assignment_row *a, const char *key,
    char token[TOKEN_HEX_SIZE], struct err *e)
{
    cleanup_load_rows struct load_rows rows = LOAD_ROWS_INIT;
    const struct load_claimant who = { .owner = a->node, .overlay_claim = "" };

    if (req->conf->operations_read_only)
        return err_set(e, ERR_FORBIDDEN, "read_only is on");
    if (!str_empty(a->load_fence))
        return str_copy(token, TOKEN_HEX_SIZE, a->load_fence);
    const int rc = load_claim(req->db, key, &who, &rows, token, e);
    if (rc != 0)
        return rc < 0 ? -1 : err_set(e, ERR_CONFLICT, "another owns the row");
    struct err ignored = ERR_INIT;
    (void)!staging_forget(req->kv, key, &ignored);
    return assignment_fence(req->db, a->id, token, e);
}

static void overlay(struct web_req *req, const struct assignment_row *a, const struct shown *s,
    const char *key, const char *claim)
{
    struct err e = ERR_INIT;
    enum report_fate fate = REPORT_APPLIED;
    int64_t offset_us = 0;

    if (!db_clock_offset_us(&offset_us))
        (void)!ready_postgres(req->db, &e);
    const struct report r = { .stamp_us = db_now_us(),
        .node_name = a->node,
        .file_name = s->file_name,
        .speed = s->speed,
        .message = s->message,
        .claim = claim,
        .session = claim == NULL ? a->id : NULL,
        .bytes_sent = a->bytes,
        .total_bytes = a->total_bytes,
        .file_index = s->file_index,
        .total_files = s->total_files };
    if (staging_report(req->kv, key, &r, &fate, &e) < 0)
        not_shown(key, &e);
    if (fate == REPORT_FIRST)
        tell(req);
}

static int write_row(struct web_req *req, const struct assignment_row *a, const struct shown *s,
    struct load_owned load, bool *changed, struct err *e)
{
    cleanup_load_rows struct load_rows rows = LOAD_ROWS_INIT;
    const struct load_update u = { .state = "staging",
        .node_name = a->node,
        .replica_index = -1,
        .bytes_sent = a->bytes,
        .total_bytes = a->total_bytes,
        .file_index = s->file_index,
        .total_files = s->total_files };
    return load_update(req->db, load, &u, &rows, changed, e);
}

/* A row that was given up meanwhile (its node was silent) is claimed anew. */
void assignment_show(struct web_req *req, const struct assignment_row *a, const struct shown *s)
{
    char key[KEY_MAX_BYTES + 1];
    char token[TOKEN_HEX_SIZE];
    char claim[CLAIM_SHORT_SIZE];
    struct err e = ERR_INIT;
    bool changed = false;

    key_of(a, key);
    int rc = own(req, a, key, token, &e);
    if (rc == 0)
        rc = write_row(req, a, s, LOAD_OWNED(key, token), &changed, &e);
    if (rc < 0 && e.code == ERR_CONFLICT && !str_empty(a->load_fence)) {
        struct assignment_row unowned = *a;
        unowned.load_fence = "";
        e.code = ERR_OK;
        rc = own(req, &unowned, key, token, &e);
        if (rc == 0)
            rc = write_row(req, a, s, LOAD_OWNED(key, token), &changed, &e);
    }
    if (rc < 0 && e.code != ERR_FORBIDDEN) {
        not_shown(key, &e);
        return;
    }
    if (rc == 0)
        load_claim_short(token, claim);
    overlay(req, a, s, key, rc == 0 ? claim : NULL);
    if (changed)
        tell(req);
}

void assignment_show_end(struct web_req *req, const struct assignment_row *a, const char *reason)
{
    char key[KEY_MAX_BYTES + 1];
    struct err ignored = ERR_INIT;

    key_of(a, key);
    if (!str_empty(a->load_fence)) {
        const struct load_owned load = LOAD_OWNED(key, a->load_fence);
        const int rc = reason == NULL ? load_done(req->db, load, &ignored)
                                      : load_fail(req->db, load, reason, &ignored);
        if (rc < 0)
            not_shown(key, &ignored);
    }
    (void)!staging_end_load(req->kv, key, &ignored);
    tell(req);
}

void assignment_show_waiting(struct web_req *req, const struct assignment_row *a)
{
    char key[KEY_MAX_BYTES + 1];
    struct err ignored = ERR_INIT;

    key_of(a, key);
    (void)!staging_forget(req->kv, key, &ignored);
    tell(req);
}
