/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_GALLERY_H
#define WB_STORE_GALLERY_H

/* Gallery operations in Postgres: gallery_operations (not ours: never altered) and operation_control
 * beside it. Operations contract, sections 2 to 6. Every rule of time is Postgres' clock's. Errors are
 * those of db.h; the texts name the job. Where an existing LocalAI has not made its table yet there are
 * no operations; once this process has seen the table, its absence is an error. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"
#include "json/jx.h"
#include "model/gallery.h"

extern const struct db_stmts GALLERY_STMTS; /* of those that read */
extern const struct db_stmts GALLERY_ACT_STMTS;

/* Rows with what they borrow from. */
struct gallery_rows {
    struct gallery_row *row;
    size_t n;
    size_t malformed; /* columns nodes that made no sense and read as none */
    int64_t now_us;   /* Postgres' time when they were read */
    bool held_back;   /* of gallery_progress(): the report was not due and is in row[0] only */
    struct db_rows rows;
    json_object **json; /* owned, one for each row: its nodes, or NULL */
};
#define GALLERY_ROWS_INIT \
    { \
        .row = NULL, .n = 0, .malformed = 0, .now_us = 0, .held_back = false, \
        .rows = DB_ROWS_INIT, .json = NULL \
    }
void gallery_rows_free(struct gallery_rows *r);
#define cleanup_gallery_rows __attribute__((cleanup(gallery_rows_free)))

/* For the poll: all rows that show something, or that hide an overlay, by id (byte order). Started
 * together with load_list_start() and finished in the same order, both are one round trip. before: an
 * earlier list of this thread, or NULL: nodes that are the same as there are not parsed again (they are
 * shared: either list may be freed first). */
int gallery_list_start(struct db *db, struct err *e) WARN_UNUSED;
int gallery_list_finish(struct db *db, const struct gallery_rows *before, struct gallery_rows *out,
    struct err *e) WARN_UNUSED;
/* The same at once. */
int gallery_list(struct db *db, struct gallery_rows *out, struct err *e) WARN_UNUSED;

/* Those of many operations, whatever their status: ids is a JSON array of text. What the poll's list leaves out, because
 * it is old, may have an overlay all the same. In no order. */
int gallery_find(
    struct db *db, const char *ids, struct gallery_rows *out, struct err *e) WARN_UNUSED;

/* One row, whatever its status. ERR_NOT_FOUND. */
int gallery_get(struct db *db, const char *id, struct gallery_rows *out, struct err *e) WARN_UNUSED;

/* Where the calls below write. With read_only ([operations] read_only, contract section 6) nothing is
 * ever written to gallery_operations: those that would are ERR_FORBIDDEN. */
struct gallery_db {
    struct db *db;
    bool read_only;
};
#define GALLERY_DB(db_, read_only_) ((struct gallery_db){ .db = (db_), .read_only = (read_only_) })

/* Admits an operation: 0 with the new pending row. 1 when there is one of that id: what the admission
 * brings is filled in, and nothing is reopened. a was checked by gallery_admission_check(). */
int gallery_admit(struct gallery_db g, const struct gallery_admission *a, struct gallery_rows *out,
    struct err *e) WARN_UNUSED;

enum gallery_outcome {
    GALLERY_TAKEN,   /* the overlay is due; the row was written if a second had passed */
    GALLERY_CHANGED, /* the same, and status or phase changed: the row was written */
    GALLERY_ENDED,   /* the report was a final status: the row was written, the overlay must go */
    GALLERY_SETTLED, /* the row is completed or cancelled and was left alone; the overlay must go */
    GALLERY_GIVEN_UP /* the row is failed and the status is not final: left alone, the overlay must go */
};

/* A report of who does the work. It is written at once when status, phase, cancellable or error
 * change, else at most once a second, in the UPDATE's own condition; what is held back must be kept in the
 * overlay, or said again with at_once. *out is the row as it is now with
 * the report on top (but for SETTLED and GIVEN_UP: as it is), so that the overlay can be made from it.
 * On a failed row only a final status counts; a correction clears the error. With read_only nothing is
 * written, and the outcome is what it would be. r was checked by gallery_report_check().
 * ERR_NOT_FOUND. */
int gallery_progress(struct gallery_db g, const char *id, const struct gallery_report *r,
    struct gallery_rows *out, enum gallery_outcome *outcome, struct err *e) WARN_UNUSED;

enum gallery_control { GALLERY_GO_ON, GALLERY_CANCEL, GALLERY_PAUSE };
const char *gallery_control_name(enum gallery_control c); /* "", "cancel", "pause" */

/* Cancel or pause: status cancelled, not cancellable, and the control for who does the work.
 * ERR_INVALID with the reason when it is unknown, not cancellable, or has ended. */
int gallery_stop(
    struct gallery_db g, const char *id, enum gallery_control c, struct err *e) WARN_UNUSED;

/* What who does the work should do. ERR_NOT_FOUND when there is neither a row nor a control. */
int gallery_control_get(
    struct db *db, const char *id, enum gallery_control *out, struct err *e) WARN_UNUSED;

/* Acknowledges a failure; writes operation_control only, so also with read_only. 1 when there is nothing
 * to dismiss. */
int gallery_dismiss(struct db *db, const char *id, struct err *e) WARN_UNUSED;

/* The newest 50 ended operations, newest first. */
enum { GALLERY_HISTORY_MAX = 50 };
int gallery_history(struct db *db, struct gallery_rows *out, struct err *e) WARN_UNUSED;

/* Removes the settled ones and the dismissed failures. For 5 minutes lists show each as cancelled, so that what Redis
 * may still hold of it stays hidden (contract section 3). 0 only when it happened. */
int gallery_history_clear(struct gallery_db g, struct err *e) WARN_UNUSED;

#endif
