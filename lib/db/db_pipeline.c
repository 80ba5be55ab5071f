/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "db/db_internal.h"

int conn_take_prepared(struct db *db, struct db_slot *slot, struct err *e)
{
    for (;;) {
        cleanup_pgresult PGresult *res = NULL;
        if (conn_next(db, &res, e) < 0)
            return -1;
        switch ((int)PQresultStatus(res)) { /* of NULL, between two results: PGRES_FATAL_ERROR */
        case PGRES_PIPELINE_SYNC:
            return 0;
        case PGRES_COMMAND_OK:
            slot->status = SLOT_READY;
            break;
        default:
            if (PQstatus(db->conn) != CONNECTION_OK)
                return conn_lost(db, e);
            if (res != NULL && conn_refused(db, slot->stmt->name, res, e) < 0 && db->last.drop)
                return -1;
            break;
        }
    }
}

/* Prepares what is due in front of its next use, which runs with parameters only: whether it can be
 * prepared is known when both have been answered. */
static int prepare_in_front(struct db *db, struct db_slot *slot, struct err *e)
{
    if (PQsendPrepare(db->conn, slot->stmt->name, slot->stmt->sql, 0, NULL) == 0 ||
        PQpipelineSync(db->conn) == 0)
        return conn_lost(db, e);
    slot->status = SLOT_ABSENT;
    return 0;
}

int conn_start(struct db *db, const struct db_stmt *s, struct db_args a, struct err *e)
{
    assert(db->n_started < DB_STARTED_MAX);
    if (db->n_started == 0 && PQenterPipelineMode(db->conn) == 0)
        return conn_lost(db, e);
    struct db_slot *slot = conn_slot(db, s);
    if (slot != NULL && slot->status != SLOT_DUE)
        slot = NULL;
    if (slot != NULL && prepare_in_front(db, slot, e) < 0)
        return -1;
    if (conn_put(db, s, a, e) < 0)
        return -1;
    if (PQpipelineSync(db->conn) == 0)
        return conn_lost(db, e);
    db->started[db->n_started++] = (struct db_started){ .stmt = s, .prepared = slot };
    return conn_flush(db, e);
}

/* Takes the sync that ends a statement's part. */
static int take_sync(struct db *db, struct err *e)
{
    cleanup_pgresult PGresult *res = NULL;
    if (conn_next(db, &res, e) < 0)
        return -1;
    return PQresultStatus(res) == PGRES_PIPELINE_SYNC ? 0 : conn_lost(db, e);
}

static struct db_started shift(struct db *db)
{
    struct db_started first = db->started[0];
    db->n_started--;
    memmove(&db->started[0], &db->started[1], db->n_started * sizeof(first));
    return first;
}

int conn_finish(struct db *db, PGresult **out, struct err *e)
{
    assert(db->n_started > 0);
    const struct db_started s = shift(db);
    cleanup_pgresult PGresult *res = NULL;
    if (db->conn == NULL) {
        db->last = db_map(NULL);
        return err_set(e, db->last.code, "postgres does not answer");
    }
    if (s.prepared != NULL && conn_take_prepared(db, s.prepared, e) < 0)
        return -1;
    int result = conn_collect(db, s.stmt->name, &res, e);
    if (db->conn == NULL)
        return -1;
    if (take_sync(db, result < 0 ? NULL : e) < 0)
        return -1;
    if (db->n_started == 0 && PQexitPipelineMode(db->conn) == 0)
        return conn_lost(db, result < 0 ? NULL : e);
    *out = STEAL(res);
    return result;
}
