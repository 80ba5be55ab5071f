/* SPDX-License-Identifier: Apache-2.0 */

/* Verbs of artifacts and assignments whose connection breaks at any of their statements: they say so, nothing of them
 * remains, and said again they do what they are for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/fake/libpq_fails.h"
#include "tests/store/artifact_fixture.h"

enum { STATEMENTS_MAX = 12 };

static char *all_rows(void)
{
    return stores_value(&fx.stores,
        "SELECT concat_ws('|', (SELECT string_agg(t::text, ' ' ORDER BY t.id) FROM artifact_version t),"
        " (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM artifact_shard t),"
        " (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM assignment t),"
        " (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM receipt t),"
        " (SELECT string_agg(concat(t.assignment, t.attempt, t.reason), ' ') FROM assignment_failure t))");
}

static struct versions version;
static struct assignments assigned;

static int announce(struct err *e)
{
    cleanup_free char *text = artifact_text("v1", 'a');
    cleanup_versions struct versions out = VERSIONS_INIT;
    return artifact_announce(fx.db, text, &out, e) < 0 ? -1 : 0;
}

static int land_shard(struct err *e)
{
    char hex[DIGEST_HEX_SIZE];
    bool verifying = false;
    artifact_shard_of('a', 0, hex);
    return shard_landed(fx.db, version.row[0].id, version.row[0].part, hex, &verifying, e);
}

static int spoil(struct err *e)
{
    char hex[DIGEST_HEX_SIZE];
    artifact_shard_of('a', 0, hex);
    return shard_spoiled(fx.db, version.row[0].id, version.row[0].id, hex, e);
}

static int reject(struct err *e)
{
    return gate_reject(fx.db, version.row[0].id, "gate", "bad", e);
}

static int receive(struct err *e)
{
    cleanup_assignments struct assignments out = ASSIGNMENTS_INIT;
    const struct receipt r = { assigned.row[0].digest, "{}", "{}", "{}", 1, 2 };
    return assignment_receive(fx.db, "n1", assigned.row[0].id, &r, &out, e) < 0 ? -1 : 0;
}

static int fail_attempt(struct err *e)
{
    cleanup_assignments struct assignments out = ASSIGNMENTS_INIT;
    const struct attempt_failure f = { "retryable", "timeout", "" };
    return assignment_fail(fx.db, "n1", assigned.row[0].id, &f, &out, e);
}

static void nothing(void)
{
}

static void announced(void)
{
    cleanup_free char *text = artifact_text("v1", 'a');
    struct err e = ERR_INIT;
    ok(artifact_announce(fx.db, text, &version, &e));
}

static void uploaded(void)
{
    artifact_uploaded("v1", 'a', &version);
    fx_sql(
        "UPDATE artifact_version SET gate_holder = 'gate', gate_until = now() + interval '1 minute'");
}

static void given(void)
{
    artifact_published("v1", 'a', &version);
    artifact_assigned("n1", "v1", &assigned);
}

static void breaks_anywhere(void (*scene)(void), int (*verb)(struct err *e))
{
    bool whole = false;
    for (int n = 0; n < STATEMENTS_MAX && !whole; n++) {
        struct err e = ERR_INIT;
        scene();
        cleanup_free char *before = all_rows();
        libpq_fails(LIBPQ_SEND, n);
        const int rc = verb(&e);
        whole = !libpq_failed();
        cleanup_free char *after = all_rows();
        if (!whole && rc < 0) {
            assert_int_equal(e.code, ERR_UNAVAILABLE);
            /* What was committed before the answer was read back stays; it is the whole of it. */
            if (strcmp(before, after) != 0) {
                e = (struct err)ERR_INIT;
                (void)!verb(&e);
            } else {
                assert_int_equal(verb(&e), 0);
            }
        } else {
            assert_int_equal(rc, 0);
        }
        cleanup_free char *done = all_rows();
        assert_string_not_equal(before, done);
        versions_free(&version);
        assignments_free(&assigned);
        fx_sql(fx.clear);
        db_close(fx.db);
        fx.db = fx_new_db();
    }
    assert_true(whole);
}

static void every_verb_is_all_or_nothing(void **state)
{
    (void)state;
    breaks_anywhere(nothing, announce);
    breaks_anywhere(announced, land_shard);
    breaks_anywhere(uploaded, spoil);
    breaks_anywhere(uploaded, reject);
    breaks_anywhere(given, receive);
    breaks_anywhere(given, fail_attempt);
}

int main(void)
{
    const struct CMUnitTest tests[] = { FX_BOTH(every_verb_is_all_or_nothing) };
    return cmocka_run_group_tests(tests, artifacts_setup, fx_teardown);
}
