/* SPDX-License-Identifier: Apache-2.0 */
#include "store/artifact_shard.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/artifact_sql.h"

enum stmt { PLACES, CLONES, LOCK, PRESENT, VERIFY, NOT_FROM, BAD, BACK };

#define COLUMNS \
    "f.path, s.at, s.size, s.present, coalesce(fv.artifact, ''), coalesce(fv.version, '')," \
    " coalesce(ff.path, ''), coalesce(fs.at, 0), coalesce(fs.version_id, 0), encode(s.digest, 'hex')"
#define JOINS \
    " FROM artifact_shard s JOIN artifact_file f ON f.version_id = s.version_id AND f.file = s.file" \
    " LEFT JOIN LATERAL (SELECT o.version_id, o.file, o.at FROM artifact_shard o" \
    "  WHERE o.version_id = s.source AND o.digest = s.digest AND o.present LIMIT 1) fs ON true" \
    " LEFT JOIN artifact_version fv ON fv.id = fs.version_id" \
    " LEFT JOIN artifact_file ff ON ff.version_id = fs.version_id AND ff.file = fs.file"

static const struct db_stmt STMTS[] = {
    [PLACES] = { "shard_places",
        "SELECT " COLUMNS JOINS " WHERE s.version_id = $1::bigint AND s.digest = decode($2, 'hex')",
        2 },
    [CLONES] = { "shard_clones",
        "SELECT " COLUMNS JOINS
        " WHERE s.version_id = $1::bigint AND NOT s.present AND s.source IS NOT NULL"
        " ORDER BY s.digest, s.file, s.at",
        1 },
    [LOCK] = { "shard_lock",
        "SELECT 1 FROM artifact_version WHERE id = $1::bigint AND part = $2::uuid"
        " AND state IN ('uploading', 'verifying') FOR UPDATE",
        2 },
    [PRESENT] = { "shard_present",
        "WITH s AS (UPDATE artifact_shard SET present = true, source = NULL WHERE version_id = $1::bigint"
        "  AND digest = decode($2, 'hex') AND NOT present)"
        " UPDATE artifact_version SET progress_at = clock_timestamp() WHERE id = $1::bigint",
        2 },
    [VERIFY] = { "shard_verify", VERSION_TO_VERIFYING, 1 },
    [NOT_FROM] = { "shard_not_from",
        "UPDATE artifact_shard SET source = NULL WHERE version_id = $1::bigint AND digest = decode($2, 'hex')",
        2 },
    [BAD] = { "shard_bad",
        "UPDATE artifact_shard SET present = false WHERE version_id = $1::bigint AND digest = decode($2, 'hex')",
        2 },
    [BACK] = { "shard_back",
        "UPDATE artifact_version SET state = 'uploading', progress_at = clock_timestamp(), gate_holder = '',"
        " gate_until = '-infinity' WHERE id = $1::bigint AND state = 'verifying'",
        1 },
};

const struct db_stmts SHARD_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void shards_at_free(struct shards_at *s)
{
    free(s->place);
    s->place = NULL;
    s->n = 0;
    db_rows_free(&s->rows);
}

static int read_row(const struct db_rows *rows, int row, struct shard_at *s, struct err *e)
{
    const struct db_int8_at numbers[] = { { 1, &s->at }, { 2, &s->size }, { 7, &s->from_at },
        { 8, &s->from_id } };

    s->path = db_text(rows, row, 0);
    s->from_artifact = db_text(rows, row, 4);
    s->from_version = db_text(rows, row, 5);
    s->from_path = db_text(rows, row, 6);
    s->digest = db_text(rows, row, 9);
    if (db_bool(rows, row, 3, &s->present, e) < 0)
        return -1;
    return db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e);
}

static int take(struct db_rows *rows, struct shards_at *out, struct err *e)
{
    cleanup_shards_at struct shards_at got = SHARDS_AT_INIT;
    const size_t n = (size_t)db_rows_count(rows);

    got.rows.res = STEAL(rows->res);
    got.place = mem_calloc(n + 1, sizeof *got.place);
    for (; got.n < n; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.place[got.n], e) < 0)
            return err_wrap(e, "shards");
    }
    HAND_OVER(out, &got, ((struct shards_at)SHARDS_AT_INIT));
    return 0;
}

int shard_places(
    struct db *db, int64_t version_id, const char *digest, struct shards_at *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[PLACES], DB_ARGS(DB_INT8(version_id), DB_TEXT(digest)), &rows, e) < 0)
        return err_wrap(e, "shard");
    if (db_rows_count(&rows) == 0)
        return err_set(e, ERR_NOT_FOUND, "the manifest has no shard sha256:%s", digest);
    return take(&rows, out, e);
}

int shard_clones(struct db *db, int64_t version_id, struct shards_at *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[CLONES], DB_ARGS(DB_INT8(version_id)), &rows, e) < 0)
        return err_wrap(e, "shards");
    return take(&rows, out, e);
}

struct landed_shard {
    int64_t version_id;
    const char *part;
    const char *digest;
    bool verifying;
};

/* With the version locked, so that of two who bring the last shards at once one sees the other's. */
static int land_once(struct db *db, void *ctx, struct err *e)
{
    struct landed_shard *s = ctx;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    int64_t n = 0;

    if (db_begin(db, &t, e) < 0)
        return err_wrap(e, "shard");
    const int none =
        db_opt(db, &STMTS[LOCK], DB_ARGS(DB_INT8(s->version_id), DB_TEXT(s->part)), &rows, e);
    if (none == 1)
        return err_set(e, ERR_CONFLICT, "the version is not being uploaded any more");
    if (none < 0 ||
        db_exec(db, &STMTS[PRESENT], DB_ARGS(DB_INT8(s->version_id), DB_TEXT(s->digest)), NULL, e) <
            0 ||
        db_exec(db, &STMTS[VERIFY], DB_ARGS(DB_INT8(s->version_id)), &n, e) < 0 ||
        db_commit(&t, e) < 0)
        return err_wrap(e, "shard");
    s->verifying = n == 1;
    return 0;
}

int shard_landed(struct db *db, int64_t version_id, const char *part, const char *digest,
    bool *verifying, struct err *e)
{
    struct landed_shard s = { .version_id = version_id, .part = part, .digest = digest };

    if (db_retry(db, land_once, &s, e) < 0)
        return -1;
    *verifying = s.verifying;
    return 0;
}

int shard_spoiled(
    struct db *db, int64_t version_id, int64_t from_id, const char *digest, struct err *e)
{
    cleanup_txn struct db_txn t = DB_TXN_INIT;

    if (db_begin(db, &t, e) < 0 ||
        db_exec(db, &STMTS[BACK], DB_ARGS(DB_INT8(version_id)), NULL, e) < 0 ||
        db_exec(db, &STMTS[NOT_FROM], DB_ARGS(DB_INT8(version_id), DB_TEXT(digest)), NULL, e) < 0 ||
        db_exec(db, &STMTS[BAD], DB_ARGS(DB_INT8(from_id), DB_TEXT(digest)), NULL, e) < 0 ||
        db_commit(&t, e) < 0)
        return err_wrap(e, "shard");
    return 0;
}
