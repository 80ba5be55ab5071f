/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/supervised.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
#include "fcgi/supervisor.h"
#include "tests/fake/metrics_memory.h"

enum { ORPHAN_S = 60 };

#define REPORT_ENV "WB_TEST_REPORT"
#define DIR_ENV    "WB_TEST_DIR"

/* --- the worker --- */

static int env_fd(const char *name)
{
    int64_t fd = -1;
    const char *text = getenv(name);
    return text && str_to_i64(text, 3, 1024, &fd) == 0 ? (int)fd : -1;
}

static void report(const char *what)
{
    struct sup_event ev = { .pid = getpid(), .at_ns = clock_mono_ns() };
    str_copy(ev.what, sizeof(ev.what), what);
    if (write(env_fd(REPORT_ENV), &ev, sizeof(ev)) != (ssize_t)sizeof(ev))
        _exit(9);
}

/* The text of a file in the test's folder; "" without one. */
static void read_text(const char *name, char *out, size_t size)
{
    char path[SUP_PATH_SIZE];
    str_format(path, sizeof(path), "%s/%s", getenv(DIR_ENV), name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
}

/* Takes what another has accepted, else reads it and hands it on. */
static void configure(int ready)
{
    char text[8] = "";
    char what[12];
    struct err e = ERR_INIT;
    cleanup_fd int given = supervisor_fd(SUPERVISOR_ACCEPTED_ENV);
    if (given >= 0) {
        ssize_t n = pread(given, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        str_format(what, sizeof(what), "got-%s", text);
        report(what);
        return;
    }
    read_text("config", text, sizeof(text));
    cleanup_fd int fd = memfd_create("accepted", MFD_CLOEXEC);
    if (text[0] != '\0' && (write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
                               supervisor_accept(ready, fd, &e) != 0))
        report("bad-accept");
}

/* Sleeps until the test opens the gate. */
static void wait_for_gate(void)
{
    char path[SUP_PATH_SIZE];
    str_format(path, sizeof(path), "%s/gate", getenv(DIR_ENV));
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        _exit(9);
}

/* True for one worker only. */
static bool is_first(void)
{
    char path[SUP_PATH_SIZE];
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
    /* 0, 1, 2, what the supervisor names, the report pipe: nothing else came through. */
    for (int fd = 3; fd < 256; fd++)
        if (fd != env_fd(SUPERVISOR_READY_ENV) && fd != env_fd(SUPERVISOR_ACCEPTED_ENV) &&
            fd != env_fd(REPORT_ENV) && fcntl(fd, F_GETFD) >= 0)
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
    read_text("behave", behave, sizeof(behave));
    report("start");
    if (strcmp(behave, "die") == 0)
        _exit(3);
    configure(ready);
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
        .listener = l,
        .workers = workers,
        .argv = argv,
        .ready_ms = ready_ms,
        .stop_ms = stop_ms,
        .drain_ms = stop_ms,
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
    return listener_open(&l, path, NULL, SUP_HANG_MS, &e) == 0
               ? supervise(&l, 1, SUP_READY_MS, SUP_STOP_MS)
               : 3;
}

int sup_roles(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return worker_main();
    if (argc > 2 && strcmp(argv[1], "supervise") == 0)
        return supervise_main(argv[2]);
    for (int fd = 3; fd < 256; fd++) /* what whoever started the tests left open is not our leak */
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    return -1;
}

/* --- the tests' side --- */

/* A file in the test's folder, in place whole. */
static void write_text(const struct supervised *p, const char *name, const char *text)
{
    char path[SUP_PATH_SIZE];
    char aside[SUP_PATH_SIZE];
    str_format(path, sizeof(path), "%s/%s", p->dir, name);
    str_format(aside, sizeof(aside), "%s/new", p->dir);
    int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(rename(aside, path), 0);
}

void sup_behave(const struct supervised *p, const char *what)
{
    write_text(p, "behave", what);
}

void sup_configure(const struct supervised *p, const char *text)
{
    write_text(p, "config", text);
}

int sup_setup(void **state)
{
    char path[SUP_PATH_SIZE];
    struct err e = ERR_INIT;
    struct supervised *p = mem_calloc(1, sizeof(*p));
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
    p->metrics = metrics_memory();
    if (p->metrics == NULL || listener_open(&p->listener, path, NULL, SUP_HANG_MS, &e) != 0)
        return -1;
    setenv(DIR_ENV, p->dir, 1);
    sup_behave(p, "ready");
    return 0;
}

int sup_teardown(void **state)
{
    static const char *const NAMES[] = { "behave", "config", "gate", "sock", "sock.lock",
        "sock.side", "program", "taken" };
    struct supervised *p = *state;
    if (p->pid > 0) { /* a test failed */
        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    if (p->report >= 0)
        close(p->report);
    listener_close(&p->listener);
    munmap(p->metrics, METRICS_WORDS * sizeof(int64_t));
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        char path[SUP_PATH_SIZE];
        str_format(path, sizeof(path), "%s/%s", p->dir, NAMES[i]);
        unlink(path);
    }
    int rc = rmdir(p->dir); /* nothing else was left there */
    free(p);
    return rc;
}

/* The pipe of reports; its write end is in the environment of who is started next. */
int sup_open_report(struct supervised *p)
{
    char number[16];
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    p->report = fds[0];
    str_format(number, sizeof(number), "%d", fds[1]);
    setenv(REPORT_ENV, number, 1);
    return fds[1];
}

void sup_start(struct supervised *p, int workers, int64_t ready_ms, int64_t stop_ms)
{
    int write_end = sup_open_report(p);
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
bool sup_next_event(const struct supervised *p, struct sup_event *out)
{
    assert_int_equal(wait_fd(p->report, POLLIN, clock_deadline(SUP_HANG_MS)), 1);
    ssize_t n = read(p->report, out, sizeof(*out));
    if (n == 0)
        return false;
    assert_int_equal(n, sizeof(*out));
    if (str_starts(out->what, "bad-"))
        fail_msg("a worker reports %s", out->what);
    return true;
}

struct sup_event sup_expect(const struct supervised *p, const char *what)
{
    struct sup_event ev = { .pid = 0 };
    if (!sup_next_event(p, &ev))
        fail_msg("all have left before %s", what);
    assert_string_equal(ev.what, what);
    return ev;
}

pid_t sup_expect_ready_with(const struct supervised *p, const char *got)
{
    char what[12];
    pid_t pid = sup_expect(p, "start").pid;
    str_format(what, sizeof(what), "got-%s", got);
    sup_expect_of(p, what, pid);
    sup_expect_of(p, "ready", pid);
    return pid;
}

/* One worker starts and becomes ready. */
pid_t sup_expect_ready(const struct supervised *p)
{
    pid_t pid = sup_expect(p, "start").pid;
    assert_int_equal(sup_expect(p, "ready").pid, pid);
    return pid;
}

pid_t sup_start_one(struct supervised *p)
{
    sup_start(p, 1, SUP_READY_MS, SUP_STOP_MS);
    return sup_expect_ready(p);
}

void sup_expect_of(const struct supervised *p, const char *what, pid_t pid)
{
    assert_int_equal(sup_expect(p, what).pid, pid);
}

/* Both come, in whatever order. */
static void expect_both(const struct supervised *p, struct sup_event a, struct sup_event b)
{
    struct sup_event first = { .pid = 0 };
    struct sup_event second = { .pid = 0 };
    assert_true(sup_next_event(p, &first));
    assert_true(sup_next_event(p, &second));
    bool swapped = strcmp(first.what, a.what) != 0;
    const struct sup_event *as_a = swapped ? &second : &first;
    const struct sup_event *as_b = swapped ? &first : &second;
    assert_string_equal(as_a->what, a.what);
    assert_int_equal(as_a->pid, a.pid);
    assert_string_equal(as_b->what, b.what);
    assert_int_equal(as_b->pid, b.pid);
}

/* The worker `coming` is ready and the one it replaces is told. */
void sup_expect_handover(const struct supervised *p, pid_t old, pid_t coming)
{
    struct sup_event ready = { .what = "ready", .pid = coming };
    struct sup_event hup = { .what = "hup", .pid = old };
    expect_both(p, ready, hup);
}

/* A new generation of one worker replaces `old`. */
pid_t sup_expect_reload(const struct supervised *p, pid_t old)
{
    pid_t coming = sup_expect(p, "start").pid;
    sup_expect_handover(p, old, coming);
    return coming;
}

/* n workers start and become ready, in whatever order. */
void sup_expect_n_ready(const struct supervised *p, int n)
{
    int ready = 0;
    int started = 0;
    while (ready < n) {
        struct sup_event ev;
        assert_true(sup_next_event(p, &ev));
        if (strcmp(ev.what, "start") == 0)
            started++;
        else if (strcmp(ev.what, "ready") == 0)
            ready++;
        else
            fail_msg("%s while workers start", ev.what);
    }
    assert_int_equal(started, n);
}

void sup_expect_all_gone(const struct supervised *p)
{
    struct sup_event ev;
    if (sup_next_event(p, &ev))
        fail_msg("%s when all should have left", ev.what);
}

void sup_expect_exit(struct supervised *p, int code)
{
    int status = 0;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    p->pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

void sup_signal(const struct supervised *p, int sig)
{
    assert_int_equal(kill(p->pid, sig), 0);
}

int64_t sup_value(const struct supervised *p, enum metric m)
{
    return __atomic_load_n(&p->metrics[m], __ATOMIC_SEQ_CST);
}

/* Waits until a counter has come to n: a thing of the supervisor that no worker sees. */
void sup_expect_metric(const struct supervised *p, enum metric m, int64_t n)
{
    int64_t deadline_ns = clock_deadline(SUP_HANG_MS);
    while (sup_value(p, m) < n && clock_mono_ns() < deadline_ns)
        poll(NULL, 0, 1);
    assert_int_equal(sup_value(p, m), n);
}

/* Waits until no signal is pending for the supervisor: it has read what it was sent. */
void sup_wait_signals_taken(const struct supervised *p)
{
    char path[SUP_PATH_SIZE];
    str_format(path, sizeof(path), "/proc/%d/status", (int)p->pid);
    for (int64_t deadline_ns = clock_deadline(SUP_HANG_MS);;) {
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
void sup_open_gate(const struct supervised *p)
{
    char path[SUP_PATH_SIZE];
    str_format(path, sizeof(path), "%s/gate", p->dir);
    for (int64_t deadline_ns = clock_deadline(SUP_HANG_MS);;) {
        cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0)
            return;
        assert_true(clock_mono_ns() < deadline_ns);
        poll(NULL, 0, 1);
    }
}

/* TERM; the one worker that is left gets TERM, and all leave. */
void sup_stop_one(struct supervised *p, pid_t worker)
{
    sup_signal(p, SIGTERM);
    sup_expect_of(p, "term", worker);
    sup_expect_all_gone(p);
    sup_expect_exit(p, 0);
}
