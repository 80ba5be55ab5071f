/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_READY_H
#define WB_READY_H

/* The statements of /readyz and of the clock. */
#include "db/db.h"
#include "kv/kv.h"

extern const struct db_stmts READY_STMTS;

/* SELECT of Postgres' time; also feeds db_saw_clock(). */
int ready_postgres(struct db *db, struct err *e) WARN_UNUSED;
/* PING. */
int ready_redis(struct kv *kv, struct err *e) WARN_UNUSED;

#endif
