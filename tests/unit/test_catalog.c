/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs contract section 5, policy `capacity`: the provider's catalog in the plan's snapshot, without the plan ever
 * waiting for the provider. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "plan/catalog.h"

static struct provision_catalog offers(size_t n)
{
    struct provision_catalog c = { .offer = mem_calloc(n, sizeof *c.offer), .n = n };
    return c;
}

static void nothing_is_known_before_the_first_answer(void **state)
{
    struct catalog *c = catalog_new();
    bool stale = false;
    (void)state;
    assert_null(catalog_look(c, NS_PER_S, &stale));
    assert_true(stale);
    assert_null(catalog_look(c, NS_PER_S, &stale));
    assert_false(stale); /* somebody was told to ask a moment ago */
    catalog_free(c);
}

static void an_answer_is_shared_until_it_is_old(void **state)
{
    struct catalog *c = catalog_new();
    struct provision_catalog two = offers(2);
    bool stale = true;
    (void)state;
    catalog_put(c, &two, true, 77);
    assert_null(two.offer); /* taken over */
    struct catalog_view *view = catalog_look(c, 3600 * NS_PER_S, &stale);
    assert_non_null(view);
    assert_false(stale);
    assert_true(view->told);
    assert_int_equal(view->offers.n, 2);
    assert_int_equal(view->since_us, 77);
    struct catalog_view *old = catalog_look(c, -1, &stale);
    assert_true(stale);
    assert_ptr_equal(old, view); /* old, and still the best there is */
    catalog_done(old);
    catalog_done(view);
    catalog_free(c);
}

/* Whoever looks keeps what it saw, whatever comes meanwhile. */
static void a_view_outlives_its_replacement(void **state)
{
    struct catalog *c = catalog_new();
    struct provision_catalog one = offers(1);
    struct provision_catalog three = offers(3);
    bool stale = false;
    (void)state;
    catalog_put(c, &one, true, 1);
    struct catalog_view *view = catalog_look(c, NS_PER_S, &stale);
    catalog_put(c, &three, true, 2);
    catalog_free(c);
    assert_int_equal(view->offers.n, 1);
    catalog_done(view);
}

static void a_provider_that_fails_counts_by_what_it_said_before(void **state)
{
    struct catalog *c = catalog_new();
    struct provision_catalog one = offers(1);
    bool stale = false;
    (void)state;
    catalog_failed(c); /* it never said anything */
    struct catalog_view *view = catalog_look(c, NS_PER_S, &stale);
    assert_non_null(view);
    assert_false(view->told);
    assert_true(stale); /* it will be asked again */
    catalog_done(view);
    catalog_put(c, &one, true, 1);
    catalog_failed(c);
    view = catalog_look(c, NS_PER_S, &stale);
    assert_true(view->told);
    catalog_done(view);
    catalog_free(c);
}

static void a_provider_may_say_that_it_does_not_tell(void **state)
{
    struct catalog *c = catalog_new();
    struct provision_catalog none = PROVISION_CATALOG_INIT;
    bool stale = true;
    (void)state;
    catalog_put(c, &none, false, 5);
    struct catalog_view *view = catalog_look(c, NS_PER_S, &stale);
    assert_false(view->told);
    assert_false(stale);
    catalog_done(view);
    catalog_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_before_the_first_answer),
        cmocka_unit_test(an_answer_is_shared_until_it_is_old),
        cmocka_unit_test(a_view_outlives_its_replacement),
        cmocka_unit_test(a_provider_that_fails_counts_by_what_it_said_before),
        cmocka_unit_test(a_provider_may_say_that_it_does_not_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
