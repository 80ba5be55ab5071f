/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs contract section 5, "Worker pool". Threads are held by gates, never by time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "plan/crew.h"

enum { HANG_MS = 30000 };

/* Lets runs through one by one, or all. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int allowed;
    int entered;
};

struct scene {
    struct crew *crew;
    struct gate gate;
    atomic_int opened;
    atomic_int closed;
    atomic_int dropped;
    atomic_int ran[64];
    atomic_int most; /* that ran at once */
    atomic_int now;
};

static void *open_own(size_t number, void *ctx)
{
    struct scene *s = ctx;
    (void)number;
    atomic_fetch_add(&s->opened, 1);
    return s;
}

static void close_own(void *own)
{
    struct scene *s = own;
    atomic_fetch_add(&s->closed, 1);
}

static void run(void *item, void *own)
{
    struct scene *s = own;
    const int now = atomic_fetch_add(&s->now, 1) + 1;
    int most = atomic_load(&s->most);
    while (now > most && !atomic_compare_exchange_weak(&s->most, &most, now))
        ;
    pthread_mutex_lock(&s->gate.lock);
    s->gate.entered++;
    pthread_cond_broadcast(&s->gate.changed);
    while (s->gate.allowed == 0)
        pthread_cond_wait(&s->gate.changed, &s->gate.lock);
    s->gate.allowed--;
    pthread_mutex_unlock(&s->gate.lock);
    atomic_fetch_add(&s->ran[(uintptr_t)item], 1);
    atomic_fetch_sub(&s->now, 1);
}

static void drop(void *item, void *ctx)
{
    struct scene *s = ctx;
    (void)item;
    atomic_fetch_add(&s->dropped, 1);
}

static void allow(struct scene *s, int n)
{
    pthread_mutex_lock(&s->gate.lock);
    s->gate.allowed += n;
    pthread_cond_broadcast(&s->gate.changed);
    pthread_mutex_unlock(&s->gate.lock);
}

/* Waits until n runs have begun in all. */
static void entered(struct scene *s, int n)
{
    const int64_t deadline = clock_deadline(HANG_MS);
    pthread_mutex_lock(&s->gate.lock);
    while (s->gate.entered < n && clock_mono_ns() < deadline)
        thread_cond_wait(&s->gate.changed, &s->gate.lock, deadline);
    const int got = s->gate.entered;
    pthread_mutex_unlock(&s->gate.lock);
    assert_int_equal(got, n);
}

static void start(struct scene *s, size_t threads, size_t queue)
{
    struct err e = ERR_INIT;
    const struct crew_options o = {
        .name = "test",
        .threads = threads,
        .queue = queue,
        .ctx = s,
        .open = open_own,
        .close = close_own,
        .run = run,
        .drop = drop,
    };
    *s = (struct scene){ .crew = NULL };
    pthread_mutex_init(&s->gate.lock, NULL);
    thread_cond_init(&s->gate.changed);
    assert_int_equal(crew_start(&o, &s->crew, &e), 0);
}

static void end(struct scene *s)
{
    crew_free(s->crew);
    assert_int_equal(atomic_load(&s->opened), atomic_load(&s->closed));
    pthread_cond_destroy(&s->gate.changed);
    pthread_mutex_destroy(&s->gate.lock);
}

static void *item(uintptr_t n)
{
    return (void *)n;
}

static void every_item_is_run_once(void **state)
{
    (void)state;
    struct scene s;
    start(&s, 4, 60);
    allow(&s, 60);
    for (uintptr_t i = 1; i <= 60; i++)
        assert_int_equal(crew_submit(s.crew, item(i)), 0);
    entered(&s, 60);
    assert_true(crew_wait(s.crew, clock_deadline(HANG_MS)));
    for (int i = 1; i <= 60; i++)
        assert_int_equal(atomic_load(&s.ran[i]), 1);
    assert_int_equal(atomic_load(&s.dropped), 0);
    end(&s);
}

/* "submit never blocks the loop": with all threads stuck and the queue full it answers at once. */
static void a_full_queue_refuses_at_once(void **state)
{
    (void)state;
    struct scene s;
    start(&s, 2, 3);
    assert_int_equal(crew_submit(s.crew, item(1)), 0);
    assert_int_equal(crew_submit(s.crew, item(2)), 0);
    entered(&s, 2);
    assert_int_equal(crew_running(s.crew), 2);
    assert_int_equal(crew_room(s.crew), 3);
    for (uintptr_t i = 3; i <= 5; i++)
        assert_int_equal(crew_submit(s.crew, item(i)), 0);
    assert_int_equal(crew_room(s.crew), 0);
    assert_int_equal(crew_waiting(s.crew), 3);
    assert_int_equal(crew_submit(s.crew, item(6)), 1);
    allow(&s, 1);
    entered(&s, 3);
    assert_int_equal(crew_submit(s.crew, item(6)), 0);
    allow(&s, 5);
    entered(&s, 6);
    assert_true(crew_wait(s.crew, clock_deadline(HANG_MS)));
    assert_int_equal(atomic_load(&s.most), 2);
    end(&s);
}

/* Shutdown: what runs is finished, what waits is handed back, nothing new is taken. */
static void stopping_finishes_what_runs_and_drops_what_waits(void **state)
{
    (void)state;
    struct scene s;
    start(&s, 2, 10);
    for (uintptr_t i = 1; i <= 7; i++)
        assert_int_equal(crew_submit(s.crew, item(i)), 0);
    entered(&s, 2);
    crew_stop(s.crew);
    assert_int_equal(atomic_load(&s.dropped), 5);
    assert_int_equal(crew_submit(s.crew, item(8)), 1);
    assert_int_equal(crew_room(s.crew), 0);
    allow(&s, 2);
    assert_true(crew_wait(s.crew, clock_deadline(HANG_MS)));
    int ran = 0;
    for (int i = 1; i <= 8; i++)
        ran += atomic_load(&s.ran[i]);
    assert_int_equal(ran, 2);
    end(&s);
}

static void waiting_ends_at_the_deadline(void **state)
{
    (void)state;
    struct scene s;
    start(&s, 1, 1);
    assert_int_equal(crew_submit(s.crew, item(1)), 0);
    entered(&s, 1);
    assert_false(crew_wait(s.crew, clock_mono_ns()));
    allow(&s, 1);
    assert_true(crew_wait(s.crew, clock_deadline(HANG_MS)));
    end(&s);
}

static void an_idle_crew_ends(void **state)
{
    (void)state;
    struct scene s;
    start(&s, 8, 1);
    end(&s);
    assert_int_equal(atomic_load(&s.closed), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_run_once),
        cmocka_unit_test(a_full_queue_refuses_at_once),
        cmocka_unit_test(stopping_finishes_what_runs_and_drops_what_waits),
        cmocka_unit_test(waiting_ends_at_the_deadline),
        cmocka_unit_test(an_idle_crew_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
