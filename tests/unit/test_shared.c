/* SPDX-License-Identifier: Apache-2.0 */
/* The shared memory: made once, found by who comes later, replaced when it is not ours, and nothing that
 * happens to its file harms who has it. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

static void file_of(const struct place *p, const char *name, char out[PLACE_PATH_SIZE])
{
    str_format(out, PLACE_PATH_SIZE, "%s/%s.shared", p->dir, name);
}

/* In place of whatever is there. */
static void write_file(const char *path, const char *text)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void memory_has_mode_0660_and_its_file_0640_whatever_the_umask(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    struct stat st;
    struct shmid_ds ds;
    struct shared *s = NULL;
    struct err e = ERR_INIT;
    mode_t old = umask(077);
    int rc = shared_open(p->dir, "other", &s, &e);
    umask(old);
    assert_int_equal(rc, 0);
    assert_int_equal(shmctl((int)s->id, IPC_STAT, &ds), 0);
    assert_int_equal(ds.shm_perm.mode & 0777, 0660);
    shared_leave(s);
    file_of(p, "other", path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(ds.shm_perm.gid, st.st_gid);
}

static void processes_of_a_service_share_it(void **state)
{
    struct place *p = *state;
    struct err e = ERR_INIT;
    struct shared *again = NULL;
    shared_bump(p->shared);
    p->shared->metrics[7] = 42;
    assert_int_equal(shared_open(p->dir, "ops", &again, &e), 0);
    assert_int_equal(again->generation, 1);
    assert_int_equal(again->metrics[7], 42);
    assert_string_equal(again->machine_id, p->shared->machine_id);
    assert_int_equal(strlen(again->machine_id), 32);
    shared_leave(again);
}

/* Opens once more and tells whether that is another memory. */
static bool is_replaced(const struct place *p)
{
    struct err e = ERR_INIT;
    struct shared *again = NULL;
    assert_int_equal(shared_open(p->dir, "ops", &again, &e), 0);
    bool fresh = strcmp(again->machine_id, p->shared->machine_id) != 0;
    if (fresh)
        assert_int_equal(again->generation, 0);
    shared_leave(again);
    return fresh;
}

static void memory_of_another_layout_is_replaced(void **state)
{
    struct place *p = *state;
    shared_bump(p->shared);
    assert_false(is_replaced(p));
    p->shared->layout++;
    assert_true(is_replaced(p));
    assert_int_equal(p->shared->generation, 1); /* who has the old one keeps it */
}

static void memory_without_magic_is_replaced(void **state)
{
    struct place *p = *state;
    p->shared->magic = 0;
    assert_true(is_replaced(p));
}

/* The number of a segment may have become somebody else's. */
static void memory_of_somebody_else_is_never_taken(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    char text[128];
    int id = shmget(IPC_PRIVATE, sizeof(struct shared), IPC_CREAT | 0600);
    assert_true(id >= 0);
    void *theirs = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    assert_ptr_not_equal(theirs, (void *)-1);
    file_of(p, "ops", path);
    str_format(text, sizeof(text), "weighbridge %d %s\n", id, p->shared->machine_id);
    write_file(path, text);
    assert_true(is_replaced(p));
    memcpy(theirs, p->shared, sizeof(*p->shared)); /* ours in all but the number */
    write_file(path, text);
    assert_true(is_replaced(p));
    shmdt(theirs);
    id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600); /* of another size: not even looked into */
    assert_true(id >= 0);
    str_format(text, sizeof(text), "weighbridge %d %s\n", id, p->shared->machine_id);
    write_file(path, text);
    assert_true(is_replaced(p));
    shmctl(id, IPC_RMID, NULL);
}

static void a_file_that_makes_no_sense_is_replaced(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    const char *const texts[] = { "", "\n", "weighbridge\n", "weighbridge 1\n",
        "weighbridge 99999999999 0123456789abcdef0123456789abcdef\n",
        "weighbridge -1 0123456789abcdef0123456789abcdef\n",
        "weighbridge x 0123456789abcdef0123456789abcdef\n",
        "weighbridge 2147483647 0123456789abcdef0123456789abcdef" };
    file_of(p, "ops", path);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_file(path, texts[i]);
        assert_true(is_replaced(p));
    }
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_true(is_replaced(p));
}

/* Whoever may write to the file may do this at any time. */
static void truncating_the_file_harms_nobody(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    file_of(p, "ops", path);
    assert_int_equal(truncate(path, 0), 0);
    shared_bump(p->shared);
    p->shared->metrics[METRICS_WORDS - 1] = 1;
    assert_int_equal(p->shared->generation, 1);
}

/* A supervisor's workers stay together whatever becomes of the file. */
static void what_the_environment_names_comes_before_the_file(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    struct err e = ERR_INIT;
    struct shared *other = NULL;
    file_of(p, "ops", path);
    shared_hand_on(p->shared, p->dir, "ops");
    assert_int_equal(unlink(path), 0);
    assert_false(is_replaced(p));
    assert_int_equal(access(path, F_OK), -1);                      /* and it makes none */
    assert_int_equal(shared_open(p->dir, "other", &other, &e), 0); /* another service's it is not */
    assert_string_not_equal(other->machine_id, p->shared->machine_id);
    shared_leave(other);
    p->shared->layout++;
    assert_true(is_replaced(p));
    p->shared->layout--;
    setenv(SHARED_ENV, "weighbridge nonsense", 1);
    assert_true(is_replaced(p));
    unsetenv(SHARED_ENV);
}

static void who_joins_makes_nothing(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    struct err e = ERR_INIT;
    struct shared *s = NULL;
    assert_int_equal(shared_join(p->dir, "ops", &s, &e), 0);
    assert_string_equal(s->machine_id, p->shared->machine_id);
    shared_leave(s);
    s = NULL;
    assert_int_equal(shared_join(p->dir, "none", &s, &e), 1);
    p->shared->layout++;
    assert_int_equal(shared_join(p->dir, "ops", &s, &e), 1);
    assert_null(s);
    file_of(p, "none", path);
    assert_int_equal(access(path, F_OK), -1);
}

static void its_file_is_written_again_when_it_is_lost(void **state)
{
    struct place *p = *state;
    char path[PLACE_PATH_SIZE];
    struct err e = ERR_INIT;
    file_of(p, "ops", path);
    assert_int_equal(shared_keep_name(p->shared, p->dir, "ops", &e), 0);
    unlink(path);
    assert_int_equal(shared_keep_name(p->shared, p->dir, "ops", &e), 1);
    assert_false(is_replaced(p));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(shared_keep_name(p->shared, p->dir, "ops", &e), 1);
    assert_false(is_replaced(p));
    write_file(path, "weighbridge 2147483647 0123456789abcdef0123456789abcdef\n");
    assert_int_equal(shared_keep_name(p->shared, p->dir, "ops", &e), 1);
    assert_false(is_replaced(p));
}

/* A newer version's, which a reload brought. */
static void other_memory_that_lives_keeps_its_name(void **state)
{
    struct place *p = *state;
    struct err e = ERR_INIT;
    struct shared *newer = NULL;
    p->shared->layout++;
    assert_int_equal(shared_open(p->dir, "ops", &newer, &e), 0);
    assert_int_equal(shared_keep_name(p->shared, p->dir, "ops", &e), 0);
    shared_leave(newer);
    assert_int_equal(shared_keep_name(p->shared, p->dir, "ops", &e), 1); /* now nobody has it */
}

/* Nothing stays behind of a service that has ended, however it ended. */
static void memory_goes_with_its_last_process(void **state)
{
    struct place *p = *state;
    struct shmid_ds ds;
    int told[2];
    int64_t id = -1;
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    pid_t pid = place_fork();
    if (pid == 0) {
        struct err e = ERR_INIT;
        struct shared *s = NULL;
        if (shared_open(p->dir, "other", &s, &e) != 0 ||
            write(told[1], &s->id, sizeof(s->id)) != sizeof(s->id))
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(told[0], &id, sizeof(id)), sizeof(id));
    assert_int_equal(shmctl((int)id, IPC_STAT, &ds), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(shmctl((int)id, IPC_STAT, &ds), -1);
    close(told[0]);
    close(told[1]);
}

static void runtime_folder_is_made_but_not_its_parents(void **state)
{
    struct place *p = *state;
    char dir[PLACE_PATH_SIZE];
    char path[PLACE_PATH_SIZE + 32];
    struct shared *s = NULL;
    struct err e = ERR_INIT;
    str_format(dir, sizeof(dir), "%s/none/run", p->dir);
    assert_int_equal(shared_open(dir, "ops", &s, &e), -1);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(e.msg, dir));
    assert_null(s);
    str_format(dir, sizeof(dir), "%s/run", p->dir);
    assert_int_equal(shared_open(dir, "ops", &s, &e), 0);
    shared_leave(s);
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
    int stay[2];
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(stay), 0);
    pid_t pids[STARTERS];
    for (int i = 0; i < STARTERS; i++) {
        pids[i] = place_fork();
        if (pids[i] != 0)
            continue;
        char byte = 0;
        struct err e = ERR_INIT;
        struct shared *s = NULL;
        close(go[1]);
        if (read(go[0], &byte, 1) != 0 || shared_open(p->dir, name, &s, &e) != 0)
            _exit(1);
        int rc = write(told[1], s->machine_id, 32) == 32 ? 0 : 1;
        close(stay[1]);
        _exit(read(stay[0], &byte, 1) == 0 ? rc : 1); /* it lives as long as one has it */
    }
    close(go[0]);
    close(go[1]);
    close(told[1]);
    close(stay[0]);
    char first[32];
    char id[32];
    assert_int_equal(read(told[0], first, 32), 32);
    for (int i = 1; i < STARTERS; i++) {
        assert_int_equal(read(told[0], id, 32), 32);
        assert_memory_equal(id, first, 32);
    }
    close(told[0]);
    close(stay[1]);
    for (int i = 0; i < STARTERS; i++)
        place_expect_exit(pids[i], 0);
}

static void processes_that_start_at_once_share_one_memory(void **state)
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
        TEST(memory_has_mode_0660_and_its_file_0640_whatever_the_umask),
        TEST(processes_of_a_service_share_it),
        TEST(memory_of_another_layout_is_replaced),
        TEST(memory_without_magic_is_replaced),
        TEST(memory_of_somebody_else_is_never_taken),
        TEST(a_file_that_makes_no_sense_is_replaced),
        TEST(truncating_the_file_harms_nobody),
        TEST(what_the_environment_names_comes_before_the_file),
        TEST(who_joins_makes_nothing),
        TEST(its_file_is_written_again_when_it_is_lost),
        TEST(other_memory_that_lives_keeps_its_name),
        TEST(memory_goes_with_its_last_process),
        TEST(runtime_folder_is_made_but_not_its_parents),
        TEST(processes_that_start_at_once_share_one_memory),
        TEST(bump_wakes_the_refresher_only_while_somebody_polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
