/* SPDX-License-Identifier: Apache-2.0 */
#include "daemons/agent_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

static const double MB = 1e6;

void progress_show(struct progress *p, int64_t bytes)
{
    const int64_t there = p->had_bytes + bytes;
    const int64_t now_ns = clock_mono_ns();
    const double seconds = (double)(now_ns - p->began_ns) / (double)NS_PER_S;
    const double percent =
        p->total_bytes > 0 ? 100.0 * (double)there / (double)p->total_bytes : 100.0;

    if (!p->shown)
        return;
    p->shown_ns = now_ns;
    fprintf(stderr, "\r%s %s %5.1f %% of %.1f MB, %.0f MB/s \033[K", p->what, p->phase, percent,
        (double)p->total_bytes / MB, seconds > 0 ? (double)bytes / MB / seconds : 0.0);
    (void)fflush(stderr);
}

void progress_show_some(struct progress *p, int64_t bytes)
{
    if (p->had_bytes + bytes >= p->total_bytes ||
        clock_mono_ns() - p->shown_ns >= PROGRESS_MS * NS_PER_MS)
        progress_show(p, bytes);
}

void progress_begin(struct progress *p, const char *artifact, const char *version)
{
    *p = (struct progress){ .phase = "", .shown = isatty(STDERR_FILENO) == 1 };
    (void)str_format(p->what, sizeof p->what, "%s@%s", artifact, version);
}

void progress_phase(struct progress *p, const char *phase, int64_t had_bytes, int64_t total_bytes)
{
    p->phase = phase;
    p->had_bytes = had_bytes;
    p->total_bytes = total_bytes;
    p->began_ns = clock_mono_ns();
    progress_show(p, 0);
}

void progress_end(struct progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
