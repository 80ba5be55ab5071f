/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_RECEIPT_H
#define WB_RECEIPT_H

/* What is handed in when a version has landed: artifacts contract section 3 ("receipt"), and receipt.json of section 4. A value; any
 * thread. */
#include <stdint.h>

#include "base/buf.h"
#include "model/manifest.h"
#include "model/mishap.h"

enum { RECEIPT_SOURCE_SIZE = 300, RECEIPT_SOURCES_MAX = 64, RECEIPT_TEXT_MAX = 64 << 10 };

struct receipt_source {
    char name
        [RECEIPT_SOURCE_SIZE]; /* scheme, host and port: no path and no query, which may hold secrets */
    int64_t bytes;
};

struct receipt {
    struct digest digest;
    int64_t total_bytes;
    int64_t bytes_fetched;
    int64_t bytes_avoided; /* cloned from what was there already, or zeros */
    int64_t bytes_resumed; /* that an earlier pull had fetched */
    int64_t bytes_read_back;
    struct receipt_source source[RECEIPT_SOURCES_MAX];
    size_t sources;
    size_t retries[MISHAP__COUNT];
    int64_t fetch_ms; /* phases */
    int64_t verify_ms;
    int64_t ended_us; /* wall clock */
};

void receipt_print(const struct receipt *r, const struct manifest *m, struct buf *out);

/* The body of POST .../receipt, made of a version's receipt.json. What earlier pulls had fetched counts as fetched, since they handed in
 * nothing; retries go by the reasons of dist_retry_total. What the text lacks, or all of it when it makes no sense, is left out or 0: the digest
 * alone is what counts. */
void receipt_hand_in(const char *text, size_t size, const struct digest *digest, struct buf *out);

#endif
