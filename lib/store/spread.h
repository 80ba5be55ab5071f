/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_STORE_SPREAD_H
#define WB_STORE_SPREAD_H

/* What the tables tell about distribution, as numbers: the metrics of artifacts contract section 3. Errors are those of db.h. */
#include "base/buf.h"
#include "db/db.h"

extern const struct db_stmts SPREAD_STMTS;

/* Appends them in Prometheus' text format. */
int spread_metrics(struct db *db, struct buf *out, struct err *e) WARN_UNUSED;

#endif
