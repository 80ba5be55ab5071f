/* SPDX-License-Identifier: Apache-2.0 */
/* The shared mapping: made once, kept over restarts, replaced when it is not ours. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "tests/fake/snapshot_place.h"

enum { STARTERS = 8, ROUNDS = 10 };

static void mapping_has_mode_0660_whatever_the_umask(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    struct stat st;
    struct shared *s = NULL;
    struct err e = ERR_INIT;
    mode_t old = umask(077);
    int rc = shared_map(p->dir, "other", &s, &e);
    umask(old);
    assert_int_equal(rc, 0);
    shared_unmap(s);
    str_format(path, sizeof(path), "%s/other.shared", p->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
}

static void mapping_survives_its_processes(void **state)
{
    struct place *p = *state;
    struct err e = ERR_INIT;
    struct shared *again = NULL;
    shared_bump(p->shared);
    p->shared->metrics[7] = 42;
    assert_int_equal(shared_map(p->dir, "ops", &again, &e), 0);
    assert_int_equal(again->generation, 1);
    assert_int_equal(again->metrics[7], 42);
    assert_string_equal(again->machine_id, p->shared->machine_id);
    assert_int_equal(strlen(again->machine_id), 32);
    shared_unmap(again);
}

/* Maps once more and tells whether that is a fresh file. */
static bool is_replaced(const struct place *p)
{
    struct err e = ERR_INIT;
    struct shared *again = NULL;
    assert_int_equal(shared_map(p->dir, "ops", &again, &e), 0);
    bool fresh = strcmp(again->machine_id, p->shared->machine_id) != 0;
    if (fresh)
        assert_int_equal(again->generation, 0);
    shared_unmap(again);
    return fresh;
}

static void mapping_of_another_boot_is_replaced(void **state)
{
    struct place *p = *state;
    shared_bump(p->shared);
    assert_false(is_replaced(p));
    p->shared->boot_id[0] = 'x';
    assert_true(is_replaced(p));
    assert_int_equal(p->shared->generation, 1); /* who has the old one keeps it */
}

static void mapping_of_another_layout_is_replaced(void **state)
{
    struct place *p = *state;
    p->shared->layout++;
    assert_true(is_replaced(p));
}

static void mapping_without_magic_is_replaced(void **state)
{
    struct place *p = *state;
    p->shared->magic = 0;
    assert_true(is_replaced(p));
}

static void mapping_of_another_size_is_replaced(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    str_format(path, sizeof(path), "%s/ops.shared", p->dir);
    assert_int_equal(truncate(path, (off_t)sizeof(struct shared) + 1), 0);
    assert_true(is_replaced(p));
}

static void runtime_folder_is_made_but_not_its_parents(void **state)
{
    struct place *p = *state;
    char dir[PLACE_PATH_SIZE];
    char path[PLACE_PATH_SIZE + 32];
    struct shared *s = NULL;
    struct err e = ERR_INIT;
    str_format(dir, sizeof(dir), "%s/none/run", p->dir);
    assert_int_equal(shared_map(dir, "ops", &s, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(e.msg, dir));
    assert_null(s);
    str_format(dir, sizeof(dir), "%s/run", p->dir);
    assert_int_equal(shared_map(dir, "ops", &s, &e), 0);
    shared_unmap(s);
    str_format(path, sizeof(path), "%s/ops.shared", dir);
    assert_int_equal(unlink(path), 0);
    str_format(path, sizeof(path), "%s/ops.shared.lock", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void start_at_once(const struct place *p, const char *name)
{
    int go[2];
    int told[2];
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(told), 0);
    pid_t pids[STARTERS];
    for (int i = 0; i < STARTERS; i++) {
        pids[i] = place_fork();
        if (pids[i] != 0)
            continue;
        char byte = 0;
        struct err e = ERR_INIT;
        struct shared *s = NULL;
        close(go[1]);
        if (read(go[0], &byte, 1) != 0 || shared_map(p->dir, name, &s, &e) != 0)
            _exit(1);
        _exit(write(told[1], s->machine_id, 32) == 32 ? 0 : 1);
    }
    close(go[0]);
    close(go[1]);
    close(told[1]);
    char first[32];
    char id[32];
    assert_int_equal(read(told[0], first, 32), 32);
    for (int i = 1; i < STARTERS; i++) {
        assert_int_equal(read(told[0], id, 32), 32);
        assert_memory_equal(id, first, 32);
    }
    close(told[0]);
    for (int i = 0; i < STARTERS; i++)
        place_expect_exit(pids[i], 0);
}

static void processes_that_start_at_once_share_one_mapping(void **state)
{
    for (int i = 0; i < ROUNDS; i++) {
        char name[16];
        str_format(name, sizeof(name), "race%d", i);
        start_at_once(*state, name);
    }
}

static void bump_wakes_the_refresher_only_while_somebody_polls(void **state)
{
    struct place *p = *state;
    shared_bump(p->shared);
    assert_int_equal(p->shared->wanted, 0);
    p->shared->last_poll_ns = clock_mono_ns() - 3 * NS_PER_S;
    shared_bump(p->shared);
    assert_int_equal(p->shared->wanted, 0);
    p->shared->last_poll_ns = clock_mono_ns();
    shared_bump(p->shared);
    assert_int_equal(p->shared->wanted, 1);
    assert_int_equal(p->shared->generation, 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_setup, place_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(mapping_has_mode_0660_whatever_the_umask),
        TEST(mapping_survives_its_processes),
        TEST(mapping_of_another_boot_is_replaced),
        TEST(mapping_of_another_layout_is_replaced),
        TEST(mapping_without_magic_is_replaced),
        TEST(mapping_of_another_size_is_replaced),
        TEST(runtime_folder_is_made_but_not_its_parents),
        TEST(processes_that_start_at_once_share_one_mapping),
        TEST(bump_wakes_the_refresher_only_while_somebody_polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
