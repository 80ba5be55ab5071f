/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the embedded batch service that need no clock and no socket: batch contract, "Validation", "Running",
 * "Fairness", "Progress". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "model/batch_flow.h"
#include "model/batch_line.h"
#include "model/line_verdict.h"
#include "model/throttle.h"
#include "model/turns.h"

/* --- lines --- */

static const struct batch_line GOOD = { .custom_id = "1",
    .method = "POST",
    .url = "/v1/embeddings",
    .model = "m",
    .has_body = true,
    .has_input = true };

static const char *code_of(struct batch_line line)
{
    struct batch_fault f = { .code = "" };
    return batch_line_check(&line, batch_endpoint_find("/v1/embeddings"), &f) == 0 ? "" : f.code;
}

static void a_line_is_told_of_the_first_thing_that_is_wrong(void **state)
{
    struct batch_line l = GOOD;
    char longest[BATCH_CUSTOM_ID_MAX + 2];
    (void)state;

    assert_string_equal(code_of(l), "");
    l.streams = true;
    assert_string_equal(code_of(l), "invalid_body");
    l.has_input = false;
    assert_string_equal(code_of(l), "missing_required_parameter");
    l.url = "/v1/completions";
    assert_string_equal(code_of(l), "invalid_url");
    l.method = NULL;
    assert_string_equal(code_of(l), "invalid_method");
    l.custom_id = NULL;
    assert_string_equal(code_of(l), "invalid_custom_id");
    l = GOOD;
    memset(longest, 'x', sizeof longest);
    longest[BATCH_CUSTOM_ID_MAX + 1] = '\0';
    l.custom_id = longest;
    assert_string_equal(code_of(l), "invalid_custom_id");
    longest[BATCH_CUSTOM_ID_MAX] = '\0';
    assert_string_equal(code_of(l), "");
}

static void endpoints_are_known_by_their_whole_path(void **state)
{
    (void)state;
    assert_non_null(batch_endpoint_find("/v1/chat/completions"));
    assert_non_null(batch_endpoint_find("/v1/rerank")->needs_2);
    assert_null(batch_endpoint_find("/v1/chat"));
    assert_null(batch_endpoint_find("/v1/images/generations"));
    assert_null(batch_endpoint_find(""));
}

/* --- tries --- */

static const struct line_terms TERMS = {
    .max_retries = 2, .max_unreached = -1, .backoff = { .base_ms = 100, .cap_ms = 1000 }
};

static enum line_fate judged(struct line_try t, int64_t *wait_ms)
{
    *wait_ms = -1;
    return line_judge(&TERMS, &t, 0, wait_ms);
}

static void what_an_answer_means(void **state)
{
    static const struct {
        struct line_try t;
        enum line_fate fate;
    } TABLE[] = {
        { { .status = 200, .sound = true }, LINE_DONE },
        { { .status = 201, .sound = true }, LINE_DONE },
        { { .status = 200 }, LINE_AGAIN },
        { { .status = 200, .retries = 2 }, LINE_FAILED },
        { { .status = 307, .sound = true }, LINE_FAILED },
        { { .status = 400, .sound = true }, LINE_FAILED },
        { { .status = 404 }, LINE_FAILED },
        { { .status = 501 }, LINE_FAILED },
        { { .status = 408 }, LINE_AGAIN },
        { { .status = 425 }, LINE_AGAIN },
        { { .status = 429, .sound = true }, LINE_AGAIN },
        { { .status = 500 }, LINE_AGAIN },
        { { .status = 503, .retries = 1 }, LINE_AGAIN },
        { { .status = 503, .retries = 2 }, LINE_FAILED },
        { { .status = 503, .unreached = 99 }, LINE_AGAIN },
        { { .status = 0, .reached = true, .retries = 1 }, LINE_AGAIN },
        { { .status = 0, .reached = true, .retries = 2 }, LINE_FAILED },
        { { .status = 0, .unreached = 1000000 }, LINE_AGAIN },
    };
    int64_t wait_ms = 0;
    (void)state;
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (judged(TABLE[i].t, &wait_ms) != TABLE[i].fate)
            fail_msg("row %zu", i);
        assert_true((wait_ms > 0) == (TABLE[i].fate == LINE_AGAIN));
    }
}

static void retry_after_comes_before_the_jitter(void **state)
{
    int64_t wait_ms = 0;
    (void)state;
    assert_int_equal(
        judged((struct line_try){ .status = 429, .retry_after_ms = 7000 }, &wait_ms), LINE_AGAIN);
    assert_in_range(wait_ms, 7001, 7100);
}

static void a_server_that_is_away_has_a_limit_when_the_batch_sets_one(void **state)
{
    struct line_terms terms = TERMS;
    int64_t wait_ms = 0;
    (void)state;
    terms.max_unreached = 3;
    assert_int_equal(
        line_judge(&terms, &(struct line_try){ .unreached = 2 }, 0, &wait_ms), LINE_AGAIN);
    assert_int_equal(
        line_judge(&terms, &(struct line_try){ .unreached = 3 }, 0, &wait_ms), LINE_FAILED);
}

static void overload_is_429_and_503(void **state)
{
    (void)state;
    assert_true(line_overloads(429) && line_overloads(503));
    assert_false(line_overloads(500) || line_overloads(200) || line_overloads(0));
}

/* --- how many at once --- */

static void answer(struct throttle *t, uint64_t era, bool overloaded, int times)
{
    for (int i = 0; i < times; i++)
        throttle_answer(t, era, overloaded);
}

static void overload_halves_once_for_all_that_was_in_flight(void **state)
{
    struct throttle t = throttle_adaptive(16, 64, 1, 0);
    (void)state;
    answer(&t, 0, true, 16);
    assert_int_equal(t.limit, 8);
    answer(&t, 0, true, 4); /* begun before the halving */
    assert_int_equal(t.limit, 8);
    answer(&t, 1, true, 1);
    assert_int_equal(t.limit, 4);
    for (uint64_t era = 2; era < 9; era++)
        answer(&t, era, true, 1);
    assert_int_equal(t.limit, 1);
}

static void good_answers_add_a_step_for_each_window(void **state)
{
    struct throttle t = throttle_adaptive(4, 6, 1, 0);
    struct throttle wide = throttle_adaptive(4, 100, 5, 10);
    (void)state;
    answer(&t, 0, false, 3);
    assert_int_equal(t.limit, 4);
    answer(&t, 0, false, 1);
    assert_int_equal(t.limit, 5);
    answer(&t, 0, false, 100);
    assert_int_equal(t.limit, 6); /* no more than that */
    answer(&wide, 0, false, 9);
    answer(&wide, 0, true, 1); /* the window begins anew */
    answer(&wide, 1, false, 9);
    assert_int_equal(wide.limit, 2);
    answer(&wide, 1, false, 1);
    assert_int_equal(wide.limit, 7);
}

static void a_fixed_limit_stays(void **state)
{
    struct throttle t = throttle_fixed(5);
    (void)state;
    answer(&t, 0, true, 10);
    answer(&t, 0, false, 100);
    assert_int_equal(t.limit, 5);
}

/* --- turns --- */

static bool is_set(void *ctx, size_t i)
{
    return ((const char *)ctx)[i] == '1';
}

static size_t turn(size_t last, const char *ready)
{
    char text[8];
    memcpy(text, ready, strlen(ready));
    return turns_next(last, strlen(ready), is_set, text);
}

static void the_next_is_the_first_ready_one_behind_the_last(void **state)
{
    (void)state;
    assert_int_equal(turn(0, "1111"), 1);
    assert_int_equal(turn(3, "1111"), 0);
    assert_int_equal(turn(1, "1100"), 0);
    assert_int_equal(turn(1, "0100"), 1);
    assert_int_equal(turn(1, "0000"), 4);
    assert_int_equal(turn(9, "01"), 1); /* it has gone meanwhile */
    assert_int_equal(turn(0, ""), 0);
}

/* --- states --- */

static void every_state_is_reached_and_those_that_are_no_end_have_one(void **state)
{
    (void)state;
    for (enum batch_status s = 0; s < BATCH_STATUS_UNKNOWN; s++) {
        bool leads = false;
        bool reached = s == BATCH_VALIDATING || s == BATCH_SCHEDULING; /* scheduling is others' */
        for (enum batch_status o = 0; o < BATCH_STATUS_UNKNOWN; o++) {
            leads = leads || batch_flow_allows(s, o);
            reached = reached || batch_flow_allows(o, s);
        }
        assert_true(reached);
        if (s != BATCH_SCHEDULING)
            assert_true(leads != batch_status_ended(s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_told_of_the_first_thing_that_is_wrong),
        cmocka_unit_test(endpoints_are_known_by_their_whole_path),
        cmocka_unit_test(what_an_answer_means),
        cmocka_unit_test(retry_after_comes_before_the_jitter),
        cmocka_unit_test(a_server_that_is_away_has_a_limit_when_the_batch_sets_one),
        cmocka_unit_test(overload_is_429_and_503),
        cmocka_unit_test(overload_halves_once_for_all_that_was_in_flight),
        cmocka_unit_test(good_answers_add_a_step_for_each_window),
        cmocka_unit_test(a_fixed_limit_stays),
        cmocka_unit_test(the_next_is_the_first_ready_one_behind_the_last),
        cmocka_unit_test(every_state_is_reached_and_those_that_are_no_end_have_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
