/* SPDX-License-Identifier: Apache-2.0 */

/* Pages of jobs. Each statement walks an index in the order of the list and stops: LIMIT is a number that the
 * planner sees, not a parameter, so that no plan is ever made for the whole table. */
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/job_row.h"
#include "store/job_sql.h"

enum { PAGE_MAX = 200, STATES_TEXT = 64, CURSOR_SIZE = 64 };

#define PAGE_LIMIT " LIMIT 201" /* PAGE_MAX and one more */
#define NEWEST     "10000"

/* $1, $2: the cursor; $3: how many; $4: creator, or NULL; $5: states, or NULL. */
#define BEFORE_CURSOR(j) "(" j ".created_at, " j ".id) < ($1::timestamptz, $2::uuid)"
#define IN_ORDER(j)      " ORDER BY " j ".created_at DESC, " j ".id DESC"
#define OF_CREATOR(j)    "($4::text IS NULL OR " j ".created_by = $4)"
#define OF_STATES        "($5::smallint[] IS NULL OR coalesce(r.state, j.final_state) = ANY ($5))"
#define THE_PAGE         JOB_JOINS IN_ORDER("j") " LIMIT $3"

/* The newest of what k is, with its creator. */
#define NEWEST_OF_K BEFORE_CURSOR("k") " AND " OF_CREATOR("k") IN_ORDER("k") PAGE_LIMIT
#define K_OF_RUN    "SELECT k.id, k.created_at FROM job_run r JOIN job k ON k.id = r.job_id"
#define RUNNING     "'{1,2,3,4,5,6,7,8}'::smallint[]"
/* A job is enqueued when it is created: the live rows tell the order by themselves. */
#define STATES_RUNNING \
    "(SELECT r.job_id, r.enqueued_at FROM job_run r WHERE $5::smallint[] && " RUNNING \
    " AND r.state > 0 AND r.state = ANY ($5::smallint[])" \
    " AND (r.enqueued_at, r.job_id) < ($1::timestamptz, $2::uuid) AND ($4::text IS NULL" \
    "  OR EXISTS (SELECT FROM job k WHERE k.id = r.job_id AND k.created_by = $4))" \
    " ORDER BY r.enqueued_at DESC, r.job_id DESC" PAGE_LIMIT ")"
#define STATES_QUEUED \
    "(" K_OF_RUN " WHERE 0 = ANY ($5::smallint[]) AND r.state = 0 AND " NEWEST_OF_K ")"
#define STATES_ENDED \
    "SELECT e.id, e.created_at FROM unnest($5::smallint[]) s CROSS JOIN LATERAL (SELECT k.id," \
    " k.created_at FROM job k WHERE k.final_state = s AND " NEWEST_OF_K ") e" \
    " WHERE s >= " S_FIRST_END

enum stmt { CURSOR, ALL, BY_CREATOR, BY_STATES, BY_NAME, BY_ID };

static const struct db_stmt STMTS[] = {
    [CURSOR] = { "job_list_cursor", "SELECT created_at::text FROM job WHERE id = $1::uuid", 1 },
    [ALL] = { "job_list",
        "SELECT " JOB_COLUMNS " FROM (SELECT * FROM job k WHERE " BEFORE_CURSOR("k") IN_ORDER("k")
            PAGE_LIMIT ") j" THE_PAGE,
        3 },
    [BY_CREATOR] = { "job_list_by",
        "SELECT " JOB_COLUMNS " FROM (SELECT * FROM job k WHERE k.created_by = $4"
        " AND " BEFORE_CURSOR("k") IN_ORDER("k") PAGE_LIMIT ") j" THE_PAGE,
        4 },
    /* The few that run, the queued, and the ended of each state: the newest of each, put together. */
    [BY_STATES] = { "job_list_states",
        "WITH page (id, created_at) AS (" STATES_RUNNING " UNION ALL " STATES_QUEUED
        " UNION ALL " STATES_ENDED ")"
        " SELECT " JOB_COLUMNS
        " FROM (SELECT id FROM page ORDER BY created_at DESC, id DESC LIMIT $3) l"
        " JOIN job j ON j.id = l.id" THE_PAGE,
        5 },
    [BY_NAME] = { "job_list_name",
        "SELECT " JOB_COLUMNS " FROM (SELECT * FROM job k" IN_ORDER(
            "k") " LIMIT " NEWEST ") j" JOB_JOINS
                 " WHERE starts_with(j.name, $6) AND " BEFORE_CURSOR("j") " AND " OF_CREATOR(
                     "j") " AND " OF_STATES IN_ORDER("j") " LIMIT $3",
        6 },
    [BY_ID] = { "job_list_id",
        "SELECT " JOB_COLUMNS " FROM job j" JOB_JOINS " WHERE j.id = $6::uuid AND " BEFORE_CURSOR(
            "j") " AND " OF_CREATOR("j") " AND " OF_STATES IN_ORDER("j") " LIMIT $3",
        6 },
};

const struct db_stmts JOB_LIST_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

struct cursor {
    char at[CURSOR_SIZE];
    char id[UUID_SIZE];
};

static int find_cursor(struct db *db, const char *after, struct cursor *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (after == NULL) {
        *out = (struct cursor){ .at = "infinity", .id = "ffffffff-ffff-ffff-ffff-ffffffffffff" };
        return 0;
    }
    int none =
        job_uuid_valid(after) ? db_opt(db, &STMTS[CURSOR], DB_ARGS(DB_TEXT(after)), &rows, e) : 1;
    if (none < 0)
        return -1;
    if (none == 1 || str_copy(out->at, sizeof out->at, db_text(&rows, 0, 0)) < 0 ||
        str_copy(out->id, sizeof out->id, after) < 0)
        return err_set(e, ERR_INVALID, "after: names no job");
    return 0;
}

/* "{0,9}" */
static const char *states_text(unsigned states, char out[STATES_TEXT])
{
    if (states == 0)
        return NULL;
    size_t at = 0;
    for (int s = 0; s < JOB_STATE__COUNT; s++) {
        if ((states & 1U << s) != 0)
            at += (size_t)snprintf(out + at, STATES_TEXT - at, "%c%d", at == 0 ? '{' : ',', s);
    }
    (void)str_copy(out + at, STATES_TEXT - at, "}");
    return out;
}

static enum stmt choose(const struct job_filter *f, char id[UUID_SIZE])
{
    if (!str_empty(f->q)) {
        if (job_wire_id_parse(f->q, id))
            return BY_ID;
        if (!job_uuid_valid(f->q))
            return BY_NAME;
        (void)str_copy(id, UUID_SIZE, f->q);
        return BY_ID;
    }
    if (f->states != 0)
        return BY_STATES;
    return f->created_by != NULL ? BY_CREATOR : ALL;
}

int job_list(struct db *db, const struct job_filter *f, struct jobs *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    struct cursor c = { .at = "" };
    char states[STATES_TEXT];
    char id[UUID_SIZE] = "";
    int64_t limit = f->limit < 1 ? 1 : f->limit > PAGE_MAX ? PAGE_MAX : f->limit;
    if (find_cursor(db, f->after, &c, e) < 0)
        return err_wrap(e, "jobs");
    enum stmt which = choose(f, id);
    struct db_args a =
        DB_ARGS(DB_TEXT(c.at), DB_TEXT(c.id), DB_INT8(limit + 1), DB_TEXT(f->created_by),
            DB_TEXT(states_text(f->states, states)), DB_TEXT(which == BY_ID ? id : f->q));
    a.n = (size_t)STMTS[which].args;
    if (db_many(db, &STMTS[which], a, &rows, e) < 0)
        return err_wrap(e, "jobs");
    return job_rows_take(&rows, limit, out, e);
}
