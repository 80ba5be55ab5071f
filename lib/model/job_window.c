/* SPDX-License-Identifier: Apache-2.0 */
#include "model/job_window.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/str.h"

enum { MINUTES_PER_HOUR = 60, MINUTES_PER_DAY = 24 * 60 };

static const struct {
    const char *suffix;
    int64_t minutes;
} UNITS[] = {
    { "d", MINUTES_PER_DAY },
    { "h", MINUTES_PER_HOUR },
    { "min", 1 }, /* before "m", which it begins with */
    { "m", 1 },
};
enum { UNITS_COUNT = sizeof UNITS / sizeof UNITS[0] };

/* One part at *text, of a unit from UNITS[first] on: the index behind its unit, or -1. */
static int take_part(const char **text, int first, int64_t *minutes)
{
    int64_t n = 0;
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0)
        return -1;
    for (size_t i = 0; i < digits; i++) {
        n = n * 10 + ((*text)[i] - '0');
        if (n > JOB_WINDOW_MINUTES_MAX)
            return -1; /* in any unit */
    }
    const char *rest = *text + digits;
    for (int u = first; u < UNITS_COUNT; u++) {
        if (!str_starts(rest, UNITS[u].suffix))
            continue;
        *text = rest + strlen(UNITS[u].suffix);
        *minutes += n * UNITS[u].minutes;
        return UNITS[u].minutes == 1 ? UNITS_COUNT : u + 1;
    }
    return -1;
}

int job_window_parse(const char *text, int64_t *minutes)
{
    if (str_empty(text))
        text = JOB_WINDOW_DEFAULT;
    int64_t sum = 0;
    int next = 0;
    while (*text != '\0') {
        next = take_part(&text, next, &sum);
        if (next < 0)
            return -1;
    }
    if (sum <= 0 || sum > JOB_WINDOW_MINUTES_MAX)
        return -1;
    *minutes = sum;
    return 0;
}
