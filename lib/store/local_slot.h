/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LOCAL_SLOT_H
#define WB_LOCAL_SLOT_H

/* Slots of the provisioner `local`. All planners of all machines see the same
 * rows, so that no two can take the same slot, and what is taken outlives them all. Errors are those of db.h. */
#include <stddef.h>
#include <stdint.h>

#include "db/db.h"

extern const struct db_stmts LOCAL_STMTS;

/* Sees to it that a name has n of the first `slots` slots: all or none. What it has already counts. 0, or 1:
 * there are too few free ones. */
int local_slot_take(
    struct db *db, const char *name, int64_t n, int64_t slots, struct err *e) WARN_UNUSED;

/* The numbers of a name's slots, ascending; at most max of them into out. */
int local_slot_of(struct db *db, const char *name, int64_t *out, size_t max, size_t *n,
    struct err *e) WARN_UNUSED;

/* How many slots are taken. */
int local_slot_taken(struct db *db, int64_t *out, struct err *e) WARN_UNUSED;

/* Names with how many slots they have, ordered by name. The names are borrowed from rows. */
struct local_slots {
    struct {
        const char *name;
        int64_t slots;
    } * at; /* owned */
    size_t n;
    struct db_rows rows;
};
#define LOCAL_SLOTS_INIT \
    { \
        .at = NULL, .n = 0, .rows = DB_ROWS_INIT \
    }
void local_slots_free(struct local_slots *l);
#define cleanup_local_slots __attribute__((cleanup(local_slots_free)))
int local_slot_list(struct db *db, struct local_slots *out, struct err *e) WARN_UNUSED;

/* Gives all slots of a name back; none is fine. */
int local_slot_free(struct db *db, const char *name, struct err *e) WARN_UNUSED;

#endif
