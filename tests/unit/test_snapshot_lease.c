/* SPDX-License-Identifier: Apache-2.0 */
/* Who refreshes the snapshot, what wakes it, and several that publish at once: operations contract,
 * section 3, "Freshness". */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"
#include "tests/fake/snapshot_place.h"

enum { WRITES = 400, READERS = 4 };

/* --- the lease --- */

static void only_one_holds_the_lease(void **state)
{
    struct place *p = *state;
    struct snapshots *other = place_view(p);
    bool taken_over = true;
    assert_int_equal(snapshot_lease(p->view, PLACE_HANG_MS, &taken_over), 0);
    assert_false(taken_over);
    assert_int_equal(snapshot_lease(other, PLACE_HANG_MS, &taken_over), 1);
    assert_int_equal(snapshot_lease(p->view, PLACE_HANG_MS, NULL), 0); /* renewed */
    snapshot_lease_end(other); /* not its own: nothing happens */
    assert_int_equal(snapshot_lease(other, PLACE_HANG_MS, NULL), 1);
    snapshot_lease_end(p->view);
    assert_int_equal(snapshot_lease(other, PLACE_HANG_MS, &taken_over), 0);
    assert_false(taken_over);
    assert_int_equal(snapshot_lease(p->view, PLACE_HANG_MS, NULL), 1);
    snapshots_close(other);
}

static void an_owner_that_slept_over_its_lease_notices_that_it_lost_it(void **state)
{
    struct place *p = *state;
    struct snapshots *other = place_view(p);
    bool taken_over = false;
    assert_int_equal(snapshot_lease(p->view, -1, NULL), 0); /* lapsed already */
    assert_int_equal(snapshot_lease(other, PLACE_HANG_MS, &taken_over), 0);
    assert_true(taken_over);
    assert_int_equal(snapshot_lease(p->view, PLACE_HANG_MS, NULL), 1);
    snapshots_close(other);
}

static void the_lease_of_a_killed_refresher_lapses(void **state)
{
    struct place *p = *state;
    int told[2];
    char byte = 0;
    assert_int_equal(pipe(told), 0);
    pid_t pid = place_fork();
    if (pid == 0) {
        struct snapshots *own = place_view(p);
        bool ok = snapshot_lease(own, 100, NULL) == 0 && place_publish(own, "last words") == 0;
        if (write(told[1], ok ? "y" : "n", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    bool taken_over = false;
    int64_t deadline_ns = clock_deadline(PLACE_HANG_MS);
    while (snapshot_lease(p->view, PLACE_HANG_MS, &taken_over) != 0) {
        int64_t until_ns = atomic_load(&p->shared->lease_until_ns);
        assert_true(clock_mono_ns() < deadline_ns);
        wait_word(&p->shared->published, p->shared->published, until_ns + 1);
    }
    assert_true(taken_over);
    place_assert_serves(p->view, "last words");
    assert_int_equal(place_publish(p->view, "the successor's"), 0);
    place_assert_serves(p->view, "the successor's");
    close(told[0]);
    close(told[1]);
}

/* --- waiting for work --- */

static void the_refresher_does_not_sleep_over_a_change_or_a_wish(void **state)
{
    struct place *p = *state;
    struct snapshot *snap = NULL;
    int64_t began_ns = clock_mono_ns();
    snapshot_wait_wanted(p->view, 0, clock_deadline(5)); /* nothing: until the deadline */
    assert_true(clock_mono_ns() - began_ns >= 5 * NS_PER_MS);
    int64_t late_ns = clock_deadline(PLACE_HANG_MS);
    shared_bump(p->shared);
    snapshot_wait_wanted(p->view, 0, late_ns); /* a change */
    place_publish(p->view, "x");
    assert_int_equal(snapshot_get(p->view, 9, PLACE_FOREVER, clock_deadline(2), &snap, NULL), 1);
    snapshot_wait_wanted(p->view, 1, late_ns); /* a wish from after the publication */
    assert_true(clock_mono_ns() < late_ns);
    began_ns = clock_mono_ns();
    snapshot_wait_wanted(p->view, 1, clock_deadline(5)); /* which counts once */
    assert_true(clock_mono_ns() - began_ns >= 5 * NS_PER_MS);
}

static void a_sleeping_refresher_is_woken_by_another_process(void **state)
{
    struct place *p = *state;
    int64_t late_ns = clock_deadline(PLACE_HANG_MS);
    pid_t pid = place_fork();
    if (pid == 0) {
        struct snapshot *snap = NULL;
        _exit(snapshot_get(p->view, 0, PLACE_FOREVER, clock_deadline(PLACE_HANG_MS), &snap, NULL));
    }
    snapshot_wait_wanted(p->view, 0, late_ns);
    assert_true(clock_mono_ns() < late_ns);
    assert_int_equal(place_publish(p->view, "x"), 0);
    place_expect_exit(pid, 0);
}

/* --- all at once --- */

/* Body and state are made from one number, which the etag tells. */
static void fill(char *to, size_t size, unsigned n)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (char)('A' + (n + i) % 23);
}

static size_t size_for(unsigned n)
{
    return 1 + n * 7919U % 20000U;
}

static bool is_whole(const struct snapshot *snap)
{
    int64_t number = 0;
    if (str_to_i64(snap->head->etag, 0, INT32_MAX, &number) != 0)
        return false;
    unsigned n = (unsigned)number;
    size_t size = size_for(n);
    cleanup_free char *want = mem_alloc(size);
    fill(want, size, n);
    return snap->head->body_size == size && memcmp(snap->body, want, size) == 0 &&
           snap->head->state_size == size / 2 && memcmp(snap->state, want, size / 2) == 0;
}

struct stress {
    struct snapshots *view;
    struct shared *shared;
    _Atomic uint64_t *newest; /* ticket that somebody was served: in shared memory */
    _Atomic int *bad;
    atomic_int stop;
};

static void raise_to(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t seen = atomic_load(word);
    while (seen < value && !atomic_compare_exchange_weak(word, &seen, value))
        ;
}

static void *read_all_the_time(void *arg)
{
    struct stress *st = arg;
    while (!atomic_load(&st->stop)) {
        uint64_t newest = atomic_load(st->newest);
        uint64_t generation = atomic_load(&st->shared->generation);
        struct snapshot *snap = snapshot_current(st->view);
        if (!snap) /* the file went between reading its ticket and opening it: look again */
            atomic_store(st->bad, 6);
        snapshot_put(snap);
        if (snapshot_get(st->view, generation, PLACE_FOREVER, clock_deadline(PLACE_HANG_MS), &snap,
                NULL) != 0) {
            atomic_store(st->bad, 1);
            break;
        }
        if (!is_whole(snap))
            atomic_store(st->bad, 2);
        if (snap->head->ticket < newest) /* time ran backwards between two polls */
            atomic_store(st->bad, 3);
        if (snap->head->generation < generation)
            atomic_store(st->bad, 4);
        raise_to(st->newest, snap->head->ticket);
        snapshot_put(snap);
    }
    return NULL;
}

static int publish_number(struct snapshots *view, unsigned n)
{
    struct err e = ERR_INIT;
    size_t size = size_for(n);
    cleanup_free char *body = mem_alloc(size);
    struct snapshot_base base = snapshot_begin(view);
    struct snapshot_parts parts = {
        .body = body, .body_size = size, .state = body, .state_size = size / 2
    };
    fill(body, size, n);
    str_format(parts.head.etag, sizeof(parts.head.etag), "%u", n);
    return snapshot_publish(view, &base, &parts, &e);
}

/* Two processes publish as fast as they can (one of them loses each race), READERS threads in each of
 * two processes read. The mapping's unused metric words serve as common memory. */
static void run_stress(struct place *p, struct snapshots *view, unsigned first)
{
    pthread_t readers[READERS];
    struct stress st = { .view = view,
        .shared = p->shared,
        .newest = (_Atomic uint64_t *)&p->shared->metrics[200],
        .bad = (_Atomic int *)&p->shared->metrics[208] };
    for (int i = 0; i < READERS; i++)
        if (pthread_create(&readers[i], NULL, read_all_the_time, &st) != 0)
            abort();
    for (unsigned i = 0; i < WRITES; i++) {
        if (i % 5 == 0)
            shared_bump(p->shared);
        if (publish_number(view, first + i) < 0)
            atomic_store(st.bad, 5);
    }
    atomic_store(&st.stop, 1);
    shared_bump(p->shared);
    while (publish_number(view, first) == 1)
        ; /* for readers who wait for the last generation */
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
}

static void readers_never_see_a_mixed_body_nor_time_run_backwards(void **state)
{
    struct place *p = *state;
    assert_int_equal(publish_number(p->view, 0), 0);
    pid_t pid = place_fork();
    if (pid == 0) {
        run_stress(p, place_view(p), WRITES);
        _exit(0);
    }
    run_stress(p, p->view, 0);
    place_expect_exit(pid, 0);
    assert_int_equal(p->shared->metrics[208], 0);
    assert_true(p->shared->metrics[200] > WRITES / 2);
    assert_int_equal(place_each_file(p, ".snap.", NULL), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_setup, place_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_one_holds_the_lease),
        TEST(an_owner_that_slept_over_its_lease_notices_that_it_lost_it),
        TEST(the_lease_of_a_killed_refresher_lapses),
        TEST(the_refresher_does_not_sleep_over_a_change_or_a_wish),
        TEST(a_sleeping_refresher_is_woken_by_another_process),
        TEST(readers_never_see_a_mixed_body_nor_time_run_backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
