/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/artifacts_app.h"

#include <string.h>

#include "base/str.h"
#include "handlers/artifact_json.h"
#include "handlers/assignment_shown.h"
#include "handlers/text_limits.h"

enum { TEXT_MAX_SOURCE = 1024, TEXT_MAX_PHASE = 8, TEXT_MAX_BITMAP = 60000, STORED_MAX = 65536 };

/* --- assigning --- */

struct assign_body {
    const char *artifact;
    const char *version;
};

static const struct jx_field ASSIGN_FIELDS[] = {
    JX_TEXT(struct assign_body, artifact, JX_REQUIRED, ARTIFACT_NAME_MAX),
    JX_TEXT(struct assign_body, version, JX_REQUIRED, VERSION_NAME_MAX),
};

int post_assignment(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_assignments struct assignments made = ASSIGNMENTS_INIT;
    struct assign_body b = { .artifact = NULL };
    const char *node = NULL;

    if (artifacts_node(req, &node, e) < 0 ||
        web_bind(req, ASSIGN_FIELDS, 2, JX_STRICT, &b, e) < 0 ||
        artifact_name_check("artifact", b.artifact, ARTIFACT_NAME_MAX, e) < 0 ||
        artifact_name_check("version", b.version, VERSION_NAME_MAX, e) < 0)
        return -1;
    const struct assign a = { node, b.artifact, b.version, req->caller.subject };
    const int there = assignment_make(req->db, &a, &made, e);
    if (there < 0)
        return -1;
    if (there == 0)
        reply_created(reply, assignment_json(&made.row[0]));
    else
        reply_json(reply, assignment_json(&made.row[0]));
    return 0;
}

int get_assignments(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_assignments struct assignments found = ASSIGNMENTS_INIT;
    const char *node = NULL;

    if (artifacts_node(req, &node, e) < 0 || assignment_list(req->db, node, &found, e) < 0)
        return -1;
    json_object *list = jx_array();
    for (size_t i = 0; i < found.n; i++)
        jx_add(list, assignment_json(&found.row[i]));
    json_object *o = jx_object();
    jx_set(o, "assignments", list);
    reply_json(reply, o);
    return 0;
}

int delete_assignment(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_assignments struct assignments now = ASSIGNMENTS_INIT;
    const char *node = NULL;

    if (artifacts_node(req, &node, e) < 0)
        return -1;
    const int before = assignment_cancel(req->db, node, web_param(req, "id"), &now, e);
    if (before < 0)
        return -1;
    if (before == 0)
        assignment_show_end(req, &now.row[0], NULL);
    reply_json(reply, assignment_json(&now.row[0]));
    return 0;
}

/* --- progress --- */

struct progress_body {
    const char *phase;
    const char *verified;
    const char *file_name;
    const char *speed;
    const char *message;
    int64_t bytes;
    int64_t file_index;
    int64_t total_files;
};

static const struct jx_field PROGRESS_FIELDS[] = {
    JX_TEXT(struct progress_body, phase, JX_REQUIRED, TEXT_MAX_PHASE),
    JX_TEXT(struct progress_body, verified, 0, TEXT_MAX_BITMAP),
    JX_TEXT(struct progress_body, file_name, 0, TEXT_MAX_FILE_NAME),
    JX_TEXT(struct progress_body, speed, 0, TEXT_MAX_SPEED),
    JX_TEXT(struct progress_body, message, 0, TEXT_MAX_MESSAGE),
    JX_INT(struct progress_body, bytes, JX_REQUIRED, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct progress_body, file_index, 0, 0, INT32_MAX),
    JX_INT(struct progress_body, total_files, 0, 0, INT32_MAX),
};

static int check_choice(
    const char *name, const char *text, const char *const *choices, struct err *e)
{
    for (const char *const *at = choices; *at != NULL; at++) {
        if (strcmp(*at, text) == 0)
            return 0;
    }
    return err_set(e, ERR_INVALID, "%s: is none of those that there are", name);
}

/* Two hex digits for eight shards, the first in the highest bit. */
static int check_bitmap(struct web_req *req, const char *node, const char *hex, struct err *e)
{
    cleanup_assignments struct assignments now = ASSIGNMENTS_INIT;

    if (hex == NULL)
        return 0;
    if (assignment_get(req->db, node, web_param(req, "id"), &now, e) < 0)
        return -1;
    const size_t want = 2 * (((size_t)now.row[0].shards + 7) / 8);
    if (strlen(hex) != want || strspn(hex, "0123456789abcdef") != want)
        return err_set(e, ERR_INVALID, "verified: must be %zu lower-case hex digits", want);
    return 0;
}

int post_progress(struct web_req *req, struct web_reply *reply, struct err *e)
{
    static const char *const PHASES[] = { "fetch", "verify", "load", "serve", NULL };
    cleanup_assignments struct assignments now = ASSIGNMENTS_INIT;
    struct progress_body b = { .file_index = -1, .total_files = -1 };
    const char *node = NULL;

    if (artifacts_node(req, &node, e) < 0 ||
        web_bind(req, PROGRESS_FIELDS, sizeof PROGRESS_FIELDS / sizeof PROGRESS_FIELDS[0],
            JX_STRICT, &b, e) < 0 ||
        check_choice("phase", b.phase, PHASES, e) < 0 || check_bitmap(req, node, b.verified, e) < 0)
        return -1;
    const struct assignment_progress p = { b.phase, b.verified, b.bytes };
    if (assignment_progress(req->db, node, web_param(req, "id"), &p, &now, e) < 0)
        return -1;
    const struct assignment_row *a = &now.row[0];
    const struct shown s = { b.file_name, b.speed, b.message, b.file_index, b.total_files };
    assignment_show(req, a, &s);
    json_object *o = jx_object();
    jx_set_str(o, "state", a->state);
    jx_set(o, "sources", sources_json(a, req->conf->artifacts_origin));
    reply_json(reply, o);
    return 0;
}

/* --- ends --- */

struct receipt_body {
    const char *digest;
    json_object *per_source;
    json_object *retries;
    json_object *phases;
    int64_t bytes_fetched;
    int64_t bytes_avoided;
};

static const struct jx_field RECEIPT_FIELDS[] = {
    JX_TEXT(struct receipt_body, digest, JX_REQUIRED, DIGEST_TEXT_SIZE),
    JX_INT(struct receipt_body, bytes_fetched, JX_REQUIRED, 0, OVERLAY_NUMBER_MAX),
    JX_INT(struct receipt_body, bytes_avoided, JX_REQUIRED, 0, OVERLAY_NUMBER_MAX),
    JX_RAW(struct receipt_body, per_source, 0),
    JX_RAW(struct receipt_body, retries, 0),
    JX_RAW(struct receipt_body, phases, 0),
};

/* JSON as it came; an empty object when there was none. */
static void print_or_empty(json_object *o, struct buf *out)
{
    if (o == NULL)
        buf_puts(out, "{}");
    else
        jx_print(o, out);
}

int post_receipt(struct web_req *req, struct web_reply *reply, struct err *e)
{
    cleanup_assignments struct assignments now = ASSIGNMENTS_INIT;
    cleanup_buf struct buf sources = BUF_INIT(STORED_MAX);
    cleanup_buf struct buf retries = BUF_INIT(STORED_MAX);
    cleanup_buf struct buf phases = BUF_INIT(STORED_MAX);
    struct receipt_body b = { .digest = NULL };
    const char *node = NULL;

    if (artifacts_node(req, &node, e) < 0 ||
        web_bind(req, RECEIPT_FIELDS, sizeof RECEIPT_FIELDS / sizeof RECEIPT_FIELDS[0], JX_STRICT,
            &b, e) < 0)
        return -1;
    print_or_empty(b.per_source, &sources);
    print_or_empty(b.retries, &retries);
    print_or_empty(b.phases, &phases);
    const struct receipt r = { b.digest, sources.data, retries.data, phases.data, b.bytes_fetched,
        b.bytes_avoided };
    const int before = assignment_receive(req->db, node, web_param(req, "id"), &r, &now, e);
    if (before < 0)
        return -1;
    assignment_show_end(req, &now.row[0], NULL);
    if (before == 0)
        reply_created(reply, assignment_json(&now.row[0]));
    else
        reply_json(reply, assignment_json(&now.row[0]));
    return 0;
}

struct failure_body {
    const char *class;
    const char *reason;
    const char *source;
};

static const struct jx_field FAILURE_FIELDS[] = {
    JX_TEXT(struct failure_body, class, JX_REQUIRED, TEXT_MAX_STATE),
    JX_TEXT(struct failure_body, reason, JX_REQUIRED, TEXT_MAX_ERROR),
    JX_TEXT(struct failure_body, source, 0, TEXT_MAX_SOURCE),
};

int post_failure(struct web_req *req, struct web_reply *reply, struct err *e)
{
    static const char *const CLASSES[] = { "retryable", "source_fatal", "task_fatal", NULL };
    cleanup_assignments struct assignments now = ASSIGNMENTS_INIT;
    struct failure_body b = { .source = NULL };
    const char *node = NULL;

    if (artifacts_node(req, &node, e) < 0 ||
        web_bind(req, FAILURE_FIELDS, 3, JX_STRICT, &b, e) < 0 ||
        check_choice("class", b.class, CLASSES, e) < 0)
        return -1;
    if (str_empty(b.reason))
        return err_set(e, ERR_INVALID, "reason: must not be empty");
    const struct attempt_failure f = { b.class, b.reason, b.source == NULL ? "" : b.source };
    if (assignment_fail(req->db, node, web_param(req, "id"), &f, &now, e) < 0)
        return -1;
    if (strcmp(now.row[0].state, "failed") == 0)
        assignment_show_end(req, &now.row[0], b.reason);
    else
        assignment_show_waiting(req, &now.row[0]);
    reply_json(reply, assignment_json(&now.row[0]));
    return 0;
}
