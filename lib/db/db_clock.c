/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "base/clock.h"
#include "db/db.h"

/* A sample is taken when the answer is read, which is always after Postgres looked at its clock: it
 * errs to the low side by the time in between. So the highest one is the best, until the clocks may
 * have drifted (10 s) or one was set (a difference of a second). */
enum { SAMPLE_KEEP_S = 10 };

static _Atomic int64_t offset_us;
static _Atomic int64_t keep_until_ns; /* 0: no sample yet */

void db_saw_clock(int64_t postgres_us)
{
    int64_t sample = postgres_us - clock_wall_us();
    int64_t now = clock_mono_ns();
    int64_t kept = atomic_load(&offset_us);
    bool better = sample >= kept || kept - sample > US_PER_S;
    if (!better && now < atomic_load(&keep_until_ns))
        return;
    atomic_store(&offset_us, sample);
    atomic_store(&keep_until_ns, now + SAMPLE_KEEP_S * NS_PER_S);
}

bool db_clock_offset_us(int64_t *out)
{
    if (atomic_load(&keep_until_ns) == 0)
        return false;
    *out = atomic_load(&offset_us);
    return true;
}

int64_t db_now_us(void)
{
    return clock_wall_us() + atomic_load(&offset_us);
}
