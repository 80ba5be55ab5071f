/* SPDX-License-Identifier: Apache-2.0 */

/* Versions of artifacts: artifacts contract, sections 2 and 3, "Publishing". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <libpq-fe.h>
#include <pthread.h>

#include "tests/store/artifact_fixture.h"

static void is(const struct versions *v, const char *state)
{
    assert_int_equal(v->n, 1);
    assert_string_equal(v->row[0].state, state);
}

static void all_statements_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < fx.n_stmts; i++)
        fx_prepares(&fx.stmts[i]);
}

static void a_version_goes_from_its_manifest_to_published(void **state)
{
    cleanup_free char *text = artifact_text("v1", 'a');
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_versions struct versions again = VERSIONS_INIT;
    cleanup_versions struct versions done = VERSIONS_INIT;
    cleanup_rows struct db_rows missing = DB_ROWS_INIT;
    cleanup_manifest_text struct manifest_text kept = MANIFEST_TEXT_INIT;
    struct err e = ERR_INIT;
    (void)state;

    ok(artifact_announce(fx.db, text, &v, &e));
    is(&v, "uploading");
    assert_int_equal(v.row[0].missing, 2);
    assert_int_equal(artifact_announce(fx.db, text, &again, &e), 1);
    assert_int_equal(again.row[0].id, v.row[0].id);
    ok(version_missing(fx.db, v.row[0].id, &missing, &e));
    assert_int_equal(db_rows_count(&missing), 2);
    ok(version_manifest(fx.db, "m", "v1", &kept, &e));
    assert_string_equal(kept.text, text);
    fx_value("SELECT state FROM artifact_version", "uploading");
    fx_sql("TRUNCATE artifact CASCADE");
    artifact_published("v1", 'a', &done);
    is(&done, "published");
    assert_true(done.row[0].published_us > 0);
    assert_int_equal(done.row[0].missing, 0);
}

static void other_bytes_of_the_same_name_are_a_conflict(void **state)
{
    cleanup_free char *text = artifact_text("v1", 'b');
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_versions struct versions none = VERSIONS_INIT;
    struct err e = ERR_INIT;
    (void)state;

    artifact_published("v1", 'a', &v);
    fx_fails(artifact_announce(fx.db, text, &none, &e), &e, ERR_CONFLICT, v.row[0].digest);
    fx_value("SELECT count(*) FROM artifact_shard", "2");
}

static void what_is_held_is_not_missing(void **state)
{
    cleanup_free char *text = artifact_text("v2", 'a');
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_versions struct versions more = VERSIONS_INIT;
    cleanup_shards_at struct shards_at clones = SHARDS_AT_INIT;
    struct err e = ERR_INIT;
    (void)state;

    artifact_uploaded("v1", 'a', &v); /* not published: it counts for nothing */
    versions_free(&v);
    ok(artifact_announce(fx.db, text, &more, &e));
    assert_int_equal(more.row[0].missing, 2);
    fx_sql("TRUNCATE artifact CASCADE");
    artifact_published("v1", 'a', &v);
    versions_free(&more);
    ok(artifact_announce(fx.db, text, &more, &e));
    is(&more, "verifying");
    ok(shard_clones(fx.db, more.row[0].id, &clones, &e));
    assert_int_equal(clones.n, 2);
    assert_string_equal(clones.place[0].from_version, "v1");
    assert_string_equal(clones.place[0].from_path, "f");
    /* Bad where it lies: it must be sent, and nobody gets it from there again. */
    ok(shard_spoiled(fx.db, more.row[0].id, clones.place[0].from_id, clones.place[0].digest, &e));
    versions_free(&more);
    assert_int_equal(artifact_announce(fx.db, text, &more, &e), 1);
    is(&more, "uploading");
    assert_int_equal(more.row[0].missing, 1);
}

static void what_was_never_published_begins_anew(void **state)
{
    cleanup_free char *text = artifact_text("v1", 'a');
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_versions struct versions again = VERSIONS_INIT;
    cleanup_gate_claim struct gate_claim c = GATE_CLAIM_INIT;
    struct err e = ERR_INIT;
    (void)state;

    artifact_uploaded("v1", 'a', &v);
    ok(gate_claim_next(fx.db, "g", &c, &e));
    ok(gate_reject(fx.db, c.id, "g", "f: its sha256 is another", &e));
    assert_int_equal(artifact_announce(fx.db, text, &again, &e), 1);
    is(&again, "uploading");
    assert_int_equal(again.row[0].missing, 2);
    assert_string_not_equal(again.row[0].part, v.row[0].part);
    assert_string_equal(again.row[0].reason, "");
    bool verifying = false;
    char hex[DIGEST_HEX_SIZE];
    artifact_shard_of('a', 0, hex);
    fx_fails(shard_landed(fx.db, v.row[0].id, v.row[0].part, hex, &verifying, &e), &e, ERR_CONFLICT,
        "any more"); /* who still writes into the old folder */
}

static void uploads_that_stand_still_are_dropped(void **state)
{
    cleanup_free char *text = artifact_text("v1", 'a');
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_rows struct db_rows rows = DB_ROWS_INIT;
    struct err e = ERR_INIT;
    (void)state;

    ok(artifact_announce(fx.db, text, &v, &e));
    assert_int_equal(gate_knows_part(fx.db, v.row[0].part, &e), 0);
    fx_sql("UPDATE artifact_version SET progress_at = now() - interval '23 hours'");
    ok(gate_drop(fx.db, 24, &rows, &e));
    assert_int_equal(db_rows_count(&rows), 0);
    db_rows_free(&rows);
    fx_sql("UPDATE artifact_version SET progress_at = now() - interval '25 hours'");
    ok(gate_drop(fx.db, 24, &rows, &e));
    assert_int_equal(db_rows_count(&rows), 1);
    assert_int_equal(gate_knows_part(fx.db, v.row[0].part, &e), 1);
    assert_int_equal(gate_knows_part(fx.db, "nonsense", &e), 1);
    fx_value(
        "SELECT state || ': ' || reason FROM artifact_version", "dropped: no progress for 24 h");
}

static void a_version_is_one_judges(void **state)
{
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_gate_claim struct gate_claim first = GATE_CLAIM_INIT;
    cleanup_gate_claim struct gate_claim second = GATE_CLAIM_INIT;
    struct err e = ERR_INIT;
    (void)state;

    artifact_uploaded("v1", 'a', &v);
    ok(gate_claim_next(fx.db, "a", &first, &e));
    assert_int_equal(gate_claim_next(fx.db, "b", &second, &e), 1);
    fx_sql(
        "UPDATE artifact_version SET gate_until = now() - interval '1 second'"); /* its judge died */
    ok(gate_claim_next(fx.db, "b", &second, &e));
    assert_string_equal(second.version, "v1");
    fx_fails(gate_renew(fx.db, first.id, "a", &e), &e, ERR_CONFLICT, "somebody else");
    fx_fails(gate_publish(fx.db, first.id, "a", &e), &e, ERR_CONFLICT, "somebody else");
    fx_fails(gate_reject(fx.db, first.id, "a", "why", &e), &e, ERR_CONFLICT, "");
    ok(gate_renew(fx.db, first.id, "b", &e));
    ok(gate_release(fx.db, first.id, "b", &e));
    fx_value("SELECT gate_holder FROM artifact_version", "");
}

/* Two publishers send the last shard: the second's row lock hides the version from a gate that was just woken. */
static void a_version_that_is_locked_while_the_gate_looks_is_due_at_once(void **state)
{
    enum { MOST_MS = 30000 };
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_gate_claim struct gate_claim c = GATE_CLAIM_INIT;
    struct err e = ERR_INIT;
    int64_t ms = -1;
    (void)state;

    ok(gate_due_ms(fx.db, MOST_MS, &ms, &e));
    assert_int_equal(ms, MOST_MS); /* nothing waits */
    artifact_uploaded("v1", 'a', &v);
    PGconn *other = PQconnectdb(fx.stores.url);
    PQclear(PQexec(other, "BEGIN; SELECT 1 FROM artifact_version FOR UPDATE"));
    assert_int_equal(gate_claim_next(fx.db, "a", &c, &e), 1);
    ok(gate_due_ms(fx.db, MOST_MS, &ms, &e));
    assert_int_equal(ms, 0);
    PQfinish(other);
    ok(gate_claim_next(fx.db, "a", &c, &e));
    ok(gate_due_ms(fx.db, 2 * GATE_CLAIM_S * 1000, &ms, &e)); /* its judge may die */
    assert_true(ms > 0 && ms <= GATE_CLAIM_S * 1000);
    ok(gate_due_ms(fx.db, 1, &ms, &e));
    assert_int_equal(ms, 1);
}

static void withdrawing(void **state)
{
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_versions struct versions out = VERSIONS_INIT;
    struct err e = ERR_INIT;
    (void)state;

    artifact_uploaded("v0", 'b', &v);
    fx_fails(version_withdraw(fx.db, "m", "v0", "bad", &out, &e), &e, ERR_CONFLICT, "verifying");
    fx_sql("TRUNCATE artifact CASCADE");
    versions_free(&v);
    artifact_published("v1", 'a', &v);
    ok(version_withdraw(fx.db, "m", "v1", "bad", &out, &e));
    is(&out, "withdrawn");
    versions_free(&out);
    assert_int_equal(version_withdraw(fx.db, "m", "v1", "worse", &out, &e), 1);
    assert_string_equal(out.row[0].reason, "bad");
    versions_free(&out);
    fx_fails(version_withdraw(fx.db, "m", "v9", "bad", &out, &e), &e, ERR_NOT_FOUND, "v9");
}

static void lists_and_files(void **state)
{
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_versions struct versions out = VERSIONS_INIT;
    cleanup_free char *text = artifact_text("v2", 'b');
    struct artifact_file_at f;
    struct err e = ERR_INIT;
    (void)state;

    ok(artifact_list(fx.db, &out, &e));
    assert_int_equal(out.n, 0);
    versions_free(&out);
    fx_fails(version_list(fx.db, "m", &out, &e), &e, ERR_NOT_FOUND, "m");
    artifact_published("v1", 'a', &v);
    versions_free(&v);
    ok(artifact_announce(fx.db, text, &v, &e));
    ok(version_list(fx.db, "m", &out, &e));
    assert_int_equal(out.n, 2);
    assert_string_equal(out.row[0].version, "v2");
    versions_free(&out);
    ok(artifact_list(fx.db, &out, &e));
    assert_int_equal(out.n, 1);
    assert_string_equal(out.row[0].version, "v1");
    ok(version_file(fx.db, "m", "v1", "f", &f, &e));
    assert_int_equal(f.size, 1048580);
    assert_string_equal(f.state, "published");
    fx_fails(version_file(fx.db, "m", "v1", "g", &f, &e), &e, ERR_NOT_FOUND, "no file g");
    fx_fails(version_file(fx.db, "m", "v9", "f", &f, &e), &e, ERR_NOT_FOUND, "v9");
}

/* --- whoever writes --- */

static void refused(const char *sql)
{
    PGconn *c = PQconnectdb(fx.stores.url);
    PGresult *r = PQexec(c, sql);
    const ExecStatusType status = PQresultStatus(r);
    PQclear(r);
    PQfinish(c);
    if (status != PGRES_FATAL_ERROR)
        fail_msg("Postgres took: %s", sql);
}

static void the_tables_hold_the_rules_whoever_writes(void **state)
{
    cleanup_versions struct versions v = VERSIONS_INIT;
    cleanup_versions struct versions w = VERSIONS_INIT;
    cleanup_free char *text = artifact_text("v2", 'b');
    struct err e = ERR_INIT;
    (void)state;

    artifact_published("v1", 'a', &v);
    ok(artifact_announce(fx.db, text, &w, &e));
    artifact_node("n1");
    refused("UPDATE artifact_version SET manifest = 'x' WHERE version = 'v1'");
    refused("UPDATE artifact_version SET version = 'v3' WHERE version = 'v1'");
    refused("DELETE FROM artifact_version WHERE version = 'v2'");
    refused(
        "UPDATE artifact_version SET state = 'uploading', published_at = NULL WHERE version = 'v1'");
    refused(
        "UPDATE artifact_version SET state = 'published', published_at = now() WHERE version = 'v2'");
    refused(
        "UPDATE artifact_version SET state = 'verifying' WHERE version = 'v2'"); /* shards are missing */
    refused(
        "UPDATE artifact_version SET state = 'withdrawn', withdrawn_at = now() WHERE version = 'v1'"); /* no reason */
    refused(
        "INSERT INTO assignment (node, version_id) SELECT 'n1', id FROM artifact_version WHERE version = 'v2'");
    fx_sql(
        "INSERT INTO assignment (node, version_id) SELECT 'n1', id FROM artifact_version WHERE version = 'v1'");
    refused("UPDATE assignment SET state = 'landed'"); /* no receipt */
    refused("UPDATE assignment SET attempts = 5");
    refused(
        "UPDATE assignment SET version_id = (SELECT id FROM artifact_version WHERE version = 'v2')");
    refused(
        "INSERT INTO receipt (assignment, version_id, digest, bytes_fetched, bytes_avoided, per_source, retries, phases,"
        " took_ms) SELECT id, version_id, 'sha256:other', 0, 0, '{}', '{}', '{}', 0 FROM assignment");
    refused("INSERT INTO node (name) VALUES ('../x')");
    refused("INSERT INTO artifact (name, kind) VALUES ('x', 'poem')");
}

/* --- races --- */

enum { PUBLISHERS = 4, ROUNDS = 10 };

struct publisher {
    const char *text;
    int result;
    struct err e;
};

static void *announce_once(void *ctx)
{
    struct publisher *p = ctx;
    cleanup_versions struct versions v = VERSIONS_INIT;
    struct db *db = fx_new_db();
    p->result = artifact_announce(db, p->text, &v, &p->e);
    db_close(db);
    return NULL;
}

/* Of publishers of the same bytes one made it and the others find it; of other bytes all are refused. */
static void one_of_many_publishers_makes_the_version(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        cleanup_free char *same = artifact_text("v1", 'a');
        cleanup_free char *other = artifact_text("v1", 'b');
        struct publisher p[PUBLISHERS];
        pthread_t t[PUBLISHERS];
        int made = 0;
        int conflicts = 0;
        for (int i = 0; i < PUBLISHERS; i++) {
            p[i] = (struct publisher){ .text = i % 2 == 0 ? same : other, .e = ERR_INIT };
            assert_int_equal(pthread_create(&t[i], NULL, announce_once, &p[i]), 0);
        }
        for (int i = 0; i < PUBLISHERS; i++) {
            pthread_join(t[i], NULL);
            made += p[i].result == 0;
            conflicts += p[i].result < 0 && p[i].e.code == ERR_CONFLICT;
        }
        assert_int_equal(made, 1);
        assert_int_equal(conflicts, PUBLISHERS / 2);
        fx_value("SELECT count(*) FROM artifact_shard", "2");
        fx_sql("TRUNCATE artifact CASCADE");
    }
}

struct sender {
    int64_t id;
    const char *part;
    int shard;
    bool verifying;
    int result;
};

static void *send_once(void *ctx)
{
    struct sender *s = ctx;
    char hex[DIGEST_HEX_SIZE];
    struct err e = ERR_INIT;
    struct db *db = fx_new_db();
    artifact_shard_of('a', s->shard, hex);
    s->result = shard_landed(db, s->id, s->part, hex, &s->verifying, &e);
    db_close(db);
    return NULL;
}

/* Neither waits for the other's shard for ever. */
static void the_last_two_shards_at_once_begin_the_verification(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        cleanup_free char *text = artifact_text("v1", 'a');
        cleanup_versions struct versions v = VERSIONS_INIT;
        struct err e = ERR_INIT;
        pthread_t t[2];
        ok(artifact_announce(fx.db, text, &v, &e));
        struct sender s[2] = { { .id = v.row[0].id, .part = v.row[0].part, .shard = 0 },
            { .id = v.row[0].id, .part = v.row[0].part, .shard = 1 } };
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&t[i], NULL, send_once, &s[i]), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(t[i], NULL);
        assert_int_equal(s[0].result, 0);
        assert_int_equal(s[1].result, 0);
        assert_int_equal(s[0].verifying + s[1].verifying, 1);
        fx_value("SELECT state FROM artifact_version", "verifying");
        fx_sql("TRUNCATE artifact CASCADE");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(all_statements_are_taken),
        FX_BOTH(a_version_goes_from_its_manifest_to_published),
        FX_BOTH(other_bytes_of_the_same_name_are_a_conflict),
        FX_BOTH(what_is_held_is_not_missing),
        FX_BOTH(what_was_never_published_begins_anew),
        FX_BOTH(uploads_that_stand_still_are_dropped),
        FX_BOTH(a_version_is_one_judges),
        FX_BOTH(a_version_that_is_locked_while_the_gate_looks_is_due_at_once),
        FX_BOTH(withdrawing),
        FX_BOTH(lists_and_files),
        FX_BOTH(the_tables_hold_the_rules_whoever_writes),
        FX_BOTH(one_of_many_publishers_makes_the_version),
        FX_BOTH(the_last_two_shards_at_once_begin_the_verification),
    };
    return cmocka_run_group_tests(tests, artifacts_setup, fx_teardown);
}
