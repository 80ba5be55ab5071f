/* SPDX-License-Identifier: Apache-2.0 */
#include "store/load_job.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/load_row.h"
#include "store/table_seen.h"

#define JOIN_CLAIM " LEFT JOIN load_job_claims c ON " LOAD_CLAIM_OF_ROW

enum stmt { LIST, GET, INSERT, LOCK, REMOVE, TAKE, UPDATE, FAIL, DONE };

static const struct db_stmt STMTS[] = {
    /* One row at least, so that the clock comes even when there is no load. */
    [LIST] = { "load_list",
        "SELECT " SQL_CLOCK ", " LOAD_COLUMNS " FROM (VALUES (1)) one"
        " LEFT JOIN (" LOAD_TABLE " j" JOIN_CLAIM ") ON true"
        " ORDER BY j.tracking_key COLLATE \"C\"",
        0 },
    [GET] = { "load_get",
        "SELECT " SQL_CLOCK ", " LOAD_COLUMNS " FROM " LOAD_TABLE " j" JOIN_CLAIM
        " WHERE j.tracking_key = $1",
        1 },
    [INSERT] = { "load_insert",
        "INSERT INTO model_load_jobs (tracking_key, state, owner_replica, node_id, node_name,"
        " replica_index, bytes_sent, total_bytes, file_index, total_files, last_progress,"
        " created_at, updated_at, last_error)"
        " VALUES ($1, 'pending', $2, '', '', 0, 0, 0, 0, 0, now(), now(), now(), '')"
        " ON CONFLICT (tracking_key) DO NOTHING",
        2 },
    [LOCK] = { "load_lock", "SELECT true FROM model_load_jobs WHERE tracking_key = $1 FOR UPDATE",
        1 },
    [REMOVE] = { "load_remove", "DELETE FROM model_load_jobs WHERE tracking_key = $1", 1 },
    [TAKE] = { "load_take",
        "INSERT INTO load_job_claims AS c"
        " (tracking_key, token_sha256, claimed_at, claimed_created_at, bytes_moved_at)"
        " SELECT tracking_key, $2, now(), created_at, NULL FROM model_load_jobs"
        " WHERE tracking_key = $1"
        " ON CONFLICT (tracking_key) DO UPDATE SET token_sha256 = excluded.token_sha256,"
        " claimed_at = excluded.claimed_at, claimed_created_at = excluded.claimed_created_at,"
        " bytes_moved_at = NULL",
        2 },
    /* old: the row, locked, if the token is its own. new: the row with the update on top. What is not
     * due is answered but not written. A change of state counts as bytes moving, so that the time
     * until the first byte is measured from there. */
    [UPDATE] = { "load_update",
        "WITH old AS (SELECT j.*, c.bytes_moved_at, c.token_sha256"
        "  FROM model_load_jobs j JOIN load_job_claims c ON " LOAD_CLAIM_OF_ROW
        "  WHERE j.tracking_key = $1 AND c.token_sha256 = $2 AND j.state <> 'failed'"
        "  FOR UPDATE OF j),"
        " told AS (SELECT *, coalesce(nullif($3::text, ''), state) AS state_,"
        "  coalesce(nullif($4::text, ''), node_id) AS node_id_,"
        "  coalesce(nullif($5::text, ''), node_name) AS node_name_,"
        "  coalesce(nullif($6::bigint, -1), replica_index) AS replica_index_,"
        "  coalesce(nullif($7::bigint, -1), bytes_sent, 0) AS bytes_sent_,"
        "  coalesce(nullif($8::bigint, -1), total_bytes) AS total_bytes_,"
        "  coalesce(nullif($9::bigint, -1), file_index) AS file_index_,"
        "  coalesce(nullif($10::bigint, -1), total_files) AS total_files_ FROM old),"
        " seen AS (SELECT *, state_ IS DISTINCT FROM state AS turned,"
        "  bytes_sent_ > 0 AND coalesce(started_at, '-infinity') < 'epoch' AS first_bytes,"
        "  (node_id_, node_name_, replica_index_) IS DISTINCT FROM"
        "  (node_id, node_name, replica_index) AS elsewhere,"
        "  (bytes_sent_, file_index_) IS DISTINCT FROM (bytes_sent, file_index) AS moved FROM told),"
        " new AS (SELECT *, turned OR first_bytes OR elsewhere OR $11::boolean OR (last_progress"
        "   BETWEEN now() - interval '1 second' AND now() + interval '1 second') IS NOT TRUE AS due,"
        "  CASE WHEN first_bytes THEN now() ELSE started_at END AS started_at_ FROM seen),"
        " wrote AS (UPDATE model_load_jobs j SET state = new.state_, node_id = new.node_id_,"
        "  node_name = new.node_name_, replica_index = new.replica_index_,"
        "  bytes_sent = new.bytes_sent_, total_bytes = new.total_bytes_,"
        "  file_index = new.file_index_, total_files = new.total_files_,"
        "  started_at = new.started_at_, last_progress = now(), updated_at = now()"
        "  FROM new WHERE j.tracking_key = new.tracking_key AND new.due),"
        " beside AS (UPDATE load_job_claims c SET bytes_moved_at = now()"
        "  FROM new WHERE c.tracking_key = new.tracking_key AND new.due"
        "  AND (new.moved OR new.turned)),"
        " j AS (SELECT tracking_key, state_ AS state, owner_replica, node_id_ AS node_id,"
        "  node_name_ AS node_name, replica_index_ AS replica_index, bytes_sent_ AS bytes_sent,"
        "  total_bytes_ AS total_bytes, file_index_ AS file_index, total_files_ AS total_files,"
        "  started_at_ AS started_at, CASE WHEN due THEN now() ELSE last_progress END AS"
        "  last_progress, created_at, CASE WHEN due THEN now() ELSE updated_at END AS updated_at,"
        "  last_error, turned OR first_bytes AS changed, NOT due AS held_back FROM new),"
        " c AS (SELECT tracking_key, token_sha256, CASE WHEN due AND (moved OR turned) THEN now()"
        "  ELSE bytes_moved_at END AS bytes_moved_at FROM new)"
        " SELECT " SQL_CLOCK ", " LOAD_COLUMNS ", j.changed, j.held_back FROM j CROSS JOIN c",
        11 },
    [FAIL] = { "load_fail",
        "UPDATE model_load_jobs j SET state = 'failed',"
        " last_error = CASE WHEN j.state = 'failed' THEN j.last_error ELSE left($3, 4000) END,"
        " updated_at = CASE WHEN j.state = 'failed' THEN j.updated_at ELSE now() END"
        " FROM load_job_claims c WHERE " LOAD_CLAIM_OF_ROW
        " AND j.tracking_key = $1 AND c.token_sha256 = $2",
        3 },
    [DONE] = { "load_done",
        "WITH gone AS (DELETE FROM model_load_jobs j USING load_job_claims c WHERE " LOAD_CLAIM_OF_ROW
        " AND j.tracking_key = $1 AND c.token_sha256 = $2 RETURNING j.tracking_key),"
        " beside AS (DELETE FROM load_job_claims c USING gone"
        "  WHERE c.tracking_key = gone.tracking_key AND c.token_sha256 = $2)"
        " SELECT tracking_key FROM gone",
        2 },
};

const struct db_stmts LOAD_JOB_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

enum { CLAIM_ROUNDS = 8, CLAIM_TAKEN = 1, CLAIM_AGAIN = 2 };

void load_rows_free(struct load_rows *r)
{
    free(r->row);
    r->row = NULL;
    r->n = 0;
    db_rows_free(&r->rows);
}

void load_claim_short(const char *token, char out[CLAIM_SHORT_SIZE])
{
    char hex[DIGEST_HEX_SIZE];
    digest_hex(token, strlen(token), hex);
    (void)str_copy(out, CLAIM_SHORT_SIZE, hex); /* cut on purpose */
}

static void hand_over(struct load_rows *from, struct load_rows *to)
{
    *to = *from;
    *from = (struct load_rows)LOAD_ROWS_INIT;
}

/* Consumes rows into *out. */
static int take_rows(struct db_rows *rows, bool with_gone, struct load_rows *out, struct err *e)
{
    cleanup_load_rows struct load_rows got = LOAD_ROWS_INIT;
    int count = db_rows_count(rows);
    got.rows.res = STEAL(rows->res);
    got.row = mem_calloc((size_t)count + 1, sizeof *got.row);
    for (int i = 0; i < count; i++) {
        if (db_int8(&got.rows, i, LOAD_COL_CLOCK, &got.now_us, e) < 0)
            return -1;
        if (db_is_null(&got.rows, i, LOAD_COL_KEY))
            continue; /* the row that carries the clock when there is no load */
        if (load_row_read(&got.rows, i, &got.row[got.n], e) < 0)
            return -1;
        if (with_gone || !load_failed_is_gone(&got.row[got.n], got.now_us))
            got.n++;
    }
    if (count > 0)
        db_saw_clock(got.now_us);
    hand_over(&got, out);
    return 0;
}

static struct table_seen table = { .name = "model_load_jobs" };

static int no_rows(struct load_rows *out)
{
    *out = (struct load_rows)LOAD_ROWS_INIT;
    out->now_us = db_now_us();
    return 0;
}

int load_list(struct db *db, struct load_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (table_saw(&table, db_many(db, &STMTS[LIST], DB_NO_ARGS, &rows, e)) < 0)
        return table_is_none_yet(&table, db) ? no_rows(out) : err_wrap(e, "loads");
    return take_rows(&rows, false, out, e);
}

int load_list_start(struct db *db, struct err *e)
{
    return db_start(db, &STMTS[LIST], DB_NO_ARGS, e);
}

int load_list_finish(struct db *db, struct load_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (table_saw(&table, db_finish(db, &rows, e)) < 0)
        return table_is_none_yet(&table, db) ? no_rows(out) : err_wrap(e, "loads");
    return take_rows(&rows, true, out, e);
}

/* 1 when there is no row at all. */
static int find(struct db *db, const char *key, struct load_rows *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    int none = table_saw(&table, db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(key)), &rows, e));
    if (none != 0)
        return none;
    return take_rows(&rows, true, out, e);
}

int load_get(struct db *db, const char *key, struct load_rows *out, struct err *e)
{
    cleanup_load_rows struct load_rows got = LOAD_ROWS_INIT;
    int none = find(db, key, &got, e);
    if (none < 0 && !table_is_none_yet(&table, db))
        return err_wrap(e, "load %s", key);
    if (none != 0 || load_failed_is_gone(&got.row[0], got.now_us))
        return err_set(e, ERR_NOT_FOUND, "there is no load of %s", key);
    *out = got;
    got = (struct load_rows)LOAD_ROWS_INIT;
    return 0;
}

/* May the one row of got go to a new owner? */
static bool is_free(const struct load_rows *got, const struct load_claimant *who)
{
    const struct load_row *r = &got->row[0];
    bool overlay_live = !str_empty(who->overlay_claim) && strcmp(who->overlay_claim, r->claim) == 0;
    return load_may_be_replaced(r, overlay_live, got->now_us);
}

static int insert(
    struct db *db, const char *key, const struct load_claimant *who, bool *won, struct err *e)
{
    int64_t n = 0;
    if (db_exec(db, &STMTS[INSERT], DB_ARGS(DB_TEXT(key), DB_TEXT(who->owner)), &n, e) < 0)
        return -1;
    *won = n == 1;
    return 0;
}

/* The row of key that stood against the insert: CLAIM_TAKEN when it is somebody's; 0 with *won when it
 * was replaced; 0 without when it has vanished meanwhile. It is deleted and inserted, not updated: nothing of the old load
 * stays, and whoever waits for the old row finds it gone rather than looking like the new one. */
static int replace(
    struct db *db, const char *key, const struct load_claimant *who, bool *won, struct err *e)
{
    cleanup_rows struct db_rows locked = DB_ROWS_INIT;
    int none = db_opt(db, &STMTS[LOCK], DB_ARGS(DB_TEXT(key)), &locked, e);
    if (none != 0)
        return none < 0 ? -1 : 0;
    cleanup_load_rows struct load_rows got = LOAD_ROWS_INIT; /* read after the lock: as it is now */
    none = find(db, key, &got, e);
    if (none != 0)
        return none < 0 ? -1 : 0;
    if (!is_free(&got, who))
        return CLAIM_TAKEN;
    if (db_exec(db, &STMTS[REMOVE], DB_ARGS(DB_TEXT(key)), NULL, e) < 0)
        return -1;
    return insert(db, key, who, won, e);
}

struct claiming {
    const char *key;
    const struct load_claimant *who;
    const char *sha256;
    struct load_rows *out;
};

/* One try: 0 with *out, CLAIM_TAKEN, or CLAIM_AGAIN when a row came and went meanwhile. */
static int claim_once(struct db *db, void *ctx, struct err *e)
{
    const struct claiming *c = ctx;
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    cleanup_load_rows struct load_rows got = LOAD_ROWS_INIT;
    bool won = false;
    if (db_begin(db, &t, e) < 0 || insert(db, c->key, c->who, &won, e) < 0)
        return -1;
    if (!won) {
        int taken = replace(db, c->key, c->who, &won, e);
        if (taken != 0 || !won)
            return taken != 0 ? taken : CLAIM_AGAIN;
    }
    if (db_exec(db, &STMTS[TAKE], DB_ARGS(DB_TEXT(c->key), DB_TEXT(c->sha256)), NULL, e) < 0)
        return -1;
    int none = find(db, c->key, &got, e);
    if (none != 0)
        return none < 0 ? -1 : err_set(e, ERR_INTERNAL, "the row just inserted is not there");
    if (db_commit(&t, e) < 0)
        return -1;
    hand_over(&got, c->out);
    return 0;
}

int load_claim(struct db *db, const char *key, const struct load_claimant *who,
    struct load_rows *out, char token[TOKEN_HEX_SIZE], struct err *e)
{
    char fresh[TOKEN_HEX_SIZE];
    char sha256[DIGEST_HEX_SIZE];
    struct claiming c = { .key = key, .who = who, .sha256 = sha256, .out = out };
    digest_token(fresh);
    digest_hex(fresh, strlen(fresh), sha256);
    for (int i = 0; i < CLAIM_ROUNDS; i++) {
        cleanup_load_rows struct load_rows got = LOAD_ROWS_INIT;
        int none =
            find(db, key, &got, e); /* most claims find a load under way: no lock for those */
        if (none < 0)
            return err_wrap(e, "load %s", key);
        if (none == 0 && !is_free(&got, who)) {
            *out = got;
            got = (struct load_rows)LOAD_ROWS_INIT;
            return 1;
        }
        int taken = db_retry(db, claim_once, &c, e);
        if (taken < 0)
            return err_wrap(e, "load %s", key);
        if (taken == 0) {
            (void)str_copy(token, TOKEN_HEX_SIZE, fresh);
            return 0;
        }
    }
    return err_set(e, ERR_CONFLICT, "load %s: changes hands too quickly: try again", key);
}

/* Why nothing matched key and token: 1 with no row, else -1 and ERR_CONFLICT with the reason. */
static int explain(struct db *db, const char *key, const char *sha256, struct err *e)
{
    cleanup_load_rows struct load_rows got = LOAD_ROWS_INIT;
    int none = find(db, key, &got, e);
    if (none != 0)
        return none < 0 ? err_wrap(e, "load %s", key) : 1;
    const struct load_row *r = &got.row[0];
    if (load_failed_is_gone(r, got.now_us))
        return 1;
    if (strncmp(r->claim, sha256, CLAIM_SHORT_SIZE - 1) == 0)
        return err_set(e, ERR_CONFLICT, "the load of %s has failed: claim it again", key);
    return err_set(e, ERR_CONFLICT,
        "the claim token is not the current one: the load of %s belongs to %s now", key,
        r->owner[0] == '\0' ? "another owner" : r->owner);
}

static int refuse(struct db *db, const char *key, const char *sha256, struct err *e)
{
    if (explain(db, key, sha256, e) < 0)
        return -1;
    return err_set(e, ERR_CONFLICT, "the load of %s is gone: claim it again", key);
}

static int check_state(const char *state, struct err *e)
{
    if (str_empty(state))
        return 0;
    enum load_state s = load_state_parse(state);
    if (s == LOAD_STATE__COUNT || s == LOAD_FAILED)
        return err_set(
            e, ERR_INVALID, "state must be one of pending, installing, staging, loading");
    return 0;
}

int load_update(struct db *db, struct load_owned load, const struct load_update *u,
    struct load_rows *out, bool *changed, struct err *e)
{
    char sha256[DIGEST_HEX_SIZE];
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    if (check_state(u->state, e) < 0)
        return -1;
    digest_hex(load.token, strlen(load.token), sha256);
    int none = db_opt(db, &STMTS[UPDATE],
        DB_ARGS(DB_TEXT(load.key), DB_TEXT(sha256), DB_TEXT(u->state), DB_TEXT(u->node_id),
            DB_TEXT(u->node_name), DB_INT8(u->replica_index), DB_INT8(u->bytes_sent),
            DB_INT8(u->total_bytes), DB_INT8(u->file_index), DB_INT8(u->total_files),
            DB_TEXT(u->at_once ? "t" : "f")),
        &rows, e);
    if (none < 0)
        return err_wrap(e, "load %s", load.key);
    if (none == 1)
        return refuse(db, load.key, sha256, e);
    bool is_changed = false;
    bool held_back = false;
    if (db_bool(&rows, 0, LOAD_COL_NEXT, &is_changed, e) < 0 ||
        db_bool(&rows, 0, LOAD_COL_NEXT + 1, &held_back, e) < 0 ||
        take_rows(&rows, true, out, e) < 0)
        return err_wrap(e, "load %s", load.key);
    out->held_back = held_back;
    *changed = is_changed;
    return 0;
}

int load_fail(struct db *db, struct load_owned load, const char *reason, struct err *e)
{
    char sha256[DIGEST_HEX_SIZE];
    int64_t n = 0;
    digest_hex(load.token, strlen(load.token), sha256);
    if (db_exec(db, &STMTS[FAIL], DB_ARGS(DB_TEXT(load.key), DB_TEXT(sha256), DB_TEXT(reason)), &n,
            e) < 0)
        return err_wrap(e, "load %s", load.key);
    return n == 0 ? refuse(db, load.key, sha256, e) : 0;
}

int load_done(struct db *db, struct load_owned load, struct err *e)
{
    char sha256[DIGEST_HEX_SIZE];
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    digest_hex(load.token, strlen(load.token), sha256);
    int none = db_opt(db, &STMTS[DONE], DB_ARGS(DB_TEXT(load.key), DB_TEXT(sha256)), &rows, e);
    if (none < 0)
        return err_wrap(e, "load %s", load.key);
    return none == 0 ? 0 : explain(db, load.key, sha256, e);
}
