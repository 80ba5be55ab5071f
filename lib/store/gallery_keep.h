/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_GALLERY_KEEP_H
#define WB_GALLERY_KEEP_H

/* Brings rows of gallery operations up to the overlays that are ahead of them. A report that comes within a second of
 * the one before goes to the overlay alone, and when it was the last one, only the overlay has it: when that
 * expires, progress would step back. Operations contract, section 3. */
#include <stdint.h>

#include "base/err.h"
#include "db/db.h"

extern const struct db_stmts GALLERY_KEEP_STMTS;

/* values: a JSON array of overlays as op_overlay_print() writes them. Writes what is shown of each (progress, phase,
 * bytes, message, file name, nodes) to its row, with the overlay's own stamp as the time of the change, where the row is
 * active and older than that. In one statement; whatever another session holds is passed over, so that any number may do
 * so at once and nobody waits. *kept (may be NULL): how many rows were written. Errors are those of db.h. */
int gallery_keep(struct db *db, const char *values, int64_t *kept, struct err *e) WARN_UNUSED;

#endif
