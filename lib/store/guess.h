/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_GUESS_H
#define WB_GUESS_H

/* What this process wrote last to each key of the overlay. A report is merged into what is stored: whoever
 * knows that already saves a round trip and parsing it. It is only a guess, since other processes write
 * too and values expire: the comparison in the script that writes is what decides. Any thread. */
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "model/overlay.h"

struct guess {
    struct overlay overlay; /* borrows from room */
    const char *value;      /* as it is stored; borrowed from room, NULL: none */
    size_t size;
    struct buf room;
};
#define GUESS_INIT \
    { \
        .value = NULL, .size = 0, .room = BUF_INIT(SIZE_MAX / 2) \
    }
void guess_free(struct guess *g);
#define cleanup_guess __attribute__((cleanup(guess_free)))

/* False when nothing is known. *g is of GUESS_INIT. */
bool guess_recall(const char *key, struct guess *g);

/* value: what was stored, o: the same. Large ones are forgotten. */
void guess_remember(const struct overlay *o, const struct buf *value);

void guess_forget(const char *key);

#endif
