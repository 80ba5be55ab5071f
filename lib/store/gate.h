/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_GATE_H
#define WB_STORE_GATE_H

/* The release gate: artifacts contract section 3, "Publishing". Reads every file of an assembled version back against its
 * sha256; then the version lands and is published, or is rejected with the reason. Shards that a published version has are
 * cloned before, and hashed. Run by weighbridge-housekeeping, planners and weighbridge-artifacts, wherever the store's
 * folder is and belongs to the process' user; any number at once. Whoever dies leaves a claim that runs out, and the next begins again.
 *
 * Errors are those of db.h, and ERR_NO_ROOM and ERR_UNAVAILABLE of the store's disk: then nothing is judged, and it is tried again. */
#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"

enum { GATE_HOLDER_SIZE = 96 };

struct gate {
    const char *root;
    int64_t drop_hours;
    char holder[GATE_HOLDER_SIZE];
    bool (*stopping)(
        void *ctx); /* asked now and then; NULL: never. True: what is in hand is given back */
    void *ctx;
};

struct gate_done {
    int64_t published;
    int64_t rejected;
    int64_t back; /* to uploading: what was to be cloned is bad */
    int64_t dropped;
    int64_t parts;   /* left over by nobody known: removed */
    int64_t spooled; /* bodies that a web server left which died: removed */
};

/* holder: host, process and a random number. */
void gate_init(struct gate *g, const char *root, int64_t drop_hours);

/* True when this process may do it here. */
bool gate_is_here(const struct gate *g);

/* Verifies all that waits. What is done is added to *done. */
int gate_run(
    struct db *db, const struct gate *g, struct gate_done *done, struct err *e) WARN_UNUSED;

/* Drops uploads without progress, and removes parts over a day old that no version is assembled in, and bodies of uploads that nobody wrote to for a day. */
int gate_sweep(
    struct db *db, const struct gate *g, struct gate_done *done, struct err *e) WARN_UNUSED;

#endif
