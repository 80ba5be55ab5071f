/* SPDX-License-Identifier: Apache-2.0 */

/* The state machine of jobs: jobs contract, section 2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "model/job_fsm.h"

enum { DOC_MAX = 1 << 16 };

/* The contract's table, written down once more as a function of the categories of its words, so that a row
 * that is added, lost or changed in TRANSITIONS is noticed. */
static enum job_state expected_batch(enum job_state from, enum job_event event)
{
    static const struct {
        enum job_event event;
        enum job_state to;
    } WORD[] = {
        { EV_BATCH_SCHEDULING, JOB_SCHEDULING },
        { EV_BATCH_VALIDATING, JOB_VALIDATING },
        { EV_BATCH_IN_PROGRESS, JOB_IN_PROGRESS },
        { EV_BATCH_FINALIZING, JOB_FINALIZING },
        { EV_BATCH_CANCELLING, JOB_CANCELLING },
        { EV_BATCH_COMPLETED, JOB_COMPLETED },
        { EV_BATCH_FAILED, JOB_FAILED },
        { EV_BATCH_EXPIRED, JOB_EXPIRED },
        { EV_BATCH_CANCELLED, JOB_CANCELLED },
    };
    for (size_t i = 0; i < sizeof WORD / sizeof WORD[0]; i++) {
        if (WORD[i].event == event && from >= JOB_SUBMITTING && from <= JOB_CANCELLING)
            return WORD[i].to > from ? WORD[i].to : JOB_NONE; /* forward only */
    }
    return JOB_NONE;
}

enum {
    QUEUED = 1 << JOB_QUEUED,
    PREPARING = 1 << JOB_PLANNED | 1 << JOB_RESOURCE_PREPARING,
    SUBMITTED = 1 << JOB_SUBMITTING | 1 << JOB_SCHEDULING | 1 << JOB_VALIDATING |
                1 << JOB_IN_PROGRESS | 1 << JOB_FINALIZING,
};

static enum job_state expected(enum job_state from, enum job_event event)
{
    static const struct {
        enum job_event event;
        int from;
        enum job_state to;
    } ROW[] = {
        { EV_PLAN, QUEUED, JOB_PLANNED },
        { EV_PROVISIONED, 1 << JOB_PLANNED, JOB_RESOURCE_PREPARING },
        { EV_REQUEUE, PREPARING, JOB_QUEUED },
        { EV_RESOURCE_FAIL, PREPARING, JOB_RESOURCE_FAILED },
        { EV_SUBMIT, 1 << JOB_RESOURCE_PREPARING, JOB_SUBMITTING },
        { EV_SUBMIT_FAIL, 1 << JOB_RESOURCE_PREPARING | 1 << JOB_SUBMITTING, JOB_SUBMIT_FAILED },
        { EV_BATCH_LOST, SUBMITTED, JOB_FAILED },
        { EV_MACHINES_LOST, SUBMITTED, JOB_RESOURCE_FAILED },
        { EV_CANCEL, QUEUED, JOB_CANCELLED },
        { EV_CANCEL, PREPARING | SUBMITTED, JOB_CANCELLING },
        { EV_CLEANED_UP, 1 << JOB_CANCELLING, JOB_CANCELLED },
        { EV_QUEUE_EXPIRE, QUEUED | PREPARING, JOB_EXPIRED },
        { EV_RUN_EXPIRE, SUBMITTED, JOB_EXPIRED },
    };
    if (from == JOB_NONE)
        return event == EV_ENQUEUE ? JOB_QUEUED : JOB_NONE;
    for (size_t i = 0; i < sizeof ROW / sizeof ROW[0]; i++) {
        if (ROW[i].event == event && (ROW[i].from & 1 << from) != 0)
            return ROW[i].to;
    }
    return expected_batch(from, event);
}

static void every_pair_of_state_and_event_is_the_contracts(void **state)
{
    (void)state;
    for (int from = JOB_NONE; from < JOB_STATE__COUNT; from++) {
        for (int event = 0; event < JOB_EVENT__COUNT; event++) {
            enum job_state to = JOB_NONE;
            int stays = job_next((enum job_state)from, (enum job_event)event, &to);
            enum job_state want = expected((enum job_state)from, (enum job_event)event);
            if (stays != (want == JOB_NONE) || to != want)
                fail_msg("%s and %s: '%s', not '%s'", job_state_name((enum job_state)from),
                    job_event_name((enum job_event)event), job_state_name(to),
                    job_state_name(want));
        }
    }
}

/* Marks what can be reached from a state, itself included. */
static void mark_reachable(enum job_state from, bool seen[JOB_STATE__COUNT])
{
    size_t n = 0;
    const struct job_transition *t = job_transitions(&n);
    bool grew = true;
    if (from != JOB_NONE)
        seen[from] = true;
    while (grew) {
        grew = false;
        for (size_t i = 0; i < n; i++) {
            bool at = t[i].from == JOB_NONE ? from == JOB_NONE : seen[t[i].from];
            if (at && !seen[t[i].to])
                seen[t[i].to] = grew = true;
        }
    }
}

static void every_state_is_reached_from_the_enqueue(void **state)
{
    bool seen[JOB_STATE__COUNT] = { false };
    (void)state;
    mark_reachable(JOB_NONE, seen);
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        if (!seen[s])
            fail_msg("no way leads to %s", job_state_name((enum job_state)s));
    }
}

static void every_state_that_is_no_end_can_end_and_ends_lead_nowhere(void **state)
{
    size_t n = 0;
    const struct job_transition *t = job_transitions(&n);
    (void)state;
    for (size_t i = 0; i < n; i++)
        assert_false(job_is_terminal(t[i].from));
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        bool seen[JOB_STATE__COUNT] = { false };
        bool ends = false;
        mark_reachable((enum job_state)s, seen);
        for (int end = 0; end < JOB_STATE__COUNT; end++)
            ends = ends || (seen[end] && job_is_terminal((enum job_state)end));
        if (!ends)
            fail_msg("%s never ends", job_state_name((enum job_state)s));
    }
}

/* From every state but the ends a user's cancel leads to an end. */
static void a_cancel_is_heard_in_every_state_but_the_ends(void **state)
{
    (void)state;
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        enum job_state to = JOB_NONE;
        bool heard = job_next((enum job_state)s, EV_CANCEL, &to) == 0 || s == JOB_CANCELLING;
        assert_int_equal(heard, !job_is_terminal((enum job_state)s));
    }
}

static void no_pair_of_state_and_event_is_listed_twice(void **state)
{
    size_t n = 0;
    const struct job_transition *t = job_transitions(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_true(t[i].why[0] != '\0');
        for (size_t k = 0; k < i; k++)
            assert_false(t[k].from == t[i].from && t[k].event == t[i].event);
    }
}

static void names_read_back(void **state)
{
    (void)state;
    for (int s = 0; s < JOB_STATE__COUNT; s++)
        assert_int_equal(job_state_parse(job_state_name((enum job_state)s)), s);
    assert_int_equal(job_state_parse("ready"), JOB_STATE__COUNT);
    assert_int_equal(job_state_parse(""), JOB_STATE__COUNT);
    assert_string_equal(job_state_name(JOB_STATE__COUNT), "unknown");
    assert_string_equal(job_state_name(JOB_NONE), "");
    assert_string_equal(job_event_name(EV_CLEANED_UP), "cleaned_up");
    assert_string_equal(job_event_name(JOB_EVENT__COUNT), "unknown");
}

static void categories_are_the_contracts(void **state)
{
    (void)state;
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        enum job_category want = s <= JOB_SUBMITTING   ? JOB_PENDING
                                 : s <= JOB_CANCELLING ? JOB_RUNNING
                                                       : JOB_TERMINAL;
        assert_int_equal(job_category((enum job_state)s), want);
    }
    assert_false(job_is_terminal(JOB_NONE));
    assert_false(job_is_terminal(JOB_STATE__COUNT));
}

/* The numbers are in the database. */
static void numbers_never_change(void **state)
{
    (void)state;
    assert_int_equal(JOB_QUEUED, 0);
    assert_int_equal(JOB_SUBMITTING, 3);
    assert_int_equal(JOB_CANCELLING, 8);
    assert_int_equal(JOB_COMPLETED, 9);
    assert_int_equal(JOB_SUBMIT_FAILED, 14);
    assert_int_equal(EV_ENQUEUE, 0);
    assert_int_equal(EV_BATCH_SCHEDULING, 7);
    assert_int_equal(EV_CANCEL, 18);
    assert_int_equal(EV_RUN_EXPIRE, 21);
}

/* With WB_WRITE_DOCS set the page is written instead of compared. */
static void the_page_in_docs_is_printed_from_the_table(void **state)
{
    cleanup_buf struct buf want = BUF_INIT(DOC_MAX);
    (void)state;
    job_fsm_print(&want);
    assert_false(want.overflow);
    FILE *f = fopen(TOP_SRCDIR "/docs/job-states.md", getenv("WB_WRITE_DOCS") != NULL ? "w+" : "r");
    assert_non_null(f);
    if (getenv("WB_WRITE_DOCS") != NULL) {
        assert_int_equal(fwrite(want.data, 1, want.len, f), want.len);
        rewind(f);
    }
    cleanup_free char *have = mem_calloc(1, DOC_MAX);
    size_t size = fread(have, 1, DOC_MAX - 1, f);
    fclose(f);
    if (size != want.len || memcmp(have, want.data, size) != 0)
        fail_msg(
            "docs/job-states.md is not what the table says: run this test with WB_WRITE_DOCS=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_state_and_event_is_the_contracts),
        cmocka_unit_test(every_state_is_reached_from_the_enqueue),
        cmocka_unit_test(every_state_that_is_no_end_can_end_and_ends_lead_nowhere),
        cmocka_unit_test(a_cancel_is_heard_in_every_state_but_the_ends),
        cmocka_unit_test(no_pair_of_state_and_event_is_listed_twice),
        cmocka_unit_test(names_read_back),
        cmocka_unit_test(categories_are_the_contracts),
        cmocka_unit_test(numbers_never_change),
        cmocka_unit_test(the_page_in_docs_is_printed_from_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
