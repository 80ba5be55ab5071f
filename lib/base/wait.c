/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

int wait_fd(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = { .fd = fd, .events = events, .revents = 0 };
        int left_ms = clock_left_ms(deadline_ns);
        int n = poll(&p, 1, left_ms);

        if (n > 0 && (p.revents & POLLNVAL)) {
            errno = EBADF;
            return -1;
        }
        if (n > 0)
            return 1;
        if (n < 0 && errno != EINTR)
            return -1;
        if (left_ms == 0)
            return 0;
    }
}

/* Not FUTEX_PRIVATE: the word lies in memory of several processes. */
void wait_word(const _Atomic uint32_t *word, uint32_t seen, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - clock_mono_ns();

    if (left_ns <= 0 || atomic_load_explicit(word, memory_order_acquire) != seen)
        return;
    struct timespec left = {
        .tv_sec = (time_t)(left_ns / NS_PER_S),
        .tv_nsec = (long)(left_ns % NS_PER_S),
    };
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &left, NULL, 0);
}

void wake_word(const _Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
