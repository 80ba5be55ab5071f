/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_LOAD_JOB_H
#define WB_STORE_LOAD_JOB_H

/* Load jobs in Postgres: model_load_jobs (not ours: never altered) and load_job_claims beside it.
 * Operations contract, sections 2 and 5. Errors are those of db.h; the texts name the key. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "db/db.h"
#include "model/load_job.h"

extern const struct db_stmts LOAD_JOB_STMTS;

/* Rows with what they borrow from. */
struct load_rows {
    struct load_row *row;
    size_t n;
    int64_t now_us; /* Postgres' time when they were read */
    bool held_back; /* of load_update(): it was not due and is in row[0] only */
    struct db_rows rows;
};
#define LOAD_ROWS_INIT \
    { \
        .row = NULL, .n = 0, .now_us = 0, .held_back = false, .rows = DB_ROWS_INIT \
    }
void load_rows_free(struct load_rows *r);
#define cleanup_load_rows __attribute__((cleanup(load_rows_free)))

/* All rows that do not count as gone, in key order (byte order). Tables that an existing LocalAI has not
 * made yet read as no rows; once this process has seen them, their absence is an error. */
int load_list(struct db *db, struct load_rows *out, struct err *e) WARN_UNUSED;
/* The same in two halves, for the refresher; every row, gone or not, since a failed row hides its
 * overlay. */
int load_list_start(struct db *db, struct err *e) WARN_UNUSED;
int load_list_finish(struct db *db, struct load_rows *out, struct err *e) WARN_UNUSED;

/* One row: ERR_NOT_FOUND also when it counts as gone. */
int load_get(struct db *db, const char *key, struct load_rows *out, struct err *e) WARN_UNUSED;

struct load_claimant {
    const char *owner;
    const char
        *overlay_claim; /* claim of the key's live overlay; "" when none or Redis does not answer */
};

/* Makes the caller the owner of the load of key if nobody is, or if who was may be replaced
 * (load_may_be_replaced): 0 with the fresh pending row and the secret token; 1 with the existing row
 * and token untouched. Of any number of callers at one moment exactly one gets 0. */
int load_claim(struct db *db, const char *key, const struct load_claimant *who,
    struct load_rows *out, char token[TOKEN_HEX_SIZE], struct err *e) WARN_UNUSED;

/* A load as its owner names it. */
struct load_owned {
    const char *key;
    const char *token;
};
#define LOAD_OWNED(k, t) ((struct load_owned){ .key = (k), .token = (t) })

/* NULL and -1 leave stored values alone; "" too. */
struct load_update {
    const char *state; /* pending, installing, staging or loading */
    const char *node_id;
    const char *node_name;
    int64_t replica_index;
    int64_t bytes_sent;
    int64_t total_bytes;
    int64_t file_index;
    int64_t total_files;
    bool at_once; /* due whenever the last write was */
};
#define LOAD_UPDATE_INIT \
    { \
        .replica_index = -1, .bytes_sent = -1, .total_bytes = -1, .file_index = -1, \
        .total_files = -1 \
    }

/* Heartbeat and progress of the owner. Bytes are written at most once a second (in the UPDATE's own
 * condition; a stamp over a second ahead is another clock's), at once when the state changes or bytes first
 * appear. *out is the row as it is now with
 * the update's values on top, so that the overlay can be made from it. *changed: the state changed or
 * the first bytes came. What is held back must be kept in the overlay, or said again with at_once. ERR_CONFLICT when the token is not the current one or the row is gone or
 * failed. */
int load_update(struct db *db, struct load_owned load, const struct load_update *u,
    struct load_rows *out, bool *changed, struct err *e) WARN_UNUSED;

/* state failed with the reason. Said again it changes nothing and is a success. ERR_CONFLICT as above. */
int load_fail(struct db *db, struct load_owned load, const char *reason, struct err *e) WARN_UNUSED;

/* Ended well: the row goes. 1 when it was gone already (or never was). ERR_CONFLICT when another owns
 * it now. */
int load_done(struct db *db, struct load_owned load, struct err *e) WARN_UNUSED;

/* The short claim of a token, as rows and overlays carry it. */
void load_claim_short(const char *token, char out[CLAIM_SHORT_SIZE]);

#endif
