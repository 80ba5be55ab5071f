/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CLOCK_H
#define WB_CLOCK_H

/* Clocks. Waiting is measured on the monotonic clock; wall time is only for what people and
 * Postgres compare. Any thread. */
#include <stdint.h>

enum { US_PER_MS = 1000, MS_PER_S = 1000 };
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S  INT64_C(1000000000)
#define US_PER_S  INT64_C(1000000)

/* CLOCK_MONOTONIC in nanoseconds: the same for all processes of a machine since its boot. */
int64_t clock_mono_ns(void);

/* CLOCK_REALTIME in microseconds since 1970-01-01T00:00:00Z. */
int64_t clock_wall_us(void);

/* From now on this process takes the time to be so much later than it is: for tests of what must not depend on it. */
void clock_shift_wall(int64_t us);

/* A deadline: ms milliseconds from now on the monotonic clock, in nanoseconds. */
int64_t clock_deadline(int64_t ms);

/* The deadline moved on to ms milliseconds from now, but not beyond until_ns, and never back. */
int64_t clock_prolong(int64_t deadline_ns, int64_t ms, int64_t until_ns);

/* Milliseconds until the deadline, rounded up, never negative, never over INT_MAX. */
int clock_left_ms(int64_t deadline_ns);

#endif
