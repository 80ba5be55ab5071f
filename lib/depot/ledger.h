/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LEDGER_H
#define WB_LEDGER_H

/* What a root holds and what is promised of it. Read from disk each time: nothing to get out of step. Any thread. */
#include <stdint.h>

#include "model/mishap.h"

struct ledger {
    int64_t used_bytes; /* on disk below the root, trash left out */
    int64_t trash_bytes;
    int64_t
        promised_bytes; /* that the journals of other parts speak of and that are not on disk yet */
    int64_t free_bytes; /* of the file system, for an ordinary user */
};

/* own: name of the part whose own promise does not count; NULL: none. */
int ledger_read(int root, const char *own, struct ledger *out, struct mishap *why) WARN_UNUSED;

/* May so many bytes more be taken? 0, or MISHAP_DISK_FULL with the figures. capacity_bytes 0: as much as the file system has. */
int ledger_check(const struct ledger *l, int64_t more_bytes, int64_t capacity_bytes,
    struct mishap *why) WARN_UNUSED;

#endif
