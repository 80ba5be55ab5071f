/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rfc3339.h"

#include <time.h>

#include "base/clock.h"
#include "base/str.h"

#define YEAR_10000_US INT64_C(253402300800000000)

void rfc3339_us(char out[RFC3339_SIZE], int64_t us)
{
    out[0] = '\0';
    if (us <= 0 || us >= YEAR_10000_US)
        return;
    time_t seconds = (time_t)(us / US_PER_S);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm))
        return;
    (void)str_format(out, RFC3339_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", tm.tm_year + 1900,
        tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(us % US_PER_S));
}
