/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_AGENT_PROGRESS_H
#define WB_AGENT_PROGRESS_H

/* The line that tells how far a pull is, on a terminal; nothing elsewhere. Only bytes that are verified count, so it never goes back. */
#include <stdbool.h>

#include "model/manifest.h"

enum { PROGRESS_MS = 200 };

struct progress {
    const struct manifest *manifest;
    const char *phase;
    int64_t had_bytes; /* before the phase */
    int64_t began_ns;
    bool shown; /* stderr is a terminal */
};

void progress_begin(struct progress *p, const struct manifest *m);
void progress_phase(struct progress *p, const char *phase, int64_t had_bytes);
void progress_show(struct progress *p, int64_t bytes); /* of the phase, so far */
void progress_end(struct progress *p);

#endif
