/* SPDX-License-Identifier: Apache-2.0 */
/* The shared mapping and the snapshot: operations contract, section 3, "Freshness". */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wait.h"
#include "fcgi/snapshot.h"

enum { HANG_MS = 20000, PATH_SIZE = 512, WRITES = 400, READERS = 4, STARTERS = 8, ROUNDS = 10 };

#define FOREVER INT64_MAX

struct place {
    char dir[64];
    struct shared *shared;
    struct snapshots *view;
};

static int setup(void **state)
{
    struct err e = ERR_INIT;
    struct place *p = mem_calloc(1, sizeof(*p));
    str_copy(p->dir, sizeof(p->dir), "/tmp/wb-snapshot-XXXXXX");
    if (!mkdtemp(p->dir) || shared_map(p->dir, "ops", &p->shared, &e) != 0 ||
        snapshots_open(p->shared, p->dir, "ops", &p->view, &e) != 0)
        return -1;
    *state = p;
    return 0;
}

/* Calls fn with the path of each file in the folder whose name holds part. Returns how many. */
static int each_file(const struct place *p, const char *part, void (*fn)(const char *path))
{
    int n = 0;
    DIR *d = opendir(p->dir);
    for (const struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        char path[PATH_SIZE];
        if (f->d_name[0] == '.' || !strstr(f->d_name, part) ||
            str_format(path, sizeof(path), "%s/%s", p->dir, f->d_name) != 0)
            continue;
        n++;
        if (fn)
            fn(path);
    }
    if (d)
        closedir(d);
    return n;
}

static void remove_file(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static int teardown(void **state)
{
    struct place *p = *state;
    snapshots_close(p->view);
    shared_unmap(p->shared);
    each_file(p, "", remove_file);
    rmdir(p->dir);
    free(p);
    return 0;
}

static struct snapshot_parts parts_of(const char *body)
{
    struct snapshot_parts parts = { .body = body, .body_size = strlen(body) };
    return parts;
}

static int publish(struct snapshots *view, const char *body)
{
    struct err e = ERR_INIT;
    struct snapshot_parts parts = parts_of(body);
    struct snapshot_base base = snapshot_begin(view);
    return snapshot_publish(view, &base, &parts, &e);
}

/* What the view serves now, whatever its age. */
static void assert_serves(struct snapshots *view, const char *body)
{
    struct snapshot *snap = NULL;
    assert_int_equal(snapshot_get(view, 0, FOREVER, 0, &snap, NULL), 0);
    assert_int_equal(snap->head->body_size, strlen(body));
    assert_memory_equal(snap->body, body, strlen(body));
    snapshot_put(snap);
}

static struct snapshots *open_view(const struct place *p)
{
    struct err e = ERR_INIT;
    struct snapshots *view = NULL;
    assert_int_equal(snapshots_open(p->shared, p->dir, "ops", &view, &e), 0);
    return view;
}

static void expect_exit(pid_t pid, int code)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static pid_t start_child(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        alarm(60); /* an orphan of a failed test does not stay */
    return pid;
}

/* --- the mapping --- */

static void mapping_has_mode_0660_whatever_the_umask(void **state)
{
    struct place *p = *state;
    char path[PATH_SIZE];
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
    char path[PATH_SIZE];
    str_format(path, sizeof(path), "%s/ops.shared", p->dir);
    assert_int_equal(truncate(path, (off_t)sizeof(struct shared) + 1), 0);
    assert_true(is_replaced(p));
}

static void runtime_folder_is_made_but_not_its_parents(void **state)
{
    struct place *p = *state;
    char dir[PATH_SIZE];
    char path[PATH_SIZE + 32];
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
        pids[i] = start_child();
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
        expect_exit(pids[i], 0);
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

/* --- serving --- */

static void nothing_is_served_before_the_first_snapshot(void **state)
{
    struct place *p = *state;
    struct snapshot *snap = NULL;
    bool waited = true;
    assert_null(snapshot_current(p->view));
    assert_int_equal(snapshot_get(p->view, 0, FOREVER, 0, &snap, &waited), 1);
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
    struct snapshots *other = open_view(p);
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
    assert_int_equal(publish(p->view, ""), 0);
    assert_serves(p->view, "");
}

static void threads_of_a_process_share_one_mapped_file(void **state)
{
    struct place *p = *state;
    publish(p->view, "x");
    struct snapshot *a = snapshot_current(p->view);
    struct snapshot *b = snapshot_current(p->view);
    assert_ptr_equal(a, b);
    snapshot_put(a);
    snapshot_put(b);
}

static void a_snapshot_in_use_stays_readable_when_it_is_replaced(void **state)
{
    struct place *p = *state;
    publish(p->view, "old");
    struct snapshot *old = snapshot_current(p->view);
    publish(p->view, "new");
    assert_serves(p->view, "new");
    assert_memory_equal(old->body, "old", 3);
    snapshot_put(old);
    assert_int_equal(each_file(p, ".snap.", NULL), 1); /* the predecessor's file is gone */
}

static void min_generation_is_honoured(void **state)
{
    struct place *p = *state;
    struct snapshot *snap = NULL;
    bool waited = false;
    publish(p->view, "before");
    shared_bump(p->shared);
    uint64_t generation = p->shared->generation;
    assert_int_equal(
        snapshot_get(p->view, generation, FOREVER, clock_deadline(5), &snap, &waited), 1);
    assert_true(waited);
    assert_int_equal(p->shared->wanted, 1); /* it asked for one */
    publish(p->view, "after");
    assert_int_equal(snapshot_get(p->view, generation, FOREVER, 0, &snap, &waited), 0);
    assert_false(waited);
    assert_memory_equal(snap->body, "after", 5);
    snapshot_put(snap);
}

static void max_age_is_honoured(void **state)
{
    struct place *p = *state;
    struct err e = ERR_INIT;
    struct snapshot *snap = NULL;
    struct snapshot_parts parts = parts_of("x");
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
    assert_int_equal(snapshot_get(p->view, 0, FOREVER, 0, &snap, NULL), 1);
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
    pid_t pid = start_child();
    if (pid == 0) {
        while (atomic_load(&p->shared->wanted) == 0)
            wait_word(&p->shared->wanted, 0, clock_deadline(HANG_MS));
        _exit(publish(p->view, "from the child"));
    }
    int64_t began_ns = clock_mono_ns();
    assert_int_equal(
        snapshot_get(p->view, 0, FOREVER, clock_deadline(2 * HANG_MS), &snap, &waited), 0);
    assert_true(clock_mono_ns() - began_ns < (int64_t)HANG_MS * NS_PER_MS);
    assert_true(waited);
    assert_memory_equal(snap->body, "from the child", 14);
    snapshot_put(snap);
    expect_exit(pid, 0);
}

/* --- publishing --- */

static void a_refresher_that_was_frozen_does_not_publish_over_a_newer_one(void **state)
{
    struct place *p = *state;
    struct err e = ERR_INIT;
    struct snapshots *frozen = open_view(p);
    publish(p->view, "first");
    struct snapshot_parts parts = parts_of("stale");
    struct snapshot_base base = snapshot_begin(frozen);
    publish(p->view, "newer");
    assert_int_equal(snapshot_publish(frozen, &base, &parts, &e), 1);
    assert_serves(p->view, "newer");
    assert_serves(frozen, "newer");
    assert_int_equal(each_file(p, ".snap.", NULL), 1); /* its file is gone */
    assert_int_equal(publish(frozen, "its next one"), 0);
    assert_serves(p->view, "its next one");
    snapshots_close(frozen);
}

static void a_full_disk_keeps_the_old_snapshot(void **state)
{
    struct place *p = *state;
    publish(p->view, "old");
    pid_t pid = start_child();
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
    expect_exit(pid, 0);
    assert_serves(p->view, "old");
    assert_int_equal(each_file(p, ".snap.", NULL), 1);
    assert_int_equal(publish(p->view, "space again"), 0);
    assert_serves(p->view, "space again");
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
        claim_sizes_that_wrap, forge_magic, forge_ticket, unterminate_etag, remove_file };
    char body[10000];
    memset(body, 'x', sizeof(body) - 1);
    body[sizeof(body) - 1] = '\0';
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        struct snapshot *snap = NULL;
        publish(p->view, body);
        assert_int_equal(each_file(p, ".snap.", damages[i]), 1);
        struct snapshots *other = open_view(p);
        assert_null(snapshot_current(other));
        assert_int_equal(snapshot_get(other, 0, FOREVER, clock_deadline(2), &snap, NULL), 1);
        assert_int_equal(publish(other, "whole again"), 0);
        assert_serves(other, "whole again");
        snapshots_close(other);
    }
}

static void make_file(const struct place *p, const char *name, int64_t age_s)
{
    char path[PATH_SIZE];
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
    char name[PATH_SIZE];
    char left[PATH_SIZE];
    for (int i = 0; i < 5; i++)
        publish(p->view, "x"); /* the current ticket is 5, the next is 6 */
    str_format(name, sizeof(name), "ops.snap.%.8s.3", p->shared->machine_id);
    make_file(p, name, 0);
    str_format(left, sizeof(left), "%s", name);
    str_format(name, sizeof(name), "ops.snap.%.8s.99", p->shared->machine_id);
    make_file(p, name, 3600); /* may be being written by a process that was frozen */
    make_file(p, "ops.snap.otherone.7", 3600);
    make_file(p, "ops.snap.otherone.8", 0);
    make_file(p, "ops.snapper", 3600);
    assert_int_equal(publish(p->view, "x"), 0); /* no take-over: nothing is looked for */
    assert_int_equal(each_file(p, ".snap.", NULL), 5);
    assert_int_equal(each_file(p, left, NULL), 1);
    assert_int_equal(snapshot_lease(p->view, HANG_MS, NULL), 0);
    assert_int_equal(publish(p->view, "current"), 0);
    assert_int_equal(each_file(p, left, NULL), 0);
    assert_int_equal(each_file(p, ".99", NULL), 1);
    assert_int_equal(each_file(p, "otherone.7", NULL), 0);
    assert_int_equal(each_file(p, "otherone.8", NULL), 1);
    assert_int_equal(each_file(p, "snapper", NULL), 1);
    assert_int_equal(each_file(p, ".snap.", NULL), 3);
    assert_serves(p->view, "current");
}

/* --- the lease --- */

static void only_one_holds_the_lease(void **state)
{
    struct place *p = *state;
    struct snapshots *other = open_view(p);
    bool taken_over = true;
    assert_int_equal(snapshot_lease(p->view, HANG_MS, &taken_over), 0);
    assert_false(taken_over);
    assert_int_equal(snapshot_lease(other, HANG_MS, &taken_over), 1);
    assert_int_equal(snapshot_lease(p->view, HANG_MS, NULL), 0); /* renewed */
    snapshot_lease_end(other);                                   /* not its own: nothing happens */
    assert_int_equal(snapshot_lease(other, HANG_MS, NULL), 1);
    snapshot_lease_end(p->view);
    assert_int_equal(snapshot_lease(other, HANG_MS, &taken_over), 0);
    assert_false(taken_over);
    assert_int_equal(snapshot_lease(p->view, HANG_MS, NULL), 1);
    snapshots_close(other);
}

static void an_owner_that_slept_over_its_lease_notices_that_it_lost_it(void **state)
{
    struct place *p = *state;
    struct snapshots *other = open_view(p);
    bool taken_over = false;
    assert_int_equal(snapshot_lease(p->view, -1, NULL), 0); /* lapsed already */
    assert_int_equal(snapshot_lease(other, HANG_MS, &taken_over), 0);
    assert_true(taken_over);
    assert_int_equal(snapshot_lease(p->view, HANG_MS, NULL), 1);
    snapshots_close(other);
}

static void the_lease_of_a_killed_refresher_lapses(void **state)
{
    struct place *p = *state;
    int told[2];
    char byte = 0;
    assert_int_equal(pipe(told), 0);
    pid_t pid = start_child();
    if (pid == 0) {
        struct snapshots *own = open_view(p);
        bool ok = snapshot_lease(own, 100, NULL) == 0 && publish(own, "last words") == 0;
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
    int64_t deadline_ns = clock_deadline(HANG_MS);
    while (snapshot_lease(p->view, HANG_MS, &taken_over) != 0) {
        int64_t until_ns = atomic_load(&p->shared->lease_until_ns);
        assert_true(clock_mono_ns() < deadline_ns);
        wait_word(&p->shared->published, p->shared->published, until_ns + 1);
    }
    assert_true(taken_over);
    assert_serves(p->view, "last words");
    assert_int_equal(publish(p->view, "the successor's"), 0);
    assert_serves(p->view, "the successor's");
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
    int64_t late_ns = clock_deadline(HANG_MS);
    shared_bump(p->shared);
    snapshot_wait_wanted(p->view, 0, late_ns); /* a change */
    publish(p->view, "x");
    assert_int_equal(snapshot_get(p->view, 9, FOREVER, clock_deadline(2), &snap, NULL), 1);
    snapshot_wait_wanted(p->view, 1, late_ns); /* a wish from after the publication */
    assert_true(clock_mono_ns() < late_ns);
    began_ns = clock_mono_ns();
    snapshot_wait_wanted(p->view, 1, clock_deadline(5)); /* which counts once */
    assert_true(clock_mono_ns() - began_ns >= 5 * NS_PER_MS);
}

static void a_sleeping_refresher_is_woken_by_another_process(void **state)
{
    struct place *p = *state;
    int64_t late_ns = clock_deadline(HANG_MS);
    pid_t pid = start_child();
    if (pid == 0) {
        struct snapshot *snap = NULL;
        _exit(snapshot_get(p->view, 0, FOREVER, clock_deadline(HANG_MS), &snap, NULL));
    }
    snapshot_wait_wanted(p->view, 0, late_ns);
    assert_true(clock_mono_ns() < late_ns);
    assert_int_equal(publish(p->view, "x"), 0);
    expect_exit(pid, 0);
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
        if (snapshot_get(st->view, generation, FOREVER, clock_deadline(HANG_MS), &snap, NULL) !=
            0) {
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
    pid_t pid = start_child();
    if (pid == 0) {
        run_stress(p, open_view(p), WRITES);
        _exit(0);
    }
    run_stress(p, p->view, 0);
    expect_exit(pid, 0);
    assert_int_equal(p->shared->metrics[208], 0);
    assert_true(p->shared->metrics[200] > WRITES / 2);
    assert_int_equal(each_file(p, ".snap.", NULL), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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
        TEST(nothing_is_served_before_the_first_snapshot),
        TEST(what_was_published_is_served_whole),
        TEST(an_empty_body_can_be_published),
        TEST(threads_of_a_process_share_one_mapped_file),
        TEST(a_snapshot_in_use_stays_readable_when_it_is_replaced),
        TEST(min_generation_is_honoured),
        TEST(max_age_is_honoured),
        TEST(a_poll_is_noted),
        TEST(a_waiting_reader_is_woken_by_another_process),
        TEST(a_refresher_that_was_frozen_does_not_publish_over_a_newer_one),
        TEST(a_full_disk_keeps_the_old_snapshot),
        TEST(a_damaged_file_is_not_served_and_crashes_nobody),
        TEST(what_killed_refreshers_left_is_cleaned_but_nothing_else),
        TEST(only_one_holds_the_lease),
        TEST(an_owner_that_slept_over_its_lease_notices_that_it_lost_it),
        TEST(the_lease_of_a_killed_refresher_lapses),
        TEST(the_refresher_does_not_sleep_over_a_change_or_a_wish),
        TEST(a_sleeping_refresher_is_woken_by_another_process),
        TEST(readers_never_see_a_mixed_body_nor_time_run_backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
