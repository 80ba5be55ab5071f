/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STAGING_H
#define WB_STAGING_H

/* The overlay in Redis: wb:1:staging:<key> with a TTL of 60 s, its member "staging:<key>" in the index
 * wb:1:live (score = expiry by Redis' clock, milliseconds), and wb:1:ended:<key>, a sorted set of
 * the senders whose late reports are refused (score = until when, 60 s after their copy ended). Every write is one script that compares what is stored with what
 * its writer saw, so that merging a report stays a pure function (model/overlay.h). Contract sections 2
 * and 5. Errors are those of kv.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "json/jx.h"
#include "kv/kv.h"
#include "model/overlay.h"

/* Overlays with what they borrow from. */
struct overlays {
    struct overlay *overlay;
    size_t n;
    size_t malformed;   /* values that counted as absent */
    json_object **json; /* owned, one for each overlay */
};
#define OVERLAYS_INIT \
    { \
        .overlay = NULL, .n = 0, .malformed = 0, .json = NULL \
    }
void overlays_free(struct overlays *o);
#define cleanup_overlays __attribute__((cleanup(overlays_free)))

/* Stores a report. *fate as model/overlay.h (never REPORT_CONFLICT); a report that comes within 60 s
 * after the end of its own session or claim is ERR_CONFLICT, and so is one that conflicts with another
 * live sender. ERR_INVALID when the merged overlay is not sane, ERR_TOO_LARGE when it is over OVERLAY_VALUE_MAX
 * bytes. */
int staging_report(struct kv *kv, const char *key, const struct report *r, enum report_fate *fate,
    struct err *e) WARN_UNUSED;

/* The same; *now is what is stored afterwards (all 0 when the report was outdated). */
int staging_report_now(struct kv *kv, const char *key, const struct report *r,
    enum report_fate *fate, struct load_numbers *now, struct err *e) WARN_UNUSED;

/* The copy ended: removes the overlay and refuses late reports of the session it had for 60 s. Not of
 * its claim: that belongs to a load job, whose owner may go on. Idempotent. */
int staging_end(struct kv *kv, const char *key, struct err *e) WARN_UNUSED;

/* The same of a load job that ended: refuses the claim that the overlay had too. */
int staging_end_load(struct kv *kv, const char *key, struct err *e) WARN_UNUSED;

/* Removes the overlay and refuses nobody, but whom an end refused before stays refused: for a load that
 * left the state staging and may come back to it, and for a new claim. Idempotent. */
int staging_forget(struct kv *kv, const char *key, struct err *e) WARN_UNUSED;

/* The live overlay of one key: 1 when there is none (*out then only counts a malformed value). *out
 * has one element. */
int staging_get(struct kv *kv, const char *key, struct overlays *out, struct err *e) WARN_UNUSED;

/* All live overlays, in key order. before: an earlier list of this thread, or NULL: what it has is asked
 * for together with the index, in one round trip, and values that are the same as there are not parsed
 * again (they are shared: either list may be freed first). */
int staging_list(
    struct kv *kv, const struct overlays *before, struct overlays *out, struct err *e) WARN_UNUSED;

/* The value as it is stored (of an overlay that is sane), and back. overlay_from_json: -1 when it is malformed (it then counts as absent). */
void overlay_print(const struct overlay *o, struct buf *out);
int overlay_from_json(const char *key, const char *text, size_t size, struct overlay *out,
    json_object **json, struct err *e) WARN_UNUSED;

/* Tells other machines that something changed (their generation is bumped). Best effort: errors are
 * for the caller to ignore. */
#define CHANGES_CHANNEL "wb:1:changes"
int changes_publish(struct kv *kv, const char *machine_id, struct err *e) WARN_UNUSED;

#endif
