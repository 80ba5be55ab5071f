/* SPDX-License-Identifier: Apache-2.0 */
/* Serving and publishing the snapshot: operations contract, section 3, "Freshness". */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

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

/* --- serving --- */

static void nothing_is_served_before_the_first_snapshot(void **state)
{
    struct place *p = *state;
    struct snapshot *snap = NULL;
    bool waited = true;
    assert_null(snapshot_current(p->view));
    assert_int_equal(snapshot_get(p->view, 0, PLACE_FOREVER, 0, &snap, &waited), 1);
    assert_null(snap);
    assert_false(waited);
}

static void what_was_published_is_served_whole(void **state)
{
    struct place *p = *state;
    struct err e = ERR_INIT;
    const char st[] = "what the successor needs";
    struct snapshot_parts parts = {
        .head = { .unavailable = 1, .etag = "abc", .degraded = "redis" },
        .body = "{\"a\":1}",
        .body_size = 7,
        .state = st,
        .state_size = sizeof(st)
    };
    shared_bump(p->shared);
    struct snapshot_base base = snapshot_begin(p->view);
    assert_int_equal(snapshot_publish(p->view, &base, &parts, &e), 0);
    struct snapshots *other = place_view(p);
    struct snapshot *snap = snapshot_current(other);
    assert_non_null(snap);
    assert_int_equal(snap->head->generation, 1);
    assert_int_equal(snap->head->built_ns, base.began_ns);
    assert_int_equal(snap->head->unavailable, 1);
    assert_string_equal(snap->head->etag, "abc");
    assert_string_equal(snap->head->degraded, "redis");
    assert_int_equal(snap->head->body_size, 7);
    assert_memory_equal(snap->body, "{\"a\":1}", 7);
    assert_int_equal(snap->head->state_size, sizeof(st));
    assert_memory_equal(snap->state, st, sizeof(st));
    assert_int_equal((uintptr_t)snap->state % 8, 0);
    snapshot_put(snap);
    snapshots_close(other);
}

static void an_empty_body_can_be_published(void **state)
{
    struct place *p = *state;
    assert_int_equal(place_publish(p->view, ""), 0);
    place_assert_serves(p->view, "");
}

static void large_and_small_are_read_alike(void **state)
{
    struct place *p = *state;
    const size_t sizes[] = { 1, 4096, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 3 << 20 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        cleanup_free char *body = mem_calloc(1, sizes[i] + 1);
        memset(body, 'a' + (int)i, sizes[i]);
        body[sizes[i] - 1] = '.';
        assert_int_equal(place_publish(p->view, body), 0);
        struct snapshot *snap = snapshot_current(p->view);
        assert_non_null(snap);
        assert_int_equal(snap->head->body_size, sizes[i]);
        place_publish(p->view, "its successor");
        assert_memory_equal(snap->body, body, sizes[i]);
        snapshot_put(snap);
    }
}

static void threads_of_a_process_share_one_copy(void **state)
{
    struct place *p = *state;
    place_publish(p->view, "x");
    struct snapshot *a = snapshot_current(p->view);
    struct snapshot *b = snapshot_current(p->view);
    assert_ptr_equal(a, b);
    snapshot_put(a);
    snapshot_put(b);
}

static void a_snapshot_in_use_stays_readable_when_it_is_replaced(void **state)
{
    struct place *p = *state;
    place_publish(p->view, "old");
    struct snapshot *old = snapshot_current(p->view);
    place_publish(p->view, "new");
    place_assert_serves(p->view, "new");
    assert_memory_equal(old->body, "old", 3);
    snapshot_put(old);
    assert_int_equal(place_each_file(p, ".snap.", NULL), 1); /* the predecessor's file is gone */
}

static void min_generation_is_honoured(void **state)
{
    struct place *p = *state;
    struct snapshot *snap = NULL;
    bool waited = false;
    place_publish(p->view, "before");
    shared_bump(p->shared);
    uint64_t generation = p->shared->generation;
    assert_int_equal(
        snapshot_get(p->view, generation, PLACE_FOREVER, clock_deadline(5), &snap, &waited), 1);
    assert_true(waited);
    assert_int_equal(p->shared->wanted, 1); /* it asked for one */
    place_publish(p->view, "after");
    assert_int_equal(snapshot_get(p->view, generation, PLACE_FOREVER, 0, &snap, &waited), 0);
    assert_false(waited);
    assert_memory_equal(snap->body, "after", 5);
    snapshot_put(snap);
}

static void max_age_is_honoured(void **state)
{
    struct place *p = *state;
    struct err e = ERR_INIT;
    struct snapshot *snap = NULL;
    struct snapshot_parts parts = place_parts("x");
    struct snapshot_base base = snapshot_begin(p->view);
    base.began_ns -= 2 * NS_PER_S;
    assert_int_equal(snapshot_publish(p->view, &base, &parts, &e), 0);
    assert_int_equal(snapshot_get(p->view, 0, NS_PER_S, clock_deadline(5), &snap, NULL), 1);
    assert_int_equal(snapshot_get(p->view, 0, 3600 * NS_PER_S, 0, &snap, NULL), 0);
    snapshot_put(snap);
}

static void a_poll_is_noted(void **state)
{
    struct place *p = *state;
    struct snapshot *snap = NULL;
    assert_false(snapshot_is_polled(p->view, 3600000));
    assert_int_equal(snapshot_get(p->view, 0, PLACE_FOREVER, 0, &snap, NULL), 1);
    assert_true(snapshot_is_polled(p->view, 3600000));
    p->shared->last_poll_ns -= 10 * NS_PER_S;
    assert_false(snapshot_is_polled(p->view, 9000));
}

/* The child publishes when the parent has asked; the parent's deadline is only a hang guard. */
static void a_waiting_reader_is_woken_by_another_process(void **state)
{
    struct place *p = *state;
    struct snapshot *snap = NULL;
    bool waited = false;
    pid_t pid = place_fork();
    if (pid == 0) {
        while (atomic_load(&p->shared->wanted) == 0)
            wait_word(&p->shared->wanted, 0, clock_deadline(PLACE_HANG_MS));
        _exit(place_publish(p->view, "from the child"));
    }
    int64_t began_ns = clock_mono_ns();
    assert_int_equal(
        snapshot_get(p->view, 0, PLACE_FOREVER, clock_deadline(2 * PLACE_HANG_MS), &snap, &waited),
        0);
    assert_true(clock_mono_ns() - began_ns < (int64_t)PLACE_HANG_MS * NS_PER_MS);
    assert_true(waited);
    assert_memory_equal(snap->body, "from the child", 14);
    snapshot_put(snap);
    place_expect_exit(pid, 0);
}

/* --- publishing --- */

static void a_refresher_that_was_frozen_does_not_publish_over_a_newer_one(void **state)
{
    struct place *p = *state;
    struct err e = ERR_INIT;
    struct snapshots *frozen = place_view(p);
    place_publish(p->view, "first");
    struct snapshot_parts parts = place_parts("stale");
    struct snapshot_base base = snapshot_begin(frozen);
    place_publish(p->view, "newer");
    assert_int_equal(snapshot_publish(frozen, &base, &parts, &e), 1);
    place_assert_serves(p->view, "newer");
    place_assert_serves(frozen, "newer");
    assert_int_equal(place_each_file(p, ".snap.", NULL), 1); /* its file is gone */
    assert_int_equal(place_publish(frozen, "its next one"), 0);
    place_assert_serves(p->view, "its next one");
    snapshots_close(frozen);
}

static void a_full_disk_keeps_the_old_snapshot(void **state)
{
    struct place *p = *state;
    place_publish(p->view, "old");
    pid_t pid = place_fork();
    if (pid == 0) {
        struct err e = ERR_INIT;
        struct rlimit limit = { .rlim_cur = 4096, .rlim_max = 4096 };
        cleanup_free char *big = mem_calloc(1, 1 << 20);
        struct snapshot_parts parts = { .body = big, .body_size = 1 << 20 };
        struct snapshot_base base = snapshot_begin(p->view);
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(2);
        int rc = snapshot_publish(p->view, &base, &parts, &e);
        _exit(rc == -1 && e.code == ERR_UNAVAILABLE && strstr(e.msg, p->dir) ? 0 : 1);
    }
    place_expect_exit(pid, 0);
    place_assert_serves(p->view, "old");
    assert_int_equal(place_each_file(p, ".snap.", NULL), 1);
    assert_int_equal(place_publish(p->view, "space again"), 0);
    place_assert_serves(p->view, "space again");
}

static void halve(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size / 2), 0);
}

static void cut_head(const char *path)
{
    assert_int_equal(truncate(path, 8), 0);
}

static void patch(const char *path, size_t offset, uint64_t value)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &value, sizeof(value), (off_t)offset), sizeof(value));
    close(fd);
}

static void make_huge(const char *path)
{
    assert_int_equal(truncate(path, INT64_C(1) << 42), 0);
}

static void claim_huge_body(const char *path)
{
    patch(path, offsetof(struct snapshot_head, body_size), UINT64_MAX);
}

static void claim_huge_state(const char *path)
{
    patch(path, offsetof(struct snapshot_head, state_size), UINT64_MAX);
}

/* Sizes that add up to the file's only because the sum wraps. */
static void claim_sizes_that_wrap(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    size_t rest = (size_t)st.st_size - sizeof(struct snapshot_head);
    patch(path, offsetof(struct snapshot_head, body_size), rest + 8);
    patch(path, offsetof(struct snapshot_head, state_size), UINT64_MAX - 7);
}

static void forge_magic(const char *path)
{
    patch(path, offsetof(struct snapshot_head, magic), 1);
}

static void forge_ticket(const char *path)
{
    patch(path, offsetof(struct snapshot_head, ticket), 77);
}

static void unterminate_etag(const char *path)
{
    patch(path, offsetof(struct snapshot_head, etag) + SNAPSHOT_ETAG_SIZE - 8, UINT64_MAX);
}

static void a_damaged_file_is_not_served_and_crashes_nobody(void **state)
{
    struct place *p = *state;
    void (*const damages[])(const char *) = { halve, cut_head, claim_huge_body, claim_huge_state,
        claim_sizes_that_wrap, make_huge, forge_magic, forge_ticket, unterminate_etag,
        place_remove };
    char body[10000];
    memset(body, 'x', sizeof(body) - 1);
    body[sizeof(body) - 1] = '\0';
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        struct snapshot *snap = NULL;
        place_publish(p->view, body);
        assert_int_equal(place_each_file(p, ".snap.", damages[i]), 1);
        struct snapshots *other = place_view(p);
        assert_null(snapshot_current(other));
        assert_int_equal(snapshot_get(other, 0, PLACE_FOREVER, clock_deadline(2), &snap, NULL), 1);
        assert_int_equal(place_publish(other, "whole again"), 0);
        place_assert_serves(other, "whole again");
        snapshots_close(other);
    }
}

/* Whoever may write in the folder may do this to a file at any time. */
static void a_file_that_is_damaged_while_it_is_served_harms_nobody(void **state)
{
    struct place *p = *state;
    void (*const damages[])(const char *) = { halve, cut_head, make_huge, place_remove };
    char body[10000];
    memset(body, 'x', sizeof(body) - 1);
    body[sizeof(body) - 1] = '\0';
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        place_publish(p->view, body);
        struct snapshot *snap = snapshot_current(p->view);
        assert_int_equal(place_each_file(p, ".snap.", damages[i]), 1);
        assert_memory_equal(snap->body, body, sizeof(body) - 1);
        assert_int_equal(snap->head->body_size, sizeof(body) - 1);
        snapshot_put(snap);
        place_assert_serves(p->view, body);
    }
}

static void make_file(const struct place *p, const char *name, int64_t age_s)
{
    char path[PLACE_PATH_SIZE];
    str_format(path, sizeof(path), "%s/%s", p->dir, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    struct timespec when = { .tv_sec = clock_wall_us() / US_PER_S - age_s };
    struct timespec times[2] = { when, when };
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void what_killed_refreshers_left_is_cleaned_but_nothing_else(void **state)
{
    struct place *p = *state;
    char name[PLACE_PATH_SIZE];
    char left[PLACE_PATH_SIZE];
    for (int i = 0; i < 5; i++)
        place_publish(p->view, "x"); /* the current ticket is 5, the next is 6 */
    str_format(name, sizeof(name), "ops.snap.%.8s.3", p->shared->machine_id);
    make_file(p, name, 0);
    str_format(left, sizeof(left), "%s", name);
    str_format(name, sizeof(name), "ops.snap.%.8s.99", p->shared->machine_id);
    make_file(p, name, 3600); /* may be being written by a process that was frozen */
    make_file(p, "ops.snap.otherone.7", 3600);
    make_file(p, "ops.snap.otherone.8", 0);
    make_file(p, "ops.snapper", 3600);
    assert_int_equal(place_publish(p->view, "x"), 0); /* no take-over: nothing is looked for */
    assert_int_equal(place_each_file(p, ".snap.", NULL), 5);
    assert_int_equal(place_each_file(p, left, NULL), 1);
    assert_int_equal(snapshot_lease(p->view, PLACE_HANG_MS, NULL), 0);
    assert_int_equal(place_publish(p->view, "current"), 0);
    assert_int_equal(place_each_file(p, left, NULL), 0);
    assert_int_equal(place_each_file(p, ".99", NULL), 1);
    assert_int_equal(place_each_file(p, "otherone.7", NULL), 0);
    assert_int_equal(place_each_file(p, "otherone.8", NULL), 1);
    assert_int_equal(place_each_file(p, "snapper", NULL), 1);
    assert_int_equal(place_each_file(p, ".snap.", NULL), 3);
    place_assert_serves(p->view, "current");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_setup, place_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_served_before_the_first_snapshot),
        TEST(what_was_published_is_served_whole),
        TEST(an_empty_body_can_be_published),
        TEST(large_and_small_are_read_alike),
        TEST(threads_of_a_process_share_one_copy),
        TEST(a_snapshot_in_use_stays_readable_when_it_is_replaced),
        TEST(min_generation_is_honoured),
        TEST(max_age_is_honoured),
        TEST(a_poll_is_noted),
        TEST(a_waiting_reader_is_woken_by_another_process),
        TEST(a_refresher_that_was_frozen_does_not_publish_over_a_newer_one),
        TEST(a_full_disk_keeps_the_old_snapshot),
        TEST(a_damaged_file_is_not_served_and_crashes_nobody),
        TEST(a_file_that_is_damaged_while_it_is_served_harms_nobody),
        TEST(what_killed_refreshers_left_is_cleaned_but_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
