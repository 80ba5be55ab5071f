/* SPDX-License-Identifier: Apache-2.0 */
#include "store/artifact.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "db/db_row.h"
#include "store/artifact_sql.h"
#include "store/manifest_json.h"
#include "store/sql_time.h"

enum stmt {
    PATIENCE,
    KNOW_ARTIFACT,
    ADD,
    LOCK,
    FILES,
    SHARDS,
    HELD,
    BEGIN_ANEW,
    VERIFY,
    GET,
    LIST,
    ARTIFACTS,
    MANIFEST,
    MISSING,
    FILE_AT,
    WITHDRAW,
};

#define MISSING_COUNT \
    "CASE WHEN v.state = 'uploading' THEN (SELECT count(DISTINCT s.digest) FROM artifact_shard s" \
    " WHERE s.version_id = v.id AND " SHARD_IS_MISSING ") ELSE 0 END"
#define COLUMNS \
    "v.id, v.artifact, a.kind, v.version, v.digest, v.state, v.reason, v.part, v.publisher," \
    " v.total_bytes, v.shard_bytes, v.files, v.shards, " MISSING_COUNT \
    ", " SQL_US("v.created_at") ", " SQL_US("v.progress_at") ", " SQL_US( \
        "v.published_at") ", " SQL_US("v.withdrawn_at")
#define FROM_VERSIONS " FROM artifact_version v JOIN artifact a ON a.name = v.artifact"
#define ITS_FILES \
    " FROM artifact_version v, jsonb_array_elements(convert_from(v.manifest, 'UTF8')::jsonb -> 'files')" \
    "  WITH ORDINALITY f(o, n)"

static const struct db_stmt STMTS[] = {
    /* For this transaction: a manifest of 8 MiB takes seconds. Who calls has the deadline. */
    [PATIENCE] = { "artifact_patience",
        "WITH p AS (SELECT set_config('statement_timeout', '60000', true)) SELECT 1 FROM p", 0 },
    /* The row as it is now, whoever made it. */
    [KNOW_ARTIFACT] = { "artifact_know",
        "INSERT INTO artifact AS a (name, kind) VALUES ($1, $2)"
        " ON CONFLICT (name) DO UPDATE SET kind = a.kind RETURNING kind",
        2 },
    [ADD] = { "artifact_add",
        "INSERT INTO artifact_version (artifact, version, manifest, digest, total_bytes, shard_bytes, files, shards,"
        "  publisher) VALUES ($1, $2, convert_to($3, 'UTF8'), $4, $5::bigint, $6::bigint, $7::int, $8::int, $9)"
        " ON CONFLICT (artifact, version) DO NOTHING RETURNING id",
        9 },
    [LOCK] = { "artifact_lock",
        "SELECT id, digest, state FROM artifact_version WHERE artifact = $1 AND version = $2 FOR UPDATE",
        2 },
    [FILES] = { "artifact_files",
        "INSERT INTO artifact_file (version_id, file, path, size)"
        " SELECT v.id, f.n - 1, f.o ->> 'path', (f.o ->> 'size')::numeric::bigint" ITS_FILES
        " WHERE v.id = $1::bigint",
        1 },
    [SHARDS] = { "artifact_shards",
        "INSERT INTO artifact_shard (version_id, digest, file, at, size)"
        " SELECT v.id, decode(substr(s.digest, 8), 'hex'), f.n - 1, (s.n - 1) * v.shard_bytes,"
        "  least(v.shard_bytes, (f.o ->> 'size')::numeric::bigint - (s.n - 1) * v.shard_bytes)" ITS_FILES
        ", jsonb_array_elements_text(f.o -> 'shards') WITH ORDINALITY s(digest, n)"
        " WHERE v.id = $1::bigint",
        1 },
    [HELD] = { "artifact_held",
        "UPDATE artifact_shard s SET source = h.source FROM"
        " (SELECT o.digest, o.size, min(o.version_id) AS source FROM artifact_shard m"
        "  JOIN artifact_shard o ON o.digest = m.digest AND o.present"
        "  JOIN artifact_version v ON v.id = o.version_id AND v.state = 'published'"
        "  WHERE m.version_id = $1::bigint AND NOT m.present GROUP BY o.digest, o.size) h"
        " WHERE s.version_id = $1::bigint AND s.digest = h.digest AND s.size = h.size AND NOT s.present",
        1 },
    [BEGIN_ANEW] = { "artifact_begin_anew",
        "UPDATE artifact_version SET state = 'uploading', reason = '', part = gen_random_uuid(),"
        " progress_at = clock_timestamp(), gate_holder = '', gate_until = '-infinity'"
        " WHERE id = $1::bigint AND state IN ('rejected', 'dropped')",
        1 },
    [VERIFY] = { "artifact_verify", VERSION_TO_VERIFYING, 1 },
    [GET] = { "artifact_version_get",
        "SELECT " COLUMNS FROM_VERSIONS " WHERE v.artifact = $1 AND v.version = $2", 2 },
    [LIST] = { "artifact_version_list",
        "SELECT " COLUMNS FROM_VERSIONS " WHERE v.artifact = $1 ORDER BY v.id DESC", 1 },
    [ARTIFACTS] = { "artifact_list",
        "SELECT " COLUMNS FROM_VERSIONS
        " WHERE v.id = (SELECT o.id FROM artifact_version o WHERE o.artifact = a.name"
        " ORDER BY o.state = 'published' DESC, o.id DESC LIMIT 1) ORDER BY a.name COLLATE \"C\"",
        0 },
    [MANIFEST] = { "artifact_manifest",
        "SELECT convert_from(manifest, 'UTF8'), octet_length(manifest), digest, state FROM artifact_version"
        " WHERE artifact = $1 AND version = $2",
        2 },
    [MISSING] = { "artifact_missing",
        "SELECT DISTINCT encode(s.digest, 'hex') FROM artifact_shard s JOIN artifact_version v ON v.id = s.version_id"
        " WHERE v.id = $1::bigint AND v.state = 'uploading' AND " SHARD_IS_MISSING,
        1 },
    [FILE_AT] = { "artifact_file_at",
        "SELECT v.id, coalesce(f.size, -1), v.state, left(v.reason, 40)"
        " FROM artifact_version v LEFT JOIN artifact_file f ON f.version_id = v.id AND f.path = $3"
        " WHERE v.artifact = $1 AND v.version = $2",
        3 },
    [WITHDRAW] = { "artifact_withdraw",
        "UPDATE artifact_version SET state = 'withdrawn', reason = $3, withdrawn_at = clock_timestamp(),"
        " progress_at = clock_timestamp() WHERE artifact = $1 AND version = $2 AND state = 'published'",
        3 },
};

const struct db_stmts ARTIFACT_STMTS = { STMTS, sizeof STMTS / sizeof STMTS[0] };

void versions_free(struct versions *v)
{
    free(v->row);
    v->row = NULL;
    v->n = 0;
    db_rows_free(&v->rows);
}

void manifest_text_free(struct manifest_text *t)
{
    t->text = NULL;
    t->size = 0;
    db_rows_free(&t->rows);
}

static int read_row(const struct db_rows *rows, int row, struct version_row *v, struct err *e)
{
    const struct db_int8_at numbers[] = { { 0, &v->id }, { 9, &v->total_bytes },
        { 10, &v->shard_bytes }, { 11, &v->files }, { 12, &v->shards }, { 13, &v->missing },
        { 14, &v->created_us }, { 15, &v->progress_us }, { 16, &v->published_us },
        { 17, &v->withdrawn_us } };
    const char **const texts[] = { &v->artifact, &v->kind, &v->version, &v->digest, &v->state,
        &v->reason, &v->part, &v->publisher };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = db_text(rows, row, (int)i + 1);
    return db_int8s(rows, row, numbers, sizeof numbers / sizeof numbers[0], e);
}

static int take(struct db_rows *rows, struct versions *out, struct err *e)
{
    cleanup_versions struct versions got = VERSIONS_INIT;
    const size_t n = (size_t)db_rows_count(rows);

    got.rows.res = STEAL(rows->res);
    got.row = mem_calloc(n + 1, sizeof *got.row);
    for (; got.n < n; got.n++) {
        if (read_row(&got.rows, (int)got.n, &got.row[got.n], e) < 0)
            return err_wrap(e, "versions");
    }
    HAND_OVER(out, &got, ((struct versions)VERSIONS_INIT));
    return 0;
}

static int no_version(const char *artifact, const char *version, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "there is no version %s of %s", version, artifact);
}

/* --- announcing --- */

static int check_kind(struct db *db, const struct manifest *m, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const char *kind = artifact_kind_name(m->kind);

    if (db_one(db, &STMTS[KNOW_ARTIFACT], DB_ARGS(DB_TEXT(m->artifact), DB_TEXT(kind)), &rows, e) <
        0)
        return -1;
    if (strcmp(db_text(&rows, 0, 0), kind) != 0)
        return err_set(e, ERR_CONFLICT, "%s is of kind %s", m->artifact, db_text(&rows, 0, 0));
    return 0;
}

/* The version's row, new (0) or found and locked (1). */
static int find_or_add(
    struct db *db, const struct published *p, const char *digest, int64_t *id, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const struct manifest *m = p->manifest;
    const int none = db_opt(db, &STMTS[ADD],
        DB_ARGS(DB_TEXT(m->artifact), DB_TEXT(m->version), DB_TEXT(p->text), DB_TEXT(digest),
            DB_INT8(m->total_bytes), DB_INT8(m->shard_bytes), DB_INT8((int64_t)m->files),
            DB_INT8((int64_t)m->shards), DB_TEXT(p->publisher)),
        &rows, e);

    if (none <= 0)
        return none < 0 ? -1 : db_int8(&rows, 0, 0, id, e);
    if (db_one(db, &STMTS[LOCK], DB_ARGS(DB_TEXT(m->artifact), DB_TEXT(m->version)), &rows, e) < 0)
        return -1;
    if (strcmp(db_text(&rows, 0, 1), digest) != 0)
        return err_set(e, ERR_CONFLICT,
            "version %s of %s has other content: %s; a version never changes", m->version,
            m->artifact, db_text(&rows, 0, 1));
    return db_int8(&rows, 0, 0, id, e) < 0 ? -1 : 1;
}

/* Statements of one argument, the version's id. */
static int each(struct db *db, const enum stmt *which, size_t n, int64_t id, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (db_exec(db, &STMTS[which[i]], DB_ARGS(DB_INT8(id)), NULL, e) < 0)
            return -1;
    }
    return 0;
}

struct announcement {
    const struct published *p;
    const char *digest;
};

static int announce(struct db *db, void *ctx, struct err *e)
{
    const struct announcement *a = ctx;
    const struct published *p = a->p;
    static const enum stmt NEW[] = { FILES, SHARDS, HELD, VERIFY };
    static const enum stmt AGAIN[] = { BEGIN_ANEW, HELD, VERIFY };
    cleanup_txn struct db_txn t = DB_TXN_INIT;
    int64_t id = 0;

    if (db_begin(db, &t, e) < 0 || db_exec(db, &STMTS[PATIENCE], DB_NO_ARGS, NULL, e) < 0 ||
        check_kind(db, p->manifest, e) < 0)
        return -1;
    const int found = find_or_add(db, p, a->digest, &id, e);
    if (found < 0)
        return -1;
    const int rc = found == 0 ? each(db, NEW, sizeof NEW / sizeof NEW[0], id, e)
                              : each(db, AGAIN, sizeof AGAIN / sizeof AGAIN[0], id, e);
    return rc < 0 || db_commit(&t, e) < 0 ? -1 : found;
}

int version_announce(struct db *db, const struct published *p, struct versions *out, struct err *e)
{
    const struct digest sha256 = manifest_digest(p->text, p->size);
    const struct manifest *m = p->manifest;
    char digest[DIGEST_TEXT_SIZE];

    digest_print(&sha256, digest);
    struct announcement a = { .p = p, .digest = digest };
    const int found = db_retry(db, announce, &a, e);
    if (found < 0)
        return e->code == ERR_CONFLICT ? -1 : err_wrap(e, "version %s", m->version);
    return version_get(db, m->artifact, m->version, out, e) < 0 ? -1 : found;
}

/* --- reading --- */

int version_get(
    struct db *db, const char *artifact, const char *version, struct versions *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    const int none =
        db_opt(db, &STMTS[GET], DB_ARGS(DB_TEXT(artifact), DB_TEXT(version)), &rows, e);

    if (none != 0)
        return none < 0 ? err_wrap(e, "version %s", version) : no_version(artifact, version, e);
    return take(&rows, out, e);
}

int version_list(struct db *db, const char *artifact, struct versions *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[LIST], DB_ARGS(DB_TEXT(artifact)), &rows, e) < 0)
        return err_wrap(e, "artifact %s", artifact);
    /* An artifact comes with its first version. */
    if (db_rows_count(&rows) == 0)
        return err_set(e, ERR_NOT_FOUND, "there is no artifact %s", artifact);
    return take(&rows, out, e);
}

int artifact_list(struct db *db, struct versions *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;

    if (db_many(db, &STMTS[ARTIFACTS], DB_NO_ARGS, &rows, e) < 0)
        return err_wrap(e, "artifacts");
    return take(&rows, out, e);
}

int version_manifest(struct db *db, const char *artifact, const char *version,
    struct manifest_text *out, struct err *e)
{
    cleanup_manifest_text struct manifest_text got = MANIFEST_TEXT_INIT;
    int64_t size = 0;
    const int none =
        db_opt(db, &STMTS[MANIFEST], DB_ARGS(DB_TEXT(artifact), DB_TEXT(version)), &got.rows, e);

    if (none != 0)
        return none < 0 ? err_wrap(e, "version %s", version) : no_version(artifact, version, e);
    if (db_int8(&got.rows, 0, 1, &size, e) < 0)
        return err_wrap(e, "version %s", version);
    got.text = db_text(&got.rows, 0, 0);
    got.size = (size_t)size;
    got.digest = db_text(&got.rows, 0, 2);
    got.state = db_text(&got.rows, 0, 3);
    if (strlen(got.text) != got.size)
        return err_set(e, ERR_INTERNAL, "the manifest of version %s is not whole", version);
    HAND_OVER(out, &got, ((struct manifest_text)MANIFEST_TEXT_INIT));
    return 0;
}

int version_missing(struct db *db, int64_t id, struct db_rows *out, struct err *e)
{
    return db_many(db, &STMTS[MISSING], DB_ARGS(DB_INT8(id)), out, e) < 0
               ? err_wrap(e, "missing shards")
               : 0;
}

int version_file(struct db *db, const char *artifact, const char *version, const char *path,
    struct artifact_file_at *out, struct err *e)
{
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    struct artifact_file_at got = { .size = -1 };
    const struct db_int8_at numbers[] = { { 0, &got.version_id }, { 1, &got.size } };
    const int none = db_opt(
        db, &STMTS[FILE_AT], DB_ARGS(DB_TEXT(artifact), DB_TEXT(version), DB_TEXT(path)), &rows, e);

    if (none != 0)
        return none < 0 ? err_wrap(e, "version %s", version) : no_version(artifact, version, e);
    if (db_int8s(&rows, 0, numbers, sizeof numbers / sizeof numbers[0], e) < 0)
        return -1;
    if (got.size < 0)
        return err_set(
            e, ERR_NOT_FOUND, "version %s of %s has no file %s", version, artifact, path);
    (void)str_copy(got.state, sizeof got.state, db_text(&rows, 0, 2));
    (void)str_copy(got.reason, sizeof got.reason, db_text(&rows, 0, 3));
    *out = got;
    return 0;
}

int version_withdraw(struct db *db, const char *artifact, const char *version, const char *reason,
    struct versions *out, struct err *e)
{
    int64_t n = 0;

    if (db_exec(db, &STMTS[WITHDRAW], DB_ARGS(DB_TEXT(artifact), DB_TEXT(version), DB_TEXT(reason)),
            &n, e) < 0)
        return err_wrap(e, "version %s", version);
    if (version_get(db, artifact, version, out, e) < 0)
        return -1;
    if (n == 1)
        return 0;
    if (strcmp(out->row[0].state, "withdrawn") == 0)
        return 1;
    err_set(e, ERR_CONFLICT, "version %s of %s is %s, not published", version, artifact,
        out->row[0].state);
    versions_free(out);
    return -1;
}
