/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OVERLAY_H
#define WB_OVERLAY_H

/* The overlay of a copy: the fresher values that lie in Redis. How a report changes it, what a value
 * must look like to count, and the message that people read. Operations contract, sections 2, 3, 5.
 * Pure; the time is handed in. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/load_job.h"

enum {
    OVERLAY_TTL_S = 60,
    OVERLAY_VALUE_MAX = 8192,
    OVERLAY_MESSAGE_MAX = 1024,
    OVERLAY_SPEED_MAX = 64
};
#define OVERLAY_NUMBER_MAX INT64_C(9007199254740991) /* 2^53 - 1: exact in every JSON reader */

/* Text is borrowed, never NULL. claim: set when a load job's owner reports; such an overlay counts only
 * beside the row with that claim, and sessions other than its owner's are refused. session: set when a
 * sender named one; other sessions are refused while it lives. Two fields, where the contract has one:
 * that would hide every copy that has a session but no row. */
struct overlay {
    const char *key; /* model_id */
    const char *node_name;
    const char *file_name;
    const char *speed;
    const char *message;
    const char *started_at; /* RFC 3339 */
    const char *claim;
    const char *session;
    int64_t bytes_sent;
    int64_t total_bytes;
    int64_t file_index;
    int64_t total_files;
    double progress;    /* 0..100 */
    int64_t stamp_us;   /* Postgres' time of the report; 0 unknown */
    int64_t expires_ns; /* monotonic clock of this machine; 0 unknown. Not stored in Redis */
};

/* What a sender says. NULL and -1 are "missing"; "" counts as missing too. */
struct report {
    bool file_complete; /* a file of the copy is complete: only the file numbers are looked at */
    int64_t stamp_us;   /* Postgres' time when the report arrived */
    const char *node_name;
    const char *file_name;
    const char *speed;
    const char *message;
    const char *session;
    const char *claim;
    const struct load_row *row; /* of its claim, with the report on top; NULL: none */
    int64_t bytes_sent;
    int64_t total_bytes;
    int64_t file_index;
    int64_t total_files;
};

#define REPORT_INIT \
    { \
        .bytes_sent = -1, .total_bytes = -1, .file_index = -1, .total_files = -1 \
    }

/* Where overlay_apply() writes the texts that it makes; *out borrows from it. */
struct overlay_scratch {
    char message[OVERLAY_MESSAGE_MAX];
    char started[32];
    char session[CLAIM_SHORT_SIZE];
};

bool report_has_numbers(const struct report *r);

enum report_fate {
    REPORT_APPLIED,
    REPORT_FIRST,    /* applied, and the key had no live overlay: every poll after must show it */
    REPORT_OUTDATED, /* an older report of the same sender that says nothing new: success */
    REPORT_CONFLICT, /* another live sender reports this key */
};

/* Applies report r to old (NULL: none) and fills *out, whose texts borrow from key, old, r and the
 * scratch. A missing field keeps the stored one. The message is r's, or written by
 * overlay_message(). With file_complete: progress = file_index/total_files*100, byte counters 0, speed
 * "", message kept. A report without any of the four numbers keeps the progress. What neither the report nor
 * the stored overlay has comes from the report's row, and so do the numbers when the row is further
 * (load_is_further). A report with another claim than the stored one starts afresh (its caller has
 * checked the row). Of those without, one with a session conflicts with a stored claim, unless the
 * session is that claim's token (its owner; the session is then not stored), and one with or without
 * conflicts with another stored session. A report whose stamp is older than the stored one only fills
 * what is empty or 0 there, as far as it is of the same file, and keeps the stamp; when that is nothing,
 * or with file_complete, it is outdated. started_at is old's, or made from stamp_us. On REPORT_OUTDATED
 * and REPORT_CONFLICT *out is untouched. */
enum report_fate overlay_apply(const char *key, const struct overlay *old, const struct report *r,
    struct overlay_scratch *scratch, struct overlay *out);

/* A session as it is compared and stored: one that looks like a claim token becomes its short hash,
 * because secrets never go to Redis. NULL becomes "". */
const char *overlay_session(const char *session, char room[CLAIM_SHORT_SIZE]);

/* True when session is the token of the claim that old carries. */
bool overlay_is_owners_session(const struct overlay *old, const char *session);

/* "weights.gguf (1.2 GiB / 4.0 GiB, 310 MiB/s)"; without total "Staging weights.gguf"; without a file
 * "Preparing to stage model files". Cut at a whole character. */
void overlay_message(char out[OVERLAY_MESSAGE_MAX], const char *file_name, int64_t bytes_sent,
    int64_t total_bytes, const char *speed);

/* "512 B", "1.2 GiB": one digit after the point from KiB on. */
void overlay_bytes_text(char out[32], int64_t bytes);

/* True when every value is one that a sender could have meant: progress finite and 0..100, numbers
 * 0..2^53-1, texts valid UTF-8 of sane length without U+0000. Others count as absent. */
bool overlay_is_sane(const struct overlay *o);

#endif
