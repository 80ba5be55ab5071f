/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MIGRATE_H
#define WB_MIGRATE_H

/* Numbered forward-only migrations: NNNN_name.sql in a folder, each applied once, in order, each in a
 * transaction of its own under an advisory transaction lock, so that many may start at once and
 * poolers in transaction mode work. Recorded with their sha256 in weighbridge_migration. */
#include <stdbool.h>

#include "base/err.h"

struct migrate_options {
    const char *url;    /* libpq connection string */
    const char *folder; /* of the .sql files */
    bool read_only; /* leave out migrations whose first line says `-- creates: existing tables` */
    int64_t timeout_ms; /* to connect and for each migration */
};

/* Applies what is missing. *applied counts it. ERR_CONFLICT when an applied file has changed since,
 * ERR_UNAVAILABLE when the database cannot be reached, ERR_INVALID when a file fails (its name and
 * Postgres' text are in e). One thread. */
int migrate_run(const struct migrate_options *o, int *applied, struct err *e) WARN_UNUSED;

#endif
