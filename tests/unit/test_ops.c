/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/clock.h"
#include "model/ops.h"

#define NOW    INT64_C(1800000000000000)
#define AGO(s) (NOW - (s)*US_PER_S)
#define ONE    "1111111111111111"
#define TWO    "2222222222222222"

enum { MAX = 8 };

/* A merge in the making. */
struct scene {
    struct load_row row[MAX];
    struct overlay overlay[MAX];
    struct ops_input in;
    struct ops_list out;
};

static struct scene *scene(void **state)
{
    return *state;
}

static int set_up(void **state)
{
    struct scene *s = test_calloc(1, sizeof(*s));
    s->in = (struct ops_input){
        .row = s->row, .overlay = s->overlay, .rows_now_us = NOW, .postgres_up = true
    };
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = scene(state);
    ops_list_free(&s->out);
    test_free(s);
    return 0;
}

/* A live row at 25 % of one file. */
static struct load_row *add_row(struct scene *s, const char *key, enum load_state state)
{
    struct load_row *r = &s->row[s->in.rows++];
    *r = (struct load_row){ .key = key,
        .state = state,
        .owner = "front-1",
        .node_id = "node-id",
        .node_name = "row-node",
        .bytes_sent = 25,
        .total_bytes = 100,
        .file_index = 1,
        .total_files = 1,
        .created_us = AGO(30),
        .updated_us = AGO(5),
        .last_error = "" };
    return r;
}

static struct load_row *add_claimed_row(struct scene *s, const char *key, enum load_state state)
{
    struct load_row *r = add_row(s, key, state);
    memcpy(r->claim, ONE, sizeof(ONE));
    return r;
}

/* A fresh overlay at 40 % of one file, newer than the row, without claim or session. */
static struct overlay *add_overlay(struct scene *s, const char *key)
{
    struct overlay *o = &s->overlay[s->in.overlays++];
    *o = (struct overlay){ .key = key,
        .node_name = "overlay-node",
        .file_name = "weights.gguf",
        .speed = "",
        .message = "copying",
        .started_at = "",
        .claim = "",
        .session = "",
        .bytes_sent = 40,
        .total_bytes = 100,
        .file_index = 1,
        .total_files = 1,
        .progress = 40,
        .stamp_us = AGO(1) };
    return o;
}

static struct overlay *add_claimed_overlay(struct scene *s, const char *key, const char *claim)
{
    struct overlay *o = add_overlay(s, key);
    o->claim = claim;
    return o;
}

static void merge(struct scene *s)
{
    ops_list_free(&s->out);
    ops_merge(&s->in, &s->out);
}

/* Merges and returns the only entry. */
static const struct op_entry *merge_one(struct scene *s)
{
    merge(s);
    assert_int_equal(s->out.n, 1);
    return &s->out.entry[0];
}

static void assert_none(struct scene *s)
{
    merge(s);
    assert_int_equal(s->out.n, 0);
}

/* The three cases */

static void nothing_gives_an_empty_list(void **state)
{
    struct scene *s = scene(state);
    assert_none(s);
    s->in.row = NULL;
    s->in.overlay = NULL;
    assert_none(s);
}

static void a_row_alone_is_shown(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "org/model", LOAD_STAGING);
    const struct op_entry *e = merge_one(s);
    assert_string_equal(e->id, "staging:org/model");
    assert_string_equal(e->job_id, "staging:org/model");
    assert_string_equal(e->name, "org/model");
    assert_string_equal(e->full_name, "org/model");
    assert_int_equal(e->progress, 25);
    assert_int_equal(e->task, OP_TASK_STAGING);
    assert_false(e->is_deletion || e->is_backend || e->is_queued || e->cancellable);
    assert_string_equal(e->message, "");
    assert_string_equal(e->node_id, "node-id");
    assert_string_equal(e->node_name, "row-node");
    assert_string_equal(e->phase, "staging");
    assert_int_equal(e->current_bytes, 25);
    assert_int_equal(e->total_bytes, 100);
    assert_null(e->error);
}

static void an_overlay_alone_is_shown_without_node_id_and_phase(void **state)
{
    struct scene *s = scene(state);
    add_overlay(s, "m");
    const struct op_entry *e = merge_one(s);
    assert_string_equal(e->id, "staging:m");
    assert_string_equal(e->job_id, "staging:m");
    assert_string_equal(e->name, "m");
    assert_string_equal(e->full_name, "m");
    assert_int_equal(e->progress, 40);
    assert_int_equal(e->task, OP_TASK_STAGING);
    assert_false(e->is_deletion || e->is_backend || e->is_queued || e->cancellable);
    assert_string_equal(e->message, "copying");
    assert_null(e->node_id);
    assert_string_equal(e->node_name, "overlay-node");
    assert_null(e->phase);
    assert_int_equal(e->current_bytes, 40);
    assert_int_equal(e->total_bytes, 100);
}

static void both_are_one_entry_and_the_overlay_wins(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_STAGING);
    add_overlay(s, "m");
    const struct op_entry *e = merge_one(s);
    assert_string_equal(e->id, "staging:m");
    assert_int_equal(e->progress, 40);
    assert_string_equal(e->message, "copying");
    assert_string_equal(e->node_id, "node-id");
    assert_string_equal(e->node_name, "overlay-node");
    assert_string_equal(e->phase, "staging");
    assert_int_equal(e->current_bytes, 40);
    assert_int_equal(e->total_bytes, 100);
}

static void an_empty_overlay_node_name_leaves_the_rows(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_STAGING);
    add_overlay(s, "m")->node_name = "";
    assert_string_equal(merge_one(s)->node_name, "row-node");
}

static void an_empty_node_id_of_a_row_is_present(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_STAGING)->node_id = "";
    assert_string_equal(merge_one(s)->node_id, "");
}

static void keys_are_matched_whatever_their_order(void **state)
{
    struct scene *s = scene(state);
    static const char *const KEY[] = { "d", "b", "a", "c" };
    for (size_t i = 0; i < 4; i++)
        add_row(s, KEY[i], LOAD_STAGING);
    for (size_t i = 0; i < 4; i++)
        add_overlay(s, KEY[3 - i]);
    add_overlay(s, "aa");
    add_overlay(s, "e");
    merge(s);
    assert_int_equal(s->out.n, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(s->out.entry[i].progress, 40);
        bool alone = strlen(s->out.entry[i].name) == 2 || s->out.entry[i].name[0] == 'e';
        assert_int_equal(s->out.entry[i].phase == NULL, alone);
    }
}

static void neighbouring_keys_do_not_touch_each_other(void **state)
{
    struct scene *s = scene(state);
    add_overlay(s, "b");
    add_row(s, "a", LOAD_STAGING);
    add_row(s, "c", LOAD_LOADING);
    merge(s);
    assert_int_equal(s->out.n, 2);
    assert_string_equal(s->out.entry[0].name, "a");
    assert_int_equal(s->out.entry[0].progress, 25);
    assert_string_equal(s->out.entry[0].message, "");
    assert_string_equal(s->out.entry[1].name, "b");
    assert_null(s->out.entry[1].node_id);
}

static void of_two_overlays_with_one_key_the_first_counts(void **state)
{
    struct scene *s = scene(state);
    add_overlay(s, "m")->message = "first";
    add_overlay(s, "m")->message = "second";
    add_overlay(s, "m")->message = "third";
    assert_string_equal(merge_one(s)->message, "first");
    add_row(s, "m", LOAD_STAGING);
    assert_string_equal(merge_one(s)->message, "first");
}

/* Progress */

static void progress_is_truncated_not_rounded(void **state)
{
    struct scene *s = scene(state);
    struct overlay *o = add_overlay(s, "m");
    o->progress = 99.999;
    assert_int_equal(merge_one(s)->progress, 99);
    o->progress = 0.999;
    assert_int_equal(merge_one(s)->progress, 0);
}

static void progress_is_clamped(void **state)
{
    struct scene *s = scene(state);
    struct overlay *o = add_overlay(s, "m");
    static const struct {
        double given;
        int shown;
    } CASE[] = { { 100, 100 }, { 1e300, 100 }, { -1, 0 }, { -1e300, 0 } };
    for (size_t i = 0; i < sizeof CASE / sizeof CASE[0]; i++) {
        o->progress = CASE[i].given;
        assert_int_equal(merge_one(s)->progress, CASE[i].shown);
    }
    o->progress = NAN;
    assert_int_equal(merge_one(s)->progress, 0);
}

static void progress_of_a_row_counts_its_files(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_row(s, "m", LOAD_STAGING);
    r->file_index = 2;
    r->total_files = 4;
    assert_int_equal(merge_one(s)->progress, 31);
}

/* Limits: state and age of the row */

static void an_orphan_without_overlay_is_not_shown(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_row(s, "m", LOAD_STAGING);
    r->created_us = AGO(100);
    r->updated_us = AGO(60);
    merge_one(s);
    r->updated_us--;
    assert_none(s);
}

static void an_orphan_with_a_counting_overlay_is_shown_merged(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_STAGING);
    r->created_us = AGO(100);
    r->updated_us = AGO(61);
    add_claimed_overlay(s, "m", ONE);
    const struct op_entry *e = merge_one(s);
    assert_string_equal(e->node_id, "node-id");
    assert_int_equal(e->progress, 40);
}

static void an_orphan_with_a_fenced_overlay_is_not_shown(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_STAGING);
    r->created_us = AGO(100);
    r->updated_us = AGO(61);
    add_claimed_overlay(s, "m", TWO);
    assert_none(s);
}

static void age_is_measured_when_the_rows_were_read(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_STAGING);
    s->in.rows_now_us = NOW + 54 * US_PER_S;
    merge_one(s);
    s->in.rows_now_us = NOW + 56 * US_PER_S;
    assert_none(s);
}

static void only_rows_in_staging_are_shown(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_row(s, "m", LOAD_STAGING);
    for (unsigned st = 0; st <= LOAD_STATE__COUNT; st++) {
        r->state = (enum load_state)st;
        merge(s);
        assert_int_equal(s->out.n, st == LOAD_STAGING);
    }
}

static void loading_hides_the_overlay(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_LOADING);
    add_overlay(s, "m");
    assert_none(s);
}

static void loading_hides_the_overlay_of_its_own_claim(void **state)
{
    struct scene *s = scene(state);
    add_claimed_row(s, "m", LOAD_LOADING);
    add_claimed_overlay(s, "m", ONE);
    assert_none(s);
    assert_int_equal(s->out.fenced, 0);
}

static void loading_hides_the_overlay_of_a_session(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_LOADING);
    add_overlay(s, "m")->session = "s-1";
    assert_none(s);
}

static void failed_hides_the_overlay(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_FAILED);
    add_overlay(s, "m");
    assert_none(s);
}

static void failed_hides_the_overlay_as_long_as_the_row_exists(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_FAILED);
    r->created_us = AGO(1000);
    r->updated_us = AGO(900);
    add_claimed_overlay(s, "m", ONE);
    assert_none(s);
}

static void a_hiding_row_hides_also_while_postgres_is_down(void **state)
{
    struct scene *s = scene(state);
    s->in.postgres_up = false;
    add_row(s, "m", LOAD_LOADING);
    add_overlay(s, "m");
    assert_none(s);
}

static void a_hiding_row_hides_every_overlay_of_its_key_only(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_FAILED);
    add_overlay(s, "m");
    add_overlay(s, "m");
    add_overlay(s, "m2");
    assert_string_equal(merge_one(s)->name, "m2");
}

static void assert_hides_nothing(struct scene *s, enum load_state st)
{
    add_claimed_row(s, "m", st);
    add_claimed_overlay(s, "m", ONE);
    const struct op_entry *e = merge_one(s);
    assert_null(e->node_id);
    assert_null(e->phase);
    assert_int_equal(e->progress, 40);
    assert_string_equal(e->node_name, "overlay-node");
}

static void pending_hides_nothing(void **state)
{
    assert_hides_nothing(scene(state), LOAD_PENDING);
}

static void installing_hides_nothing(void **state)
{
    assert_hides_nothing(scene(state), LOAD_INSTALLING);
}

static void a_foreign_state_hides_nothing(void **state)
{
    assert_hides_nothing(scene(state), LOAD_STATE__COUNT);
}

/* Limits: claims */

static void the_overlay_of_the_rows_claim_counts(void **state)
{
    struct scene *s = scene(state);
    add_claimed_row(s, "m", LOAD_STAGING);
    add_claimed_overlay(s, "m", ONE);
    assert_int_equal(merge_one(s)->progress, 40);
    assert_int_equal(s->out.fenced, 0);
}

static void a_dead_owners_overlay_does_not_beat_its_successor(void **state)
{
    struct scene *s = scene(state);
    add_claimed_row(s, "m", LOAD_STAGING);
    add_claimed_overlay(s, "m", TWO);
    const struct op_entry *e = merge_one(s);
    assert_int_equal(e->progress, 25);
    assert_string_equal(e->message, "");
    assert_int_equal(s->out.fenced, 1);
}

static void a_dead_owners_overlay_is_not_shown_beside_a_pending_row(void **state)
{
    struct scene *s = scene(state);
    add_claimed_row(s, "m", LOAD_PENDING);
    add_claimed_overlay(s, "m", TWO);
    assert_none(s);
    assert_int_equal(s->out.fenced, 1);
}

static void a_claims_overlay_does_not_count_beside_an_unclaimed_row(void **state)
{
    struct scene *s = scene(state);
    add_row(s, "m", LOAD_STAGING);
    add_claimed_overlay(s, "m", ONE);
    assert_int_equal(merge_one(s)->progress, 25);
    assert_int_equal(s->out.fenced, 1);
}

static void a_late_write_does_not_bring_a_finished_copy_back(void **state)
{
    struct scene *s = scene(state);
    add_claimed_overlay(s, "m", ONE);
    assert_none(s);
    assert_int_equal(s->out.fenced, 1);
}

static void an_overlay_without_claim_needs_no_row(void **state)
{
    struct scene *s = scene(state);
    add_overlay(s, "none");
    add_overlay(s, "session")->session = "s-1";
    merge(s);
    assert_int_equal(s->out.n, 2);
    assert_int_equal(s->out.fenced, 0);
}

static void an_overlay_without_claim_counts_beside_any_row(void **state)
{
    struct scene *s = scene(state);
    add_claimed_row(s, "m", LOAD_STAGING);
    add_overlay(s, "m")->session = "s-1";
    assert_int_equal(merge_one(s)->progress, 40);
}

static void with_postgres_down_a_claims_overlay_needs_no_row(void **state)
{
    struct scene *s = scene(state);
    s->in.postgres_up = false;
    add_claimed_overlay(s, "m", ONE);
    assert_int_equal(merge_one(s)->progress, 40);
    assert_int_equal(s->out.fenced, 0);
}

static void with_postgres_down_the_last_row_still_fences_other_claims(void **state)
{
    struct scene *s = scene(state);
    s->in.postgres_up = false;
    add_claimed_row(s, "m", LOAD_STAGING);
    add_claimed_overlay(s, "m", TWO);
    add_row(s, "n", LOAD_STAGING);
    add_claimed_overlay(s, "n", TWO);
    merge(s);
    assert_int_equal(s->out.n, 2);
    assert_int_equal(s->out.entry[0].progress, 25);
    assert_int_equal(s->out.entry[1].progress, 25);
    assert_int_equal(s->out.fenced, 2);
}

static void with_postgres_down_the_overlay_of_the_rows_claim_counts(void **state)
{
    struct scene *s = scene(state);
    s->in.postgres_up = false;
    add_claimed_row(s, "m", LOAD_STAGING);
    add_claimed_overlay(s, "m", ONE);
    assert_int_equal(merge_one(s)->progress, 40);
}

/* Limits: progress does not run backwards within one claim */

static void a_newer_row_that_is_further_supplies_progress_and_bytes(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_STAGING);
    r->bytes_sent = 120;
    r->total_bytes = 200;
    r->updated_us = NOW;
    add_claimed_overlay(s, "m", ONE);
    const struct op_entry *e = merge_one(s);
    assert_int_equal(e->progress, 60);
    assert_int_equal(e->current_bytes, 120);
    assert_int_equal(e->total_bytes, 200);
    assert_string_equal(e->message, "copying"); /* stays the overlay's */
    assert_string_equal(e->node_name, "overlay-node");
}

static void a_newer_row_that_is_behind_does_not(void **state)
{
    struct scene *s = scene(state);
    add_claimed_row(s, "m", LOAD_STAGING)->updated_us = NOW;
    add_claimed_overlay(s, "m", ONE);
    const struct op_entry *e = merge_one(s);
    assert_int_equal(e->progress, 40);
    assert_int_equal(e->current_bytes, 40);
}

static void an_older_row_that_is_further_does_not(void **state)
{
    struct scene *s = scene(state);
    add_claimed_row(s, "m", LOAD_STAGING)->bytes_sent = 90;
    add_claimed_overlay(s, "m", ONE);
    assert_int_equal(merge_one(s)->progress, 40);
}

static void a_row_of_the_same_time_does_not(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_STAGING);
    r->bytes_sent = 90;
    r->updated_us = add_claimed_overlay(s, "m", ONE)->stamp_us;
    assert_int_equal(merge_one(s)->progress, 40);
}

static void an_overlay_without_stamp_wins(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_STAGING);
    r->bytes_sent = 90;
    r->updated_us = NOW;
    add_claimed_overlay(s, "m", ONE)->stamp_us = 0;
    assert_int_equal(merge_one(s)->progress, 40);
}

static void further_is_first_by_file_index(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_STAGING);
    r->updated_us = NOW;
    r->file_index = 2;
    r->total_files = 4; /* 31 % */
    add_claimed_overlay(s, "m", ONE);
    assert_int_equal(merge_one(s)->progress, 31);

    r->bytes_sent = 90;
    s->overlay[0].file_index = 3;
    assert_int_equal(merge_one(s)->progress, 40);
}

/* Order */

static void entries_are_sorted_by_progress_then_id(void **state)
{
    struct scene *s = scene(state);
    add_overlay(s, "b");
    add_overlay(s, "a");
    add_overlay(s, "\xC3\xA4"); /* bytes, and as unsigned ones */
    add_overlay(s, "B");
    add_overlay(s, "last")->progress = 41;
    add_overlay(s, "first")->progress = 39.9;
    merge(s);
    static const char *const ORDER[] = { "first", "B", "a", "b", "\xC3\xA4", "last" };
    assert_int_equal(s->out.n, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(s->out.entry[i].name, ORDER[i]);
}

static void what_is_shown_sorts_not_the_fraction(void **state)
{
    struct scene *s = scene(state);
    add_overlay(s, "a")->progress = 40.9;
    add_overlay(s, "b")->progress = 40.1;
    merge(s);
    assert_string_equal(s->out.entry[0].name, "a");
}

#define SCENE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(nothing_gives_an_empty_list),
        SCENE(a_row_alone_is_shown),
        SCENE(an_overlay_alone_is_shown_without_node_id_and_phase),
        SCENE(both_are_one_entry_and_the_overlay_wins),
        SCENE(an_empty_overlay_node_name_leaves_the_rows),
        SCENE(an_empty_node_id_of_a_row_is_present),
        SCENE(keys_are_matched_whatever_their_order),
        SCENE(neighbouring_keys_do_not_touch_each_other),
        SCENE(of_two_overlays_with_one_key_the_first_counts),
        SCENE(progress_is_truncated_not_rounded),
        SCENE(progress_is_clamped),
        SCENE(progress_of_a_row_counts_its_files),
        SCENE(an_orphan_without_overlay_is_not_shown),
        SCENE(an_orphan_with_a_counting_overlay_is_shown_merged),
        SCENE(an_orphan_with_a_fenced_overlay_is_not_shown),
        SCENE(age_is_measured_when_the_rows_were_read),
        SCENE(only_rows_in_staging_are_shown),
        SCENE(loading_hides_the_overlay),
        SCENE(loading_hides_the_overlay_of_its_own_claim),
        SCENE(loading_hides_the_overlay_of_a_session),
        SCENE(failed_hides_the_overlay),
        SCENE(failed_hides_the_overlay_as_long_as_the_row_exists),
        SCENE(a_hiding_row_hides_also_while_postgres_is_down),
        SCENE(a_hiding_row_hides_every_overlay_of_its_key_only),
        SCENE(pending_hides_nothing),
        SCENE(installing_hides_nothing),
        SCENE(a_foreign_state_hides_nothing),
        SCENE(the_overlay_of_the_rows_claim_counts),
        SCENE(a_dead_owners_overlay_does_not_beat_its_successor),
        SCENE(a_dead_owners_overlay_is_not_shown_beside_a_pending_row),
        SCENE(a_claims_overlay_does_not_count_beside_an_unclaimed_row),
        SCENE(a_late_write_does_not_bring_a_finished_copy_back),
        SCENE(an_overlay_without_claim_needs_no_row),
        SCENE(an_overlay_without_claim_counts_beside_any_row),
        SCENE(with_postgres_down_a_claims_overlay_needs_no_row),
        SCENE(with_postgres_down_the_last_row_still_fences_other_claims),
        SCENE(with_postgres_down_the_overlay_of_the_rows_claim_counts),
        SCENE(a_newer_row_that_is_further_supplies_progress_and_bytes),
        SCENE(a_newer_row_that_is_behind_does_not),
        SCENE(an_older_row_that_is_further_does_not),
        SCENE(a_row_of_the_same_time_does_not),
        SCENE(an_overlay_without_stamp_wins),
        SCENE(further_is_first_by_file_index),
        SCENE(entries_are_sorted_by_progress_then_id),
        SCENE(what_is_shown_sorts_not_the_fraction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
