/* SPDX-License-Identifier: Apache-2.0 */
#include "store/node.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/sql_time.h"

enum stmt { REPORT, LIST, GET, RACKS, SPREAD };

#define ALIVE "n.seen_at > clock_timestamp() - interval '60 seconds'"
#define COLUMNS \
    "n.name, n.rack, n.zone, n.address, n.mounts, n.versions, n.agent_version, n.capacity_bytes, n.used_bytes, " SQL_US( \
        "n.registered_at") ", " SQL_US("n.seen_at") ", " ALIVE

static const struct db_stmt STMTS[] = {
    [REPORT] = { "node_report",
        "INSERT INTO node (name, rack, zone, address, capacity_bytes, used_bytes, mounts, versions, agent_version)"
        " VALUES ($1, $2, $3, $4, $5::bigint, $6::bigint, $7::jsonb, $8::jsonb, $9)"
        " ON CONFLICT (name) DO UPDATE SET rack = EXCLUDED.rack, zone = EXCLUDED.zone, address = EXCLUDED.address,"
        " capacity_bytes = EXCLUDED.capacity_bytes, used_bytes = EXCLUDED.used_bytes, mounts = EXCLUDED.mounts,"
        " versions = EXCLUDED.versions, agent_version = EXCLUDED.agent_version, seen_at = clock_timestamp()",
        9 },
    [LIST] = { "node_list", "SELECT " COLUMNS " FROM node n ORDER BY n.name COLLATE \"C\"", 0 },
    [GET] = { "node_get", "SELECT " COLUMNS " FROM node n WHERE n.name = $1", 1 },
    [RACKS] = { "node_racks",
        "SELECT count(DISTINCT (n.zone, n.rack)) FROM node n WHERE n.rack <> '' AND " ALIVE, 0 },
    [SPREAD] = { "node_spread",
        "WITH told AS (SELECT n.name, t.version, t.state, t.digest FROM node n,"
        "  jsonb_to_recordset(n.versions) t(artifact text, version text, state text, digest text)"
        "  WHERE t.artifact = $1),"
        " here AS (SELECT v.id, v.version, t.name, t.state, t.digest FROM artifact_version v"
        "  JOIN told t ON t.version = v.version WHERE v.artifact = $1"
        "  UNION ALL SELECT v.id, v.version, a.node, a.state, '' FROM artifact_version v"
        "  JOIN assignment a ON a.version_id = v.id AND a.state <> 'cancelled' WHERE v.artifact = $1"
        "  AND NOT EXISTS (SELECT FROM told t WHERE t.name = a.node AND t.version = v.version))"
        " SELECT v.version, v.state, v.digest, coalesce(n.name, ''), coalesce(n.rack, ''), coalesce(n.zone, ''),"
        "  coalesce(h.state, ''), coalesce(h.digest, ''), coalesce((" ALIVE ")::text, 'false')"
        " FROM artifact_version v LEFT JOIN here h ON h.id = v.id LEFT JOIN node n ON n.name = h.name"
        " WHERE v.artifact = $1 ORDER BY v.id DESC, n.name COLLATE \"C\"",
        1 },
};

const struct db_stmts NODE_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void nodes_free(struct nodes *n)
{
    free(n->row);
    n->row = NULL;
    n->n = 0;
    db_rows_free(&n->rows);
}

static int read_row(const struct db_rows *rows, int row, struct node_row *n, struct err *e)
{
    const struct db_int8_at numbers[] = { { 7, &n->capacity_bytes }, { 8, &n->used_bytes },
        { 9, &n->registered_us }, { 10, &n->seen_us } };
    const char **const texts[] = { &n->name, &n->rack, &n->zone, &n->address, &n->mounts_json,
        &n->versions_json, &n->agent_version };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = db_text(rows, row, (int)i);
    if (db_bool(rows, row, 11, &n->alive, e) < 0)
        return -1;
    return db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e);
}

static int take(struct db_rows *rows, struct nodes *out, struct err *e)
{
    cleanup_nodes struct nodes got = NODES_INIT;
    const size_t n = (size_t)db_rows_count(rows);

    got.rows.res = STEAL(rows->res);
    got.row = mem_calloc(n + 1, sizeof *got.row);
    for (; got.n < n; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.row[got.n], e) < 0)
            return err_wrap(e, "nodes");
    }
    HAND_OVER(out, &got, ((struct nodes)NODES_INIT));
    return 0;
}

int node_report(struct db *db, const struct node_row *n, struct err *e)
{
    return db_exec(db, &STMTS[REPORT],
               DB_ARGS(DB_TEXT(n->name), DB_TEXT(n->rack), DB_TEXT(n->zone), DB_TEXT(n->address),
                   DB_INT8(n->capacity_bytes), DB_INT8(n->used_bytes), DB_TEXT(n->mounts_json),
                   DB_TEXT(n->versions_json), DB_TEXT(n->agent_version)),
               NULL, e) < 0
               ? err_wrap(e, "node %s", n->name)
               : 0;
}

int node_list(struct db *db, struct nodes *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[LIST], DB_NO_ARGS, &rows, e) < 0)
        return err_wrap(e, "nodes");
    return take(&rows, out, e);
}

int node_get(struct db *db, const char *name, struct nodes *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none = db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(name)), &rows, e);

    if (none == 1)
        return err_set(e, ERR_NOT_FOUND, "there is no node %s", name);
    return none < 0 ? err_wrap(e, "node %s", name) : take(&rows, out, e);
}

int node_racks(struct db *db, int64_t *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_one(db, &STMTS[RACKS], DB_NO_ARGS, &rows, e) < 0 || db_int8(&rows, 0, 0, out, e) < 0)
        return err_wrap(e, "racks");
    return 0;
}

int node_spread(struct db *db, const char *artifact, struct db_rows *out, struct err *e)
{
    if (db_many(db, &STMTS[SPREAD], DB_ARGS(DB_TEXT(artifact)), out, e) < 0)
        return err_wrap(e, "artifact %s", artifact);
    return db_rows_count(out) > 0 ? 0
                                  : err_set(e, ERR_NOT_FOUND, "there is no artifact %s", artifact);
}
