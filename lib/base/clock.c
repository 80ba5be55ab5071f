/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <limits.h>
#include <stdatomic.h>
#include <time.h>

static _Atomic int64_t shift_us;

int64_t clock_mono_ns(void)
{
    struct timespec now = { 0, 0 };

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t clock_wall_us(void)
{
    struct timespec now = { 0, 0 };

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * US_PER_S + now.tv_nsec / 1000 +
           atomic_load_explicit(&shift_us, memory_order_relaxed);
}

void clock_shift_wall(int64_t us)
{
    atomic_store_explicit(&shift_us, us, memory_order_relaxed);
}

int64_t clock_deadline(int64_t ms)
{
    return clock_mono_ns() + ms * NS_PER_MS;
}

int64_t clock_prolong(int64_t deadline_ns, int64_t ms, int64_t until_ns)
{
    const int64_t later_ns = clock_deadline(ms);
    const int64_t moved_ns = later_ns < until_ns ? later_ns : until_ns;
    return moved_ns > deadline_ns ? moved_ns : deadline_ns;
}

int clock_left_ms(int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - clock_mono_ns();

    if (left_ns <= 0)
        return 0;
    int64_t left_ms = left_ns / NS_PER_MS + (left_ns % NS_PER_MS != 0);
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
