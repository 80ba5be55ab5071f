/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_PROGRESS_H
#define WB_AGENT_PROGRESS_H

/* The line that tells on a terminal how far a command is; nothing elsewhere. What is told is done, so it never goes back within a phase. One
 * thread at a time. */
#include <stdbool.h>
#include <stdint.h>

#include "model/manifest.h"

enum { PROGRESS_MS = 200 };

struct progress {
    char what[ARTIFACT_NAME_MAX + VERSION_NAME_MAX + 2]; /* "artifact@version" */
    const char *phase;
    int64_t total_bytes; /* of the phase, what was had before included */
    int64_t had_bytes;   /* before the phase */
    int64_t began_ns;
    int64_t shown_ns; /* last */
    bool shown;       /* stderr is a terminal */
};

void progress_begin(struct progress *p, const char *artifact, const char *version);
/* phase: static text. */
void progress_phase(struct progress *p, const char *phase, int64_t had_bytes, int64_t total_bytes);
void progress_show(struct progress *p, int64_t bytes); /* of the phase, so far */
/* The same for whoever calls more often: at most once in PROGRESS_MS, unless all is done. */
void progress_show_some(struct progress *p, int64_t bytes);
void progress_end(struct progress *p);

#endif
