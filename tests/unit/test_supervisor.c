/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of workers. The worker is this program again (argv[1] is "worker"): it does what the file
 * `behave` in the test's folder says and reports what happens to it through a pipe, whose end of file
 * proves that supervisor and workers have all left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/wait.h"
#include "fcgi/supervisor.h"

enum { HANG_MS = 20000, READY_MS = 15000, STOP_MS = 15000, ORPHAN_S = 60, PATH_SIZE = 256 };

#define REPORT_ENV "WB_TEST_REPORT"
#define DIR_ENV    "WB_TEST_DIR"

/* What a worker reports. Its size lets write(2) be whole. */
struct event {
    char what
        [12]; /* "start", "passed" (the gate), "ready", "hup", "term"; "bad-..." for what must not be */
    pid_t pid;
    int64_t at_ns;
};

/* --- the worker --- */

static int env_fd(const char *name)
{
    int64_t fd = -1;
    const char *text = getenv(name);
    return text && str_to_i64(text, 3, 1024, &fd) == 0 ? (int)fd : -1;
}

static void report(const char *what)
{
    struct event ev = { .pid = getpid(), .at_ns = clock_mono_ns() };
    str_copy(ev.what, sizeof(ev.what), what);
    if (write(env_fd(REPORT_ENV), &ev, sizeof(ev)) != (ssize_t)sizeof(ev))
        _exit(9);
}

static void read_behaviour(char *out, size_t size)
{
    char path[PATH_SIZE];
    str_format(path, sizeof(path), "%s/behave", getenv(DIR_ENV));
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
}

/* Sleeps until the test opens the gate. */
static void wait_for_gate(void)
{
    char path[PATH_SIZE];
    str_format(path, sizeof(path), "%s/gate", getenv(DIR_ENV));
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        _exit(9);
}

/* True for one worker only. */
static bool is_first(void)
{
    char path[PATH_SIZE];
    str_format(path, sizeof(path), "%s/taken", getenv(DIR_ENV));
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd >= 0;
}

static void check_inheritance(void)
{
    int accepting = 0;
    socklen_t size = sizeof(accepting);
    sigset_t blocked;
    struct sigaction pipe_action;
    if (getsockopt(0, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &size) != 0 || accepting == 0)
        report("bad-fd0");
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    if (sigismember(&blocked, SIGTERM) || sigismember(&blocked, SIGHUP) ||
        sigismember(&blocked, SIGCHLD))
        report("bad-mask");
    sigaction(SIGPIPE, NULL, &pipe_action);
    if (pipe_action.sa_handler != SIG_DFL)
        report("bad-sigpipe");
    /* 0, 1, 2, the ready pipe, the report pipe: nothing else came through. */
    for (int fd = 3; fd < 256; fd++)
        if (fd != env_fd(SUPERVISOR_READY_ENV) && fd != env_fd(REPORT_ENV) &&
            fcntl(fd, F_GETFD) >= 0)
            report("bad-leak");
}

static int worker_main(void)
{
    char behave[16];
    sigset_t set;
    int ready = env_fd(SUPERVISOR_READY_ENV);
    alarm(ORPHAN_S);
    check_inheritance();
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(
        SIGPIPE, SIG_IGN); /* the supervisor may be killed before it has read that we are ready */
    read_behaviour(behave, sizeof(behave));
    report("start");
    if (strcmp(behave, "die") == 0)
        _exit(3);
    if (strcmp(behave, "gate") == 0 || (strcmp(behave, "one-gate") == 0 && is_first())) {
        wait_for_gate();
        report("passed");
    }
    if (strcmp(behave, "mute") == 0) /* closes the pipe and says nothing */
        close(ready);
    else if (strcmp(behave, "never") != 0) {
        if (write(ready, "r", 1) != 1)
            report("bad-ready");
        close(ready);
        report("ready");
    }
    for (;;) {
        int sig = 0;
        sigwait(&set, &sig);
        report(sig == SIGHUP ? "hup" : "term");
        if (strcmp(behave, "stubborn") != 0)
            _exit(0);
    }
}

/* --- the supervisor's process --- */

static int supervise(struct listener *l, int workers, int64_t ready_ms, int64_t stop_ms)
{
    char name[] = "weighbridge-test";
    char role[] = "worker";
    char *argv[] = { name, role, NULL };
    struct err e = ERR_INIT;
    struct supervisor_options o = {
        .listener = l, .workers = workers, .argv = argv, .ready_ms = ready_ms, .stop_ms = stop_ms
    };
    if (supervisor_run(&o, &e) == 0)
        return 0;
    return e.code == ERR_INTERNAL && e.msg[0] != '\0' ? 1 : 2;
}

/* argv[1] is "supervise", argv[2] the socket's path: started when the gate opens. For the test of a
 * binary that is replaced. */
static int supervise_main(const char *path)
{
    struct err e = ERR_INIT;
    cleanup_listener struct listener l = LISTENER_INIT;
    alarm(ORPHAN_S);
    report("start");
    wait_for_gate();
    fcntl(env_fd(REPORT_ENV), F_SETFD, 0);
    return listener_open(&l, path, NULL, HANG_MS, &e) == 0 ? supervise(&l, 1, READY_MS, STOP_MS)
                                                           : 3;
}

/* --- the tests' side --- */

struct place {
    char dir[64];
    struct listener listener;
    int64_t *metrics; /* shared with the supervisor */
    int report;       /* read end */
    pid_t pid;        /* supervisor; 0: none */
};

static void behave(const struct place *p, const char *what)
{
    char path[PATH_SIZE];
    char aside[PATH_SIZE];
    str_format(path, sizeof(path), "%s/behave", p->dir);
    str_format(aside, sizeof(aside), "%s/behave.new", p->dir);
    int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, what, strlen(what)), strlen(what));
    close(fd);
    assert_int_equal(rename(aside, path), 0);
}

static int setup(void **state)
{
    char path[PATH_SIZE];
    struct err e = ERR_INIT;
    struct place *p = mem_calloc(1, sizeof(*p));
    *state = p;
    p->report = -1;
    p->listener = (struct listener)LISTENER_INIT;
    str_copy(p->dir, sizeof(p->dir), "/tmp/wb-supervisor-XXXXXX");
    if (!mkdtemp(p->dir))
        return -1;
    str_format(path, sizeof(path), "%s/gate", p->dir);
    if (mkfifo(path, 0600) != 0)
        return -1;
    str_format(path, sizeof(path), "%s/sock", p->dir);
    p->metrics =
        mmap(NULL, metrics_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p->metrics == MAP_FAILED || listener_open(&p->listener, path, NULL, HANG_MS, &e) != 0)
        return -1;
    setenv(DIR_ENV, p->dir, 1);
    behave(p, "ready");
    return 0;
}

static int teardown(void **state)
{
    static const char *const NAMES[] = { "behave", "gate", "sock", "sock.lock", "sock.side",
        "program", "taken" };
    struct place *p = *state;
    if (p->pid > 0) { /* a test failed */
        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    if (p->report >= 0)
        close(p->report);
    listener_close(&p->listener);
    munmap(p->metrics, metrics_size());
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        char path[PATH_SIZE];
        str_format(path, sizeof(path), "%s/%s", p->dir, NAMES[i]);
        unlink(path);
    }
    int rc = rmdir(p->dir); /* nothing else was left there */
    free(p);
    return rc;
}

/* The pipe of reports; its write end is in the environment of who is started next. */
static int open_report(struct place *p)
{
    char number[16];
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    p->report = fds[0];
    str_format(number, sizeof(number), "%d", fds[1]);
    setenv(REPORT_ENV, number, 1);
    return fds[1];
}

static void start_supervisor(struct place *p, int workers, int64_t ready_ms, int64_t stop_ms)
{
    int write_end = open_report(p);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        alarm(ORPHAN_S);
        fcntl(write_end, F_SETFD, 0);
        metrics_attach(p->metrics);
        _exit(supervise(&p->listener, workers, ready_ms, stop_ms));
    }
    close(write_end);
    listener_close(&p->listener);
}

/* False at the end of file: all have left. */
static bool next_event(const struct place *p, struct event *out)
{
    assert_int_equal(wait_fd(p->report, POLLIN, clock_deadline(HANG_MS)), 1);
    ssize_t n = read(p->report, out, sizeof(*out));
    if (n == 0)
        return false;
    assert_int_equal(n, sizeof(*out));
    if (str_starts(out->what, "bad-"))
        fail_msg("a worker reports %s", out->what);
    return true;
}

static struct event expect(const struct place *p, const char *what)
{
    struct event ev = { .pid = 0 };
    if (!next_event(p, &ev))
        fail_msg("all have left before %s", what);
    assert_string_equal(ev.what, what);
    return ev;
}

/* One worker starts and becomes ready. */
static pid_t expect_ready(const struct place *p)
{
    pid_t pid = expect(p, "start").pid;
    assert_int_equal(expect(p, "ready").pid, pid);
    return pid;
}

static void expect_of(const struct place *p, const char *what, pid_t pid)
{
    assert_int_equal(expect(p, what).pid, pid);
}

/* Both come, in whatever order. */
static void expect_both(const struct place *p, struct event a, struct event b)
{
    struct event first = { .pid = 0 };
    struct event second = { .pid = 0 };
    assert_true(next_event(p, &first));
    assert_true(next_event(p, &second));
    bool swapped = strcmp(first.what, a.what) != 0;
    const struct event *as_a = swapped ? &second : &first;
    const struct event *as_b = swapped ? &first : &second;
    assert_string_equal(as_a->what, a.what);
    assert_int_equal(as_a->pid, a.pid);
    assert_string_equal(as_b->what, b.what);
    assert_int_equal(as_b->pid, b.pid);
}

/* The worker `coming` is ready and the one it replaces is told. */
static void expect_handover(const struct place *p, pid_t old, pid_t coming)
{
    struct event ready = { .what = "ready", .pid = coming };
    struct event hup = { .what = "hup", .pid = old };
    expect_both(p, ready, hup);
}

/* A new generation of one worker replaces `old`. */
static pid_t expect_reload(const struct place *p, pid_t old)
{
    pid_t coming = expect(p, "start").pid;
    expect_handover(p, old, coming);
    return coming;
}

/* n workers start and become ready, in whatever order. */
static void expect_n_ready(const struct place *p, int n)
{
    int ready = 0;
    int started = 0;
    while (ready < n) {
        struct event ev;
        assert_true(next_event(p, &ev));
        if (strcmp(ev.what, "start") == 0)
            started++;
        else if (strcmp(ev.what, "ready") == 0)
            ready++;
        else
            fail_msg("%s while workers start", ev.what);
    }
    assert_int_equal(started, n);
}

static void expect_all_gone(const struct place *p)
{
    struct event ev;
    if (next_event(p, &ev))
        fail_msg("%s when all should have left", ev.what);
}

static void expect_supervisor_exit(struct place *p, int code)
{
    int status = 0;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    p->pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void signal_supervisor(const struct place *p, int sig)
{
    assert_int_equal(kill(p->pid, sig), 0);
}

static int64_t value(const struct place *p, enum metric m)
{
    return __atomic_load_n(&p->metrics[m], __ATOMIC_SEQ_CST);
}

/* Waits until a counter has come to n: a thing of the supervisor that no worker sees. */
static void expect_metric(const struct place *p, enum metric m, int64_t n)
{
    int64_t deadline_ns = clock_deadline(HANG_MS);
    while (value(p, m) < n && clock_mono_ns() < deadline_ns)
        poll(NULL, 0, 1);
    assert_int_equal(value(p, m), n);
}

/* Waits until no signal is pending for the supervisor: it has read what it was sent. */
static void wait_until_signals_taken(const struct place *p)
{
    char path[PATH_SIZE];
    str_format(path, sizeof(path), "/proc/%d/status", (int)p->pid);
    for (int64_t deadline_ns = clock_deadline(HANG_MS);;) {
        char text[4096];
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, text, sizeof(text) - 1);
        assert_true(n > 0);
        text[n] = '\0';
        if (strstr(text, "ShdPnd:\t0000000000000000"))
            return;
        assert_true(clock_mono_ns() < deadline_ns);
        poll(NULL, 0, 1);
    }
}

/* Lets one process that waits at the gate, now or soon, go on. */
static void open_gate(const struct place *p)
{
    char path[PATH_SIZE];
    str_format(path, sizeof(path), "%s/gate", p->dir);
    for (int64_t deadline_ns = clock_deadline(HANG_MS);;) {
        cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0)
            return;
        assert_true(clock_mono_ns() < deadline_ns);
        poll(NULL, 0, 1);
    }
}

/* TERM; the one worker that is left gets TERM, and all leave. */
static void stop_one(struct place *p, pid_t worker)
{
    signal_supervisor(p, SIGTERM);
    expect_of(p, "term", worker);
    expect_all_gone(p);
    expect_supervisor_exit(p, 0);
}

/* --- life of workers --- */

static void term_ends_all_workers(void **state)
{
    struct place *p = *state;
    start_supervisor(p, 3, READY_MS, STOP_MS);
    expect_n_ready(p, 3);
    signal_supervisor(p, SIGTERM);
    for (int i = 0; i < 3; i++)
        expect(p, "term");
    expect_all_gone(p);
    expect_supervisor_exit(p, 0);
    assert_int_equal(value(p, METRIC_WORKERS_STARTED), 3);
    assert_int_equal(value(p, METRIC_WORKERS_DIED), 0);
}

static void int_ends_all_workers_too(void **state)
{
    struct place *p = *state;
    start_supervisor(p, 1, READY_MS, STOP_MS);
    pid_t worker = expect_ready(p);
    signal_supervisor(p, SIGINT);
    expect_of(p, "term", worker);
    expect_all_gone(p);
    expect_supervisor_exit(p, 0);
}

static void a_killed_worker_is_replaced(void **state)
{
    struct place *p = *state;
    start_supervisor(p, 1, READY_MS, STOP_MS);
    pid_t first = expect_ready(p);
    assert_int_equal(kill(first, SIGKILL), 0);
    pid_t second = expect_ready(p);
    assert_int_not_equal(first, second);
    stop_one(p, second);
    assert_int_equal(value(p, METRIC_WORKERS_STARTED), 2);
    assert_int_equal(value(p, METRIC_WORKERS_DIED), 1);
}

static void workers_that_die_young_are_started_ever_more_slowly(void **state)
{
    struct place *p = *state;
    start_supervisor(p, 1, READY_MS, STOP_MS);
    pid_t worker = expect_ready(p);
    behave(p, "die");
    assert_int_equal(kill(worker, SIGKILL), 0);
    int64_t last_ns = expect(p, "start").at_ns;
    for (int64_t wait_ms = 200; wait_ms <= 800; wait_ms *= 2) {
        int64_t now_ns = expect(p, "start").at_ns;
        assert_true(
            now_ns - last_ns >= wait_ms * NS_PER_MS); /* at least; never a figure for at most */
        last_ns = now_ns;
    }
    behave(p, "ready");
    worker = expect_ready(p); /* and it goes on when the cause is gone */
    stop_one(p, worker);
}

static void a_replacement_that_never_is_ready_is_replaced(void **state)
{
    struct place *p = *state;
    start_supervisor(p, 1, 1500, STOP_MS);
    pid_t worker = expect_ready(p);
    behave(p, "never");
    assert_int_equal(kill(worker, SIGKILL), 0);
    pid_t silent = expect(p, "start").pid;
    behave(p, "ready");
    worker = expect_ready(p);
    assert_int_not_equal(worker, silent);
    stop_one(p, worker);
    assert_int_equal(value(p, METRIC_WORKERS_DIED), 2);
}

static void workers_leave_when_the_supervisor_is_killed(void **state)
{
    struct place *p = *state;
    start_supervisor(p, 2, READY_MS, STOP_MS);
    expect_n_ready(p, 2);
    signal_supervisor(p, SIGKILL);
    expect(p, "term");
    expect(p, "term");
    expect_all_gone(p);
    assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
    p->pid = 0;
}

/* --- stopping --- */

static void a_worker_that_does_not_leave_is_killed(void **state)
{
    struct place *p = *state;
    behave(p, "stubborn");
    start_supervisor(p, 1, READY_MS, 100);
    pid_t worker = expect_ready(p);
    signal_supervisor(p, SIGTERM);
    expect_of(p, "term", worker);
    expect_all_gone(p);
    expect_supervisor_exit(p, 1);
}

static void a_second_term_kills_at_once(void **state)
{
    struct place *p = *state;
    behave(p, "stubborn");
    start_supervisor(p, 2, READY_MS, 3600 * MS_PER_S);
    expect_n_ready(p, 2);
    signal_supervisor(p, SIGTERM);
    expect(p, "term");
    expect(p, "term");
    signal_supervisor(p, SIGTERM);
    expect_all_gone(p);
    expect_supervisor_exit(p, 1);
}

/* --- the first generation --- */

static void first_generation_fails(struct place *p, const char *how)
{
    behave(p, how);
    start_supervisor(p, 2, 1000, STOP_MS);
    struct event ev;
    while (next_event(p, &ev)) /* one may be ended before it could start */
        assert_true(strcmp(ev.what, "start") == 0 || strcmp(ev.what, "term") == 0);
    expect_supervisor_exit(p, 1);
    assert_int_equal(value(p, METRIC_RELOADS_FAILED), 0);
}

static void a_first_generation_that_dies_is_an_error(void **state)
{
    first_generation_fails(*state, "die");
}

static void a_first_generation_that_never_is_ready_is_an_error(void **state)
{
    first_generation_fails(*state, "never");
}

static void closing_the_pipe_without_a_byte_is_not_ready(void **state)
{
    first_generation_fails(*state, "mute");
}

static void term_ends_a_first_generation_that_is_not_ready(void **state)
{
    struct place *p = *state;
    behave(p, "never");
    start_supervisor(p, 1, READY_MS, STOP_MS);
    pid_t worker = expect(p, "start").pid;
    stop_one(p, worker);
}

/* --- reload --- */

static void hup_replaces_the_generation_when_the_new_one_is_ready(void **state)
{
    struct place *p = *state;
    start_supervisor(p, 1, READY_MS, STOP_MS);
    pid_t first = expect_ready(p);
    signal_supervisor(p, SIGHUP);
    pid_t second = expect_reload(p, first);
    expect_metric(p, METRIC_RELOADS, 1);
    stop_one(p, second); /* the old one has left and is not told again */
    assert_int_equal(value(p, METRIC_WORKERS_DIED), 0);
}

static void a_reload_waits_for_each_of_its_workers(void **state)
{
    struct place *p = *state;
    int told = 0;
    struct event ev;
    start_supervisor(p, 2, READY_MS, STOP_MS);
    expect_n_ready(p, 2);
    behave(p, "one-gate");
    signal_supervisor(p, SIGHUP);
    for (int i = 0; i < 3; i++) { /* both start, one is ready */
        assert_true(next_event(p, &ev));
        assert_true(strcmp(ev.what, "start") == 0 || strcmp(ev.what, "ready") == 0);
    }
    assert_int_equal(value(p, METRIC_RELOADS), 0);
    open_gate(p);
    expect(p, "passed"); /* no old one was told before the last new one was let through */
    for (int i = 0; i < 3; i++) {
        assert_true(next_event(p, &ev));
        told += strcmp(ev.what, "hup") == 0;
    }
    assert_int_equal(told, 2);
    signal_supervisor(p, SIGTERM);
    expect(p, "term");
    expect(p, "term");
    expect_all_gone(p);
    expect_supervisor_exit(p, 0);
}

static void an_old_generation_that_still_drains_is_told_to_end_too(void **state)
{
    struct place *p = *state;
    behave(p, "stubborn");
    start_supervisor(p, 1, READY_MS, 3600 * MS_PER_S);
    pid_t first = expect_ready(p);
    behave(p, "ready");
    signal_supervisor(p, SIGHUP);
    expect_reload(p, first);
    signal_supervisor(p, SIGTERM);
    expect(p, "term");
    expect(p, "term");
    signal_supervisor(p, SIGTERM);
    expect_all_gone(p);
    expect_supervisor_exit(p, 1);
}

/* The new generation fails; the old one serves on and the next reload works. */
static void failed_reload(struct place *p, const char *how, bool ended_by_us)
{
    start_supervisor(p, 1, 1500, STOP_MS);
    pid_t first = expect_ready(p);
    behave(p, how);
    signal_supervisor(p, SIGHUP);
    pid_t failing = expect(p, "start").pid;
    if (ended_by_us)
        expect_of(p, "term", failing);
    expect_metric(p, METRIC_RELOADS_FAILED, 1);
    behave(p, "ready");
    signal_supervisor(p, SIGHUP);
    pid_t second = expect_reload(p, first); /* no replacement of the failed one came before */
    expect_metric(p, METRIC_RELOADS, 1);
    stop_one(p, second);
    assert_int_equal(value(p, METRIC_RELOADS_FAILED), 1);
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
    struct place *p = *state;
    start_supervisor(p, 1, READY_MS, STOP_MS);
    pid_t first = expect_ready(p);
    behave(p, "gate");
    signal_supervisor(p, SIGHUP);
    pid_t second = expect(p, "start").pid;
    for (int i = 0; i < 3; i++) {
        signal_supervisor(p, SIGHUP);
        wait_until_signals_taken(p);
    }
    open_gate(p);
    expect_of(p, "passed", second);
    struct event seen[3];
    pid_t third = 0;
    for (int i = 0; i < 3; i++) { /* second ready, first told, third starts: in any order */
        assert_true(next_event(p, &seen[i]));
        if (strcmp(seen[i].what, "start") == 0)
            third = seen[i].pid;
        else
            assert_int_equal(seen[i].pid, strcmp(seen[i].what, "hup") == 0 ? first : second);
    }
    assert_true(third > 0);
    open_gate(p);
    expect_of(p, "passed", third);
    expect_handover(p, second, third);
    expect_metric(p, METRIC_RELOADS, 2);
    stop_one(p, third); /* and none after that */
}

static void a_worker_that_dies_during_a_reload_is_replaced(void **state)
{
    struct place *p = *state;
    start_supervisor(p, 1, READY_MS, STOP_MS);
    pid_t first = expect_ready(p);
    behave(p, "gate");
    signal_supervisor(p, SIGHUP);
    pid_t coming = expect(p, "start").pid;
    behave(p, "ready");
    assert_int_equal(kill(first, SIGKILL), 0);
    pid_t stand_in = expect_ready(p); /* the new one may still fail */
    open_gate(p);
    expect_of(p, "passed", coming);
    expect_handover(p, stand_in, coming);
    stop_one(p, coming);
}

static void copy_program(const char *to)
{
    char buf[65536];
    char aside[PATH_SIZE];
    str_format(aside, sizeof(aside), "%s.new", to);
    cleanup_fd int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    cleanup_fd int out = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n = read(in, buf, sizeof(buf)); n != 0; n = read(in, buf, sizeof(buf)))
        assert_int_equal(write(out, buf, (size_t)n), n);
    assert_int_equal(rename(aside, to), 0);
}

/* The running binary's file is replaced before the supervisor looks where it lies. */
static void workers_are_started_from_a_binary_that_was_replaced(void **state)
{
    struct place *p = *state;
    char program[PATH_SIZE];
    char socket_path[PATH_SIZE];
    listener_close(&p->listener);
    str_format(program, sizeof(program), "%s/program", p->dir);
    str_format(socket_path, sizeof(socket_path), "%s/sock", p->dir);
    copy_program(program);
    int write_end = open_report(p);
    p->pid = fork();
    if (p->pid == 0) {
        fcntl(write_end, F_SETFD, 0);
        execl(program, "weighbridge-test", "supervise", socket_path, (char *)NULL);
        _exit(4);
    }
    close(write_end);
    expect_of(p, "start", p->pid);
    copy_program(program);
    open_gate(p);
    pid_t worker = expect_ready(p);
    stop_one(p, worker);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return worker_main();
    if (argc > 2 && strcmp(argv[1], "supervise") == 0)
        return supervise_main(argv[2]);
    for (int fd = 3; fd < 256; fd++) /* what whoever started the tests left open is not our leak */
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    const struct CMUnitTest tests[] = {
        TEST(term_ends_all_workers),
        TEST(int_ends_all_workers_too),
        TEST(a_killed_worker_is_replaced),
        TEST(workers_that_die_young_are_started_ever_more_slowly),
        TEST(a_replacement_that_never_is_ready_is_replaced),
        TEST(workers_leave_when_the_supervisor_is_killed),
        TEST(a_worker_that_does_not_leave_is_killed),
        TEST(a_second_term_kills_at_once),
        TEST(a_first_generation_that_dies_is_an_error),
        TEST(a_first_generation_that_never_is_ready_is_an_error),
        TEST(closing_the_pipe_without_a_byte_is_not_ready),
        TEST(term_ends_a_first_generation_that_is_not_ready),
        TEST(hup_replaces_the_generation_when_the_new_one_is_ready),
        TEST(a_reload_waits_for_each_of_its_workers),
        TEST(an_old_generation_that_still_drains_is_told_to_end_too),
        TEST(a_generation_that_dies_leaves_the_old_one_serving),
        TEST(a_generation_that_never_is_ready_leaves_the_old_one_serving),
        TEST(hups_during_a_reload_become_one_more),
        TEST(a_worker_that_dies_during_a_reload_is_replaced),
        TEST(workers_are_started_from_a_binary_that_was_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
