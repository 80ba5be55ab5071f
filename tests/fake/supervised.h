/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SUPERVISED_H
#define WB_SUPERVISED_H

/* A supervisor in a process of its own, with workers that do as the test says, for cmocka tests. The
 * worker is the test program again (argv[1] is "worker"): it does what the file `behave` in the test's
 * folder says and reports what happens to it through a pipe, whose end of file proves that supervisor
 * and workers have all left. Behaviours: ready; die (at once); never (ready); mute (closes the ready pipe
 * without a byte); stubborn (ready, and does not leave); gate (ready when the test opens the gate);
 * one-gate (the first worker as gate, others as ready). Its configuration is the file `config`, if there is
 * one: a worker that gets what another has accepted says so. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/metrics.h"
#include "fcgi/listener.h"

enum { SUP_HANG_MS = 20000, SUP_READY_MS = 15000, SUP_STOP_MS = 15000, SUP_PATH_SIZE = 256 };

/* What a worker reports: "start", "got-..." (the configuration that it was given), "passed" (the gate),
 * "ready", "hup", "term", or "bad-..." for what must not be. Its size lets write(2) be whole. */
struct sup_event {
    char what[12];
    pid_t pid;
    int64_t at_ns;
};

struct supervised {
    char dir[64];
    struct listener listener;
    int64_t *metrics; /* shared with the supervisor */
    int report;       /* read end */
    pid_t pid;        /* supervisor; 0: none */
};

/* First thing in main(): does what a worker's or supervisor's process has to and gives its exit status, or
 * gives -1 in the process of the tests. */
int sup_roles(int argc, char **argv);

/* cmocka's setup and teardown; *state is the struct supervised. Workers behave as "ready". */
int sup_setup(void **state);
int sup_teardown(void **state);

/* How workers that start from now on behave. */
void sup_behave(const struct supervised *p, const char *what);

/* What workers read from now on that read their configuration: at most 7 bytes. */
void sup_configure(const struct supervised *p, const char *text);

/* The pipe of reports; its write end is in the environment of who is started next. */
int sup_open_report(struct supervised *p);

/* Forks the supervisor. */
void sup_start(struct supervised *p, int workers, int64_t ready_ms, int64_t stop_ms);

/* Forks one that has one worker, which becomes ready. */
pid_t sup_start_one(struct supervised *p);

/* False at the end of file: all have left. */
bool sup_next_event(const struct supervised *p, struct sup_event *out);

/* The next event, which must be this one. */
struct sup_event sup_expect(const struct supervised *p, const char *what);

/* One worker starts and becomes ready. */
pid_t sup_expect_ready(const struct supervised *p);

/* One worker starts, was given this configuration, and becomes ready. */
pid_t sup_expect_ready_with(const struct supervised *p, const char *got);

/* The next event, which must be this one of this worker. */
void sup_expect_of(const struct supervised *p, const char *what, pid_t pid);

/* The worker `coming` is ready and the one it replaces is told. */
void sup_expect_handover(const struct supervised *p, pid_t old, pid_t coming);

/* A new generation of one worker replaces `old`. */
pid_t sup_expect_reload(const struct supervised *p, pid_t old);

/* n workers start and become ready, in whatever order. */
void sup_expect_n_ready(const struct supervised *p, int n);

/* No further event comes: supervisor and workers have left. */
void sup_expect_all_gone(const struct supervised *p);
void sup_expect_exit(struct supervised *p, int code);
void sup_signal(const struct supervised *p, int sig);

/* A counter as the supervisor has it. */
int64_t sup_value(const struct supervised *p, enum metric m);

/* Waits until a counter has come to n: a thing of the supervisor that no worker sees. */
void sup_expect_metric(const struct supervised *p, enum metric m, int64_t n);

/* Waits until no signal is pending for the supervisor: it has read what it was sent. */
void sup_wait_signals_taken(const struct supervised *p);

/* Lets one process that waits at the gate, now or soon, go on. */
void sup_open_gate(const struct supervised *p);

/* TERM; the one worker that is left gets TERM, and all leave. */
void sup_stop_one(struct supervised *p, pid_t worker);

#define SUP_TEST(f) cmocka_unit_test_setup_teardown(f, sup_setup, sup_teardown)

#endif
