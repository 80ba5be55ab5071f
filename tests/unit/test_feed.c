/* SPDX-License-Identifier: Apache-2.0 */
/* Who stopped claiming because the crew's queue was full goes on when half of it is free, and not before: each claim
 * walks all live rows. Threads are held by a lock, never by time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>

#include "base/thread.h"
#include "plan/act.h"

enum { QUEUE = 4 };

static void *open_own(size_t number, void *ctx)
{
    (void)number;
    return ctx;
}

static void close_own(void *own)
{
    (void)own;
}

static void run(void *gate, void *own)
{
    cleanup_unlock pthread_mutex_t *held = thread_lock(gate);
    (void)own;
}

static void drop(void *item, void *ctx)
{
    (void)item;
    (void)ctx;
}

static unsigned raised(struct planner *p)
{
    return trigger_wait(&p->act, 0);
}

static void claiming_goes_on_when_half_of_the_queue_is_free(void **state)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    const struct conf conf = { .planner_queue = QUEUE };
    struct planner p = { .conf = &conf };
    struct err e = ERR_INIT;
    const struct crew_options o = { "feed", 1, QUEUE, &p, open_own, close_own, run, drop };

    (void)state;
    trigger_init(&p.act);
    assert_int_equal(crew_start(&o, &p.crew, &e), 0);
    pthread_mutex_lock(&gate);
    assert_int_equal(crew_submit(p.crew, &gate), 0);
    while (crew_running(p.crew) == 0)
        sched_yield();
    for (int i = 0; i < QUEUE - 1; i++)
        assert_int_equal(crew_submit(p.crew, &gate), 0);
    atomic_store(&p.hungry, true);
    act_feed(&p); /* room for one of four */
    assert_int_equal(raised(&p), 0);
    assert_true(atomic_load(&p.hungry));
    pthread_mutex_unlock(&gate);
    while (crew_waiting(p.crew) + crew_running(p.crew) > 0)
        sched_yield();
    act_feed(&p);
    assert_int_equal(raised(&p), ACT_CLAIM);
    act_feed(&p); /* once is enough */
    assert_int_equal(raised(&p), 0);
    crew_free(p.crew);
    trigger_fini(&p.act);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claiming_goes_on_when_half_of_the_queue_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
