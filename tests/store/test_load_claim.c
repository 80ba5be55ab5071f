/* SPDX-License-Identifier: Apache-2.0 */

/* Who owns a load: operations contract, section 5, claims and liveness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/load_job.h"
#include "tests/store/load_fixture.h"

enum { CLAIMANTS = 8, CLAIM_ROUNDS = 100 };

static const struct load_claimant ALICE = { .owner = "alice", .overlay_claim = "" };
static const struct load_claimant BOB = { .owner = "bob", .overlay_claim = "" };

static void a_claim_makes_a_fresh_pending_row(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE] = "";
    char short_claim[CLAIM_SHORT_SIZE];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    ok(load_claim(fx.db, "org/model@q4", &ALICE, &out, token, &e));
    assert_int_equal(strlen(token), TOKEN_HEX_SIZE - 1);
    assert_int_equal(out.n, 1);
    assert_string_equal(out.row[0].key, "org/model@q4");
    assert_int_equal(out.row[0].state, LOAD_PENDING);
    assert_string_equal(out.row[0].owner, "alice");
    assert_int_equal(out.row[0].started_us, 0);
    assert_int_equal(out.row[0].bytes_sent, 0);
    load_claim_short(token, short_claim);
    assert_string_equal(out.row[0].claim, short_claim);
    assert_true(out.now_us >= out.row[0].created_us && out.row[0].created_us > 0);
    fx_value("SELECT count(*) FROM load_job_claims WHERE token_sha256 ~ '^[0-9a-f]{64}$'", "1");
    char sql[200]; /* the token itself is kept nowhere */
    (void)str_format(
        sql, sizeof sql, "SELECT count(*) FROM load_job_claims WHERE token_sha256 = '%s'", token);
    fx_value(sql, "0");
}

static void a_claimed_load_is_shown_to_the_next_caller(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char second[TOKEN_HEX_SIZE] = "untouched";
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    assert_int_equal(load_claim(fx.db, "m", &BOB, &out, second, &e), 1);
    assert_string_equal(second, "untouched");
    assert_int_equal(out.n, 1);
    assert_string_equal(out.row[0].owner, "alice");
}

struct claimant {
    pthread_barrier_t *start;
    struct db *db;
    int won[CLAIM_ROUNDS];
    char token[CLAIM_ROUNDS][TOKEN_HEX_SIZE];
};

static void round_key(char key[32], int round)
{
    (void)str_format(key, 32, "race-%d", round);
}

static void *claim_many(void *arg)
{
    struct claimant *c = arg;
    for (int i = 0; i < CLAIM_ROUNDS; i++) {
        struct err e = ERR_INIT;
        cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
        char key[32];
        round_key(key, i);
        pthread_barrier_wait(c->start);
        c->won[i] = load_claim(c->db, key, &ALICE, &out, c->token[i], &e);
    }
    return NULL;
}

/* Eight callers at one moment, a hundred times, on a new key or on the row of a dead owner. */
static void race(void)
{
    static struct claimant claimant[CLAIMANTS];
    pthread_t thread[CLAIMANTS];
    pthread_barrier_t start;

    pthread_barrier_init(&start, NULL, CLAIMANTS);
    for (int i = 0; i < CLAIMANTS; i++) {
        claimant[i].start = &start;
        claimant[i].db = fx_new_db();
        assert_int_equal(pthread_create(&thread[i], NULL, claim_many, &claimant[i]), 0);
    }
    for (int i = 0; i < CLAIMANTS; i++)
        pthread_join(thread[i], NULL);
    for (int round = 0; round < CLAIM_ROUNDS; round++) {
        int winner = -1;
        for (int i = 0; i < CLAIMANTS; i++) {
            assert_in_range(claimant[i].won[round], 0, 1);
            if (claimant[i].won[round] == 0) {
                assert_int_equal(winner, -1);
                winner = i;
            }
        }
        assert_int_not_equal(winner, -1);
        struct err e = ERR_INIT; /* and the winner's token is the one that counts */
        char key[32];
        round_key(key, round);
        ok(load_done(fx.db, LOAD_OWNED(key, claimant[winner].token[round]), &e));
    }
    for (int i = 0; i < CLAIMANTS; i++)
        db_close(claimant[i].db);
    pthread_barrier_destroy(&start);
}

struct late_claim {
    struct db *db;
    int result;
    struct err e;
    atomic_bool over;
};

static void *claim_late(void *arg)
{
    struct late_claim *c = arg;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    char token[TOKEN_HEX_SIZE];
    c->result = load_claim(c->db, "m", &ALICE, &out, token, &c->e);
    atomic_store(&c->over, true);
    return NULL;
}

/* Somebody is about to take it, for longer than a lock is waited for, and does not. */
static void a_claim_outlasts_one_that_comes_to_nothing(void **state)
{
    stores_want_session(&fx.stores);
    struct late_claim c = { .db = fx.db, .e = ERR_INIT };
    pthread_t thread;
    (void)state;
    if (!fx.prepared)
        skip(); /* without settings of the session only the deadline ends the wait */
    PGconn *other = PQconnectdb(fx.stores.url);
    PQclear(PQexec(other, "BEGIN; INSERT INTO model_load_jobs (tracking_key, state)"
                          " VALUES ('m', 'pending')"));
    assert_int_equal(pthread_create(&thread, NULL, claim_late, &c), 0);
    const bool again = stores_waits_again(&fx.stores, &c.over);
    PQfinish(other);
    pthread_join(thread, NULL);
    fx_ok(c.result, &c.e, "the claim");
    assert_true(again);
}

static void of_many_claims_at_one_moment_exactly_one_wins(void **state)
{
    (void)state;
    race();
}

static void of_many_claims_of_a_dead_owners_load_exactly_one_wins(void **state)
{
    (void)state;
    fx_sql(
        "INSERT INTO model_load_jobs (tracking_key, state, owner_replica, created_at, updated_at)"
        " SELECT 'race-' || n, 'staging', 'dead', now() - interval '1 hour',"
        " now() - interval '61 seconds' FROM generate_series(0, 99) n");
    race();
}

static void an_orphan_is_replaced_and_leaves_nothing(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    fx_sql(
        "INSERT INTO model_load_jobs VALUES ('m', 'staging', 'dead', 'n1', 'node-1', 3, 80, 100, 4, 5,"
        " now() - interval '1 hour', now() - interval '61 seconds', now() - interval '1 hour',"
        " now() - interval '2 minutes', 'old error')");
    ok(load_claim(fx.db, "m", &BOB, &out, token, &e));
    const struct load_row *r = &out.row[0];
    assert_int_equal(r->state, LOAD_PENDING);
    assert_string_equal(r->owner, "bob");
    assert_string_equal(r->node_id, "");
    assert_string_equal(r->node_name, "");
    assert_string_equal(r->last_error, "");
    assert_int_equal(r->replica_index, 0);
    assert_int_equal(r->bytes_sent, 0);
    assert_int_equal(r->total_bytes, 0);
    assert_int_equal(r->file_index, 0);
    assert_int_equal(r->total_files, 0);
    assert_int_equal(r->started_us, 0);
}

static void a_load_alive_within_the_minute_is_not_replaced(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char second[TOKEN_HEX_SIZE];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    fx_sql("UPDATE model_load_jobs SET last_progress = now() - interval '50 seconds',"
           " updated_at = '0001-01-01Z', created_at = created_at");
    assert_int_equal(load_claim(fx.db, "m", &BOB, &out, second, &e), 1);
}

static void a_live_overlay_of_its_claim_keeps_an_orphan(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char second[TOKEN_HEX_SIZE];
    char short_claim[CLAIM_SHORT_SIZE];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    fx_claim("m", "alice", token);
    fx_age("m", "61 seconds");
    load_claim_short(token, short_claim);
    const struct load_claimant seen = { .owner = "bob", .overlay_claim = short_claim };
    assert_int_equal(load_claim(fx.db, "m", &seen, &out, second, &e), 1);
    load_rows_free(&out);
    const struct load_claimant other = { .owner = "bob", .overlay_claim = "0123456789abcdef" };
    ok(load_claim(fx.db, "m", &other, &out, second, &e));
    assert_string_equal(out.row[0].owner, "bob");
}

static void an_old_token_is_refused_after_replacement(void **state)
{
    struct err e = ERR_INIT;
    char old[TOKEN_HEX_SIZE];
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;
    u.state = "staging";
    u.bytes_sent = 99;

    (void)state;
    fx_claim("m", "alice", old);
    fx_age("m", "61 seconds");
    fx_claim("m", "bob", token);
    fx_fails(
        load_update(fx.db, LOAD_OWNED("m", old), &u, &out, &changed, &e), &e, ERR_CONFLICT, "bob");
    assert_null(out.row);
    fx_fails(load_fail(fx.db, LOAD_OWNED("m", old), "x", &e), &e, ERR_CONFLICT, "bob");
    fx_fails(load_done(fx.db, LOAD_OWNED("m", old), &e), &e, ERR_CONFLICT, "bob");
    fx_value("SELECT state || bytes_sent FROM model_load_jobs", "pending0");
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
}

/* LocalAI's programs know nothing of claims: they delete and insert by key. */
static void a_stale_claim_does_not_govern_a_row_inserted_later(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    cleanup_load_rows struct load_rows got = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;
    u.bytes_sent = 5;

    (void)state;
    fx_claim("m", "alice", token);
    fx_sql("DELETE FROM model_load_jobs");
    fx_fails(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e), &e, ERR_CONFLICT,
        "gone");
    assert_int_equal(load_done(fx.db, LOAD_OWNED("m", token), &e), 1);
    fx_sql(
        "INSERT INTO model_load_jobs (tracking_key, state, owner_replica, created_at, updated_at)"
        " VALUES ('m', 'staging', 'front-1', now(), now())");
    fx_fails(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e), &e, ERR_CONFLICT,
        "front-1");
    fx_fails(load_done(fx.db, LOAD_OWNED("m", token), &e), &e, ERR_CONFLICT, "front-1");
    ok(load_get(fx.db, "m", &got, &e));
    assert_string_equal(got.row[0].claim, "");
    assert_int_equal(got.row[0].bytes_moved_us, 0);
}

static void a_load_started_by_localai_can_be_taken_over_when_dead(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;
    u.bytes_sent = 3;

    (void)state;
    fx_sql("INSERT INTO model_load_jobs (tracking_key, state, last_progress, created_at)"
           " VALUES ('m', 'staging', '0001-01-01Z', now() - interval '2 minutes')");
    fx_claim("m", "alice", token);
    ok(load_update(fx.db, LOAD_OWNED("m", token), &u, &out, &changed, &e));
    assert_true(changed);
}

/* A commit refused by the server leaves nothing of the claim. */
static void a_claim_that_fails_half_way_leaves_nothing(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE] = "untouched";
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    fx_sql("ALTER TABLE load_job_claims ADD CONSTRAINT no CHECK (false) NOT VALID");
    int result = load_claim(fx.db, "m", &ALICE, &out, token, &e);
    fx_sql("ALTER TABLE load_job_claims DROP CONSTRAINT no");
    fx_fails(result, &e, ERR_INVALID, "no");
    assert_string_equal(token, "untouched");
    fx_value("SELECT count(*) FROM model_load_jobs", "0");
    fx_claim("m", "alice", token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FX_BOTH(a_claim_makes_a_fresh_pending_row),
        FX_BOTH(a_claimed_load_is_shown_to_the_next_caller),
        FX_BOTH(a_claim_outlasts_one_that_comes_to_nothing),
        FX_BOTH(of_many_claims_at_one_moment_exactly_one_wins),
        FX_BOTH(of_many_claims_of_a_dead_owners_load_exactly_one_wins),
        FX_BOTH(an_orphan_is_replaced_and_leaves_nothing),
        FX_BOTH(a_load_alive_within_the_minute_is_not_replaced),
        FX_BOTH(a_live_overlay_of_its_claim_keeps_an_orphan),
        FX_BOTH(an_old_token_is_refused_after_replacement),
        FX_BOTH(a_stale_claim_does_not_govern_a_row_inserted_later),
        FX_BOTH(a_load_started_by_localai_can_be_taken_over_when_dead),
        FX_BOTH(a_claim_that_fails_half_way_leaves_nothing),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
