/* SPDX-License-Identifier: Apache-2.0 */
#include "store/planner_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/sql_time.h"

enum stmt { POOLS, INTENTS };

static const struct db_stmt STMTS[] = {
    /* The counts of a pool as "state:n state:n". */
    [POOLS] = { "view_pools",
        "SELECT " SQL_CLOCK
        ", p.name, p.provisioner, p.policy, p.drained_by, l.holder, l.holder_name, c.counts, p.id,"
        " coalesce(l.epoch, 0), coalesce(l.plan_us, 0), coalesce(l.planned, 0),"
        " " SQL_US("l.expires_at") ", " SQL_US("p.drained_at") ", " SQL_US(
            "l.planned_at") " FROM pool p LEFT JOIN planner_lease l ON l.pool_id = p.id LEFT JOIN (SELECT pool_id,"
                            "  string_agg(state || ':' || n, ' ') AS counts FROM (SELECT pool_id, state, sum(n) AS n"
                            "  FROM job_count GROUP BY pool_id, state) s GROUP BY pool_id) c ON c.pool_id = p.id"
                            " ORDER BY p.id",
        0 },
    [INTENTS] = { "view_intents",
        "SELECT kind, count(*), " SQL_US(
            "min(created_at)") " FROM intent WHERE state = 0 GROUP BY kind",
        0 },
};

const struct db_stmts PLANNER_VIEW_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void planner_view_free(struct planner_view *v)
{
    free(v->pool);
    v->pool = NULL;
    v->n = 0;
    db_rows_free(&v->rows);
}

static int read_counts(const char *text, int64_t count[JOB_STATE__COUNT], struct err *e)
{
    while (*text != '\0') {
        char *end = NULL;
        long state = strtol(text, &end, 10);
        if (*end != ':' || state < 0 || state >= JOB_STATE__COUNT)
            return err_set(e, ERR_INTERNAL, "the counts are '%s'", text);
        count[state] = strtoll(end + 1, &end, 10);
        text = end + (*end == ' ');
    }
    return 0;
}

enum col {
    COL_CLOCK,
    COL_NAME,
    COL_PROVISIONER,
    COL_POLICY,
    COL_DRAINED_BY,
    COL_HOLDER,
    COL_HOLDER_NAME,
    COL_COUNTS,
    COL_ID,
    COL_EPOCH,
    COL_PLAN_TOOK,
    COL_PLANNED,
    COL_EXPIRES,
    COL_DRAINED,
    COL_PLANNED_AT
};

static int read_pool(const struct db_rows *rows, int row, struct pool_view *p, struct err *e)
{
    const struct db_int8_at numbers[] = {
        { COL_ID, &p->id },
        { COL_EPOCH, &p->epoch },
        { COL_PLAN_TOOK, &p->plan_took_us },
        { COL_PLANNED, &p->planned },
        { COL_EXPIRES, &p->expires_us },
        { COL_DRAINED, &p->drained_us },
        { COL_PLANNED_AT, &p->planned_us },
    };
    p->name = db_text(rows, row, COL_NAME);
    p->provisioner = db_text(rows, row, COL_PROVISIONER);
    p->policy = db_text(rows, row, COL_POLICY);
    p->drained_by = db_text(rows, row, COL_DRAINED_BY);
    p->holder = db_text(rows, row, COL_HOLDER);
    p->holder_name = db_text(rows, row, COL_HOLDER_NAME);
    if (db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
        return -1;
    return read_counts(db_text(rows, row, COL_COUNTS), p->count, e);
}

static int read_pools(struct db *db, struct planner_view *v, struct err *e)
{
    if (db_many(db, &STMTS[POOLS], DB_NO_ARGS, &v->rows, e) < 0)
        return -1;
    size_t n = (size_t)db_rows_count(&v->rows);
    v->pool = mem_calloc(n + 1, sizeof *v->pool);
    for (; v->n < n; v->n++) {
        if (read_pool(&v->rows, (int)v->n, &v->pool[v->n], e) < 0)
            return -1;
    }
    return n == 0 ? 0 : db_int8(&v->rows, 0, COL_CLOCK, &v->now_us, e);
}

static int read_intents(struct db *db, struct planner_view *v, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (db_many(db, &STMTS[INTENTS], DB_NO_ARGS, &rows, e) < 0)
        return -1;
    for (int i = 0; i < db_rows_count(&rows); i++) {
        int64_t kind = 0;
        int64_t n = 0;
        int64_t oldest = 0;
        const struct db_int8_at numbers[] = { { 0, &kind }, { 1, &n }, { 2, &oldest } };
        if (db_int8s(&rows, i, numbers, 3, e) < 0)
            return -1;
        if (kind < 0 || kind >= INTENT__COUNT)
            continue;
        v->open[kind] = n;
        v->oldest_us[kind] = oldest;
    }
    return 0;
}

int planner_view_get(struct db *db, struct planner_view *out, struct err *e)
{
    cleanup_planner_view struct planner_view got = PLANNER_VIEW_INIT;
    if (read_pools(db, &got, e) < 0 || read_intents(db, &got, e) < 0)
        return err_wrap(e, "planner");
    HAND_OVER(out, &got, ((struct planner_view)PLANNER_VIEW_INIT));
    return 0;
}
