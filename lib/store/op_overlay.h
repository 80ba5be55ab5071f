/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OP_OVERLAY_H
#define WB_OP_OVERLAY_H

/* The overlay of gallery operations in Redis: wb:1:op:<jobID> with a TTL of 60 s and its member
 * "op:<jobID>" in the index wb:1:live, written as store/staging.h has it. Operations contract, section
 * 2. Errors are those of kv.h. */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "json/jx.h"
#include "kv/kv.h"
#include "model/gallery.h"
#include "model/overlay.h"
#include "store/gallery.h"

enum { OP_VALUE_MAX = 128 * 1024 };

/* Overlays with what they borrow from. */
struct op_overlays {
    struct gallery_overlay *overlay;
    size_t n;
    size_t malformed;   /* values that counted as absent */
    json_object **json; /* owned, one for each overlay */
};
#define OP_OVERLAYS_INIT \
    { \
        .overlay = NULL, .n = 0, .malformed = 0, .json = NULL \
    }
void op_overlays_free(struct op_overlays *o);
#define cleanup_op_overlays __attribute__((cleanup(op_overlays_free)))

/* What op_overlay_report() needs besides the report. */
struct op_source {
    const char *id;
    const struct gallery_op *row; /* of gallery_progress(); NULL: Postgres does not answer */
    int64_t stamp_us; /* Postgres' time: now_us of the same rows, or the clock's offset */
};

/* Stores a report that gallery_progress() took. A live overlay keeps what the report does not bring; where
 * there is none, or it makes no sense, it is made from the row. Names, status, cancellable and error are
 * the row's, if there is one. *fate as model/overlay.h (never REPORT_CONFLICT). Without a row
 * ERR_NOT_FOUND when there is no live overlay. ERR_CONFLICT for 60 s after op_overlay_end(): the
 * operation has ended. ERR_TOO_LARGE when it is over OP_VALUE_MAX bytes. */
int op_overlay_report(struct kv *kv, const struct op_source *from, const struct gallery_report *r,
    enum report_fate *fate, struct err *e) WARN_UNUSED;

/* The operation has ended: removes the overlay and refuses late reports for 60 s. Idempotent. */
int op_overlay_end(struct kv *kv, const char *id, struct err *e) WARN_UNUSED;

/* A fresh operation begins: nothing of an earlier one of the same id counts, its end neither. Idempotent. */
int op_overlay_begin(struct kv *kv, const char *id, struct err *e) WARN_UNUSED;

/* The live overlay of one operation: 1 when there is none. *out has one element. */
int op_overlay_get(
    struct kv *kv, const char *id, struct op_overlays *out, struct err *e) WARN_UNUSED;

/* The value as it is stored (of an overlay that is sane), and back. op_overlay_from_json: -1 when it is
 * malformed (it then counts as absent). */
void op_overlay_print(const struct gallery_overlay *o, struct buf *out);
int op_overlay_from_json(const char *id, const char *text, size_t size, struct gallery_overlay *out,
    json_object **json, struct err *e) WARN_UNUSED;

/* Tells whoever does the work to stop: {"jobID":"...","control":"cancel"} or "pause". Best effort: who
 * misses it asks for the control. */
#define CONTROL_CHANNEL "wb:control"
int control_publish(
    struct kv *kv, const char *id, enum gallery_control control, struct err *e) WARN_UNUSED;

#endif
