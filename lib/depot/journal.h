/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_JOURNAL_H
#define WB_JOURNAL_H

/* The journal of a part: which shards were on disk when it was written. A hint for people and for reservations; what is there is told
 * by re-hashing alone. Text: a line "weighbridge-journal 1 <digest of the manifest> <total bytes>", then a shard's index per line. */
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "model/manifest.h"

enum { JOURNAL_BYTES_MAX = 4 << 20 };

struct journal {
    struct digest digest;
    int64_t total_bytes;
    size_t marks; /* lines after the first that make sense */
};

/* Reads one. Lines that make no sense, a torn last one too, are left out. ERR_INVALID: no such head; *out untouched. */
int journal_read(const char *text, size_t size, struct journal *out, struct err *e) WARN_UNUSED;

/* Appends the head; a shard's line. */
void journal_head(struct buf *out, const struct digest *digest, int64_t total_bytes);
void journal_mark(struct buf *out, size_t shard);

#endif
