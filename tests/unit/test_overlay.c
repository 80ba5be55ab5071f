/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/digest.h"
#include "base/str.h"
#include "model/overlay.h"
#include "tests/unit/overlay_scene.h"

static struct report from(const char *session)
{
    struct report r = REPORT_INIT;
    r.session = session;
    r.stamp_us = STAMP;
    return r;
}

/* The result of a report, with what it borrows from. */
static struct overlay_scratch scratch;

static struct overlay apply(
    const struct overlay *old, const struct report *r, enum report_fate want)
{
    struct overlay out = { .key = "untouched" };
    assert_int_equal(overlay_apply("m", old, r, &scratch, &out), want);
    if (want == REPORT_APPLIED || want == REPORT_FIRST)
        assert_string_equal(out.key, "m");
    else
        assert_string_equal(out.key, "untouched");
    return out;
}

/* First reports */

static void a_start_without_file_says_preparing(void **state)
{
    (void)state;
    struct report r = from("s-1");
    r.node_name = "node";
    struct overlay o = apply(NULL, &r, REPORT_FIRST);
    assert_string_equal(o.node_name, "node");
    assert_string_equal(o.message, "Preparing to stage model files");
    assert_string_equal(o.file_name, "");
    assert_string_equal(o.speed, "");
    assert_string_equal(o.session, "s-1");
    assert_string_equal(o.claim, "");
    assert_string_equal(o.started_at, TIME);
    assert_int_equal(o.stamp_us, STAMP);
    assert_int_equal(o.bytes_sent, 0);
    assert_int_equal(o.total_bytes, 0);
    assert_int_equal(o.file_index, 0);
    assert_int_equal(o.total_files, 0);
    assert_true(o.progress == 0.0);
    assert_true(overlay_is_sane(&o));
}

static void a_report_with_neither_session_nor_claim_is_a_sender_too(void **state)
{
    (void)state;
    struct report r = from(NULL);
    struct overlay o = apply(NULL, &r, REPORT_FIRST);
    assert_string_equal(o.session, "");
    r.stamp_us++;
    apply(&o, &r, REPORT_APPLIED);
    r.session = "";
    apply(&o, &r, REPORT_APPLIED);
}

static void an_unknown_time_leaves_started_at_empty(void **state)
{
    (void)state;
    struct report r = from("s-1");
    r.stamp_us = 0;
    assert_string_equal(apply(NULL, &r, REPORT_FIRST).started_at, "");
}

/* Merging */

static void progress_is_computed_here(void **state)
{
    (void)state;
    struct report r = from("s-1");
    r.file_name = "a";
    r.bytes_sent = 50;
    r.total_bytes = 100;
    r.file_index = 3;
    r.total_files = 4;
    struct overlay o = apply(NULL, &r, REPORT_FIRST);
    assert_true(o.progress == 62.5);
    assert_int_equal(o.bytes_sent, 50);
    assert_int_equal(o.total_bytes, 100);
    assert_int_equal(o.file_index, 3);
    assert_int_equal(o.total_files, 4);
}

static void a_missing_field_keeps_the_stored_one(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from("s-1");
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_string_equal(o.node_name, "node");
    assert_string_equal(o.file_name, "weights.gguf");
    assert_string_equal(o.speed, "310 MiB/s");
    assert_string_equal(o.started_at, old.started_at);
    assert_int_equal(o.bytes_sent, 30);
    assert_int_equal(o.total_bytes, 100);
    assert_int_equal(o.file_index, 2);
    assert_int_equal(o.total_files, 4);
    assert_true(o.progress == 32.5);
    assert_int_equal(o.stamp_us, STAMP);
}

/* Contract section 5: the row beside it may be older, since its bytes are written once a second. */
static void what_is_missing_does_not_come_from_an_older_row(void **state)
{
    (void)state;
    struct overlay old = stored();
    const struct load_row row = { .node_name = "row's",
        .bytes_sent = 10,
        .total_bytes = 100,
        .file_index = 2,
        .total_files = 4 };
    struct report r = from("s-1");
    r.row = &row;
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_int_equal(o.bytes_sent, 30);
    assert_true(o.progress == 32.5);
    assert_string_equal(o.node_name, "node");
}

/* Section 3: Redis may have missed what the row has. */
static void a_row_that_is_further_supplies_the_numbers(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct load_row row = { .node_name = "row's",
        .bytes_sent = 80,
        .total_bytes = 100,
        .file_index = 2,
        .total_files = 4 };
    struct report r = from("s-1");
    r.row = &row;
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_int_equal(o.bytes_sent, 80);
    assert_true(o.progress == 45);
    row.file_index = 3;
    row.bytes_sent = -5;
    o = apply(&old, &r, REPORT_APPLIED);
    assert_int_equal(o.file_index, 3);
    assert_int_equal(o.bytes_sent, 0);
    o = apply(NULL, &r, REPORT_FIRST);
    assert_string_equal(o.node_name, "row's");
    assert_int_equal(o.total_bytes, 100);
    assert_int_equal(o.total_files, 4);
    assert_true(o.progress == 50);
}

/* A complete file has no byte counters; what says nothing of them must not compute it anew. */
static void a_heartbeat_after_a_complete_file_keeps_the_progress(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from("s-1");
    r.file_complete = true;
    r.file_index = 2;
    struct overlay complete = apply(&old, &r, REPORT_APPLIED);
    assert_true(complete.progress == 50);
    r = from("s-1");
    assert_true(apply(&complete, &r, REPORT_APPLIED).progress == 50);
}

static void an_empty_field_keeps_the_stored_one(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from("s-1");
    r.node_name = r.file_name = r.speed = r.message = "";
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_string_equal(o.node_name, "node");
    assert_string_equal(o.file_name, "weights.gguf");
    assert_string_equal(o.speed, "310 MiB/s");
    assert_string_equal(o.message, "weights.gguf (30 B / 100 B, 310 MiB/s)");
}

static void given_fields_replace_stored_ones(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from("s-1");
    r.node_name = "other";
    r.file_name = "b.bin";
    r.speed = "1 MiB/s";
    r.bytes_sent = 0;
    r.total_bytes = 10;
    r.file_index = 3;
    r.total_files = 5;
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_string_equal(o.node_name, "other");
    assert_string_equal(o.file_name, "b.bin");
    assert_string_equal(o.speed, "1 MiB/s");
    assert_int_equal(o.bytes_sent, 0);
    assert_int_equal(o.total_bytes, 10);
    assert_true(o.progress == 40.0);
    assert_string_equal(o.message, "b.bin (0 B / 10 B, 1 MiB/s)");
}

static void a_given_message_is_taken_as_it_is(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from("s-1");
    r.message = "Verifying";
    assert_string_equal(apply(&old, &r, REPORT_APPLIED).message, "Verifying");
    assert_string_equal(apply(NULL, &r, REPORT_FIRST).message, "Verifying");
}

/* file-complete */

static struct report file_complete(const char *session, int64_t index, int64_t total)
{
    struct report r = from(session);
    r.file_complete = true;
    r.file_index = index;
    r.total_files = total;
    return r;
}

static void a_complete_file_counts_whole_and_resets_the_byte_counters(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = file_complete("s-1", 3, 4);
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_true(o.progress == 75.0);
    assert_int_equal(o.bytes_sent, 0);
    assert_int_equal(o.total_bytes, 0);
    assert_int_equal(o.file_index, 3);
    assert_int_equal(o.total_files, 4);
    assert_string_equal(o.speed, "");
    assert_string_equal(o.message, "kept");
    assert_string_equal(o.file_name, "weights.gguf");
    assert_string_equal(o.node_name, "node");
}

static void a_complete_file_looks_at_the_file_numbers_only(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = file_complete("s-1", 3, 4);
    r.node_name = r.file_name = r.speed = r.message = "no";
    r.bytes_sent = r.total_bytes = 7;
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_int_equal(o.bytes_sent, 0);
    assert_int_equal(o.total_bytes, 0);
    assert_string_equal(o.speed, "");
    assert_string_equal(o.message, "kept");
    assert_string_equal(o.file_name, "weights.gguf");
    assert_string_equal(o.node_name, "node");
}

static void a_complete_file_is_clamped(void **state)
{
    (void)state;
    struct report r = file_complete("s-1", 9, 4);
    assert_true(apply(NULL, &r, REPORT_FIRST).progress == 100.0);
    r = file_complete("s-1", 1, 0);
    assert_true(apply(NULL, &r, REPORT_FIRST).progress == 0.0);
}

static void a_complete_file_as_first_report_has_a_message(void **state)
{
    (void)state;
    struct report r = file_complete("s-1", 1, 2);
    struct overlay o = apply(NULL, &r, REPORT_FIRST);
    assert_string_equal(o.message, "Preparing to stage model files");
    assert_true(o.progress == 50.0);
}

static void a_complete_file_of_another_sender_conflicts(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = file_complete("s-2", 1, 2);
    apply(&old, &r, REPORT_CONFLICT);
}

/* Senders */

static void another_live_session_conflicts(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from("s-2");
    apply(&old, &r, REPORT_CONFLICT);
    r.session = NULL;
    apply(&old, &r, REPORT_CONFLICT);
    r.session = "";
    apply(&old, &r, REPORT_CONFLICT);
}

static void a_session_takes_over_from_a_sender_without_one(void **state)
{
    (void)state;
    struct overlay old = stored();
    old.session = "";
    struct report r = from("s-1");
    assert_string_equal(apply(&old, &r, REPORT_APPLIED).session, "s-1");
}

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void claim_of_token(char claim[CLAIM_SHORT_SIZE])
{
    char hex[DIGEST_HEX_SIZE];
    digest_hex(TOKEN, strlen(TOKEN), hex);
    (void)str_format(claim, CLAIM_SHORT_SIZE, "%.16s", hex);
}

static void a_foreign_session_conflicts_with_a_claim(void **state)
{
    (void)state;
    struct overlay old = stored();
    old.claim = ONE;
    struct report r = from("s-1"); /* the session that was there before the claim, too */
    apply(&old, &r, REPORT_CONFLICT);
    old.session = "";
    apply(&old, &r, REPORT_CONFLICT);
    r.session = TOKEN; /* of another claim */
    apply(&old, &r, REPORT_CONFLICT);
    r.session = ONE; /* everybody may read it */
    apply(&old, &r, REPORT_CONFLICT);
    r = file_complete("s-1", 1, 2);
    apply(&old, &r, REPORT_CONFLICT);
    r = from(NULL);
    assert_string_equal(apply(&old, &r, REPORT_APPLIED).claim, ONE);
}

static void an_owner_may_give_its_token_as_session_which_is_not_stored(void **state)
{
    (void)state;
    char claim[CLAIM_SHORT_SIZE];
    claim_of_token(claim);
    struct overlay old = stored();
    old.session = "";
    old.claim = claim;
    struct report r = from(TOKEN);
    r.file_name = "b.bin";
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_string_equal(o.file_name, "b.bin");
    assert_string_equal(o.claim, claim);
    assert_string_equal(o.session, "");
    old.session = "s-1";
    assert_string_equal(apply(&old, &r, REPORT_APPLIED).session, "s-1");
    old.claim = "0"; /* not a claim of ours: no prefix that fits by chance */
    apply(&old, &r, REPORT_CONFLICT);
}

static void a_token_given_as_session_is_stored_as_its_hash_only(void **state)
{
    (void)state;
    char claim[CLAIM_SHORT_SIZE];
    claim_of_token(claim);
    struct report r = from(TOKEN);
    struct overlay o = apply(NULL, &r, REPORT_FIRST);
    char session[CLAIM_SHORT_SIZE];
    (void)str_format(session, sizeof session, "%s", o.session);
    assert_string_equal(session, claim);
    o.session = session; /* the scratch is used anew */
    assert_string_equal(apply(&o, &r, REPORT_APPLIED).session, claim);
}

static void a_claim_takes_over_a_session_that_has_none(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from(NULL);
    r.claim = ONE;
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_string_equal(o.claim, ONE);
    assert_string_equal(o.session, "s-1");
    assert_string_equal(o.file_name, old.file_name);
}

static void assert_fresh_start(const struct overlay *o)
{
    assert_string_equal(o->claim, ONE);
    assert_string_equal(o->session, "");
    assert_string_equal(o->started_at, TIME);
    assert_string_equal(o->node_name, "");
    assert_string_equal(o->file_name, "");
    assert_string_equal(o->speed, "");
    assert_string_equal(o->message, "Preparing to stage model files");
    assert_int_equal(o->bytes_sent, 0);
    assert_int_equal(o->file_index, 0);
    assert_true(o->progress == 0.0);
}

static void a_claim_replaces_another_claim_whatever_its_stamp(void **state)
{
    (void)state;
    struct overlay old = stored();
    old.claim = TWO;
    old.stamp_us = STAMP + 5000000;
    struct report r = from(NULL);
    r.claim = ONE;
    struct overlay o = apply(&old, &r, REPORT_FIRST);
    assert_fresh_start(&o);
}

static void a_claim_reports_on_as_itself(void **state)
{
    (void)state;
    struct overlay old = stored();
    old.session = "";
    old.claim = ONE;
    struct report r = from(NULL);
    r.claim = ONE;
    assert_string_equal(apply(&old, &r, REPORT_APPLIED).node_name, "node");
    r.session = "ignored beside a claim";
    assert_string_equal(apply(&old, &r, REPORT_APPLIED).session, "");
}

/* Late reports */

static void an_older_report_of_the_same_sender_is_outdated(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from("s-1");
    r.stamp_us = old.stamp_us - 1;
    apply(&old, &r, REPORT_OUTDATED);
    r.stamp_us = old.stamp_us;
    apply(&old, &r, REPORT_APPLIED);
}

static void an_older_report_fills_what_is_not_stored(void **state)
{
    (void)state;
    struct overlay old = stored();
    old.node_name = old.file_name = old.speed = "";
    old.message = "Staging model files (30 B / 100 B)";
    old.file_index = old.total_files = 0;
    old.progress = 30.0;
    struct report r = from("s-1");
    r.stamp_us = old.stamp_us - 1;
    r.node_name = "late node";
    r.file_name = "late.bin";
    r.speed = "1 B/s";
    r.bytes_sent = 7;
    r.total_bytes = 70;
    r.file_index = 2;
    r.total_files = 2;
    struct overlay o = apply(&old, &r, REPORT_APPLIED);
    assert_string_equal(o.node_name, "late node");
    assert_string_equal(o.file_name, "late.bin");
    assert_string_equal(o.speed, "1 B/s");
    assert_int_equal(o.bytes_sent, 30);
    assert_int_equal(o.total_bytes, 100);
    assert_int_equal(o.file_index, 2);
    assert_int_equal(o.total_files, 2);
    assert_true(o.progress == 65.0);
    assert_string_equal(o.message, "late.bin (30 B / 100 B, 1 B/s)");
    assert_string_equal(o.started_at, old.started_at);
    assert_int_equal(o.stamp_us, old.stamp_us);
    apply(&o, &r, REPORT_OUTDATED);
    old.message = "Verifying"; /* somebody's words */
    assert_string_equal(apply(&old, &r, REPORT_APPLIED).message, "Verifying");
}

static void an_older_report_of_another_file_lends_no_bytes(void **state)
{
    (void)state;
    struct overlay old = stored();
    old.bytes_sent = 0;
    old.progress = 25.0;
    struct report r = from("s-1");
    r.stamp_us = old.stamp_us - 1;
    r.file_index = 1;
    r.bytes_sent = 100;
    apply(&old, &r, REPORT_OUTDATED);
    r.file_index = 2;
    r.file_name = "another";
    apply(&old, &r, REPORT_OUTDATED);
    r.file_name = old.file_name;
    assert_int_equal(apply(&old, &r, REPORT_APPLIED).bytes_sent, 100);
}

static void an_older_report_does_not_undo_a_complete_file(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report done = file_complete("s-1", 2, 4);
    struct overlay o = apply(&old, &done, REPORT_APPLIED);
    struct report r = from("s-1");
    r.stamp_us = STAMP - 1;
    r.file_index = 2;
    r.bytes_sent = 99;
    r.total_bytes = 100;
    r.speed = "1 B/s";
    apply(&o, &r, REPORT_OUTDATED);
    o.node_name = "";
    r.node_name = "n";
    o = apply(&o, &r, REPORT_APPLIED);
    assert_true(o.progress == 50.0);
    assert_int_equal(o.bytes_sent, 0);
    struct report late = file_complete("s-1", 4, 4);
    late.stamp_us = STAMP - 1;
    o.file_index = o.total_files = 0;
    apply(&o, &late, REPORT_OUTDATED);
}

static void a_report_of_unknown_time_is_applied_and_keeps_the_stamp(void **state)
{
    (void)state;
    struct overlay old = stored();
    struct report r = from("s-1");
    r.stamp_us = 0;
    assert_int_equal(apply(&old, &r, REPORT_APPLIED).stamp_us, old.stamp_us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_without_file_says_preparing),
        cmocka_unit_test(a_report_with_neither_session_nor_claim_is_a_sender_too),
        cmocka_unit_test(an_unknown_time_leaves_started_at_empty),
        cmocka_unit_test(progress_is_computed_here),
        cmocka_unit_test(a_missing_field_keeps_the_stored_one),
        cmocka_unit_test(what_is_missing_does_not_come_from_an_older_row),
        cmocka_unit_test(a_row_that_is_further_supplies_the_numbers),
        cmocka_unit_test(a_heartbeat_after_a_complete_file_keeps_the_progress),
        cmocka_unit_test(an_empty_field_keeps_the_stored_one),
        cmocka_unit_test(given_fields_replace_stored_ones),
        cmocka_unit_test(a_given_message_is_taken_as_it_is),
        cmocka_unit_test(a_complete_file_counts_whole_and_resets_the_byte_counters),
        cmocka_unit_test(a_complete_file_looks_at_the_file_numbers_only),
        cmocka_unit_test(a_complete_file_is_clamped),
        cmocka_unit_test(a_complete_file_as_first_report_has_a_message),
        cmocka_unit_test(a_complete_file_of_another_sender_conflicts),
        cmocka_unit_test(another_live_session_conflicts),
        cmocka_unit_test(a_session_takes_over_from_a_sender_without_one),
        cmocka_unit_test(a_foreign_session_conflicts_with_a_claim),
        cmocka_unit_test(an_owner_may_give_its_token_as_session_which_is_not_stored),
        cmocka_unit_test(a_token_given_as_session_is_stored_as_its_hash_only),
        cmocka_unit_test(a_claim_takes_over_a_session_that_has_none),
        cmocka_unit_test(a_claim_replaces_another_claim_whatever_its_stamp),
        cmocka_unit_test(a_claim_reports_on_as_itself),
        cmocka_unit_test(an_older_report_of_the_same_sender_is_outdated),
        cmocka_unit_test(an_older_report_fills_what_is_not_stored),
        cmocka_unit_test(an_older_report_of_another_file_lends_no_bytes),
        cmocka_unit_test(an_older_report_does_not_undo_a_complete_file),
        cmocka_unit_test(a_report_of_unknown_time_is_applied_and_keeps_the_stamp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
