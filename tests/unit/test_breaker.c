/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/breaker.h"
#include "base/clock.h"

static int64_t ms(int64_t n)
{
    return n * NS_PER_MS;
}

static int set_up(void **state)
{
    static struct breaker b;

    breaker_init(&b);
    *state = &b;
    return 0;
}

static int tear_down(void **state)
{
    breaker_fini(*state);
    return 0;
}

static void closed_lets_all_ask(void **state)
{
    struct breaker *b = *state;

    assert_false(breaker_is_open(b));
    for (int i = 0; i < 10; i++)
        assert_true(breaker_allows(b, ms(i)));
    assert_false(breaker_ok(b));
}

static void the_outage_is_told_once(void **state)
{
    struct breaker *b = *state;

    assert_true(breaker_failed(b, ms(1)));
    assert_false(breaker_failed(b, ms(2)));
    assert_true(breaker_is_open(b));
    assert_true(breaker_ok(b));
    assert_false(breaker_ok(b));
    assert_false(breaker_is_open(b));
    assert_true(breaker_allows(b, ms(3)));
    assert_true(breaker_failed(b, ms(4)));
}

static void one_caller_tries_after_the_wait(void **state)
{
    struct breaker *b = *state;

    breaker_failed(b, 0);
    assert_false(breaker_allows(b, ms(BREAKER_FIRST_MS) - 1));
    assert_true(breaker_allows(b, ms(BREAKER_FIRST_MS)));
    assert_false(breaker_allows(b, ms(BREAKER_FIRST_MS)));
    assert_false(breaker_allows(b, ms(BREAKER_FIRST_MS) + 1));
    assert_true(breaker_is_open(b));
}

/* Operations contract, section 3: it tries again at least once a second. */
static void waits_double_up_to_a_second(void **state)
{
    static const int WAITS_MS[] = { 100, 200, 400, 800, 1000, 1000, 1000 };
    struct breaker *b = *state;
    int64_t now = ms(5);

    breaker_failed(b, now);
    for (size_t i = 0; i < sizeof WAITS_MS / sizeof WAITS_MS[0]; i++) {
        assert_false(breaker_allows(b, now + ms(WAITS_MS[i]) - 1));
        now += ms(WAITS_MS[i]);
        assert_true(breaker_allows(b, now));
        assert_false(breaker_failed(b, now));
    }
}

static void recovery_starts_the_waits_anew(void **state)
{
    struct breaker *b = *state;

    breaker_failed(b, 0);
    assert_true(breaker_allows(b, ms(100)));
    breaker_failed(b, ms(100));
    assert_true(breaker_allows(b, ms(300)));
    assert_true(breaker_ok(b));
    breaker_failed(b, ms(1000));
    assert_false(breaker_allows(b, ms(1099)));
    assert_true(breaker_allows(b, ms(1100)));
}

/* Sixteen threads that all had asked before it opened: their failures are one outage, no reason to
 * wait for longer. */
static void late_failures_do_not_lengthen_the_wait(void **state)
{
    struct breaker *b = *state;

    for (int i = 0; i < 16; i++)
        breaker_failed(b, ms(i));
    assert_true(breaker_allows(b, ms(BREAKER_FIRST_MS)));
}

static void a_lost_probe_is_followed_by_another(void **state)
{
    struct breaker *b = *state;

    breaker_failed(b, 0);
    assert_true(breaker_allows(b, ms(100)));
    assert_false(breaker_allows(b, ms(1099)));
    assert_true(breaker_allows(b, ms(1100)));
    assert_false(breaker_allows(b, ms(1101)));
    assert_false(breaker_failed(b, ms(1200)));
    /* The lost probe counted as a failure: 100, 200, now 400 ms. */
    assert_false(breaker_allows(b, ms(1599)));
    assert_true(breaker_allows(b, ms(1600)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(closed_lets_all_ask, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_outage_is_told_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_caller_tries_after_the_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waits_double_up_to_a_second, set_up, tear_down),
        cmocka_unit_test_setup_teardown(recovery_starts_the_waits_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(late_failures_do_not_lengthen_the_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_probe_is_followed_by_another, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
