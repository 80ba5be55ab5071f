/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

static const double MB = 1e6;

void progress_show(struct progress *p, int64_t bytes)
{
    const int64_t of_bytes = p->manifest->total_bytes;
    const int64_t there = p->had_bytes + bytes;
    const double seconds = (double)(clock_mono_ns() - p->began_ns) / (double)NS_PER_S;
    const double percent = of_bytes > 0 ? 100.0 * (double)there / (double)of_bytes : 100.0;

    if (!p->shown)
        return;
    fprintf(stderr, "\r%s@%s %s %5.1f %% of %.1f MB, %.0f MB/s \033[K", p->manifest->artifact,
        p->manifest->version, p->phase, percent, (double)of_bytes / MB,
        seconds > 0 ? (double)bytes / MB / seconds : 0.0);
    (void)fflush(stderr);
}

void progress_begin(struct progress *p, const struct manifest *m)
{
    *p = (struct progress){ .manifest = m, .phase = "", .shown = isatty(STDERR_FILENO) == 1 };
    progress_phase(p, "", 0);
}

void progress_phase(struct progress *p, const char *phase, int64_t had_bytes)
{
    p->phase = phase;
    p->had_bytes = had_bytes;
    p->began_ns = clock_mono_ns();
    if (phase[0] != '\0')
        progress_show(p, 0);
}

void progress_end(struct progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
