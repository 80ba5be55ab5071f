/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/ops_scene.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
