/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "db/db.h"
#include "db/db_map.h"

struct expected {
    const char *state;
    enum err_code code;
    bool drop;
    bool outage;
};

static void every_state_of_the_header_has_its_code(void **state)
{
    static const struct expected ROWS[] = {
        { "23505", ERR_CONFLICT, false, false },
        { "23P01", ERR_CONFLICT, false, false },
        { "40001", ERR_CONFLICT, false, false },
        { "40P01", ERR_CONFLICT, false, false },
        { "23514", ERR_INVALID, false, false },
        { "22001", ERR_INVALID, false, false },
        { "22003", ERR_INVALID, false, false },
        { "22021", ERR_INVALID, false, false },
        { "22P05", ERR_INVALID, false, false },
        { "57014", ERR_TIMEOUT, false, false },
        { "55P03", ERR_TIMEOUT, false, false },
        { "42P01", ERR_UNAVAILABLE, false, false },
        { "53100", ERR_UNAVAILABLE, false, false },
        { "53300", ERR_UNAVAILABLE, true, true },
        { "57P01", ERR_UNAVAILABLE, true, true },
        { "57P02", ERR_UNAVAILABLE, true, true },
        { "57P03", ERR_UNAVAILABLE, true, true },
        { "08006", ERR_UNAVAILABLE, true, true },
        { NULL, ERR_UNAVAILABLE, true, true },
        { "42601", ERR_INTERNAL, false, false },
        { "22012", ERR_INTERNAL, false, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct db_verdict v = db_map(ROWS[i].state);
        assert_int_equal(v.code, ROWS[i].code);
        assert_int_equal(v.drop, ROWS[i].drop);
        assert_int_equal(v.outage, ROWS[i].outage);
    }
}

/* These end the connection but say nothing about the server: the breaker must not hear of them. */
static void a_session_that_lost_its_statements_is_no_outage(void **state)
{
    static const char *const STATES[] = { "26000", "42P05", "0A000", "25006", "25P03", "57P05" };

    (void)state;
    for (size_t i = 0; i < sizeof STATES / sizeof STATES[0]; i++) {
        struct db_verdict v = db_map(STATES[i]);
        assert_int_equal(v.code, ERR_UNAVAILABLE);
        assert_true(v.drop);
        assert_false(v.outage);
    }
}

static void only_a_lost_race_is_worth_running_again(void **state)
{
    (void)state;
    assert_true(db_map("40001").retry);
    assert_true(db_map("40P01").retry);
    assert_false(db_map("23505").retry);
    assert_false(db_map("57014").retry);
    assert_false(db_map(NULL).retry);
}

static void only_a_missing_table_is_one(void **state)
{
    (void)state;
    assert_true(db_map("42P01").missing_table);
    assert_false(db_map("42703").missing_table);
    assert_false(db_map(NULL).missing_table);
}

/* A sample is late by as long as the answer was under way, never early: the highest counts. */
static void the_clock_offset_is_the_least_delayed_sample(void **state)
{
    enum { SLACK_US = 500000 };
    int64_t offset = 0;

    (void)state;
    assert_false(db_clock_offset_us(&offset));
    int64_t wall = clock_wall_us();
    assert_true(db_now_us() >= wall); /* unknown: our own clock */

    int64_t hour = 3600 * US_PER_S;
    db_saw_clock(clock_wall_us() + hour);
    assert_true(db_clock_offset_us(&offset));
    assert_in_range(offset, (uintmax_t)(hour - SLACK_US), (uintmax_t)hour);
    int64_t before = offset;
    db_saw_clock(clock_wall_us() + hour - SLACK_US); /* an answer that lay about */
    assert_true(db_clock_offset_us(&offset));
    assert_int_equal(offset, before);
    assert_true(db_now_us() > clock_wall_us() + hour - SLACK_US);

    db_saw_clock(clock_wall_us() - hour); /* a clock was set */
    assert_true(db_clock_offset_us(&offset));
    assert_true(offset < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_of_the_header_has_its_code),
        cmocka_unit_test(a_session_that_lost_its_statements_is_no_outage),
        cmocka_unit_test(only_a_lost_race_is_worth_running_again),
        cmocka_unit_test(only_a_missing_table_is_one),
        cmocka_unit_test(the_clock_offset_is_the_least_delayed_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
