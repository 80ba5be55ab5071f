/* SPDX-License-Identifier: Apache-2.0 */
#include "store/ready.h"

#include <string.h>

#include "db/db_row.h"
#include "store/sql_time.h"

static const struct db_stmt STMTS[] = {
    { "ready_clock", "SELECT " SQL_CLOCK, 0 },
};

const struct db_stmts READY_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

int ready_postgres(struct db *db, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int64_t now_us = 0;
    if (db_one(db, &STMTS[0], DB_NO_ARGS, &rows, e) < 0 || db_int8(&rows, 0, 0, &now_us, e) < 0)
        return -1;
    db_saw_clock(now_us);
    return 0;
}

int ready_redis(struct kv *kv, struct err *e)
{
    cleanup_reply redisReply *reply = NULL;
    if (kv_command(kv, KV_ARGS(kv_text("PING")), &reply, e) < 0)
        return -1;
    if (reply->type != REDIS_REPLY_STATUS || strcmp(reply->str, "PONG") != 0)
        return err_set(e, ERR_INTERNAL, "redis answered PING with something else");
    return 0;
}
