/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_ARTIFACT_GATE_H
#define WB_STORE_ARTIFACT_GATE_H

/* Who verifies which version, and what came of it: the rows of gate.h. Any number of holders at once, each version is one's.
 * Errors are those of db.h. */
#include <stdint.h>

#include "db/db.h"

extern const struct db_stmts GATE_STMTS;

enum { GATE_CLAIM_S = 60 };

/* A version that is to be verified. */
struct gate_claim {
    int64_t id;
    const char *artifact;
    const char *version;
    const char *part;
    const char *text; /* the manifest */
    int64_t size;
    struct db_rows rows;
};
#define GATE_CLAIM_INIT \
    { \
        .id = 0, .artifact = "", .version = "", .part = "", .text = "", .size = 0, \
        .rows = DB_ROWS_INIT \
    }
void gate_claim_free(struct gate_claim *c);
#define cleanup_gate_claim __attribute__((cleanup(gate_claim_free)))

/* The one that waits longest, for GATE_CLAIM_S; 1 when none waits. */
int gate_claim_next(
    struct db *db, const char *holder, struct gate_claim *out, struct err *e) WARN_UNUSED;
/* In how many ms one may be claimed, at most most_ms. 0 also when one waits whose row somebody else had locked while
 * gate_claim_next() passed it by. */
int gate_due_ms(struct db *db, int64_t most_ms, int64_t *ms, struct err *e) WARN_UNUSED;
/* For GATE_CLAIM_S more. ERR_CONFLICT: it is another's, or not to be verified any more. */
int gate_renew(struct db *db, int64_t id, const char *holder, struct err *e) WARN_UNUSED;
/* Gives it back; another may have it in a second. */
int gate_release(struct db *db, int64_t id, const char *holder, struct err *e) WARN_UNUSED;
/* verifying -> published or rejected. ERR_CONFLICT as above. */
int gate_publish(struct db *db, int64_t id, const char *holder, struct err *e) WARN_UNUSED;
int gate_reject(
    struct db *db, int64_t id, const char *holder, const char *reason, struct err *e) WARN_UNUSED;

/* Uploads without progress for so long become dropped. Rows: artifact, version, part of each. */
int gate_drop(struct db *db, int64_t hours, struct db_rows *out, struct err *e) WARN_UNUSED;

/* 0: a version is being assembled in the folder of that name; 1: none is. */
int gate_knows_part(struct db *db, const char *part, struct err *e) WARN_UNUSED;

#endif
