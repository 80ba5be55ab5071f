/* SPDX-License-Identifier: Apache-2.0 */
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
#include "tests/store/stores.h"

enum { CLAIMANTS = 8, CLAIM_ROUNDS = 100 };

static struct stores stores;
static bool prepared;
static struct db *db;

static const struct load_claimant ALICE = { .owner = "alice", .overlay_claim = "" };
static const struct load_claimant BOB = { .owner = "bob", .overlay_claim = "" };

static struct db *new_db(void)
{
    struct db_options o = stores_options(&stores, prepared, &LOAD_JOB_STMTS, 1);
    return db_new(&o);
}

static int setup(void **state)
{
    (void)state;
    stores_init(&stores, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stores_fini(&stores);
    return 0;
}

static int connect_on(void **state)
{
    (void)state;
    prepared = true;
    db = new_db();
    return 0;
}

static int connect_off(void **state)
{
    (void)state;
    prepared = false;
    db = new_db();
    return 0;
}

static int clear(void **state)
{
    (void)state;
    db_close(db);
    db = NULL;
    stores_sql(&stores, "TRUNCATE model_load_jobs, load_job_claims");
    return 0;
}

#define ok(call) assert_ok_((call), &e, #call)
static void assert_ok_(int result, const struct err *e, const char *what)
{
    if (result < 0)
        fail_msg("%s: %s: %s", what, err_name(e->code), e->msg);
    assert_int_equal(result, 0);
}

static void assert_fails(int result, const struct err *e, enum err_code code, const char *part)
{
    assert_int_equal(result, -1);
    if (e->code != code || strstr(e->msg, part) == NULL)
        fail_msg("%s: %s, where %s with \"%s\" was due", err_name(e->code), e->msg, err_name(code),
            part);
}

static void claim(const char *key, const struct load_claimant *who, char token[TOKEN_HEX_SIZE])
{
    struct err e = ERR_INIT;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    ok(load_claim(db, key, who, &out, token, &e));
}

static void assert_value(const char *sql, const char *expected)
{
    cleanup_free char *value = stores_value(&stores, sql);
    if (strcmp(value, expected) != 0)
        fail_msg("%s is '%s', not '%s'", sql, value, expected);
}

/* What the rules make of stored times is tried by shifting them: all stamps of the row, and the claim
 * with it, which is bound to the row's created_at. */
static void age(const char *key, const char *interval)
{
    char sql[800];
    assert_int_equal(
        str_format(sql, sizeof sql,
            "WITH j AS (UPDATE model_load_jobs SET last_progress = last_progress - interval '%s',"
            " updated_at = updated_at - interval '%s', created_at = created_at - interval '%s'"
            " WHERE tracking_key = '%s' RETURNING tracking_key, created_at)"
            " UPDATE load_job_claims c SET claimed_created_at = j.created_at FROM j"
            " WHERE c.tracking_key = j.tracking_key",
            interval, interval, interval, key),
        0);
    stores_sql(&stores, sql);
}

static void a_claim_makes_a_fresh_pending_row(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE] = "";
    char short_claim[CLAIM_SHORT_SIZE];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    ok(load_claim(db, "org/model@q4", &ALICE, &out, token, &e));
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
    assert_value("SELECT count(*) FROM load_job_claims WHERE token_sha256 ~ '^[0-9a-f]{64}$'", "1");
    char sql[200]; /* the token itself is kept nowhere */
    (void)str_format(
        sql, sizeof sql, "SELECT count(*) FROM load_job_claims WHERE token_sha256 = '%s'", token);
    assert_value(sql, "0");
}

static void a_claimed_load_is_shown_to_the_next_caller(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char second[TOKEN_HEX_SIZE] = "untouched";
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    claim("m", &ALICE, token);
    assert_int_equal(load_claim(db, "m", &BOB, &out, second, &e), 1);
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
        claimant[i].db = new_db();
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
        ok(load_done(db, key, claimant[winner].token[round], &e));
    }
    for (int i = 0; i < CLAIMANTS; i++)
        db_close(claimant[i].db);
    pthread_barrier_destroy(&start);
}

static void of_many_claims_at_one_moment_exactly_one_wins(void **state)
{
    (void)state;
    race();
}

static void of_many_claims_of_a_dead_owners_load_exactly_one_wins(void **state)
{
    (void)state;
    stores_sql(&stores,
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
    stores_sql(&stores,
        "INSERT INTO model_load_jobs VALUES ('m', 'staging', 'dead', 'n1', 'node-1', 3, 80, 100, 4, 5,"
        " now() - interval '1 hour', now() - interval '61 seconds', now() - interval '1 hour',"
        " now() - interval '2 minutes', 'old error')");
    ok(load_claim(db, "m", &BOB, &out, token, &e));
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
    claim("m", &ALICE, token);
    stores_sql(&stores, "UPDATE model_load_jobs SET last_progress = now() - interval '50 seconds',"
                        " updated_at = '0001-01-01Z', created_at = created_at");
    assert_int_equal(load_claim(db, "m", &BOB, &out, second, &e), 1);
}

static void a_live_overlay_of_its_claim_keeps_an_orphan(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char second[TOKEN_HEX_SIZE];
    char short_claim[CLAIM_SHORT_SIZE];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    claim("m", &ALICE, token);
    age("m", "61 seconds");
    load_claim_short(token, short_claim);
    const struct load_claimant seen = { .owner = "bob", .overlay_claim = short_claim };
    assert_int_equal(load_claim(db, "m", &seen, &out, second, &e), 1);
    load_rows_free(&out);
    const struct load_claimant other = { .owner = "bob", .overlay_claim = "0123456789abcdef" };
    ok(load_claim(db, "m", &other, &out, second, &e));
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
    claim("m", &ALICE, old);
    age("m", "61 seconds");
    claim("m", &BOB, token);
    assert_fails(load_update(db, "m", old, &u, &out, &changed, &e), &e, ERR_CONFLICT, "bob");
    assert_null(out.row);
    assert_fails(load_fail(db, "m", old, "x", &e), &e, ERR_CONFLICT, "bob");
    assert_fails(load_done(db, "m", old, &e), &e, ERR_CONFLICT, "bob");
    assert_value("SELECT state || bytes_sent FROM model_load_jobs", "pending0");
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
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
    claim("m", &ALICE, token);
    stores_sql(&stores, "DELETE FROM model_load_jobs");
    assert_fails(load_update(db, "m", token, &u, &out, &changed, &e), &e, ERR_CONFLICT, "gone");
    assert_int_equal(load_done(db, "m", token, &e), 1);
    stores_sql(&stores,
        "INSERT INTO model_load_jobs (tracking_key, state, owner_replica, created_at, updated_at)"
        " VALUES ('m', 'staging', 'front-1', now(), now())");
    assert_fails(load_update(db, "m", token, &u, &out, &changed, &e), &e, ERR_CONFLICT, "front-1");
    assert_fails(load_done(db, "m", token, &e), &e, ERR_CONFLICT, "front-1");
    ok(load_get(db, "m", &got, &e));
    assert_string_equal(got.row[0].claim, "");
    assert_int_equal(got.row[0].bytes_moved_us, 0);
}

static void missing_and_empty_fields_leave_stored_ones_alone(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    claim("m", &ALICE, token);
    struct load_update first = { .state = "staging",
        .node_id = "n1",
        .node_name = "node-1",
        .replica_index = 2,
        .bytes_sent = 10,
        .total_bytes = 100,
        .file_index = 1,
        .total_files = 3 };
    ok(load_update(db, "m", token, &first, &out, &changed, &e));
    assert_true(changed);
    load_rows_free(&out);
    age("m", "2 seconds");
    u.state = "";
    u.node_id = "";
    u.node_name = "";
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_false(changed);
    const struct load_row *r = &out.row[0];
    assert_int_equal(r->state, LOAD_STAGING);
    assert_string_equal(r->node_id, "n1");
    assert_string_equal(r->node_name, "node-1");
    assert_int_equal(r->replica_index, 2);
    assert_int_equal(r->bytes_sent, 10);
    assert_int_equal(r->total_bytes, 100);
    assert_int_equal(r->file_index, 1);
    assert_int_equal(r->total_files, 3);
    assert_value("SELECT concat_ws('|', state, node_id, node_name, replica_index, bytes_sent,"
                 " total_bytes, file_index, total_files) FROM model_load_jobs",
        "staging|n1|node-1|2|10|100|1|3");
}

static void bytes_are_written_once_a_second_but_always_answered(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    claim("m", &ALICE, token);
    u.state = "staging";
    u.total_bytes = 100;
    u.bytes_sent = 1;
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    /* far enough ahead that no slowness of this machine makes the next write due */
    stores_sql(&stores, "UPDATE model_load_jobs SET last_progress = now() + interval '1 hour'");
    u.bytes_sent = 50;
    load_rows_free(&out);
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_false(changed);
    assert_int_equal(out.row[0].bytes_sent, 50);
    assert_value("SELECT bytes_sent FROM model_load_jobs", "1");
    u.node_id = "n2"; /* where the load is is never held back */
    load_rows_free(&out);
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_value("SELECT bytes_sent || node_id FROM model_load_jobs", "50n2");

    u.bytes_sent = 60;
    age("m", "2 seconds");
    load_rows_free(&out);
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_false(changed);
    assert_value("SELECT bytes_sent FROM model_load_jobs", "60");
}

static void first_bytes_and_a_new_state_are_written_at_once(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    claim("m", &ALICE, token);
    u.state = "staging";
    u.bytes_sent = 0;
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_true(changed);
    assert_int_equal(out.row[0].started_us, 0);
    stores_sql(&stores, "UPDATE model_load_jobs SET last_progress = now() + interval '1 hour'");
    u.bytes_sent = 7;
    load_rows_free(&out);
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_true(changed);
    int64_t started = out.row[0].started_us;
    assert_true(started > 0);
    assert_value("SELECT bytes_sent FROM model_load_jobs WHERE started_at IS NOT NULL", "7");

    stores_sql(&stores, "UPDATE model_load_jobs SET last_progress = now() + interval '1 hour'");
    u.state = "loading";
    u.bytes_sent = 8;
    load_rows_free(&out);
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_true(changed);
    assert_int_equal(out.row[0].started_us, started); /* set once */
    assert_value("SELECT state || bytes_sent FROM model_load_jobs", "loading8");
}

/* A stall is measured from when bytes moved: neither a heartbeat nor a repeated value counts. */
static void heartbeats_do_not_count_as_bytes(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    claim("m", &ALICE, token);
    u.state = "staging";
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_true(out.row[0].bytes_moved_us > 0); /* from the start of staging on */
    stores_sql(&stores, "UPDATE load_job_claims SET bytes_moved_at = '2020-01-01Z'");
    age("m", "2 seconds");
    load_rows_free(&out);
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_value("SELECT bytes_moved_at = '2020-01-01Z' FROM load_job_claims", "t");
    assert_int_equal(out.row[0].bytes_moved_us, INT64_C(1577836800000000));
    assert_true(load_is_stalled(&out.row[0], out.now_us));

    u.bytes_sent = 1;
    load_rows_free(&out);
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_value("SELECT bytes_moved_at > '2020-01-02Z' FROM load_job_claims", "t");
    assert_false(load_is_stalled(&out.row[0], out.now_us));
}

static void a_failed_load_is_seen_for_15_s_and_then_gone(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char second[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    cleanup_load_rows struct load_rows all = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    claim("m", &ALICE, token);
    ok(load_fail(db, "m", token, "out of disk", &e));
    assert_fails(load_update(db, "m", token, &u, &out, &changed, &e), &e, ERR_CONFLICT, "failed");
    ok(load_get(db, "m", &out, &e));
    assert_int_equal(out.row[0].state, LOAD_FAILED);
    assert_string_equal(out.row[0].last_error, "out of disk");
    load_rows_free(&out);
    assert_int_equal(load_claim(db, "m", &BOB, &out, second, &e), 1);

    age("m", "16 seconds");
    load_rows_free(&out);
    assert_fails(load_get(db, "m", &out, &e), &e, ERR_NOT_FOUND, "m");
    ok(load_list(db, &out, &e));
    assert_int_equal(out.n, 0);
    ok(load_list_start(db, &e)); /* but it still hides an overlay of its key */
    ok(load_list_finish(db, &all, &e));
    assert_int_equal(all.n, 1);
    load_rows_free(&out);
    ok(load_claim(db, "m", &BOB, &out, second, &e));
    assert_string_equal(out.row[0].last_error, "");
}

static void a_long_reason_is_cut_at_a_whole_character(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    char reason[3 * 5000 + 1] = "";

    (void)state;
    for (size_t i = 0; i < sizeof reason - 1; i += 3)
        memcpy(reason + i, "\xe2\x82\xac", 3);
    claim("m", &ALICE, token);
    ok(load_fail(db, "m", token, reason, &e));
    assert_value("SELECT length(last_error) FROM model_load_jobs", "4000");
}

static void an_end_is_idempotent_and_takes_the_claim_along(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];

    (void)state;
    assert_int_equal(load_done(db, "m", "never claimed", &e), 1);
    claim("m", &ALICE, token);
    ok(load_done(db, "m", token, &e));
    assert_value("SELECT count(*) FROM model_load_jobs", "0");
    assert_value("SELECT count(*) FROM load_job_claims", "0");
    assert_int_equal(load_done(db, "m", token, &e), 1);
}

static void only_states_of_an_owner_are_taken(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    bool changed = false;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;
    struct load_update u = LOAD_UPDATE_INIT;

    (void)state;
    claim("m", &ALICE, token);
    u.state = "failed";
    assert_fails(load_update(db, "m", token, &u, &out, &changed, &e), &e, ERR_INVALID, "state");
    u.state = "ready";
    assert_fails(load_update(db, "m", token, &u, &out, &changed, &e), &e, ERR_INVALID, "state");
}

/* The client compares texts of two polls: C order, whatever the database collates by. */
static void the_list_is_in_byte_order(void **state)
{
    static const char *const KEYS[] = { "B", "a", "a b", "a/b", "a:b", "\xc3\xa4" };
    struct err e = ERR_INIT;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    ok(load_list(db, &out, &e));
    assert_int_equal(out.n, 0);
    assert_true(out.now_us > 0); /* the clock comes without rows too */
    load_rows_free(&out);
    stores_sql(&stores,
        "INSERT INTO model_load_jobs (tracking_key, state, updated_at) SELECT k, 'staging', now()"
        " FROM unnest(ARRAY['\xc3\xa4', 'a:b', 'B', 'a/b', 'a', 'a b']) k");
    ok(load_list(db, &out, &e));
    assert_int_equal(out.n, sizeof KEYS / sizeof KEYS[0]);
    for (size_t i = 0; i < out.n; i++)
        assert_string_equal(out.row[i].key, KEYS[i]);
}

/* As LocalAI's programs write rows: Go's zero time, and NULL everywhere else. */
static void go_zero_time_and_null_are_unset(void **state)
{
    struct err e = ERR_INIT;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    stores_sql(&stores,
        "INSERT INTO model_load_jobs (tracking_key, state, started_at, last_progress, created_at)"
        " VALUES ('go', 'staging', '0001-01-01 00:00:00Z', '0001-01-01 00:00:00Z',"
        " '2024-05-06 07:08:09.123456Z'), ('null', NULL, NULL, NULL, NULL),"
        " ('odd', 'ready', 'infinity', '-infinity', '290000-01-01Z')");
    ok(load_list(db, &out, &e));
    assert_int_equal(out.n, 3);
    assert_int_equal(out.row[0].started_us, 0);
    assert_int_equal(out.row[0].last_progress_us, 0);
    assert_int_equal(out.row[0].updated_us, 0);
    assert_int_equal(out.row[0].created_us, INT64_C(1714979289123456));
    assert_int_equal(out.row[1].state, LOAD_STATE__COUNT);
    assert_string_equal(out.row[1].node_name, "");
    assert_int_equal(out.row[1].bytes_sent, 0);
    assert_int_equal(load_liveness_us(&out.row[1], out.now_us), 0);
    assert_int_equal(out.row[2].state, LOAD_STATE__COUNT);
    assert_true(out.row[2].started_us > out.now_us);
    assert_int_equal(out.row[2].last_progress_us, 0);
    assert_int_equal(load_liveness_us(&out.row[2], out.now_us), out.now_us);
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
    stores_sql(&stores,
        "INSERT INTO model_load_jobs (tracking_key, state, last_progress, created_at)"
        " VALUES ('m', 'staging', '0001-01-01Z', now() - interval '2 minutes')");
    claim("m", &ALICE, token);
    ok(load_update(db, "m", token, &u, &out, &changed, &e));
    assert_true(changed);
}

static void the_clock_is_learnt_from_every_answer(void **state)
{
    struct err e = ERR_INIT;
    int64_t offset = 0;
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    ok(load_list(db, &out, &e));
    assert_true(db_clock_offset_us(&offset));
    assert_in_range(offset + 60 * US_PER_S, 0, 120 * US_PER_S); /* the same machine */
}

/* Beside a LocalAI that has not made its tables there are no loads, and reads say so. */
static void missing_tables_read_as_no_rows(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE];
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    stores_sql(&stores, "ALTER TABLE model_load_jobs RENAME TO elsewhere");
    ok(load_list(db, &out, &e));
    assert_int_equal(out.n, 0);
    ok(load_list_start(db, &e));
    ok(load_list_finish(db, &out, &e));
    assert_int_equal(out.n, 0);
    assert_fails(load_get(db, "m", &out, &e), &e, ERR_NOT_FOUND, "m");
    assert_fails(load_claim(db, "m", &ALICE, &out, token, &e), &e, ERR_UNAVAILABLE,
        "run weighbridge-migrate");
    stores_sql(&stores, "ALTER TABLE elsewhere RENAME TO model_load_jobs");
    claim("m", &ALICE, token); /* on the same connection */
    ok(load_list(db, &out, &e));
    assert_int_equal(out.n, 1);

    stores_sql(&stores, "ALTER TABLE load_job_claims RENAME TO elsewhere");
    load_rows_free(&out);
    int result = load_list(db, &out, &e);
    stores_sql(&stores, "ALTER TABLE elsewhere RENAME TO load_job_claims");
    assert_fails(result, &e, ERR_UNAVAILABLE, "run weighbridge-migrate"); /* ours: not migrated */
}

/* A commit refused by the server leaves nothing of the claim. */
static void a_claim_that_fails_half_way_leaves_nothing(void **state)
{
    struct err e = ERR_INIT;
    char token[TOKEN_HEX_SIZE] = "untouched";
    cleanup_load_rows struct load_rows out = LOAD_ROWS_INIT;

    (void)state;
    stores_sql(&stores, "ALTER TABLE load_job_claims ADD CONSTRAINT no CHECK (false) NOT VALID");
    int result = load_claim(db, "m", &ALICE, &out, token, &e);
    stores_sql(&stores, "ALTER TABLE load_job_claims DROP CONSTRAINT no");
    assert_fails(result, &e, ERR_INVALID, "no");
    assert_string_equal(token, "untouched");
    assert_value("SELECT count(*) FROM model_load_jobs", "0");
    claim("m", &ALICE, token);
}

/* What the prepared statements are checked for when the program starts, asked of all of them here. */
static void every_statement_can_be_prepared(void **state)
{
    (void)state;
    PGconn *c = PQconnectdb(stores.url);
    for (size_t i = 0; i < LOAD_JOB_STMTS.n; i++) {
        const struct db_stmt *s = &LOAD_JOB_STMTS.stmt[i];
        PGresult *made = PQprepare(c, s->name, s->sql, 0, NULL);
        if (PQresultStatus(made) != PGRES_COMMAND_OK)
            fail_msg("%s: %s", s->name, PQerrorMessage(c));
        PQclear(made);
        PGresult *described = PQdescribePrepared(c, s->name);
        assert_int_equal(PQresultStatus(described), PGRES_COMMAND_OK);
        assert_int_equal(PQnparams(described), s->args);
        PQclear(described);
    }
    PQfinish(c);
}

#define BOTH(test) \
    cmocka_unit_test_setup_teardown(test, connect_on, clear), \
        cmocka_unit_test_setup_teardown(test, connect_off, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_claim_makes_a_fresh_pending_row),
        BOTH(a_claimed_load_is_shown_to_the_next_caller),
        BOTH(of_many_claims_at_one_moment_exactly_one_wins),
        BOTH(of_many_claims_of_a_dead_owners_load_exactly_one_wins),
        BOTH(an_orphan_is_replaced_and_leaves_nothing),
        BOTH(a_load_alive_within_the_minute_is_not_replaced),
        BOTH(a_live_overlay_of_its_claim_keeps_an_orphan),
        BOTH(an_old_token_is_refused_after_replacement),
        BOTH(a_stale_claim_does_not_govern_a_row_inserted_later),
        BOTH(missing_and_empty_fields_leave_stored_ones_alone),
        BOTH(bytes_are_written_once_a_second_but_always_answered),
        BOTH(first_bytes_and_a_new_state_are_written_at_once),
        BOTH(heartbeats_do_not_count_as_bytes),
        BOTH(a_failed_load_is_seen_for_15_s_and_then_gone),
        BOTH(a_long_reason_is_cut_at_a_whole_character),
        BOTH(an_end_is_idempotent_and_takes_the_claim_along),
        BOTH(only_states_of_an_owner_are_taken),
        BOTH(the_list_is_in_byte_order),
        BOTH(go_zero_time_and_null_are_unset),
        BOTH(a_load_started_by_localai_can_be_taken_over_when_dead),
        BOTH(the_clock_is_learnt_from_every_answer),
        BOTH(missing_tables_read_as_no_rows),
        BOTH(a_claim_that_fails_half_way_leaves_nothing),
        BOTH(every_statement_can_be_prepared),
    };
    (void)stores_pgurl();
    return cmocka_run_group_tests(tests, setup, teardown);
}
