/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/ops_scene.h"

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

static void absurd_bytes_of_a_row_are_clamped(void **state)
{
    static const int64_t GIVEN[] = { INT64_MIN, -1, 0, OVERLAY_NUMBER_MAX, OVERLAY_NUMBER_MAX + 1,
        INT64_MAX };
    static const int64_t WANT[] = { 0, 0, 0, OVERLAY_NUMBER_MAX, OVERLAY_NUMBER_MAX,
        OVERLAY_NUMBER_MAX };
    struct scene *s = scene(state);
    struct load_row *r = add_row(s, "m", LOAD_STAGING);
    for (size_t i = 0; i < sizeof GIVEN / sizeof GIVEN[0]; i++) {
        r->bytes_sent = r->total_bytes = GIVEN[i];
        ops_list_free(&s->out);
        ops_merge(&s->in, &s->out);
        assert_int_equal(s->out.n, 1);
        assert_int_equal(s->out.entry[0].current_bytes, WANT[i]);
        assert_int_equal(s->out.entry[0].total_bytes, WANT[i]);
    }
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

/* Report 25: what the row says of the end counts, whatever is left in Redis. */
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

/* "A failed row older than 15 s counts as gone for claims and reads, whether or not it has been deleted yet": nobody
 * deletes it where no housekeeping runs, and the next copy of that model must show. */
static void what_is_reported_after_a_failed_row_counts_as_gone_is_another_copy(void **state)
{
    static const struct {
        int64_t failed_s, reported_s;
        const char *claim;
        bool shown;
    } CASES[] = {
        { 900, 1, "", true },
        { 900, 1, ONE, false }, /* of the load that failed, however late */
        { 900, 1, TWO, false }, /* of one that has no row */
        { 16, 0, "", true },
        { 15, 0, "", false },  /* it is not gone yet */
        { 30, 16, "", false }, /* left behind by what failed, or late by little */
        { 30, 15, "", false },
        { 30, 14, "", true },
    };
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_FAILED);
    struct overlay *o = add_overlay(s, "m");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        r->created_us = AGO(1000);
        r->updated_us = AGO(CASES[i].failed_s);
        o->stamp_us = AGO(CASES[i].reported_s);
        o->claim = CASES[i].claim;
        merge(s);
        assert_int_equal(s->out.n, CASES[i].shown);
    }
    o->claim = "";
    o->stamp_us = 0; /* another program's, who names no time: the row is gone all the same */
    const struct op_entry *e = merge_one(s);
    assert_int_equal(e->progress, 40);
    assert_null(e->node_id);
    assert_null(e->phase);
    r->state = LOAD_LOADING; /* but such a row is never gone */
    assert_none(s);
}

/* Postgres' rows cannot change while it is down: a claim may have come since, but not that one. */
static void the_claim_of_a_failed_load_counts_at_no_time(void **state)
{
    struct scene *s = scene(state);
    struct load_row *r = add_claimed_row(s, "m", LOAD_FAILED);
    r->created_us = r->updated_us = AGO(900);
    s->in.postgres_up = false;
    add_claimed_overlay(s, "m", ONE);
    assert_none(s);
    s->overlay[0].claim = TWO;
    assert_int_equal(merge_one(s)->progress, 40);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(nothing_gives_an_empty_list),
        SCENE(a_row_alone_is_shown),
        SCENE(absurd_bytes_of_a_row_are_clamped),
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
        SCENE(what_is_reported_after_a_failed_row_counts_as_gone_is_another_copy),
        SCENE(the_claim_of_a_failed_load_counts_at_no_time),
        SCENE(a_hiding_row_hides_also_while_postgres_is_down),
        SCENE(a_hiding_row_hides_every_overlay_of_its_key_only),
        SCENE(pending_hides_nothing),
        SCENE(installing_hides_nothing),
        SCENE(a_foreign_state_hides_nothing),
        SCENE(entries_are_sorted_by_progress_then_id),
        SCENE(what_is_shown_sorts_not_the_fraction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
