/* SPDX-License-Identifier: Apache-2.0 */

/* Gallery entries of GET /api/operations: operations contract, section 3. */
#include <math.h>

#include "tests/unit/ops_scene.h"

static const struct gallery_node NODES[] = {
    { .node_id = "1", .node_name = "a", .status = "success", .percentage = 100 },
    { .node_id = "2", .node_name = "b", .status = "queued" },
};

static void a_row_alone_is_shown_whole(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    r->op.error = "slow";
    r->op.node = NODES;
    r->op.nodes = 2;
    const struct op_entry *e = merge_one(s);
    assert_string_equal(e->id, "localai@llama-cpp");
    assert_string_equal(e->job_id, "job");
    assert_string_equal(e->name, "llama-cpp");
    assert_string_equal(e->full_name, "localai@llama-cpp");
    assert_int_equal(e->progress, 25); /* truncated, never scaled */
    assert_int_equal(e->task, OP_TASK_INSTALLATION);
    assert_false(e->is_deletion || e->is_queued);
    assert_true(e->is_backend && e->cancellable);
    assert_string_equal(e->message, "row");
    assert_null(e->node_id);
    assert_null(e->node_name);
    assert_string_equal(e->phase, "pull");
    assert_int_equal(e->current_bytes, 25);
    assert_int_equal(e->total_bytes, 100);
    assert_string_equal(e->error, "slow");
    assert_ptr_equal(e->node, NODES);
    assert_int_equal(e->nodes, 2);
}

/* "then only when not empty/zero: nodeID, phase, currentBytes, totalBytes, error, nodes"; the bytes are left
 * out when they are printed. */
static void what_is_empty_is_left_out(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    r->op.phase = r->op.message = "";
    r->op.current_bytes = r->op.total_bytes = 0;
    const struct op_entry *e = merge_one(s);
    assert_null(e->node_id);
    assert_null(e->phase);
    assert_null(e->error);
    assert_string_equal(e->message, ""); /* but this is always there */
    assert_int_equal(e->current_bytes + e->total_bytes, 0);
    assert_int_equal(e->nodes, 0);
}

static void the_node_of_the_prefix_is_told_apart(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    r->op.cache_key = "node:n-1:oci://quay.io/x:v1";
    const struct op_entry *e = merge_one(s);
    assert_string_equal(e->id, "oci://quay.io/x:v1");
    assert_string_equal(e->full_name, "oci://quay.io/x:v1");
    assert_string_equal(e->node_id, "n-1");
    r->op.cache_key = "node::x";
    e = merge_one(s);
    assert_string_equal(e->id, "node::x");
    assert_null(e->node_id);
}

static void a_deletion_is_called_one(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    r->op.op_type = "model_delete";
    r->op.is_backend_op = false;
    r->op.cancellable = false;
    const struct op_entry *e = merge_one(s);
    assert_int_equal(e->task, OP_TASK_DELETION);
    assert_true(e->is_deletion);
    assert_false(e->is_backend || e->cancellable);
}

/* "LocalAI's own programs leave status at pending while an operation runs; phase tells." */
static void pending_with_a_phase_is_not_queued(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    r->op.status = GALLERY_PENDING;
    assert_false(merge_one(s)->is_queued);
    r->op.phase = "queued";
    assert_true(merge_one(s)->is_queued);
    /* the overlay's phase counts */
    add_op_overlay(s, "job")->op.status = GALLERY_PENDING;
    assert_false(merge_one(s)->is_queued);
}

static void absurd_values_of_a_row_are_clamped(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    static const double GIVEN[] = { -5, NAN, 250, INFINITY, 99.99 };
    static const int WANT[] = { 0, 0, 100, 100, 99 };
    for (int i = 0; i < 5; i++) {
        r->op.progress = GIVEN[i];
        assert_int_equal(merge_one(s)->progress, WANT[i]);
    }
    r->op.current_bytes = INT64_MIN;
    r->op.total_bytes = INT64_MAX;
    assert_int_equal(merge_one(s)->current_bytes, 0);
    assert_int_equal(merge_one(s)->total_bytes, OVERLAY_NUMBER_MAX);
}

/* --- which are shown --- */

static void only_rows_that_matter_now_are_shown(void **state)
{
    static const struct {
        enum gallery_status status;
        int64_t age_s;
        bool dismissed, shown;
    } CASES[] = {
        { GALLERY_PENDING, 1800, false, true },
        { GALLERY_PENDING, 1801, false, false },
        { GALLERY_DOWNLOADING, 1800, false, true },
        { GALLERY_PROCESSING, 1801, false, false },
        { GALLERY_FAILED, 86399, false, true },
        { GALLERY_FAILED, 86400, false, false },
        { GALLERY_FAILED, 5, true, false },
        { GALLERY_COMPLETED, 5, false, false },
        { GALLERY_CANCELLED, 5, false, false },
        { GALLERY_STATUS__COUNT, 5, false, false },
    };
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    r->created_us = 0;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        r->op.status = CASES[i].status;
        r->updated_us = AGO(CASES[i].age_s);
        r->dismissed = CASES[i].dismissed;
        merge(s);
        assert_int_equal(s->out.n, CASES[i].shown);
    }
}

/* "a settled or failed row hides it". */
static void what_has_ended_hides_its_overlay(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    add_op_overlay(s, "job")->stamp_us = NOW;
    static const enum gallery_status OVER[] = { GALLERY_COMPLETED, GALLERY_CANCELLED };
    for (int i = 0; i < 2; i++) {
        r->op.status = OVER[i];
        assert_none(s);
    }
    r->op.status = GALLERY_FAILED;
    r->op.error = "disk full";
    const struct op_entry *e = merge_one(s);
    assert_string_equal(e->message, "row");
    assert_string_equal(e->error, "disk full");
    assert_int_equal(e->progress, 25);
    r->dismissed = true;
    assert_none(s);
}

/* --- row and overlay --- */

/* "The op overlay, when newer, supplies progress, phase, bytes, message, nodes". */
static void a_newer_overlay_supplies_what_is_fresh(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    struct gallery_overlay *o = add_op_overlay(s, "job");
    o->op.node = NODES;
    o->op.nodes = 2;
    o->op.error = "of the overlay";
    o->op.cancellable = false;
    o->op.cache_key = "another";
    r->op.node = &NODES[1];
    r->op.nodes = 1;
    for (int i = 0; i < 2; i++) {
        o->stamp_us = i == 0 ? AGO(1) : r->updated_us; /* and as new: it was made from the row */
        const struct op_entry *e = merge_one(s);
        assert_int_equal(e->progress, 40);
        assert_string_equal(e->phase, "unpack");
        assert_string_equal(e->message, "overlay");
        assert_int_equal(e->current_bytes, 40);
        assert_int_equal(e->total_bytes, 101);
        assert_int_equal(e->nodes, 2);
        assert_string_equal(e->id, "localai@llama-cpp");
        assert_null(e->error);
        assert_true(e->cancellable);
    }
    o->op.progress = 10; /* whoever does the work began anew */
    assert_int_equal(merge_one(s)->progress, 10);
}

/* "under the same no-backwards rule". */
static void a_newer_row_does_not_take_progress_back(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    struct gallery_overlay *o = add_op_overlay(s, "job");
    o->stamp_us = r->updated_us - 1;
    const struct op_entry *e = merge_one(s);
    assert_int_equal(e->progress, 40);
    assert_int_equal(e->current_bytes, 40);
    assert_int_equal(e->total_bytes, 101);
    assert_string_equal(e->phase, "pull");
    assert_string_equal(e->message, "row");
    r->op.progress = 41;
    e = merge_one(s);
    assert_int_equal(e->progress, 41);
    assert_int_equal(e->current_bytes, 25);
    assert_int_equal(e->total_bytes, 100);
}

static void nodes_of_an_older_overlay_stand_where_the_row_has_none(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    struct gallery_overlay *o = add_op_overlay(s, "job");
    o->stamp_us = r->updated_us - 1;
    o->op.node = NODES;
    o->op.nodes = 2;
    assert_int_equal(merge_one(s)->nodes, 2);
    r->op.node = &NODES[1];
    r->op.nodes = 1;
    assert_int_equal(merge_one(s)->nodes, 1);
}

/* Another machine's clock runs ahead: its stamp counts as the moment when the row was read. */
static void a_row_from_the_future_is_as_old_as_its_reading(void **state)
{
    struct scene *s = scene(state);
    add_op(s, "job")->updated_us = NOW + 3600 * US_PER_S;
    struct gallery_overlay *o = add_op_overlay(s, "job");
    assert_string_equal(merge_one(s)->message, "row");
    o->stamp_us = NOW + 1;
    assert_string_equal(merge_one(s)->message, "overlay");
}

/* "An op value holds the whole entry, so that it can be shown without its row." */
static void an_overlay_alone_is_shown_whole(void **state)
{
    struct scene *s = scene(state);
    struct gallery_overlay *o = add_op_overlay(s, "job");
    o->op.node = NODES;
    o->op.nodes = 2;
    for (int up = 0; up < 2; up++) {
        s->in.postgres_up = up == 1;
        const struct op_entry *e = merge_one(s);
        assert_string_equal(e->id, "localai@llama-cpp");
        assert_string_equal(e->job_id, "job");
        assert_int_equal(e->progress, 40);
        assert_true(e->is_backend && e->cancellable);
        assert_string_equal(e->message, "overlay");
        assert_string_equal(e->phase, "unpack");
        assert_int_equal(e->nodes, 2);
    }
}

/* One that was made beside a row says so: that row has been deleted since. While Postgres is down nobody knows. */
static void an_overlay_whose_row_is_gone_is_not_shown(void **state)
{
    struct scene *s = scene(state);
    struct gallery_overlay *o = add_op_overlay(s, "job");
    o->of_row = true;
    assert_none(s);
    s->in.postgres_up = false;
    assert_int_equal(merge_one(s)->progress, 40);
    s->in.postgres_up = true;
    add_op(s, "job");
    assert_int_equal(merge_one(s)->progress, 40);
}

/* A row that lags behind an overlay: by 2 s, and 3 s after the row was written. */
static struct gallery_overlay *add_behind(struct scene *s, const char *id)
{
    add_op(s, id);
    struct gallery_overlay *o = add_op_overlay(s, id);
    o->of_row = true;
    o->stamp_us = AGO(2);
    return o;
}

static void assert_behind(struct scene *s, size_t n)
{
    merge(s);
    assert_int_equal(s->out.n_behind, n);
}

/* The row must have it before the overlay expires: else progress would go back then. */
static void what_only_a_silent_overlay_has_is_still_to_be_kept(void **state)
{
    struct scene *s = scene(state);
    struct gallery_overlay *o = add_behind(s, "job");
    assert_behind(s, 1);
    assert_ptr_equal(s->out.behind[0], o);
    o->stamp_us = NOW - GALLERY_SILENT_US; /* the next report may bring it */
    assert_behind(s, 0);
    o->stamp_us--;
    assert_behind(s, 1);
    o->stamp_us = s->op_row[0].updated_us; /* the row is as new */
    assert_behind(s, 0);
    o->stamp_us = AGO(2);
    o->of_row = false; /* whoever made it, it was not reported here */
    assert_behind(s, 0);
    o->of_row = true;
    s->in.postgres_up = false; /* who knows what the row is by now */
    assert_behind(s, 0);
    s->in.postgres_up = true;
    s->op_row[0].op.status = GALLERY_FAILED;
    assert_behind(s, 0);
    s->op_row[0].op.status = GALLERY_PENDING;
    s->op_row[0].created_us = s->op_row[0].updated_us =
        AGO(4000); /* no longer active but for the overlay */
    assert_behind(s, 1);
}

/* Each report is a little later than what it wrote, but then there is nothing to keep. */
static void a_row_that_shows_the_same_is_not_behind(void **state)
{
    struct scene *s = scene(state);
    struct gallery_overlay *o = add_behind(s, "job");
    struct gallery_op *op = &o->op;
    struct gallery_node node[2] = { NODES[0], NODES[1] };
    for (size_t i = 0; i < 2; i++) {
        node[i].file_name = node[i].current = node[i].total = node[i].phase = node[i].error = "";
    }
    struct gallery_node other[2] = { node[0], node[1] };
    s->op_row[0].op.node = node;
    s->op_row[0].op.nodes = 2;
    *op = s->op_row[0].op;
    op->node = other;
    assert_behind(s, 0);
    op->error = "no matter"; /* the row's word counts */
    op->cancellable = !op->cancellable;
    assert_behind(s, 0);
#define DIFFERS(member, value) \
    do { \
        const typeof(member) was = member; \
        (member) = (value); \
        assert_behind(s, 1); \
        (member) = was; \
        assert_behind(s, 0); \
    } while (0)
    DIFFERS(op->progress, 25.8);
    DIFFERS(op->progress, 26);
    DIFFERS(op->current_bytes, 26);
    DIFFERS(op->total_bytes, 99);
    DIFFERS(op->phase, "x");
    DIFFERS(op->message, "x");
    DIFFERS(op->file_name, "x");
    DIFFERS(op->nodes, 1);
    DIFFERS(other[1].percentage, 1);
    DIFFERS(other[1].status, "error");
    DIFFERS(other[1].node_id, "x");
    DIFFERS(other[1].node_name, "x");
    DIFFERS(other[1].file_name, "x");
    DIFFERS(other[1].current, "x");
    DIFFERS(other[1].total, "x");
    DIFFERS(other[1].phase, "x");
    DIFFERS(other[1].error, "x");
#undef DIFFERS
}

/* Nobody wrote the row for 30 minutes, but somebody reports: it is at work. */
static void a_live_overlay_keeps_a_stale_row_in_view(void **state)
{
    struct scene *s = scene(state);
    struct gallery_row *r = add_op(s, "job");
    r->created_us = r->updated_us = AGO(3600);
    assert_none(s);
    add_op_overlay(s, "job");
    assert_int_equal(merge_one(s)->progress, 40);
}

static void of_two_overlays_of_one_job_the_first_counts(void **state)
{
    struct scene *s = scene(state);
    add_op_overlay(s, "job");
    add_op_overlay(s, "job")->op.progress = 50;
    assert_int_equal(merge_one(s)->progress, 40);
}

/* --- the whole array --- */

/* "progress ascending, then id in byte order, then jobID in byte order". */
static void all_kinds_are_in_one_order(void **state)
{
    struct scene *s = scene(state);
    static const struct {
        const char *job, *cache_key;
        double progress;
    } OPS[] = { { "j2", "b", 40 }, { "j1", "b", 40 }, { "j3", "a", 40 }, { "j0", "z", 39.9 },
        { "j5", "\xC3\xA4", 40 }, { "j4", "b", 41 }, { "j6", "staging:m", 40 } };
    for (int i = 0; i < 7; i++) {
        struct gallery_row *r = add_op(s, OPS[i].job);
        r->op.cache_key = OPS[i].cache_key;
        r->op.progress = OPS[i].progress;
    }
    add_overlay(s, "m");                         /* 40 % */
    add_row(s, "n", LOAD_STAGING);               /* 25 % */
    add_op_overlay(s, "j9")->op.cache_key = "b"; /* 40 % */
    merge(s);
    static const char *const JOBS[] = { "staging:n", "j0", "j3", "j1", "j2", "j9", "j6",
        "staging:m", "j5", "j4" };
    assert_int_equal(s->out.n, 10);
    for (int i = 0; i < 10; i++)
        assert_string_equal(s->out.entry[i].job_id, JOBS[i]);
}

/* A copy's key and a job's id may be the same text. */
static void a_load_and_an_operation_of_one_name_are_two(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "job", LOAD_STAGING);
    add_op(s, "job");
    add_op_overlay(s, "job");
    merge(s);
    assert_int_equal(s->out.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(a_row_alone_is_shown_whole),
        SCENE(what_is_empty_is_left_out),
        SCENE(the_node_of_the_prefix_is_told_apart),
        SCENE(a_deletion_is_called_one),
        SCENE(pending_with_a_phase_is_not_queued),
        SCENE(absurd_values_of_a_row_are_clamped),
        SCENE(only_rows_that_matter_now_are_shown),
        SCENE(what_has_ended_hides_its_overlay),
        SCENE(a_newer_overlay_supplies_what_is_fresh),
        SCENE(a_newer_row_does_not_take_progress_back),
        SCENE(nodes_of_an_older_overlay_stand_where_the_row_has_none),
        SCENE(a_row_from_the_future_is_as_old_as_its_reading),
        SCENE(an_overlay_alone_is_shown_whole),
        SCENE(an_overlay_whose_row_is_gone_is_not_shown),
        SCENE(what_only_a_silent_overlay_has_is_still_to_be_kept),
        SCENE(a_row_that_shows_the_same_is_not_behind),
        SCENE(a_live_overlay_keeps_a_stale_row_in_view),
        SCENE(of_two_overlays_of_one_job_the_first_counts),
        SCENE(all_kinds_are_in_one_order),
        SCENE(a_load_and_an_operation_of_one_name_are_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
