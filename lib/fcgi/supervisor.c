/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/supervisor.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/notify.h"
#include "base/stop.h"
#include "base/str.h"
#include "fcgi/fd_pass.h"

enum {
    TEND_MS = 1000,
    YOUNG_MS = 1000,
    OLD_MS = 10000,
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MAX_MS = 5000,
    VAR_SIZE = 48
};

/* A place in a generation: the process that fills it, or the time at which one will. */
struct worker {
    int64_t generation;
    pid_t pid;    /* 0: to be started at due_ns */
    int ready_fd; /* socket; -1: it says nothing any more */
    bool ready;
    bool told; /* to leave: it is not replaced */
    int64_t started_ns;
    int64_t due_ns;
    int64_t kill_ns; /* 0: never. Otherwise KILL if it is still there then */
    int64_t backoff_ms;
};

struct supervisor {
    const struct supervisor_options *o;
    int signals;
    char exe[PATH_MAX];
    char **environment; /* ends with the two below, which are filled in at each start */
    size_t n_environment;
    char ready_var[VAR_SIZE];
    char accepted_var[VAR_SIZE];
    struct worker *workers;
    size_t n_workers;
    int64_t last_generation;
    int64_t current; /* generation that serves; 0: none yet */
    int accepted_fd; /* what its workers read; -1: not known */
    int sockets;     /* listening sockets so far; the latest counts */
    int current_socket;
    int64_t next;   /* generation that becomes ready; 0: none */
    bool next_anew; /* it reads its configuration: a reload, or the first */
    int next_fd;    /* what it read; -1: not known */
    int next_socket;
    bool reload_due;  /* HUP came while one was under way */
    int64_t again_ns; /* not before then a generation for a new socket */
    int64_t again_ms;
    bool stopping;
    int killed;
    int64_t tend_ns;
    char failure[ERR_MSG_SIZE]; /* why the first generation failed; "": it did not */
};

static void supervisor_fini(struct supervisor *s)
{
    for (size_t i = 0; i < s->n_workers; i++)
        if (s->workers[i].ready_fd >= 0)
            close(s->workers[i].ready_fd);
    cleanup_fd_(&s->signals);
    cleanup_fd_(&s->accepted_fd);
    cleanup_fd_(&s->next_fd);
    free(s->workers);
    free(s->environment);
}
#define cleanup_supervisor __attribute__((cleanup(supervisor_fini)))

static void close_fd(int *fd)
{
    cleanup_fd_(fd);
    *fd = -1;
}

/* --- one worker --- */

/* In the child: only calls that are safe after fork(). */
static _Noreturn void become_worker(
    const struct supervisor *s, int ready_fd, int accepted_fd, pid_t parent)
{
    /* If the supervisor died before prctl(), nobody would ever tell this worker to leave. */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent)
        _exit(1);
    stop_unblock();
    int fd = s->o->listener->fd;
    if (fd == 0 ? fcntl(0, F_SETFD, 0) != 0 : dup2(fd, 0) != 0)
        _exit(1);
    if (fcntl(ready_fd, F_SETFD, 0) != 0)
        _exit(1);
    if (accepted_fd >= 0 && fcntl(accepted_fd, F_SETFD, 0) != 0)
        _exit(1);
    execve(s->exe, s->o->argv, s->environment);
    _exit(127);
}

static int64_t backoff_after(int64_t backoff_ms)
{
    if (backoff_ms == 0)
        return BACKOFF_FIRST_MS;
    return backoff_ms * 2 < BACKOFF_MAX_MS ? backoff_ms * 2 : BACKOFF_MAX_MS;
}

/* The machine is out of processes or descriptors: as if the worker had died young. */
static void start_failed(struct worker *w, const char *what)
{
    w->backoff_ms = backoff_after(w->backoff_ms);
    w->due_ns = clock_deadline(w->backoff_ms);
    log_error(LOG_MSG("cannot start a worker"), LOG_S("call", what), LOG_I("errno", errno),
        LOG_I("again_ms", w->backoff_ms));
}

/* Fills in what the next worker's environment says. */
static void tell_fds(struct supervisor *s, int ready_fd, int accepted_fd)
{
    int rc = str_format(s->ready_var, VAR_SIZE, "%s=%d", SUPERVISOR_READY_ENV, ready_fd);
    rc += str_format(s->accepted_var, VAR_SIZE, "%s=%d", SUPERVISOR_ACCEPTED_ENV, accepted_fd);
    assert(rc == 0);
    s->environment[s->n_environment - 1] = accepted_fd < 0 ? NULL : s->accepted_var;
}

static void start(struct supervisor *s, struct worker *w)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
        start_failed(w, "socketpair");
        return;
    }
    cleanup_fd int ours = fds[0];
    cleanup_fd int theirs = fds[1];
    int accepted_fd = w->generation == s->next && s->next_anew ? -1 : s->accepted_fd;
    tell_fds(s, theirs, accepted_fd);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become_worker(s, theirs, accepted_fd, parent);
    if (pid < 0) {
        start_failed(w, "fork");
        return;
    }
    w->pid = pid;
    w->ready_fd = STEAL_FD(ours);
    w->started_ns = clock_mono_ns();
    metric_add(METRIC_WORKERS_STARTED, 1);
    log_info(LOG_MSG("worker started"), LOG_I("pid", pid), LOG_I("generation", w->generation));
}

static void tell(struct worker *w, int sig)
{
    w->told = true;
    if (w->pid != 0 && kill(w->pid, sig) != 0)
        log_warn(LOG_MSG("cannot signal a worker"), LOG_I("pid", w->pid), LOG_I("errno", errno));
}

static void end(const struct supervisor *s, struct worker *w)
{
    tell(w, SIGTERM);
    int64_t kill_ns = clock_deadline(s->o->stop_ms);
    if (w->kill_ns == 0 || w->kill_ns > kill_ns)
        w->kill_ns = kill_ns;
}

static void drain(const struct supervisor *s, struct worker *w)
{
    tell(w, SIGHUP);
    w->kill_ns = clock_deadline(s->o->drain_ms);
}

/* --- generations --- */

/* anew: it reads its configuration. Otherwise it has that of the current one. */
static void add_generation(struct supervisor *s, bool anew)
{
    size_t n = (size_t)s->o->workers;
    s->workers = mem_resize(s->workers, s->n_workers + n, sizeof(*s->workers));
    s->next = ++s->last_generation;
    s->next_anew = anew;
    s->next_socket = s->sockets;
    for (size_t i = 0; i < n; i++)
        s->workers[s->n_workers + i] =
            (struct worker){ .generation = s->next, .ready_fd = -1, .due_ns = clock_mono_ns() };
    s->n_workers += n;
    log_info(LOG_MSG("generation starting"), LOG_I("generation", s->next), LOG_I("workers", n));
}

static void begin_reload(struct supervisor *s)
{
    s->reload_due = false;
    notify_reloading();
    add_generation(s, true);
}

/* The listening socket was made again since the current generation was started. */
static bool has_old_socket(const struct supervisor *s)
{
    return s->current != 0 && s->current_socket != s->sockets;
}

/* A generation for a new listening socket that fails is tried again, ever more slowly. */
static void put_off(struct supervisor *s)
{
    s->again_ms = backoff_after(s->again_ms);
    s->again_ns = clock_deadline(s->again_ms);
}

static void generation_failed(struct supervisor *s, const char *why)
{
    bool first = s->current == 0;
    log_error(LOG_MSG(first ? "generation failed" : "generation failed, the old one stays"),
        LOG_I("generation", s->next), LOG_S("reason", why));
    for (size_t i = 0; i < s->n_workers; i++)
        if (s->workers[i].generation == s->next)
            end(s, &s->workers[i]);
    s->next = 0;
    close_fd(&s->next_fd);
    if (first) {
        s->stopping = true;
        str_copy(s->failure, sizeof(s->failure), why);
    } else if (s->next_anew) {
        metric_add(METRIC_RELOADS_FAILED, 1);
        notify_ready();
    } else {
        put_off(s);
    }
}

static void generation_ready(struct supervisor *s)
{
    bool reload = s->current != 0 && s->next_anew;
    for (size_t i = 0; i < s->n_workers; i++)
        if (s->workers[i].generation < s->next && !s->workers[i].told)
            drain(s, &s->workers[i]);
    s->current = s->next;
    s->current_socket = s->next_socket;
    s->next = 0;
    s->again_ms = 0;
    if (s->next_anew) {
        close_fd(&s->accepted_fd);
        s->accepted_fd = STEAL_FD(s->next_fd);
    }
    if (reload)
        metric_add(METRIC_RELOADS, 1);
    log_info(LOG_MSG("generation ready"), LOG_I("generation", s->current));
    notify_ready();
}

/* Whether all of the next generation are ready. */
static void check_next(struct supervisor *s)
{
    if (s->next == 0 || s->stopping)
        return;
    for (size_t i = 0; i < s->n_workers; i++) {
        const struct worker *w = &s->workers[i];
        if (w->generation == s->next && !w->ready)
            return;
    }
    generation_ready(s);
}

/* --- what happens to a worker --- */

static void describe(int status, char out[64])
{
    int rc = WIFSIGNALED(status) ? str_format(out, 64, "signal %d", WTERMSIG(status))
                                 : str_format(out, 64, "exit status %d", WEXITSTATUS(status));
    assert(rc == 0);
}

/* Its place is filled again: at once, or later if it did not live long or never became ready. */
static void replace(struct worker *w)
{
    int64_t lived_ms = (clock_mono_ns() - w->started_ns) / NS_PER_MS;
    int64_t wait_ms = 0;
    if (lived_ms < YOUNG_MS || !w->ready)
        wait_ms = w->backoff_ms = backoff_after(w->backoff_ms);
    else if (lived_ms > OLD_MS)
        w->backoff_ms = 0;
    w->due_ns = clock_deadline(wait_ms);
    w->kill_ns = 0;
    w->ready = false;
}

static void worker_is_ready(struct supervisor *s, const struct worker *w)
{
    log_info(LOG_MSG("worker ready"), LOG_I("pid", w->pid), LOG_I("generation", w->generation),
        LOG_I("after_ms", (clock_mono_ns() - w->started_ns) / NS_PER_MS));
    check_next(s);
}

/* What the first of a generation has read is what its replacements get. */
static void keep_accepted(struct supervisor *s, const struct worker *w, int fd)
{
    cleanup_fd int got = fd;
    if (w->generation == s->next && s->next_anew && s->next_fd < 0)
        s->next_fd = STEAL_FD(got);
}

/* A byte with a descriptor: what it has read. One without: it is ready. End of file: it will not say so
 * any more; its deadline or its end decides. */
static void read_said(struct supervisor *s, struct worker *w)
{
    for (;;) {
        char byte = 0;
        int fd = -1;
        ssize_t n = fd_receive(w->ready_fd, &byte, 1, &fd);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0 || fd < 0) {
            w->ready = n == 1;
            close_fd(&w->ready_fd);
            if (w->ready)
                worker_is_ready(s, w);
            return;
        }
        keep_accepted(s, w, fd);
    }
}

static void worker_ended(struct supervisor *s, struct worker *w, int status)
{
    char how[64];
    char why[ERR_MSG_SIZE];
    pid_t pid = w->pid;
    describe(status, how);
    if (w->ready_fd >= 0 && !w->told)
        read_said(s, w); /* it may have been ready for a moment */
    w->pid = 0;
    close_fd(&w->ready_fd);
    if (w->told) {
        log_info(LOG_MSG("worker left"), LOG_I("pid", pid), LOG_S("how", how),
            LOG_I("generation", w->generation));
        return;
    }
    metric_add(METRIC_WORKERS_DIED, 1);
    log_warn(LOG_MSG("worker died"), LOG_I("pid", pid), LOG_S("how", how),
        LOG_I("generation", w->generation));
    replace(w);
    if (w->generation == s->next) {
        str_format(why, sizeof(why), "worker died before the generation was ready: %s", how);
        generation_failed(s, why);
    }
}

static void reap(struct supervisor *s)
{
    for (size_t i = 0; i < s->n_workers; i++) {
        struct worker *w = &s->workers[i];
        int status = 0;
        if (w->pid == 0)
            continue;
        pid_t pid = waitpid(w->pid, &status, WNOHANG);
        if (pid == w->pid || (pid < 0 && errno == ECHILD))
            worker_ended(s, w, status);
    }
    /* Places that are not to be filled again go. */
    size_t kept = 0;
    for (size_t i = 0; i < s->n_workers; i++)
        if (s->workers[i].pid != 0 || !s->workers[i].told)
            s->workers[kept++] = s->workers[i];
    s->n_workers = kept;
}

static int64_t ready_deadline(const struct supervisor *s, const struct worker *w)
{
    return w->started_ns + s->o->ready_ms * NS_PER_MS;
}

/* What is due by now for one worker. */
static void attend(struct supervisor *s, struct worker *w, int64_t now_ns)
{
    if (w->pid == 0) {
        if (!w->told && now_ns >= w->due_ns)
            start(s, w);
        return;
    }
    if (w->kill_ns != 0 && now_ns >= w->kill_ns) {
        log_warn(LOG_MSG("worker does not leave and is killed"), LOG_I("pid", w->pid));
        kill(w->pid, SIGKILL);
        w->kill_ns = INT64_MAX;
        if (s->stopping)
            s->killed++;
    }
    if (w->ready || w->told || w->kill_ns != 0 || now_ns < ready_deadline(s, w))
        return;
    log_warn(LOG_MSG("worker did not become ready"), LOG_I("pid", w->pid));
    if (w->generation == s->next) {
        generation_failed(s, "a worker did not become ready in time");
    } else {
        kill(w->pid, SIGKILL);
        w->kill_ns = INT64_MAX;
    }
}

/* --- signals --- */

static void reload(struct supervisor *s)
{
    if (s->stopping)
        return;
    if (s->next != 0)
        s->reload_due = true;
    else
        begin_reload(s);
}

static void stop(struct supervisor *s, int sig)
{
    bool again = s->stopping;
    log_info(LOG_MSG(again ? "stopping at once" : "stopping"), LOG_I("signal", sig));
    if (!again)
        notify_stopping();
    s->stopping = true;
    for (size_t i = 0; i < s->n_workers; i++) {
        if (!again)
            end(s, &s->workers[i]);
        else if (s->workers[i].kill_ns != INT64_MAX)
            s->workers[i].kill_ns = clock_mono_ns();
    }
}

static void take_signals(struct supervisor *s)
{
    for (int sig = stop_next_signal(s->signals); sig != 0; sig = stop_next_signal(s->signals)) {
        if (sig == SIGHUP)
            reload(s);
        else if (sig == SIGTERM || sig == SIGINT)
            stop(s, sig);
    }
}

/* --- the loop --- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_due(const struct supervisor *s)
{
    int64_t due_ns =
        has_old_socket(s) && s->next == 0 ? earlier(s->tend_ns, s->again_ns) : s->tend_ns;
    for (size_t i = 0; i < s->n_workers; i++) {
        const struct worker *w = &s->workers[i];
        if (w->pid == 0)
            due_ns = earlier(due_ns, w->due_ns);
        else if (w->kill_ns != 0)
            due_ns = earlier(due_ns, w->kill_ns);
        else if (!w->ready && !w->told)
            due_ns = earlier(due_ns, ready_deadline(s, w));
    }
    return due_ns;
}

/* Sleeps until something happens or is due, and reads what workers said. */
static void wait_and_read(struct supervisor *s)
{
    size_t n = s->n_workers + 2;
    cleanup_free struct pollfd *fds = mem_calloc(n, sizeof(*fds));
    for (size_t i = 0; i < s->n_workers; i++)
        fds[i] = (struct pollfd){ .fd = s->workers[i].ready_fd, .events = POLLIN };
    fds[n - 2] = (struct pollfd){ .fd = s->signals, .events = POLLIN };
    fds[n - 1] = (struct pollfd){ .fd = s->o->listener->side_fd, .events = POLLIN };
    if (poll(fds, n, clock_left_ms(next_due(s))) <= 0)
        return;
    for (size_t i = 0; i < s->n_workers; i++)
        if (fds[i].revents != 0 && s->workers[i].ready_fd >= 0)
            read_said(s, &s->workers[i]);
    if (fds[n - 1].revents != 0)
        s->tend_ns = 0;
}

static void begin_what_is_due(struct supervisor *s)
{
    if (s->next != 0 || s->stopping)
        return;
    if (s->reload_due)
        begin_reload(s);
    else if (has_old_socket(s) && clock_mono_ns() >= s->again_ns)
        add_generation(s, false);
}

static void turn(struct supervisor *s)
{
    if (clock_mono_ns() >= s->tend_ns) {
        s->sockets += listener_tend(s->o->listener);
        notify_alive();
        if (s->o->tend != NULL)
            s->o->tend(s->o->ctx);
        s->tend_ns = clock_deadline(TEND_MS);
    }
    take_signals(s);
    reap(s);
    begin_what_is_due(s);
    for (size_t i = 0; i < s->n_workers; i++)
        attend(s, &s->workers[i], clock_mono_ns());
    if (!s->stopping || s->n_workers > 0)
        wait_and_read(s);
}

static int find_executable(char out[PATH_MAX], struct err *e)
{
    static const char DELETED[] = " (deleted)";
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n < 0)
        return err_errno(e, ERR_INTERNAL, "read /proc/self/exe");
    out[n] = '\0';
    /* Replaced since we started: the new one is at the same path. */
    if (str_ends(out, DELETED))
        out[(size_t)n - (sizeof(DELETED) - 1)] = '\0';
    return 0;
}

/* The environment of workers: ours, with the two variables that point into s. */
static void make_environment(struct supervisor *s)
{
    size_t n = 0;
    while (environ[n])
        n++;
    s->environment = mem_calloc(n + 3, sizeof(*s->environment));
    for (size_t i = 0; i < n; i++)
        if (!str_starts(environ[i], SUPERVISOR_READY_ENV "=") &&
            !str_starts(environ[i], SUPERVISOR_ACCEPTED_ENV "="))
            s->environment[s->n_environment++] = environ[i];
    s->environment[s->n_environment++] = s->ready_var;
    s->n_environment++;
}

/* With 0, 1 or 2 closed, a pipe would take their place and be overwritten in the child. */
static void fill_standard_fds(void)
{
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDWR);
    if (fd >= 0)
        close(fd);
}

int supervisor_run(const struct supervisor_options *o, struct err *e)
{
    cleanup_supervisor struct supervisor s = {
        .o = o, .signals = -1, .accepted_fd = -1, .next_fd = -1
    };
    assert(o->workers > 0 && o->listener->fd >= 0);
    fill_standard_fds();
    stop_block();
    signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how workers end */
    s.signals = stop_signal_fd(e);
    if (s.signals < 0 || find_executable(s.exe, e) != 0)
        return -1;
    make_environment(&s);
    add_generation(&s, true);
    while (!s.stopping || s.n_workers > 0)
        turn(&s);
    if (s.failure[0] != '\0')
        return err_set(e, ERR_INTERNAL, "the workers did not start: %s", s.failure);
    if (s.killed > 0)
        return err_set(e, ERR_INTERNAL, "%d workers had to be killed", s.killed);
    return 0;
}
