/* SPDX-License-Identifier: Apache-2.0 */
/* HUP: a new generation takes over only when it is ready, and no request is left without a worker. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "tests/fake/supervised.h"

/* --- reload --- */

static void hup_replaces_the_generation_when_the_new_one_is_ready(void **state)
{
    struct supervised *p = *state;
    pid_t first = sup_start_one(p);
    sup_signal(p, SIGHUP);
    pid_t second = sup_expect_reload(p, first);
    sup_expect_metric(p, METRIC_RELOADS, 1);
    sup_stop_one(p, second); /* the old one has left and is not told again */
    assert_int_equal(sup_value(p, METRIC_WORKERS_DIED), 0);
}

static void an_old_worker_that_does_not_drain_is_killed(void **state)
{
    struct supervised *p = *state;
    sup_behave(p, "stubborn");
    sup_start(p, 1, SUP_READY_MS, 100);
    pid_t first = sup_expect_ready(p);
    sup_behave(p, "ready");
    sup_signal(p, SIGHUP);
    pid_t second = sup_expect_reload(p, first);
    for (int64_t until_ns = clock_deadline(SUP_HANG_MS); kill(first, 0) == 0;) {
        assert_true(clock_mono_ns() < until_ns);
        poll(NULL, 0, 1);
    }
    sup_stop_one(p, second);
}

static void a_reload_waits_for_each_of_its_workers(void **state)
{
    struct supervised *p = *state;
    int told = 0;
    struct sup_event ev;
    sup_start(p, 2, SUP_READY_MS, SUP_STOP_MS);
    sup_expect_n_ready(p, 2);
    sup_behave(p, "one-gate");
    sup_signal(p, SIGHUP);
    for (int i = 0; i < 3; i++) { /* both start, one is ready */
        assert_true(sup_next_event(p, &ev));
        assert_true(strcmp(ev.what, "start") == 0 || strcmp(ev.what, "ready") == 0);
    }
    assert_int_equal(sup_value(p, METRIC_RELOADS), 0);
    sup_open_gate(p);
    sup_expect(p, "passed"); /* no old one was told before the last new one was let through */
    for (int i = 0; i < 3; i++) {
        assert_true(sup_next_event(p, &ev));
        told += strcmp(ev.what, "hup") == 0;
    }
    assert_int_equal(told, 2);
    sup_signal(p, SIGTERM);
    sup_expect(p, "term");
    sup_expect(p, "term");
    sup_expect_all_gone(p);
    sup_expect_exit(p, 0);
}

static void an_old_generation_that_still_drains_is_told_to_end_too(void **state)
{
    struct supervised *p = *state;
    sup_behave(p, "stubborn");
    sup_start(p, 1, SUP_READY_MS, 3600 * MS_PER_S);
    pid_t first = sup_expect_ready(p);
    sup_behave(p, "ready");
    sup_signal(p, SIGHUP);
    sup_expect_reload(p, first);
    sup_signal(p, SIGTERM);
    sup_expect(p, "term");
    sup_expect(p, "term");
    sup_signal(p, SIGTERM);
    sup_expect_all_gone(p);
    sup_expect_exit(p, 1);
}

/* The new generation fails; the old one serves on and the next reload works. */
static void failed_reload(struct supervised *p, const char *how, bool ended_by_us)
{
    sup_start(p, 1, 1500, SUP_STOP_MS);
    pid_t first = sup_expect_ready(p);
    sup_behave(p, how);
    sup_signal(p, SIGHUP);
    pid_t failing = sup_expect(p, "start").pid;
    if (ended_by_us)
        sup_expect_of(p, "term", failing);
    sup_expect_metric(p, METRIC_RELOADS_FAILED, 1);
    sup_behave(p, "ready");
    sup_signal(p, SIGHUP);
    pid_t second = sup_expect_reload(p, first); /* no replacement of the failed one came before */
    sup_expect_metric(p, METRIC_RELOADS, 1);
    sup_stop_one(p, second);
    assert_int_equal(sup_value(p, METRIC_RELOADS_FAILED), 1);
}

static void a_generation_that_dies_leaves_the_old_one_serving(void **state)
{
    failed_reload(*state, "die", false);
}

static void a_generation_that_never_is_ready_leaves_the_old_one_serving(void **state)
{
    failed_reload(*state, "never", true);
}

static void hups_during_a_reload_become_one_more(void **state)
{
    struct supervised *p = *state;
    pid_t first = sup_start_one(p);
    sup_behave(p, "gate");
    sup_signal(p, SIGHUP);
    pid_t second = sup_expect(p, "start").pid;
    for (int i = 0; i < 3; i++) {
        sup_signal(p, SIGHUP);
        sup_wait_signals_taken(p);
    }
    sup_open_gate(p);
    sup_expect_of(p, "passed", second);
    struct sup_event seen[3];
    pid_t third = 0;
    for (int i = 0; i < 3; i++) { /* second ready, first told, third starts: in any order */
        assert_true(sup_next_event(p, &seen[i]));
        if (strcmp(seen[i].what, "start") == 0)
            third = seen[i].pid;
        else
            assert_int_equal(seen[i].pid, strcmp(seen[i].what, "hup") == 0 ? first : second);
    }
    assert_true(third > 0);
    sup_open_gate(p);
    sup_expect_of(p, "passed", third);
    sup_expect_handover(p, second, third);
    sup_expect_metric(p, METRIC_RELOADS, 2);
    sup_stop_one(p, third); /* and none after that */
}

static void a_worker_that_dies_during_a_reload_is_replaced(void **state)
{
    struct supervised *p = *state;
    pid_t first = sup_start_one(p);
    sup_behave(p, "gate");
    sup_signal(p, SIGHUP);
    pid_t coming = sup_expect(p, "start").pid;
    sup_behave(p, "ready");
    assert_int_equal(kill(first, SIGKILL), 0);
    pid_t stand_in = sup_expect_ready(p); /* the new one may still fail */
    sup_open_gate(p);
    sup_expect_of(p, "passed", coming);
    sup_expect_handover(p, stand_in, coming);
    sup_stop_one(p, coming);
}

/* --- which configuration --- */

static void a_replacement_starts_with_what_its_generation_accepted(void **state)
{
    struct supervised *p = *state;
    sup_configure(p, "one");
    pid_t first = sup_start_one(p);
    sup_configure(p, "two"); /* nobody has asked for it */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(first, SIGKILL), 0);
        first = sup_expect_ready_with(p, "one");
    }
    sup_signal(p, SIGHUP);
    pid_t second = sup_expect_reload(p, first);
    sup_expect_metric(p, METRIC_RELOADS, 1);
    sup_configure(p, "three");
    assert_int_equal(kill(second, SIGKILL), 0);
    second = sup_expect_ready_with(p, "two");
    sup_stop_one(p, second);
}

/* The new one has read its configuration, and handed it on, when its generation fails. */
static void after_a_failed_reload_a_replacement_starts_with_what_was_accepted_last(void **state)
{
    struct supervised *p = *state;
    sup_configure(p, "one");
    sup_start(p, 1, 1500, SUP_STOP_MS);
    pid_t first = sup_expect_ready(p);
    sup_configure(p, "two");
    sup_behave(p, "never");
    sup_signal(p, SIGHUP);
    pid_t failing = sup_expect(p, "start").pid;
    sup_expect_of(p, "term", failing);
    sup_expect_metric(p, METRIC_RELOADS_FAILED, 1);
    sup_behave(p, "ready");
    assert_int_equal(kill(first, SIGKILL), 0);
    pid_t second = sup_expect_ready_with(p, "one");
    sup_stop_one(p, second);
}

/* A replacement that comes while a reload is under way is of the old generation. */
static void during_a_reload_a_replacement_starts_with_what_was_accepted_last(void **state)
{
    struct supervised *p = *state;
    sup_configure(p, "one");
    pid_t first = sup_start_one(p);
    sup_configure(p, "two");
    sup_behave(p, "gate");
    sup_signal(p, SIGHUP);
    pid_t coming = sup_expect(p, "start").pid;
    sup_behave(p, "ready");
    assert_int_equal(kill(first, SIGKILL), 0);
    pid_t stand_in = sup_expect_ready_with(p, "one");
    sup_open_gate(p);
    sup_expect_of(p, "passed", coming);
    sup_expect_handover(p, stand_in, coming);
    sup_expect_metric(p, METRIC_RELOADS, 1);
    assert_int_equal(kill(coming, SIGKILL), 0);
    pid_t last = sup_expect_ready_with(p, "two");
    sup_stop_one(p, last);
}

/* A worker that hands nothing on (an older binary) is replaced by one that reads for itself: never by one that has
 * what a generation before read. */
static void what_a_generation_did_not_hand_on_is_read_anew(void **state)
{
    struct supervised *p = *state;
    sup_configure(p, "one");
    pid_t first = sup_start_one(p);
    sup_configure(p, "");
    sup_signal(p, SIGHUP);
    pid_t second = sup_expect_reload(p, first);
    sup_expect_metric(p, METRIC_RELOADS, 1);
    assert_int_equal(kill(second, SIGKILL), 0);
    pid_t third = sup_expect_ready(p);
    sup_stop_one(p, third);
}

/* --- a listening socket that was removed --- */

static void assert_connects(const struct supervised *p)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    str_format(a.sun_path, sizeof(a.sun_path), "%s/sock", p->dir);
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
}

static void wait_for_socket(const struct supervised *p)
{
    char path[SUP_PATH_SIZE];
    str_format(path, sizeof(path), "%s/sock", p->dir);
    for (int64_t until_ns = clock_deadline(SUP_HANG_MS); access(path, F_OK) != 0;) {
        assert_true(clock_mono_ns() < until_ns);
        poll(NULL, 0, 1);
    }
}

static void remove_socket(const struct supervised *p)
{
    char path[SUP_PATH_SIZE];
    str_format(path, sizeof(path), "%s/sock", p->dir);
    assert_int_equal(unlink(path), 0);
}

/* What its next worker says: it is started with the configuration that was accepted last. */
static pid_t expect_new_socket(const struct supervised *p, pid_t old, const char *got)
{
    pid_t coming = sup_expect(p, "start").pid;
    sup_expect_of(p, got, coming);
    sup_expect_handover(p, old, coming);
    assert_connects(p);
    return coming;
}

static void a_new_socket_goes_to_a_generation_with_the_same_configuration(void **state)
{
    struct supervised *p = *state;
    sup_configure(p, "one");
    pid_t worker = sup_start_one(p);
    sup_configure(p, "two");
    for (int i = 0; i < 2; i++) {
        remove_socket(p);
        worker = expect_new_socket(p, worker, "got-one");
    }
    sup_signal(p, SIGHUP);
    worker = sup_expect_reload(p, worker); /* and that reads it */
    sup_expect_metric(p, METRIC_RELOADS, 1);
    sup_stop_one(p, worker);
    assert_int_equal(sup_value(p, METRIC_RELOADS_FAILED), 0);
}

static void a_generation_for_a_new_socket_that_fails_is_tried_again(void **state)
{
    struct supervised *p = *state;
    sup_configure(p, "one");
    pid_t worker = sup_start_one(p);
    sup_behave(p, "die");
    remove_socket(p);
    for (int i = 0; i < 2; i++)
        sup_expect(p, "start"); /* and dies, without harm to who serves */
    sup_behave(p, "ready");
    struct sup_event ev = sup_expect(p, "start");
    while (sup_next_event(p, &ev) && strcmp(ev.what, "start") == 0)
        ; /* one more may have read how to behave before it was told otherwise */
    assert_string_equal(ev.what, "got-one");
    sup_expect_handover(p, worker, ev.pid);
    sup_stop_one(p, ev.pid);
    assert_int_equal(sup_value(p, METRIC_RELOADS), 0);
    assert_int_equal(sup_value(p, METRIC_RELOADS_FAILED), 0);
}

/* A generation that was started for the old socket must not be the last. */
static void a_socket_that_is_removed_during_a_reload_is_handed_on_after_it(void **state)
{
    struct supervised *p = *state;
    sup_configure(p, "one");
    pid_t first = sup_start_one(p);
    sup_configure(p, "two");
    sup_behave(p, "gate");
    sup_signal(p, SIGHUP);
    pid_t second = sup_expect(p, "start").pid;
    sup_behave(p, "ready");
    remove_socket(p);
    wait_for_socket(p);
    sup_open_gate(p);
    sup_expect_of(p, "passed", second);
    bool first_told = false;
    pid_t third = 0;
    for (int i = 0; i < 6; i++) { /* the old one may be told when the third has started already */
        struct sup_event ev;
        assert_true(sup_next_event(p, &ev));
        if (strcmp(ev.what, "hup") == 0 && !first_told)
            first_told = ev.pid == first;
        else if (strcmp(ev.what, "start") == 0)
            third = ev.pid;
        else if (str_starts(ev.what, "got-"))
            assert_string_equal(ev.what, "got-two");
        else if (strcmp(ev.what, "hup") == 0)
            assert_int_equal(ev.pid, second);
    }
    assert_true(first_told && third != 0);
    assert_connects(p);
    sup_stop_one(p, third);
    assert_int_equal(sup_value(p, METRIC_RELOADS), 1);
}

int main(int argc, char **argv)
{
    int role = sup_roles(argc, argv);
    if (role >= 0)
        return role;
    const struct CMUnitTest tests[] = {
        SUP_TEST(hup_replaces_the_generation_when_the_new_one_is_ready),
        SUP_TEST(an_old_worker_that_does_not_drain_is_killed),
        SUP_TEST(a_reload_waits_for_each_of_its_workers),
        SUP_TEST(an_old_generation_that_still_drains_is_told_to_end_too),
        SUP_TEST(a_generation_that_dies_leaves_the_old_one_serving),
        SUP_TEST(a_generation_that_never_is_ready_leaves_the_old_one_serving),
        SUP_TEST(hups_during_a_reload_become_one_more),
        SUP_TEST(a_worker_that_dies_during_a_reload_is_replaced),
        SUP_TEST(a_replacement_starts_with_what_its_generation_accepted),
        SUP_TEST(after_a_failed_reload_a_replacement_starts_with_what_was_accepted_last),
        SUP_TEST(during_a_reload_a_replacement_starts_with_what_was_accepted_last),
        SUP_TEST(what_a_generation_did_not_hand_on_is_read_anew),
        SUP_TEST(a_new_socket_goes_to_a_generation_with_the_same_configuration),
        SUP_TEST(a_generation_for_a_new_socket_that_fails_is_tried_again),
        SUP_TEST(a_socket_that_is_removed_during_a_reload_is_handed_on_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
