/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int SIGNALS[] = { SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2 };
enum { SIGNAL_COUNT = sizeof SIGNALS / sizeof SIGNALS[0] };

static sigset_t our_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    for (int i = 0; i < SIGNAL_COUNT; i++)
        (void)sigaddset(&set, SIGNALS[i]);
    return set;
}

/* An inherited SIG_IGN for CHLD would keep waitpid() from working, and handlers of libraries have no
 * business here: all go back to the default, which blocking keeps from acting. */
static void dispose(void (*pipe_action)(int))
{
    struct sigaction action = { .sa_handler = SIG_DFL };

    for (int i = 0; i < SIGNAL_COUNT; i++)
        (void)sigaction(SIGNALS[i], &action, NULL);
    action.sa_handler = pipe_action;
    (void)sigaction(SIGPIPE, &action, NULL);
}

void stop_block(void)
{
    sigset_t set = our_signals();

    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    dispose(SIG_IGN);
}

void stop_unblock(void)
{
    sigset_t set = our_signals();

    dispose(SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int stop_signal_fd(struct err *e)
{
    sigset_t set = our_signals();
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);

    return fd >= 0 ? fd : err_errno(e, ERR_INTERNAL, "signalfd");
}

int stop_next_signal(int fd)
{
    struct signalfd_siginfo info;
    ssize_t n = 0;

    do
        n = read(fd, &info, sizeof info);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

int stop_event_fd(struct err *e)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    return fd >= 0 ? fd : err_errno(e, ERR_INTERNAL, "eventfd");
}

void stop_raise(int event_fd)
{
    const uint64_t one = 1;
    ssize_t n = 0;

    do
        n = write(event_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
}
