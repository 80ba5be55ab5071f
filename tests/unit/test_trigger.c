/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "base/clock.h"
#include "plan/trigger.h"

enum { HANG_MS = 30000, A = 1, B = 2 };

/* Jobs contract section 5, "Loop": coalesced to one pending. */
static void many_raises_are_one_wake_up(void **state)
{
    (void)state;
    struct trigger t;
    trigger_init(&t);
    for (int i = 0; i < 100; i++)
        trigger_raise(&t, A);
    trigger_raise(&t, B);
    assert_int_equal(trigger_wait(&t, clock_deadline(HANG_MS)), A | B);
    assert_int_equal(trigger_wait(&t, clock_mono_ns()), 0);
    trigger_fini(&t);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    struct trigger t;
    trigger_init(&t);
    const int64_t deadline = clock_deadline(20);
    assert_int_equal(trigger_wait(&t, deadline), 0);
    assert_true(clock_mono_ns() >= deadline);
    trigger_fini(&t);
}

static void *raise_it(void *t)
{
    trigger_raise(t, B);
    return NULL;
}

static void a_raise_wakes_the_waiter(void **state)
{
    (void)state;
    struct trigger t;
    pthread_t other;
    trigger_init(&t);
    assert_int_equal(pthread_create(&other, NULL, raise_it, &t), 0);
    const int64_t deadline = clock_deadline(HANG_MS);
    assert_int_equal(trigger_wait(&t, deadline), B);
    assert_true(clock_mono_ns() < deadline);
    pthread_join(other, NULL);
    trigger_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_raises_are_one_wake_up),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
        cmocka_unit_test(a_raise_wakes_the_waiter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
